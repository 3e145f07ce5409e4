/* The work's operations over kmem_cache_alloc/kmem_cache_free, called through the linkage of the program. */
#ifndef BENCH_API_H
#define BENCH_API_H

#include "api/cache_open.h"

bench_inline void *api_alloc(struct api api)
{
	return kmem_cache_alloc(api.cache, GFP_KERNEL);
}

bench_inline void *api_zalloc(struct api api)
{
	return kmem_cache_zalloc(api.cache, GFP_KERNEL);
}

bench_inline void api_free(struct api api, void *object)
{
	kmem_cache_free(api.cache, object);
}

#endif
