/*
 * Opens a fresh cache for a cell, as in the published tables: created before the clock runs, destroyed afterwards.
 * Shared by the out-of-line and the inline form of the kmem_cache operations.
 */
#ifndef BENCH_CACHE_OPEN_H
#define BENCH_CACHE_OPEN_H

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include <stdio.h>

#include "frame/bench.h"

struct api {
	struct kmem_cache *cache;
};

bench_inline struct api api_open(size_t size)
{
	/* The engine is the process default, set by the driver through KMEM_OPTIONS. */
	struct kmem_cache_args args = { .align = 0 };
	struct api api;
	char name[32];

	/* Caches of the same time have different sizes. */
	snprintf(name, sizeof(name), "bench-%zu", size);
	api.cache = kmem_cache_create(name, (unsigned int)size, &args, 0);
	if (!api.cache)
		bench_die("cannot make a cache");
	return api;
}

bench_inline void api_close(struct api api)
{
	kmem_cache_destroy(api.cache);
}

bench_inline bool api_alloc_bulk(struct api api, size_t count, void **objects)
{
	return kmem_cache_alloc_bulk(api.cache, GFP_KERNEL, count, objects);
}

bench_inline void api_free_bulk(struct api api, size_t count, void **objects)
{
	kmem_cache_free_bulk(api.cache, count, objects);
}

/* Slabs are aligned to their size, a power of two of pages. */
bench_inline unsigned int api_slab_shift(struct api api)
{
	struct kmem_cache_stats stats;
	unsigned int shift = 12;

	kmem_cache_get_stats(api.cache, &stats);
	while (1u << (shift - 12) < stats.pages_per_slab)
		shift++;
	return shift;
}

#endif
