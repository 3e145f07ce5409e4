/*
 * account_scope.c: charges of allocations without __GFP_ACCOUNT: all allocations of a thread, the blocks of malloc, and
 * a later charge for an allocated object. Invariant: an uncharged object is never refunded. A cache with both kinds of
 * objects has an owner word for each object; only the holder of the object reads and writes the word. Charged blocks
 * of malloc come from separate caches, with no uncharged objects.
 */
#include <errno.h>
#include <kmem/memcg.h>

#include "charged_sheaf.h"
#include "child_cache.h"
#include "memcg_group.h"

static int begin_each(struct kmem_cache *cache, void *arg km_unused)
{
	km_charge_begin(cache, true);
	return 0;
}

/* Begins charging of all caches. Under the registry lock a cache is either listed here, or sees the flag at its
 * creation. */
static km_cold void charge_everything(void)
{
	if (!km_boot())
		return;
	km_registry_scope();
	if (!(km_account_asks & KM_ASKS_THREADS)) {
		km_store(&km_account_asks, km_account_asks | KM_ASKS_THREADS);
		km_registry_each(begin_each, NULL);
	}
}

bool mem_cgroup_account_all(bool on)
{
	bool was = km_account_here;

	if (on && km_unlikely(!(km_load(&km_account_asks) & KM_ASKS_THREADS))) {
		/* A visit of all caches has the registry locked. */
		if (km_thread.busy)
			return was;
		charge_everything();
	}
	km_account_here = on;
	return was;
}

/* Executes mem_cgroup_account_malloc. With a group charged for the whole process (option account) malloc's ordinary
 * caches are charged already. */
int km_memcg_account_malloc(bool on)
{
	if (!km_malloc_ops || km_options.engine->shared_pages)
		return -EOPNOTSUPP;
	if (!km_options.account)
		km_malloc_ops->account(on);
	return 0;
}

int mem_cgroup_account_malloc(bool on)
{
	/* A visit of all caches has the registry locked. */
	if (km_thread.busy)
		return -EBUSY;
	if (!km_boot() || !km_malloc_ops)
		return -EOPNOTSUPP;
	km_registry_lock();
	int error = km_memcg_account_malloc(on);
	km_registry_unlock();
	/* Cached large blocks would otherwise stay charged to groups until the next flush. */
	if (!error && !on && !km_options.account)
		km_memcg_flush_pcs(&km_memcg_root);
	return error;
}

/* ------------------------------------------------------------------ a given object */

struct mem_cgroup *mem_cgroup_from_obj(const void *object)
{
	struct kmem_cache *cache = ZERO_OR_NULL_PTR(object) ? NULL : km_cache_of(object);
	uint64_t owner = 0;

	if (cache && cache->memcg.child_of)
		owner = (uintptr_t)km_private_owner(cache);
	else if (cache && km_is_charged(cache))
		owner = km_object_owner(cache, object);
	else if (!cache && !ZERO_OR_NULL_PTR(object))
		owner = km_large_owner(object);
	return owner ? km_objcg_memcg((struct obj_cgroup *)(uintptr_t)owner) : NULL;
}

/* No other thread reads or writes the object's word, so the look at the word and the charge need not be atomic. */
bool kmem_cache_charge(void *object, gfp_t gfp)
{
	struct kmem_cache *cache = ZERO_OR_NULL_PTR(object) ? NULL : km_cache_of(object);
	struct obj_cgroup *objcg = km_objcg_now();

	if (!objcg || objcg == &km_objcg_root || ZERO_OR_NULL_PTR(object) || (cache && cache->memcg.child_of))
		return true;
	/* A guarded object has no owner word, and stays uncharged. */
	if (km_is_guarded(object))
		return true;
	/* A private group's block must be charged from its allocation on; after a later charge destroy_all would free
	 * the block. */
	if (!cache)
		return km_large_owner(object) || (!objcg->private && km_large_charge(object, gfp));
	if (!km_is_charged(cache) && !km_alloc_begin_charging(cache, gfp))
		return false;
	/* true also if the object is charged already, as in the kernel */
	if (km_object_owner(cache, object))
		return true;
	return km_objcg_charge(objcg, cache->memcg.charge, gfp) && km_charged_name(cache, gfp, objcg, &object, 1);
}
