/* The work's operations over the fast path in <kmem/inline.h>; misses and batches are calls. */
#ifndef BENCH_API_H
#define BENCH_API_H

#include "api/cache_open.h"
#include <kmem/inline.h>

bench_inline void *api_alloc(struct api api)
{
	return kmem_cache_alloc_inline(api.cache, GFP_KERNEL);
}

bench_inline void api_free(struct api api, void *object)
{
	kmem_cache_free_inline(api.cache, object);
}

#endif
