/*
 * guarded_object.c: size and cache of a guarded object (page/guard_range.h), by address. Invariant: any address
 * except the start of an allocated object is misuse, or has no cache.
 */
#include "os/die.h"
#include "cache/cache.h"

size_t km_guarded_bytes(const void *p, const char *function)
{
	struct km_guarded_object seen;

	if (!km_guarded_at(p, &seen))
		km_misuse(KM_MISUSE_INTERIOR, function, p, NULL);
	return seen.bytes;
}

/* The caller may free the object by kmem_cache_free, without any check of bytes. A guarded object may have fewer
 * bytes than other objects of the cache. */
struct kmem_cache *km_guarded_cache(const void *p)
{
	struct km_guarded_object seen;

	if (km_guarded_at(p, &seen) && seen.cache && seen.cache->layout.flags & SLAB_KMALLOC)
		km_alloc_see_frees(seen.cache);
	return seen.cache;
}
