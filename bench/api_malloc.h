/*
 * The work's verbs over malloc/free: whichever malloc the process has (linked in, or preloaded).
 * Compiled with -fno-builtin, so that no pair is optimised away.
 */
#ifndef BENCH_API_H
#define BENCH_API_H

#include <stdlib.h>

#include "bench.h"

struct api {
	size_t size;
};

bench_inline struct api api_open(size_t size)
{
	return (struct api){ size };
}

bench_inline void api_close(struct api api)
{
	(void)api;
}

bench_inline void *api_alloc(struct api api)
{
	return malloc(api.size);
}

bench_inline void *api_alloc_sized(struct api api, size_t size)
{
	(void)api;
	return malloc(size);
}

bench_inline void api_free(struct api api, void *object)
{
	(void)api;
	free(object);
}

/* Where malloc's slabs begin is its secret: pages stand for them. */
bench_inline unsigned int api_slab_shift(struct api api)
{
	(void)api;
	return 12;
}

#endif
