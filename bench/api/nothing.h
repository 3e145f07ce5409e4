/* The work's operations over empty functions, called like an allocator. */
#ifndef BENCH_API_H
#define BENCH_API_H

#include "api/size.h"
#include "api/nothing_calls.h"

bench_inline void *api_alloc(struct api api)
{
	return nothing_alloc(api.size, 0);
}

bench_inline void *api_alloc_sized(struct api api, size_t size)
{
	(void)api;
	return nothing_alloc(size, 0);
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

#endif
