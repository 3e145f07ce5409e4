/*
 * proved.h: the hits of caches whose frees are proved (proved.c), for the doors that meet them behind a miss of their
 * own: an object's byte is looked at, and written (page/live.h). Invariant: what is inline here does something only
 * where all is ordinary, and else nothing.
 */
#ifndef KM_ALLOC_PROVED_H
#define KM_ALLOC_PROVED_H

#include "page/live.h"
#include "hardened.h"

/* Of caches whose objects lie in blocks, found by CPU: those of the hits. */
extern km_hidden const struct km_shape km_shape_proved;
void *km_proved_alloc(struct kmem_cache *cache, gfp_t gfp);
void km_proved_free(struct kmem_cache *cache, void *object);
/* An object that was popped and can't be taken by km_proved_take: itself, or another one. */
void *km_proved_handed(struct kmem_cache *cache, gfp_t gfp, void *object);
/* An object that was claimed goes to where it lies ready. */
void km_proved_put(struct kmem_cache *cache, void *object);

/* Of an object in the first range. */
km_inline uint8_t *km_proved_byte(const struct kmem_cache *cache, const void *object)
{
	return (uint8_t *)(cache->live + ((uintptr_t)object >> cache->live_shift));
}

/* An object that was popped is about to be its user's. */
km_inline bool km_proved_take(const struct kmem_cache *cache, const void *object)
{
	return km_likely(!km_load(&cache->comes_slowly)) &&
	       km_likely(km_live_mark(km_proved_byte(cache, object), object));
}

/* The object, in a page of the cache in the first range, is its user's no more. False: it was not. */
km_inline bool km_proved_claim(const struct kmem_cache *cache, const void *object)
{
	return km_likely(km_live_claim(km_proved_byte(cache, object), object));
}

#endif
