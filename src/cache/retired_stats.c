/*
 * retired_stats.c: slab counters of destroyed caches. Invariant: every count is carried on by a live cache or by the
 * process. Therefore the sum for a name never falls while a cache of the name is live, and the sum for the process
 * never falls.
 */
#include "cache.h"

static struct km_retired past;

const struct km_retired *km_retired_of_process(void)
{
	return &past;
}

/* Returns the heir of a destroyed cache's counters: its parent, else the newest cache of its name, else NULL. */
static struct kmem_cache *heir_of(const struct kmem_cache *cache)
{
	struct kmem_cache *heir = cache->memcg.child_of ?: cache->ext.shadow_of;

	/* No heir if the parent is destroyed in the same call. */
	if (heir)
		return heir->layout.dead ? NULL : heir;
	heir = *km_registry_named(cache->registry.name);
	while (heir && __builtin_strcmp(heir->registry.name, cache->registry.name) != 0)
		heir = heir->registry.next_named;
	return heir;
}

void km_retired_hand_down(const struct kmem_cache *cache, const struct kmem_cache_stats *stats)
{
	struct kmem_cache *heir = heir_of(cache);
	struct km_retired *to = heir ? &heir->state.past : &past;

	km_debug(km_thread.busy && heir != cache, "a destroyed cache is not on the list of its name");
	km_bump(&to->new_slabs, stats->alloc_slab + cache->state.past.new_slabs);
	km_bump(&to->freed_slabs, stats->free_slab + cache->state.past.freed_slabs);
}
