/*
 * reserved.h: objects of a cache that was used before it is reserved: some were had and given back, and others are out.
 */
#ifndef TESTS_KIT_RESERVED_H
#define TESTS_KIT_RESERVED_H

#include "api.h"

#define EACH	7u	/* of so many objects one stays out */

static void take(struct kmem_cache *cache, char **to, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		NEED((to[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
}

/* Those that are there; but for each EACH-th, if `but`. */
static void give(struct kmem_cache *cache, char **from, unsigned count, bool but)
{
	for (unsigned i = 0; i < count; i++) {
		if (!from[i] || (but && i % EACH == 0))
			continue;
		kmem_cache_free(cache, from[i]);
		from[i] = NULL;
	}
}

#endif
