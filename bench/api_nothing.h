/* The work's verbs over empty functions, called as the allocators' are. */
#ifndef BENCH_API_H
#define BENCH_API_H

#include "bench.h"
#include "nothing.h"

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
	return nothing_alloc(api.size, 0);
}

bench_inline void api_free(struct api api, void *object)
{
	(void)api;
	nothing_free(object);
}

bench_inline bool api_alloc_bulk(struct api api, size_t count, void **objects)
{
	return nothing_alloc_bulk(api.size, 0, count, objects);
}

bench_inline void api_free_bulk(struct api api, size_t count, void **objects)
{
	(void)api;
	nothing_free_bulk(count, objects);
}

bench_inline unsigned int api_slab_shift(struct api api)
{
	(void)api;
	return 12;
}

#endif
