/*
 * capacity_growth.c: sheaves grow with the load. Disciplines: all. Batches within a sheaf's capacity leave the
 * capacity unchanged, for any number of batches. A batch above the capacity makes the sheaf grow, even where the
 * CPU's other sheaf serves each miss. Misses that reach the engine make the sheaf grow sooner, and never beyond the
 * amount kept for misses; bulk requests get their count. On one CPU, because a batch cut in two by a migration leaves
 * sheaves behind, and every later batch swaps them.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>

#include <kmem/kmem.h>

#include "kit/cpus.h"
#include "alloc/fast_path.h"

enum { SIZE = 256, FIRST = 30, BUSY = 126, BULK = 254, OBJECTS = 8000 };

static void *objects[OBJECTS];

static void expect(const struct kmem_cache *cache, unsigned capacity, const char *when)
{
	unsigned now = km_mask_capacity(km_alloc_mask(cache));

	if (now == capacity)
		return;
	printf("%s: blocks of %u, not %u\n", when, now, capacity);
	failures++;
}

static void batches(struct kmem_cache *cache, unsigned n, unsigned times)
{
	while (times--) {
		for (unsigned i = 0; i < n; i++)
			objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
		for (unsigned i = 0; i < n; i++)
			kmem_cache_free(cache, objects[i]);
	}
}

static void bulks(struct kmem_cache *cache, unsigned n)
{
	if (!kmem_cache_alloc_bulk(cache, GFP_KERNEL, n, objects))
		failures++;
	kmem_cache_free_bulk(cache, n, objects);
}

static struct kmem_cache *create(unsigned size, unsigned first)
{
	struct kmem_cache *cache = kmem_cache_create("growth", size, &(struct kmem_cache_args){ .engine = "sheaf" }, 0);

	expect(cache, first, "new");
	return cache;
}

int main(void)
{
	stay_here();
	kfree(kmalloc(1, GFP_KERNEL));
	/* A look would begin the count anew. */
	km_alloc_tick = NULL;

	struct kmem_cache *cache = create(SIZE, FIRST);
	batches(cache, FIRST - 10, 10000);
	expect(cache, FIRST, "batches within a block");
	batches(cache, FIRST + 10, 10000);
	expect(cache, 2 * FIRST + 2, "batches beyond a block");
	kmem_cache_destroy(cache);

	cache = create(SIZE, FIRST);
	batches(cache, OBJECTS, 1);
	expect(cache, BUSY, "misses");
	bulks(cache, BUSY);
	expect(cache, BUSY, "bulk of a block");
	bulks(cache, BUSY + 1);
	expect(cache, BULK, "bulk of more than a block");
	bulks(cache, 4 * BULK);
	expect(cache, BULK, "bulk of more than any block");
	kmem_cache_destroy(cache);

	/* Few large objects at a time: as many as 128 KiB hold. */
	cache = create(10240, 2);
	batches(cache, 8, 10000);
	expect(cache, 6, "batches of large objects");
	kmem_cache_destroy(cache);
	return failures != 0;
}
