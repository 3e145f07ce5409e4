/*
 * validate.h: the fast path of caches with validated frees (validate.c), for callers that miss first. Each function
 * checks and writes the object's byte in the allocation state map (page/alloc_map.h). Invariant: an inline function
 * either handles the ordinary case, or changes nothing.
 */
#ifndef KM_ALLOC_VALIDATE_H
#define KM_ALLOC_VALIDATE_H

#include "page/alloc_map.h"
#include "harden.h"

/* Ops of the layer VALIDATE for caches whose sheaves are indexed by CPU, as on the fast path. */
extern km_hidden const struct km_alloc_ops km_ops_validated;
void *km_validated_alloc(struct kmem_cache *cache, gfp_t gfp);
void km_validated_free(struct kmem_cache *cache, void *object);
/* Handles a popped object that km_validated_take rejects. Returns: the object, or another one. */
void *km_validated_handed(struct kmem_cache *cache, gfp_t gfp, void *object);
/* Pushes a claimed object to the CPU's sheaves. */
void km_validated_put(struct kmem_cache *cache, void *object);

/* Returns: the byte of an object in the first range of pages. */
km_inline uint8_t *km_validated_byte(const struct kmem_cache *cache, const void *object)
{
	return (uint8_t *)(cache->ext.live + ((uintptr_t)object >> cache->layout.live_shift));
}

/* Marks a popped object as allocated. Returns: false if the slow path must mark the object. */
km_inline bool km_validated_take(const struct kmem_cache *cache, const void *object)
{
	return km_likely(!km_load(&cache->ext.comes_slowly)) &&
	       km_likely(km_alloc_map_mark(km_validated_byte(cache, object), object));
}

/* Marks an object as freed. Requires: the object is in a page of the cache in the first range. Returns: false if the
 * object was not allocated. */
km_inline bool km_validated_claim(const struct kmem_cache *cache, const void *object)
{
	return km_likely(km_alloc_map_claim(km_validated_byte(cache, object), object));
}

#endif
