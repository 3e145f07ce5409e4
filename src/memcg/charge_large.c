/*
 * charge_large.c: charges of cached large blocks, the objects of classes with SLAB_ACCOUNT (kmalloc/large_cache.h). The
 * fast path and frees are those of charged objects; this file serves misses. Invariants: a block of a large class,
 * allocated or on a charged sheaf, is charged to the objcg in its page's word, in whole pages and no more. A block
 * refused here is tried again by kmalloc/large.c, with exactly the pages requested: so no request is refused because of
 * the class's size. Private groups use no cached large blocks: their blocks are linked, for mem_cgroup_destroy_all.
 */
#include <errno.h>

#include "charged_sheaf.h"

static bool may_have(const struct obj_cgroup *objcg)
{
	return objcg && objcg != &km_objcg_root && !objcg->private;
}

bool km_charge_bytes(size_t bytes, gfp_t gfp, uint64_t *owner)
{
	struct obj_cgroup *objcg = km_objcg_now();

	*owner = objcg && objcg != &km_objcg_root ? (uintptr_t)objcg : 0;
	return !*owner || km_objcg_charge(objcg, bytes, gfp);
}

bool km_charge_is_here(uint64_t owner)
{
	return owner && owner == (uintptr_t)km_objcg_now();
}

bool km_charge_may_more(size_t bytes)
{
	const struct obj_cgroup *objcg = km_objcg_now();

	return !objcg || objcg == &km_objcg_root || km_objcg_spare(objcg) >= bytes;
}

bool km_charge_has_room(size_t bytes)
{
	const struct obj_cgroup *objcg = km_objcg_now();

	return may_have(objcg) && km_objcg_spare(objcg) >= bytes;
}

bool km_charge_block(struct kmem_cache *class, void *block, uint64_t owner, bool may_wait)
{
	return km_object_set_owner(class, block, owner, may_wait);
}

/* Moves the charge of a block to objcg. Returns: false if objcg can't be charged now; the block is then uncharged. */
static bool move_charge(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *block, uint64_t owner)
{
	km_debug(cache->layout.engine->whole_pages && may_have(objcg),
		 "a block of a class is charged to an objcg without a private group");
	if (owner)
		km_charged_disown(cache, owner, &block, 1);
	return km_objcg_spare(objcg) >= cache->memcg.charge &&
	       km_objcg_charge(objcg, cache->memcg.charge, GFP_NOWAIT | __GFP_NOWARN) &&
	       km_charged_name(cache, gfp, objcg, &block, 1);
}

void *km_charged_recharge_block(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *block,
				uint64_t *word)
{
	const uint64_t owner = km_object_owner(cache, block);
	km_calls_scope(was, km_gfp_may_wait(gfp));
	km_errno_scope(saved_errno);

	(void)word;
	if (!may_have(objcg)) {
		if (!km_pcs_push(&cache->memcg.mixed, block))
			km_charged_give_up(cache, KM_OBJCGS_DIFFER, &block, 1);
		block = NULL;
	} else if (owner != (uintptr_t)objcg && !move_charge(cache, gfp, objcg, block, owner)) {
		km_plain_free(cache, block);
		block = NULL;
	}
	return block;
}

void *km_charged_block(struct kmem_cache *cache, gfp_t gfp, int node)
{
	struct obj_cgroup *objcg = km_objcg_now();

	if (!may_have(objcg) || gfp & KM_CHARGED_ODD || node != NUMA_NO_NODE)
		return NULL;
	km_charged_mix(cache, gfp);
	if (!km_charged_is_mixed(cache))
		return km_owned_pop(&cache->memcg.charged, (uintptr_t)objcg);
	void *block = km_pcs_pop(&cache->memcg.mixed);
	return block ? km_charged_recharge_block(cache, gfp, objcg, block, NULL) : NULL;
}
