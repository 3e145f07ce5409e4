/*
 * debug_shadow.h: a cache that is debugged while it is used: debug_shadow.c, and debug_toggle.c, which asks for it.
 */
#ifndef KM_DEBUG_DEBUG_SHADOW_H
#define KM_DEBUG_DEBUG_SHADOW_H

#include "cache/cache.h"

/* Is an object of `actual` one that the cache gave out in its own name? */
km_inline bool km_is_shadow(const struct kmem_cache *cache, const struct kmem_cache *actual)
{
	return actual && (actual->shadow_of == cache || (actual->child_of && actual->child_of->shadow_of == cache));
}

/* With the registry locked: objects that are allocated from now on carry these of KM_DEBUG_FLAGS, and no others.
 * 0 or -errno: then nothing was changed. */
int km_shadows_switch(struct kmem_cache *cache, slab_flags_t flags);
/* The same of a cache that may have it, and keeps the settings of failing on purpose (debug_toggle.c). */
int km_switch_flags(struct kmem_cache *cache, slab_flags_t flags);
/* The same lock: where no object of a sibling is out, and none is to come, the cache is as if it had none. */
void km_shadows_settle(struct kmem_cache *cache);
/* The same of all caches, of which some may have siblings that drain (cache/mailbox.h: km_shadows_drain). */
void km_shadows_settle_all(void);

#endif
