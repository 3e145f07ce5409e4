/*
 * debug_shadow.h: switching debugging of a live cache on and off. Implemented by debug_shadow.c.
 */
#ifndef KM_DEBUG_DEBUG_SHADOW_H
#define KM_DEBUG_DEBUG_SHADOW_H

#include "cache/cache.h"

/* Returns: true if `actual` is a debug shadow cache of `cache`, or a child cache of a shadow. */
km_inline bool km_is_shadow(const struct kmem_cache *cache, const struct kmem_cache *actual)
{
	return actual &&
	       (actual->ext.shadow_of == cache ||
		(actual->memcg.child_of && actual->memcg.child_of->ext.shadow_of == cache));
}

/* Make future objects of the cache carry exactly these of KM_DEBUG_FLAGS, and SLAB_FAILSLAB as before. Returns: 0, or
 * -errno with nothing changed, also for a cache without support for debugging. Context: the registry is locked. */
int km_switch_flags(struct kmem_cache *cache, slab_flags_t flags);
/* Removes the layer SHADOW of a cache if no shadow cache serves, and no object of a shadow cache is allocated. Context:
 * the registry is locked. */
void km_shadows_settle(struct kmem_cache *cache);
/* Calls km_shadows_settle for every cache. km_shadows_drain (cache/mailbox.h) tells whether some layers stay. Context:
 * the registry is locked. */
void km_shadows_settle_all(void);

#endif
