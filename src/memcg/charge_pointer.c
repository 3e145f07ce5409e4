/*
 * charge_pointer.c: an object in a user's hand: who pays for it, and that somebody does from now on. Invariant: its
 * owner word is read and written by whoever has the object, so nobody else changes it meanwhile; it names a payer
 * that has been charged.
 */
#include "charged_sheaf.h"
#include "child_cache.h"

struct mem_cgroup *mem_cgroup_from_obj(const void *object)
{
	struct kmem_cache *cache = ZERO_OR_NULL_PTR(object) ? NULL : km_cache_of(object);
	uint64_t owner = 0;

	if (cache && cache->child_of)
		owner = (uintptr_t)km_private_owner(cache);
	else if (cache && km_is_charged(cache))
		owner = km_object_owner(cache, object);
	else if (!cache && !ZERO_OR_NULL_PTR(object))
		owner = km_large_owner(object);
	return owner ? km_objcg_memcg((struct obj_cgroup *)(uintptr_t)owner) : NULL;
}

/*
 * An object that is out already, and the caller's: nobody else reads or writes its word. So a look at the word and the
 * charge need not be one step, and the charge comes first, as everywhere: a word without a charge would be paid back.
 */
bool kmem_cache_charge(void *object, gfp_t gfp)
{
	struct kmem_cache *cache = ZERO_OR_NULL_PTR(object) ? NULL : km_cache_of(object);
	struct obj_cgroup *objcg = km_objcg_now();

	if (!objcg || objcg == &km_objcg_root || ZERO_OR_NULL_PTR(object) || (cache && cache->child_of))
		return true;
	/* It has no owner word: it is nobody's, as it was. */
	if (km_is_guarded(object))
		return true;
	/* A private group has its blocks from the first on: or destroy_all would free them. */
	if (!cache)
		return km_large_owner(object) || (!objcg->private && km_large_charge(object, gfp));
	if (!km_is_charged(cache) && !km_alloc_begin_charging(cache, gfp))
		return false;
	/* It is somebody's already. Kernel: true as well. */
	if (km_object_owner(cache, object))
		return true;
	if (!km_objcg_charge(objcg, cache->charge, gfp))
		return false;
	if (km_object_set_owner(cache, object, (uintptr_t)objcg, km_gfp_may_wait(gfp)))
		return true;
	km_objcg_uncharge(objcg, cache->charge);
	return false;
}
