/* The work's operations over kmalloc/kfree and their batch forms. */
#ifndef BENCH_API_H
#define BENCH_API_H

#include <kmem/kmem.h>

#include "api/size.h"

bench_inline void *api_alloc(struct api api)
{
	return kmalloc(api.size, GFP_KERNEL);
}

bench_inline void *api_alloc_sized(struct api api, size_t size)
{
	(void)api;
	return kmalloc(size, GFP_KERNEL);
}

bench_inline void *api_zalloc(struct api api)
{
	return kzalloc(api.size, GFP_KERNEL);
}

bench_inline void *api_realloc(struct api api, void *object, size_t size)
{
	(void)api;
	return krealloc(object, size, GFP_KERNEL);
}

bench_inline void api_free(struct api api, void *object)
{
	(void)api;
	kfree(object);
}

bench_inline bool api_alloc_bulk(struct api api, size_t count, void **objects)
{
	return kmalloc_bulk(api.size, GFP_KERNEL, count, objects);
}

bench_inline void api_free_bulk(struct api api, size_t count, void **objects)
{
	(void)api;
	kfree_bulk(count, objects);
}

#endif
