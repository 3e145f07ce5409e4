/*
 * write_cache.c: writes from outside the process to files of a cache, modeled on the kernel's files (`kmem fs`,
 * cache/mailbox.h). Invariants: all numbers are validated before any change. A write to a cache also applies to the
 * caches tuned with the cache; a dependent cache keeps the old value after a refusal.
 */
#include <errno.h>

#include "base/text.h"
#include "cache/cache.h"
#include "cache/mailbox.h"
#include "os/die.h"
#include "write_cache.h"

#define MOST_NUMBERS	3u

struct writing {
	const struct kmem_mail_request *request;
	unsigned long number[MOST_NUMBERS];
	unsigned count;			/* number of caches of the name */
	int result;
};

/* Returns: the number of arguments of a command, or MOST_NUMBERS + 1 for an unknown command. */
static unsigned numbers_of(uint32_t command)
{
	switch (command) {
	case KMEM_MAIL_MIN_PARTIAL:
	case KMEM_MAIL_DEFRAG_RATIO:
	case KMEM_MAIL_SHEAF_CAPACITY:
	case KMEM_MAIL_CPU_PARTIAL:
		return 1;
	case KMEM_MAIL_TUNE:
		return 3;
	case KMEM_MAIL_CLEAR:
		return 0;
	default:
		return MOST_NUMBERS + 1;
	}
}

/* Parse exactly `count` decimal numbers, separated by single blanks. */
static bool parse(const char *text, unsigned long *number, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if ((i && *text++ != ' ') || !km_text_number(&text, UINT32_MAX, &number[i]))
			return false;
	return !*text;
}

bool km_written_fits(const struct kmem_mail_request *request)
{
	unsigned long number[MOST_NUMBERS];
	unsigned count = numbers_of(request->command);

	return count <= MOST_NUMBERS && request->cache[0] && parse(request->letters, number, count);
}

/* Kernel: once a cache matches, values refused by slabinfo are ignored. */
static int tune(struct kmem_cache *cache, const unsigned long *number)
{
	if (!number[0] || !number[1] || number[1] > number[0])
		return 0;
	return km_cache_tune_locked(cache, (unsigned)number[0], (unsigned)number[1], (unsigned)number[2]);
}

/* Kernel, since 7.0: per-CPU partial slabs do not exist, and only 0 may be written. */
static int set_cpu_partial(struct kmem_cache *cache, unsigned long objects)
{
	if (!cache->layout.engine->chain.set_cpu_partial)
		return objects ? -EINVAL : 0;
	return cache->layout.engine->chain.set_cpu_partial(cache, objects);
}

static int apply(struct kmem_cache *cache, const struct writing *writing)
{
	unsigned long number = writing->number[0];

	switch (writing->request->command) {
	case KMEM_MAIL_MIN_PARTIAL:
		return kmem_cache_set_min_partial(cache, number);
	case KMEM_MAIL_DEFRAG_RATIO:
		return kmem_cache_set_remote_node_defrag_ratio(cache, (unsigned)number);
	case KMEM_MAIL_SHEAF_CAPACITY:
		return km_cache_set_capacity(cache, (unsigned)number);
	case KMEM_MAIL_CPU_PARTIAL:
		return set_cpu_partial(cache, number);
	case KMEM_MAIL_TUNE:
		return tune(cache, writing->number);
	default:
		kmem_cache_clear_events(cache);
		return 0;
	}
}

static bool is_named(const struct kmem_cache *cache, const char *name)
{
	return !cache->ext.shadow_of && __builtin_strcmp(cache->registry.name, name) == 0;
}

/* Returns: true if the cache has the name, or is tuned with a cache of the name. */
static bool is_meant(const struct kmem_cache *cache, const char *name)
{
	for (; cache; cache = cache->tune.tuned_with)
		if (is_named(cache, name))
			return true;
	return false;
}

static int visit(struct kmem_cache *cache, void *arg)
{
	struct writing *writing = arg;
	const char *name = writing->request->cache;

	if (!is_meant(cache, name))
		return 0;
	km_debug(!cache->layout.dead, "a written cache exists");
	int error = apply(cache, writing);
	km_debug(error <= 0, "a write is accepted, or refused with an error");
	if (is_named(cache, name)) {
		writing->count++;
		writing->result = writing->result ?: error;
	}
	return 0;
}

int km_written_serve(const struct kmem_mail_request *request)
{
	struct writing writing = { .request = request };

	km_debug(km_thread.busy && km_written_fits(request), "the serving thread is busy, and has checked the request");
	parse(request->letters, writing.number, numbers_of(request->command));
	km_registry_each(visit, &writing);
	return writing.count ? writing.result : -ENOENT;
}
