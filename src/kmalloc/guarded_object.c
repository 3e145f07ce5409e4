/*
 * guarded_object.c: what users ask of a guarded object (page/guard_range.h) by its address. Invariant: what is no
 * start of one that is out is misuse, or nothing.
 */
#include "os/die.h"
#include "cache/cache.h"

size_t km_guarded_bytes(const void *p, const char *function)
{
	size_t bytes = km_guard_ops->bytes(p);

	if (!bytes)
		km_misuse(KM_MISUSE_INTERIOR, function, p, NULL);
	return bytes;
}

/* A caller that asks may free it by kmem_cache_free, which looks at no bytes; the object may have fewer than others of
 * the cache. */
struct kmem_cache *km_guarded_cache(const void *p)
{
	struct kmem_cache *cache = km_guard_ops->cache_of(p);

	if (cache && cache->flags & SLAB_KMALLOC)
		km_alloc_see_frees(cache);
	return cache;
}
