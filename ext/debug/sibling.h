/*
 * sibling.h: a cache that is debugged while it is used, for the files that ask for it: sibling.c and switch.c.
 */
#ifndef KM_DEBUG_SIBLING_H
#define KM_DEBUG_SIBLING_H

#include "cache/cache.h"

/* The shapes of a cache of whose siblings an object may be out: nobody pays for its objects, or somebody does. */
extern km_hidden const struct km_shape km_shape_sibling, km_shape_sibling_charged;

/* Is an object of `actual` one that the cache gave out in its own name? */
km_inline bool km_is_sibling(const struct kmem_cache *cache, const struct kmem_cache *actual)
{
	return actual && (actual->sibling_of == cache || (actual->twin_of && actual->twin_of->sibling_of == cache));
}

/* With the registry locked: objects that are allocated from now on carry these of KM_DEBUG_FLAGS, and no others.
 * 0 or -errno: then nothing was changed. */
int km_siblings_switch(struct kmem_cache *cache, slab_flags_t flags);
/* The same lock: where no object of a sibling is out, and none is to come, the cache is as if it had none. */
void km_siblings_settle(struct kmem_cache *cache);
/* The same of all caches, of which some may have siblings that drain (cache/mail.h: km_siblings_drain). */
void km_siblings_settle_all(void);

#endif
