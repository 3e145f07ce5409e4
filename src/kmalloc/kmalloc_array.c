/*
 * kmalloc_array.c: kmalloc for arrays of elements. Invariant: an overflowing product is refused without an
 * allocation.
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

void *kmalloc_array(size_t n, size_t size, gfp_t gfp)
{
	size_t bytes = km_size_mul(n, size);

	if (km_unlikely(bytes == SIZE_MAX))
		return overflows("kmalloc_array", gfp);
	return kmalloc(bytes, gfp);
}

void *kcalloc(size_t n, size_t size, gfp_t gfp)
{
	size_t bytes = km_size_mul(n, size);

	if (km_unlikely(bytes == SIZE_MAX))
		return overflows("kcalloc", gfp);
	return kzalloc(bytes, gfp);
}

void *krealloc_array(void *object, size_t n, size_t size, gfp_t gfp)
{
	size_t bytes = km_size_mul(n, size);

	if (bytes == SIZE_MAX)
		return overflows("krealloc_array", gfp);
	return krealloc(object, bytes, gfp);
}

void *kvmalloc_array(size_t n, size_t size, gfp_t gfp)
{
	size_t bytes = km_size_mul(n, size);

	if (bytes == SIZE_MAX)
		return overflows("kvmalloc_array", gfp);
	return kvmalloc(bytes, gfp);
}

void *kvcalloc(size_t n, size_t size, gfp_t gfp)
{
	size_t bytes = km_size_mul(n, size);

	if (bytes == SIZE_MAX)
		return overflows("kvcalloc", gfp);
	return kvzalloc(bytes, gfp);
}
