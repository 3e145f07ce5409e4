/*
 * kmalloc_nolock.c: kmalloc and kfree without waiting: try the cache of the size, then the next larger cache.
 * Invariant: a function that may wait is never called (alloc/alloc_nolock.c).
 */
#include <errno.h>

#include "base/bits.h"
#include "cache/cache.h"
#include "size_classes.h"

static void *by_cache(size_t size, gfp_t gfp, int node)
{
	struct kmem_cache *cache = km_kmalloc_cache_by(size, gfp);
	void *object = km_alloc_nolock(cache, 0, 0, gfp, node);
	size_t next = cache->layout.object_size + 1;

	if (object || next > KMALLOC_MAX_CACHE_SIZE)
		return object;
	cache = km_kmalloc_cache_by(next, gfp);
	/* Only a power of two may need more alignment than a larger cache of another size has. */
	return cache->form.align % (size & -size) == 0 ? km_alloc_nolock(cache, 0, 0, gfp, node) : NULL;
}

void *kmalloc_nolock(size_t size, gfp_t gfp, int node)
{
	int saved_errno = errno;
	void *object = NULL;

	if (size > KMALLOC_MAX_CACHE_SIZE || !km_alloc_is_nolock(gfp)) {
		errno = EINVAL;
		return NULL;
	}
	if (!size)
		return ZERO_SIZE_PTR;
	/* Acquire pairs with the start. The start would wait, so the start is not run here. */
	if (km_likely(km_load_acquire(&km_ready)) && (!km_kmalloc_sized || size < KM_SIZED_END))
		object = !km_kmalloc_sized ? by_cache(size, gfp, node) :
			 km_alloc_nolock(km_kmalloc_sized, size, km_natural_align(size), gfp, node);
	errno = object ? saved_errno : ENOMEM;
	if (object && km_unlikely(km_sanitizer.objects || km_observed_sizes))
		km_observed_asked(object, size);
	return object;
}

void kfree_nolock(const void *object)
{
	km_errno_scope(saved_errno);
	km_busy_scope(was);

	kfree(object);
}
