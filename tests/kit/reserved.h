/* reserved.h: objects of a cache used before its reservation: some freed again, others still allocated. */
#ifndef TESTS_KIT_RESERVED_H
#define TESTS_KIT_RESERVED_H

#include "api.h"

#define EACH	7u	/* one of EACH objects stays allocated */

static void take(struct kmem_cache *cache, char **to, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		NEED((to[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
}

/* Frees the allocated objects; with `but` every EACH-th object stays. */
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
