/*
 * tune.c: settings of a cache that may change at run time: min_partial and its rule, the share of searches on other
 * nodes, the limit in bytes, and limit, batchcount and shared factor, by call or in the format of /proc/slabinfo;
 * also name and size. Invariants: one thread tunes at a time, under the registry's lock; a failed call changes
 * nothing; a change of a cache also applies to caches tuned with the cache. Kernel: the same while groups had caches
 * of their own (until 5.9).
 */
#include "base/text.h"
#include <errno.h>

#include "cache.h"

#define MAX_WORDS 128u	/* most bytes of a text to parse. Kernel: MAX_SLABINFO_WRITE */

struct tuning {
	const struct kmem_cache *cache;	/* the cache to tune; NULL: all caches of `name` */
	const char *name;
	size_t name_length;
	unsigned limit, batchcount, shared;
	int result;
};

static bool is_meant(const struct kmem_cache *cache, const struct tuning *tuning)
{
	if (tuning->cache)
		return cache == tuning->cache;
	return __builtin_strlen(cache->registry.name) == tuning->name_length &&
	       __builtin_memcmp(cache->registry.name, tuning->name, tuning->name_length) == 0;
}

static bool is_valid(const struct tuning *tuning)
{
	return tuning->limit && tuning->batchcount && tuning->batchcount <= tuning->limit;
}

static int tune_one(struct kmem_cache *cache, const struct tuning *tuning)
{
	int result = !cache->layout.engine->array.tune ? -EOPNOTSUPP :
		     cache->layout.engine->array.tune(cache, tuning->limit, tuning->batchcount, tuning->shared);

	if (!result) {
		km_debug(km_thread.busy && tuning->batchcount <= tuning->limit,
			 "a tuning thread keeps signal handlers out");
		km_alloc_set_limit(cache, tuning->limit);
		/* The cached objects go to their slabs, as those of the old arrays in the kernel. */
		km_alloc_drain(cache);
	}
	return result;
}

/* Tune a follower. Without memory the follower keeps its old settings. */
static int tune_led(struct kmem_cache *cache, void *arg)
{
	const struct tuning *tuning = arg;

	if (cache != tuning->cache && km_tuned_with(cache, tuning->cache)) {
		km_debug(cache->layout.engine == tuning->cache->layout.engine, "caches tuned together have one engine");
		tune_one(cache, tuning);
	}
	return 0;
}

static int tune(struct kmem_cache *cache, void *arg)
{
	struct tuning *tuning = arg;

	if (!is_meant(cache, tuning))
		return 0;
	km_debug(!cache->layout.dead, "a tuned cache exists");
	/* Ignore invalid values for a cache that exists, as the kernel does. */
	if (!is_valid(tuning)) {
		tuning->result = 0;
		return 1;
	}
	tuning->cache = cache;
	tuning->result = tune_one(cache, tuning);
	if (!tuning->result && cache->tune.leads)
		km_registry_each(tune_led, tuning);
	return 1;
}

static int do_tune(struct tuning *tuning)
{
	tuning->result = -EINVAL;
	km_busy_scope(was);
	km_registry_visit(tune, tuning);
	return tuning->result;
}

int km_cache_tune_locked(struct kmem_cache *cache, unsigned limit, unsigned batchcount, unsigned shared)
{
	const struct tuning tuning = { .limit = limit, .batchcount = batchcount, .shared = shared };

	return is_valid(&tuning) ? tune_one(cache, &tuning) : -EINVAL;
}

int kmem_cache_tune(struct kmem_cache *cache, unsigned int limit, unsigned int batchcount, unsigned int shared)
{
	struct tuning tuning = { .cache = cache, .limit = limit, .batchcount = batchcount, .shared = shared };

	return is_valid(&tuning) ? do_tune(&tuning) : -EINVAL;
}

/* ------------------------------------------------------------------ the words of slabinfo */

/* Parse a number; only an invalid one has a sign. Returns: false without a number, or above INT_MAX. */
static bool parse_int(const char **at, int *number)
{
	uint64_t value;

	while (**at == ' ' || **at == '\t' || **at == '\n')
		++*at;
	const bool negative = **at == '-';
	*at += negative;
	if (!km_text_number(at, INT32_MAX, &value))
		return false;
	*number = negative ? -(int)value : (int)value;
	return true;
}

int kmem_slabinfo_write(const char *text)
{
	size_t length = __builtin_strlen(text);
	int limit, batchcount, shared;
	const char *at = text;

	if (!km_boot() || length > MAX_WORDS)
		return -EINVAL;
	while (*at && *at != ' ')
		at++;
	struct tuning tuning = { .name = text, .name_length = (size_t)(at - text) };
	if (!parse_int(&at, &limit) || !parse_int(&at, &batchcount) || !parse_int(&at, &shared))
		return -EINVAL;
	/* A negative number makes the whole request invalid. */
	if (limit > 0 && batchcount > 0 && shared >= 0) {
		tuning.limit = (unsigned)limit;
		tuning.batchcount = (unsigned)batchcount;
		tuning.shared = (unsigned)shared;
	}
	return do_tune(&tuning);
}

/* ------------------------------------------------------------------ numbers */

struct writing {
	struct kmem_cache *cache;
	void (*write)(struct kmem_cache *cache, unsigned long number);
	unsigned long number;
};

static int write_led(struct kmem_cache *cache, void *arg)
{
	const struct writing *writing = arg;

	if (km_tuned_with(cache, writing->cache))
		writing->write(cache, writing->number);
	return 0;
}

/* Sets a number of a cache and of caches tuned with it. In a busy thread (a visit, or a handler that interrupted the
 * holder of the lock) of this cache only. */
static void write_number(const struct writing *writing)
{
	if (km_thread.busy) {
		km_debug(!writing->cache->layout.dead, "a written cache exists");
		writing->write(writing->cache, writing->number);
		return;
	}
	km_registry_scope();
	writing->write(writing->cache, writing->number);
	if (writing->cache->tune.leads)
		km_registry_each(write_led, (void *)writing);
}

static void write_min_partial(struct kmem_cache *cache, unsigned long count)
{
	km_store(&cache->tune.min_partial, count);
	km_store(&cache->tune.own_min_partial, true);
}

unsigned long kmem_cache_min_partial(const struct kmem_cache *cache)
{
	return km_load(&cache->tune.min_partial);
}

int kmem_cache_set_min_partial(struct kmem_cache *cache, unsigned long count)
{
	if (count > 1048576)
		return -EINVAL;
	write_number(&(struct writing){ cache, write_min_partial, count });
	return 0;
}

static int follow_rule(struct kmem_cache *cache, void *rule)
{
	km_debug(*(const enum km_min_partial *)rule <= KM_MIN_PARTIAL_STATIC, "a rule has a valid number");
	if (!km_load(&cache->tune.own_min_partial))
		km_store(&cache->tune.min_partial,
			 km_min_partial_of(cache->layout.size, *(const enum km_min_partial *)rule));
	return 0;
}

const char *kmem_min_partial_rule(void)
{
	km_boot();
	return km_min_partial_names[km_load(&km_layout_options.rule)];
}

int kmem_set_min_partial_rule(const char *name)
{
	int number = name ? km_min_partial_rule(name) : -1;
	enum km_min_partial rule = (enum km_min_partial)number;

	if (number < 0)
		return -EINVAL;
	if (!km_boot())
		return -ENOMEM;
	if (km_thread.busy)
		return -EBUSY;
	km_busy_scope(was);
	km_registry_scope();
	/* Store under the registry's lock, under which new caches read the rule. */
	km_store(&km_layout_options.rule, rule);
	km_registry_each(follow_rule, &rule);
	return 0;
}

static void write_ratio(struct kmem_cache *cache, unsigned long percent)
{
	km_store(&cache->tune.defrag_ratio, (uint16_t)(percent * KM_DEFRAG_SCALE));
}

unsigned int kmem_cache_remote_node_defrag_ratio(const struct kmem_cache *cache)
{
	return km_load(&cache->tune.defrag_ratio) / KM_DEFRAG_SCALE;
}

int kmem_cache_set_remote_node_defrag_ratio(struct kmem_cache *cache, unsigned int percent)
{
	if (percent > 100)
		return -EINVAL;
	write_number(&(struct writing){ cache, write_ratio, percent });
	return 0;
}

int km_cache_set_capacity(struct kmem_cache *cache, unsigned capacity)
{
	if (!cache->fast.pcs.slot || cache->layout.engine->array.tune || cache->layout.engine->whole_pages)
		return -EOPNOTSUPP;
	if (!capacity)
		return -EINVAL;
	if (capacity > cache->tune.max_capacity)
		return -ERANGE;
	uint32_t mask = (uint32_t)km_pow2_up(((size_t)capacity + 2) * sizeof(void *)) - 1;
	capacity = km_min(km_mask_capacity(mask), (unsigned)cache->tune.max_capacity);
	km_store(&cache->fast.capacity, (uint16_t)capacity);
	km_store(&cache->tune.busy_capacity, (uint16_t)capacity);
	km_alloc_resize(cache, capacity);
	return km_alloc_mask(cache) == mask ? 0 : -EAGAIN;
}

/* ------------------------------------------------------------------ a cache that is tuned with another */

/* Returns: whether the cache follows its leader; a debugged leader has another slab layout. */
static bool is_led(const struct kmem_cache *cache)
{
	return cache->tune.tuned_with && !km_is_debugged(cache->tune.tuned_with);
}

void km_cache_tune_partial(struct kmem_cache *cache)
{
	const struct kmem_cache *leader = is_led(cache) ? cache->tune.tuned_with : NULL;

	km_store(&cache->tune.min_partial,
		 leader ? leader->tune.min_partial : km_min_partial_of(cache->layout.size, km_layout_options.rule));
	km_store(&cache->tune.own_min_partial, leader && leader->tune.own_min_partial);
	km_store(&cache->tune.defrag_ratio, leader ? leader->tune.defrag_ratio :
						(uint16_t)(km_layout_options.defrag_ratio * KM_DEFRAG_SCALE));
}

void km_cache_tune_again(struct kmem_cache *cache)
{
	const struct kmem_cache *leader = cache->tune.tuned_with;

	km_cache_tune_partial(cache);
	if (!is_led(cache) || (cache->fast.capacity == leader->fast.capacity &&
			       cache->tune.batchcount == leader->tune.batchcount &&
			       cache->tune.shared == leader->tune.shared))
		return;
	tune_one(cache, &(struct tuning){ .limit = leader->fast.capacity, .batchcount = leader->tune.batchcount,
					  .shared = leader->tune.shared });
}

/* ------------------------------------------------------------------ what a cache is, and may have */

unsigned int kmem_cache_size(const struct kmem_cache *cache)
{
	return cache->layout.object_size;
}

const char *kmem_cache_name(const struct kmem_cache *cache)
{
	return cache->registry.name;
}

uint64_t kmem_cache_limit(const struct kmem_cache *cache)
{
	return km_load(&cache->tune.limit);
}

int kmem_cache_set_limit(struct kmem_cache *cache, uint64_t bytes)
{
	/* No slabs of its own: objects in shared pages, or large blocks. */
	if (cache->layout.engine->shared_pages || cache->layout.engine->whole_pages)
		return -EOPNOTSUPP;
	km_store(&cache->tune.limit, bytes);
	return 0;
}
