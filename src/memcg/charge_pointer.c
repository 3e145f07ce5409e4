/*
 * charge_pointer.c: the owner of an allocated object, and a later charge for an allocated object. Invariant: the
 * owner word is read and written only by the holder of the object, and so never changes meanwhile; a word names an
 * objcg only if the objcg is charged.
 */
#include "charged_sheaf.h"
#include "child_cache.h"

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

/*
 * Charges an allocated object of the caller. No other thread reads or writes the object's word, so the look at the
 * word and the charge need not be atomic. The charge comes first, as in all paths: a word without a charge would be
 * refunded.
 */
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
	/* Already charged. Kernel: true as well. */
	if (km_object_owner(cache, object))
		return true;
	return km_objcg_charge(objcg, cache->memcg.charge, gfp) && km_charged_name(cache, gfp, objcg, &object, 1);
}
