/*
 * validate.h: the hits of caches whose frees are proved (validate.c), for the doors that meet them behind a miss of
 * their own: an object's byte is looked at, and written (page/alloc_map.h). Invariant: what is inline here does
 * something only where all is ordinary, and else nothing.
 */
#ifndef KM_ALLOC_VALIDATE_H
#define KM_ALLOC_VALIDATE_H

#include "page/alloc_map.h"
#include "harden.h"

/* Of caches whose objects lie in blocks, found by CPU: those of the hits. */
extern km_hidden const struct km_alloc_ops km_ops_validated;
void *km_validated_alloc(struct kmem_cache *cache, gfp_t gfp);
void km_validated_free(struct kmem_cache *cache, void *object);
/* An object that was popped and can't be taken by km_validated_take: itself, or another one. */
void *km_validated_handed(struct kmem_cache *cache, gfp_t gfp, void *object);
/* An object that was claimed goes to where it lies ready. */
void km_validated_put(struct kmem_cache *cache, void *object);

/* Of an object in the first range. */
km_inline uint8_t *km_validated_byte(const struct kmem_cache *cache, const void *object)
{
	return (uint8_t *)(cache->live + ((uintptr_t)object >> cache->live_shift));
}

/* An object that was popped is about to be its user's. */
km_inline bool km_validated_take(const struct kmem_cache *cache, const void *object)
{
	return km_likely(!km_load(&cache->comes_slowly)) &&
	       km_likely(km_alloc_map_mark(km_validated_byte(cache, object), object));
}

/* The object, in a page of the cache in the first range, is its user's no more. False: it was not. */
km_inline bool km_validated_claim(const struct kmem_cache *cache, const void *object)
{
	return km_likely(km_alloc_map_claim(km_validated_byte(cache, object), object));
}

#endif
