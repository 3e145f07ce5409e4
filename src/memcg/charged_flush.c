/*
 * charged_flush.c: objects that are paid for and lie ready on CPUs' shelves go back: all of a cache, or those that a
 * group, or one below it, pays for. Invariant: what is taken off a shelf here is nobody's, and paid back, before its
 * engine has it.
 */
#include "charged_sheaf.h"
#include "child_cache.h"

static bool any(struct kmem_cache *cache, uintptr_t owner, void *const *objects, size_t count, void *arg)
{
	(void)cache, (void)owner, (void)objects, (void)count, (void)arg;
	return true;
}

static void take_back(struct kmem_cache *cache, uintptr_t owner, void **objects, size_t count, void *arg)
{
	(void)arg;
	km_debug(owner && count, "what is taken off a charged shelf has an owner");
	km_charged_disown(cache, owner, objects, count);
	cache->engine->give(cache, objects, (unsigned)count);
}

const struct km_charged_drain km_charge_drain_all = { any, take_back, NULL };

/* Is one of the objects paid for by the group, or one below it? Of a run of one owner's it is asked once. */
static bool below(struct kmem_cache *cache, uintptr_t owner, void *const *objects, size_t count, void *arg)
{
	uint64_t last = 0;

	if (owner != KM_OBJCGS_DIFFER)
		return km_memcg_below((struct obj_cgroup *)owner, arg);
	for (size_t i = 0; i < count; i++) {
		uint64_t now = km_object_owner(cache, objects[i]);

		if (now && now != last && km_memcg_below((struct obj_cgroup *)(uintptr_t)now, arg))
			return true;
		last = now;
	}
	return false;
}

static int flush_cache(struct kmem_cache *cache, void *root)
{
	struct km_charged_drain how = { below, take_back, root };
	bool some = false;

	/* Also an empty one: without shelves none is to be used. */
	if (km_pcs_slot(&cache->charged))
		km_for_each_cpu(cpu)
			some |= km_owned_owner_cpu(&cache->charged, cpu) != 0;
	if (some)
		km_alloc_drain_charged(&cache, 1, &how);
	if (cache->child_of)
		km_private_flush(cache, root);
	return 0;
}

/*
 * Caches neither come nor go meanwhile. A block on which objects of several lie is given back whole as soon as one of
 * them is the group's: to pick out single ones would take a look at each, with the shelf closed to everybody.
 */
void km_memcg_flush_pcs(struct mem_cgroup *root)
{
	struct km_busy_was was = km_busy_begin();

	km_large_finish_deferred();
	km_registry_visit(flush_cache, root);
	km_busy_end(was);
}
