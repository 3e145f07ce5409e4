/*
 * harden.h: hardening of a cache beyond validated frees (alloc/validate.c): zeros, canaries and the quarantine, each
 * by its own option. Invariant: the work on an object is done between its validation and the per-CPU sheaves, in both
 * directions.
 */
#ifndef KM_ALLOC_HARDEN_H
#define KM_ALLOC_HARDEN_H

#include "slab/engine.h"

/* Set up hardening of a new cache, and end it. A part (canary, quarantine) is left out if there is no memory. */
void km_parts_begin(struct kmem_cache *cache);
void km_parts_end(struct kmem_cache *cache);
/* Prepares an object for its user: zeros, canary. */
void km_parts_comes(struct kmem_cache *cache, void *object);
/* Checks and wipes a freed object. Returns: the object to free now, from the quarantine or the same; NULL: none. */
void *km_parts_goes(struct kmem_cache *cache, void *object);
/* km_parts_flush frees all objects in quarantine. Requires: km_thread.busy is set. km_parts_waiting returns their
 * number, a hint. */
void km_parts_flush(struct kmem_cache *cache);
size_t km_parts_waiting(const struct kmem_cache *cache);

/* Zeroes a freed object. Few bytes are zeroed by overlapping stores, without a call. */
km_inline void km_wipe(void *object, size_t bytes)
{
	char *end = (char *)object + bytes;

	if (bytes > 64 || bytes < 8) {
		__builtin_memset(object, 0, bytes);
	} else if (bytes > 32) {
		__builtin_memset(object, 0, 32);
		__builtin_memset(end - 32, 0, 32);
	} else if (bytes >= 16) {
		__builtin_memset(object, 0, 16);
		__builtin_memset(end - 16, 0, 16);
	} else {
		__builtin_memset(object, 0, 8);
		__builtin_memset(end - 8, 0, 8);
	}
}

#endif
