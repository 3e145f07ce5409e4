/*
 * trim_many_caches.c: more idle caches than one tick trims: the next ticks go on with the others, in the same
 * round. The test sets the clock.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include <kmem/kmem.h>

#include "kit/cpus.h"
#include "kit/clock.h"
#include "alloc/fast_path.h"
#include "page/arena.h"
#include "kit/inside.h"

TEST_IS_INSIDE

#define CACHES	300u	/* three ticks, of 128 each */
#define TICKS	10	/* enough for a look */
#define OBJECTS	60u
#define LOOK_MS	2100

static struct kmem_cache *cache[CACHES];

static void fill(struct kmem_cache *cache)
{
	void *objects[OBJECTS];

	for (unsigned i = 0; i < OBJECTS; i++)
		objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
	for (unsigned i = 0; i < OBJECTS; i++)
		kmem_cache_free(cache, objects[i]);
}

/* Returns: the number of caches with fewer cached objects than before. */
static unsigned trimmed(const size_t *before)
{
	unsigned count = 0;

	for (unsigned i = 0; i < CACHES; i++)
		count += km_alloc_pcs_objects(cache[i]) < before[i];
	return count;
}

int main(void)
{
	struct kmem_cache_args args = { .engine = "slab" };
	static size_t before[CACHES];
	char name[32];
	int failed = 0;

	stay_here();
	kmem_cache_create("first", 64, NULL, 0);
	km_arena_set(false, 3600000);
	for (unsigned i = 0; i < CACHES; i++) {
		snprintf(name, sizeof(name), "idle-%u", i);
		cache[i] = kmem_cache_create(name, 64, &args, 0);
		if (!cache[i])
			return 1;
		fill(cache[i]);
		before[i] = km_alloc_pcs_objects(cache[i]);
	}
	if (!before[0]) {
		printf("no sheaves here\n");
		return 77;
	}
	for (unsigned look = 0, done = 0; look < 2; look++) {
		ahead_ms += LOOK_MS;
		for (int tick = 0; tick < TICKS; tick++, ahead_ms += 20) {
			struct km_busy_was was = km_busy_begin();
			km_alloc_tick();
			km_busy_end(was);
			unsigned now = trimmed(before);
			if (now - done > 128) {
				printf("%u of %u after one tick\n", now - done, CACHES);
				failed = 1;
			}
			done = now;
		}
		/* The first reap sees the cached objects, the second sees no use since. */
		if (done != (look ? CACHES : 0)) {
			printf("%u of %u after look %u\n", done, CACHES, look + 1);
			failed = 1;
		}
	}
	return failed;
}
