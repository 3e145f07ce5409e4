/*
 * The work's operations over malloc/free of the process (linked or preloaded). Compiled with -fno-builtin, because the
 * compiler would remove a pair.
 */
#ifndef BENCH_API_H
#define BENCH_API_H

#include <stdlib.h>

#include "api/size.h"

bench_inline void *api_alloc(struct api api)
{
	return malloc(api.size);
}

bench_inline void *api_alloc_sized(struct api api, size_t size)
{
	(void)api;
	return malloc(size);
}

#define API_ALIGNED
bench_inline void *api_alloc_aligned(struct api api, size_t align)
{
	return aligned_alloc(align, api.size);
}

bench_inline void *api_zalloc(struct api api)
{
	return calloc(1, api.size);
}

bench_inline void *api_realloc(struct api api, void *object, size_t size)
{
	(void)api;
	return realloc(object, size);
}

bench_inline void api_free(struct api api, void *object)
{
	(void)api;
	free(object);
}

#endif
