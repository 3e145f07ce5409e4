/*
 * kmalloc_array.c: kmalloc for arrays of elements. Invariant: an overflowing product is refused without an allocation.
 */
#include <errno.h>

#include "base/bits.h"
#include "cache/cache.h"

/* Fail a request of overflowing size. */
km_cold static void *overflows(const char *function, gfp_t gfp)
{
	km_alloc_check_gfp(function, gfp, NULL);
	return km_alloc_failed(function, SIZE_MAX, gfp | __GFP_NOWARN, ENOMEM);
}

km_inline void *array(const char *function, void *(*alloc)(size_t bytes, gfp_t gfp), size_t n, size_t size, gfp_t gfp)
{
	size_t bytes = km_size_mul(n, size);

	return km_unlikely(bytes == SIZE_MAX) ? overflows(function, gfp) : alloc(bytes, gfp);
}

void *kmalloc_array(size_t n, size_t size, gfp_t gfp)
{
	return array("kmalloc_array", kmalloc, n, size, gfp);
}

void *kcalloc(size_t n, size_t size, gfp_t gfp)
{
	return array("kcalloc", kzalloc, n, size, gfp);
}

void *kvmalloc_array(size_t n, size_t size, gfp_t gfp)
{
	return array("kvmalloc_array", kvmalloc, n, size, gfp);
}

void *kvcalloc(size_t n, size_t size, gfp_t gfp)
{
	return array("kvcalloc", kvzalloc, n, size, gfp);
}

void *krealloc_array(void *object, size_t n, size_t size, gfp_t gfp)
{
	size_t bytes = km_size_mul(n, size);

	if (bytes == SIZE_MAX)
		return overflows("krealloc_array", gfp);
	return krealloc(object, bytes, gfp);
}
