/*
 * harden.h: parts of hardening that a cache may have beside the proof of its frees (alloc/validate.c), each by an
 * option of its own: the work on an object between its proof and its shelf, both ways.
 */
#ifndef KM_ALLOC_HARDEN_H
#define KM_ALLOC_HARDEN_H

#include "slab/engine.h"

/* The cache's, when it is made; whatever there is no memory for it does without. */
void km_parts_begin(struct kmem_cache *cache);
void km_parts_end(struct kmem_cache *cache);
/* The object is about to be its user's. */
void km_parts_comes(struct kmem_cache *cache, void *object);
/* The object was its user's: returns the one that may lie ready now, in its place or itself; NULL: none. */
void *km_parts_goes(struct kmem_cache *cache, void *object);
/* All that waits goes to the engine. With km_thread_busy set. How many wait? A racy look. */
void km_parts_flush(struct kmem_cache *cache);
size_t km_parts_waiting(const struct kmem_cache *cache);

/* A freed object is made zeros: few bytes by stores that overlap, without a call. */
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
