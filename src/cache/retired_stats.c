/*
 * retired_stats.c: the slabs of caches that are gone. Invariant: all that was counted is counted on, by one cache
 * that is there or by the process, so what is read by a name, or of the process, never falls while it is there.
 */
#include "os/die.h"
#include "cache.h"

static struct km_retired past;

const struct km_retired *km_retired_of_process(void)
{
	return &past;
}

/* The cache that is there and counts as this one, which goes: the one that it belongs to, or one of its name. */
static struct kmem_cache *heir_of(const struct kmem_cache *cache)
{
	struct kmem_cache *heir = cache->child_of ?: cache->shadow_of;

	/* That may have gone together with this one. */
	if (heir)
		return heir->dead ? NULL : heir;
	heir = *km_registry_named(cache->name);
	while (heir && __builtin_strcmp(heir->name, cache->name) != 0)
		heir = heir->next_named;
	return heir;
}

void km_retired_hand_down(const struct kmem_cache *cache, const struct kmem_cache_stats *stats)
{
	struct kmem_cache *heir = heir_of(cache);
	struct km_retired *to = heir ? &heir->past : &past;

	km_debug(km_thread_busy && heir != cache, "a cache that goes is found by its name no more");
	km_bump(&to->new_slabs, stats->alloc_slab + cache->past.new_slabs);
	km_bump(&to->freed_slabs, stats->free_slab + cache->past.freed_slabs);
}
