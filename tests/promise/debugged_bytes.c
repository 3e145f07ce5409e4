/*
 * debugged_bytes: in a debugged cache each write outside the bytes of the object's user is reported, and no other
 * write. The report comes at the latest at the free of the object; for a free object at the next allocation, at the
 * end of the slab or at a validation. The test writes to each byte of an object's slot in turn, and to some runs of
 * bytes, with random values; for each engine, by kmem_cache, kmalloc, malloc and new, each in a process of its own.
 *
 * debugged_bytes [SEED]		the same seed writes the same bytes
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "cache/cache.h"
#include "kit/cpus.h"
#include "kit/options.h"
#include "kit/random.h"
#include "ext/debug/debug.h"

#define FLAGS (SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER)

static uint64_t random_state;

static uint64_t below(uint64_t n)
{
	return random_next(&random_state) % n;
}

/* ------------------------------------------------------------------ interfaces */

static struct kmem_cache *mine;
static void *cache_get(size_t size km_unused) { return kmem_cache_alloc(mine, GFP_KERNEL); }
static void cache_put(void *p) { kmem_cache_free(mine, p); }
static void *kmalloc_get(size_t size) { return kmalloc(size, GFP_KERNEL); }
static void kmalloc_put(void *p) { kfree(p); }
void *_Znwm(size_t size);
void _ZdlPv(void *p);

static const struct door {
	const char *name;
	void *(*get)(size_t size);
	void (*put)(void *p);
} doors[] = {
	{ "cache", cache_get, cache_put }, { "kmalloc", kmalloc_get, kmalloc_put }, { "malloc", malloc, free },
	{ "new", _Znwm, _ZdlPv },
}, *door;

/* ------------------------------------------------------------------ reports */

/* Reports since the last call. */
static unsigned told(void)
{
	static char text[1 << 16];
	ssize_t length = pread(2, text, sizeof(text) - 1, 0);
	unsigned n = 0;

	text[length > 0 ? length : 0] = '\0';
	for (char *at = text; (at = strstr(at, "libkmem: BUG ")); at++)
		n++;
	if (ftruncate(2, 0) || lseek(2, 0, SEEK_SET))
		_exit(3);
	return n;
}

static const char *said(void)
{
	static char text[4096];
	ssize_t length = pread(2, text, sizeof(text) - 1, 0);

	text[length > 0 ? length : 0] = '\0';
	return text;
}

static struct {
	const char *state;		/* state of the object at the write */
	size_t size;
	long from, count;
} now;

static void expect(unsigned least, unsigned most, const char *when)
{
	char first[600];

	snprintf(first, sizeof(first), "%.599s", said());
	unsigned n = told();
	if (n >= least && n <= most)
		return;
	printf("%s, %zu bytes, %s, %ld bytes from %ld on: %u reports %s, not %u to %u\n%s\n", door->name, now.size,
	       now.state, now.count, now.from, n, when, least, most, first);
	if (++failures >= 5)
		exit(1);
}

/* ------------------------------------------------------------------ one write */

/* Each byte gets another value. */
static void write_to(unsigned char *p)
{
	__asm__ volatile("" : "+r"(p));
	for (long i = now.from; i < now.from + now.count; i++)
		p[i] ^= (unsigned char)(1 + below(255));
}

static void clean(struct kmem_cache *cache, const char *when)
{
	int damages = cache->layout.engine->shared_pages ? 0 : kmem_cache_validate(cache);

	expect(0, 0, when);
	if (!damages)
		return;
	printf("%s, %zu bytes, %s, %ld from %ld on: %d damages %s\n", door->name, now.size, now.state, now.count,
	       now.from, damages, when);
	failures++;
}

static struct kmem_cache *cache_of(void *p)
{
	return kmem_cache_of(p) ?: mine;
}

/* Told: a write outside of the user's bytes. */
static void live(bool is_told)
{
	unsigned char *p = door->get(now.size);
	struct kmem_cache *cache = cache_of(p);
	bool look = below(2) && !cache->layout.engine->shared_pages;

	now.state = look ? "live, looked at" : "live";
	memset(p, (int)below(256), now.size);
	write_to(p);
	if (look) {
		kmem_cache_validate(cache);
		expect(is_told, is_told, "when it is looked at");
	}
	door->put(p);
	expect(is_told && !look, is_told && !look, "at its free");
	clean(cache, "afterwards");
}

#define MOST 700

static void given_out(unsigned char *p, unsigned most)
{
	void *others[MOST], *other;
	unsigned n = 0;

	while (n < MOST && (other = door->get(now.size)) != p && *said() == '\0')
		others[n++] = other;
	expect(1, most, "when it is given out");
	if (n < MOST)
		others[n++] = other;
	while (n)
		door->put(others[--n]);
}

/* A damaged freelist pointer in the object counts as one damage of its own. */
static unsigned things(const struct kmem_cache *cache)
{
	long link = cache->layout.freeptr;
	bool is_hit = now.from < link + (long)sizeof(void *) && now.from + now.count > link;

	return cache->layout.engine->front == KM_PERCPU_FREELIST && is_hit && now.count > 1 ? 2 : 1;
}

static void freed(void)
{
	unsigned char *p = door->get(now.size);
	struct kmem_cache *cache = cache_of(p);

	door->put(p);
	write_to(p);
	if (below(2)) {
		now.state = "free, given out";
		given_out(p, things(cache));
	} else {
		now.state = "free, looked at";
		kmem_cache_validate(cache);
		expect(1, things(cache), "when it is looked at");
	}
	clean(cache, "afterwards");
}

/* The object is alone in its slab. */
static void gone(void)
{
	unsigned char *p = door->get(now.size);
	struct kmem_cache *cache = cache_of(p);

	now.state = "free, its slab goes";
	door->put(p);
	write_to(p);
	kmem_cache_shrink(cache);
	expect(1, things(cache), "when its slab goes");
	clean(cache, "afterwards");
}

/* Behind the last object of a slab. */
static void behind_all(void)
{
	unsigned char *p = door->get(now.size);
	struct km_debug_region padding = km_debug_slab_padding(cache_of(p), km_page_head(km_page_of(p)));

	now.state = "live, a slab's padding";
	if (padding.bytes) {
		now.count = 1 + (long)below(padding.bytes < 40 ? padding.bytes : 40);
		now.from = padding.at - p + (long)below(padding.bytes - (size_t)now.count + 1);
		write_to(p);
	}
	door->put(p);
	expect(padding.bytes > 0, padding.bytes > 0, "at the next free");
}

/* ------------------------------------------------------------------ every size */

static void every_byte(size_t size)
{
	now.size = size;
	if (door->get == cache_get)
		mine = kmem_cache_create("mine", (unsigned)size, NULL, FLAGS);
	void *first = door->get(size), *second = door->get(size), *third = door->get(size);
	struct kmem_cache *cache = cache_of(first);
	const bool shared = cache->layout.engine->shared_pages;
	long begin = -(long)cache->ext.left, end = (long)cache->layout.size - (long)cache->ext.left, asked = (long)size;
	/* Objects of the other interfaces have the same surroundings, with other user bytes. */
	long step = door->get == cache_get && size <= 100 ? 1 : 7;

	/* A slab with objects in use, some of them free. */
	door->put(second);
	for (long from = begin + (long)below((uint64_t)step); from < end; from += step) {
		now.from = from;
		now.count = 1;
		live(from < 0 || from >= asked);
		now.from = from;
		if (!shared)
			freed();
	}
	for (int i = 0; i < 20; i++) {
		now.from = asked + (long)below((uint64_t)(end - asked));
		now.count = 1 + (long)below((uint64_t)(end - now.from));
		live(true);
		if (!shared)
			freed();
	}
	for (int i = 0; i < 8 && !shared; i++)
		behind_all();
	door->put(first);
	door->put(third);
	told();
	if (door->get != cache_get)
		return;
	/* A slab with objects lost with the freelist stays. */
	kmem_cache_destroy(mine);
	mine = kmem_cache_create("mine", (unsigned)size, NULL, FLAGS);
	told();
	for (long from = begin; !shared && from < end; from += 1 + (long)below(8)) {
		now.from = from;
		now.count = 1;
		gone();
	}
	kmem_cache_destroy(mine);
	told();
}

static int child(const char *by, uint64_t seed)
{
	static const size_t sizes[] = { 1, 24, 100, 1000 };
	int said_to = memfd_create("stderr", 0);

	alarm(580);
	/* The test stays on one node, because each node has its own free objects. */
	stay_here();
	if (said_to < 0 || dup2(said_to, 2) != 2)
		return 77;
	for (size_t i = 0; i < sizeof(doors) / sizeof(doors[0]); i++)
		if (!strcmp(doors[i].name, by))
			door = &doors[i];
	random_state = seed;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		every_byte(sizes[i]);
	for (int i = 0; i < 2; i++)
		every_byte(101 + below(3000));
	return failures != 0;
}

int main(int argc, char **argv)
{
	static const char *const engines[] = { KM_ENGINE_NAMES };
	const char *seed = argc >= 2 ? argv[1] : "1";
	int failed = 0, status;

	if (argc == 3)
		return child(argv[2], strtoull(seed, NULL, 0));
	printf("seed %s\n", seed);
	fflush(stdout);
	for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]) * 4; i++) {
		const char *engine = engines[i / 4];

		/* A kmalloc block of an engine with shared pages has no debug bytes around the block. */
		if (km_engine_find(engine)->shared_pages && doors[i % 4].get != cache_get)
			continue;
		pid_t pid = fork();
		if (!pid) {
			char options[64];

			/* No slab ages on a busy machine: the test decides about time. */
			snprintf(options, sizeof(options), "misuse:warn,decay:3600000,engine:%s", engine);
			set_options(options);
			setenv("KMEM_DEBUG", "FZPU,kmalloc-*,malloc-*;-", 1);
			execl("/proc/self/exe", "debugged_bytes", seed, doors[i % 4].name, NULL);
			_exit(2);
		}
		if (waitpid(pid, &status, 0) == pid && status == 0)
			continue;
		printf("%s, %s: status 0x%x\n", engine, doors[i % 4].name, (unsigned)status);
		failed++;
	}
	printf("%d failed\n", failed);
	return failed != 0;
}
