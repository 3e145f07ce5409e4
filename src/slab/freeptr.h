/*
 * freeptr.h: the link from a free object to the next one; in C, links are read and written only here. The per-CPU
 * operations (percpu/cpu_freelist.c, percpu/rseq_freelist_x86_64.h) know the plain form, too. A form that hides
 * the address (kernel: CONFIG_SLAB_FREELIST_HARDENED) would change only these files.
 */
#ifndef KM_SLAB_FREEPTR_H
#define KM_SLAB_FREEPTR_H

#include "engine.h"

km_inline void *km_free_next(const struct kmem_cache *cache, const void *object)
{
	return km_load_speculative((void **)((uintptr_t)object + cache->layout.freeptr));
}

km_inline void km_set_free_next_at(void *object, uint32_t freeptr, void *next)
{
	km_store((void **)((char *)object + freeptr), next);
}

km_inline void km_set_free_next(const struct kmem_cache *cache, void *object, void *next)
{
	km_set_free_next_at(object, cache->layout.freeptr, next);
}

#endif
