/*
 * charge.c: alloc ops for charged objects, one object at a time (bulk requests: charge_bulk.c). This layer is above
 * the plain layers of a cache with SLAB_ACCOUNT, and of a cache after its first allocation with __GFP_ACCOUNT. Each
 * charged object costs its group memcg.charge bytes from the allocation until the free.
 *
 *	hit	the CPU's charged sheaf has cached objects of this group, charged when they were pushed: pop, push
 *	recharge with several groups a sheaf is mixed: an object of another group is charged to the group that pops it
 *	refill	half a sheaf at a time: one charge, objects from the plain sheaf, owner words set
 *	else	one object: bytes from or to the group's stock on this CPU, the object from or to the plain sheaf
 *
 * Invariants: the owner word of an allocated object, or of an object on a charged sheaf, names an objcg, and this
 * objcg is charged for the object. All objects of charged sheaves are given back (flush) before a charge that may
 * wait is refused.
 */
#include <errno.h>
#include <kmem/memcg.h>

#include "charged_sheaf.h"
#include "child_cache.h"

/*
 * The order of steps is the same for one object and for many:
 *
 *	allocation	1. charge the bytes	2. take the object from the layer below		3. set its owner word
 *	free		1. clear the owner word	2. uncharge the object's bytes	3. give the object to the layer below
 *
 * Allocation: the charge may wait, reclaim, call back, and is the step most often refused. The charge comes first,
 * because then nothing must be undone. The bytes just charged keep the objcg alive. Until step 3 no thread reads the
 * old value of the owner word: the word counts only for an allocated object, or an object on a charged sheaf.
 *
 * Free: as soon as the object is in the layer below, another thread may allocate the object and set the owner word. So
 * the word must be cleared before. The uncharge is the last use of the objcg: the objcg may end with its last byte.
 * During one call an object may be charged without being allocated, and a limit refuses a little early.
 */

/* Returns whether this file may use the CPU's plain sheaf without the layers below: no observers, and no checks. */
km_inline bool has_plain_pcs(const struct kmem_cache *cache)
{
	return cache->layout.engine->front == KM_PERCPU_SHEAVES && !km_is_seen(cache) && !cache->layout.checked;
}

/*
 * Returns the owner of the CPU's charged sheaf; 0: no owner, or no sheaf. The answer may be stale: callers continue
 * with a per-CPU operation or the slow path. For a thread without a CPU the load reads the zeros below the areas.
 */
km_inline uintptr_t block_owner(const struct kmem_cache *cache)
{
#ifdef KMEM_HAVE_RSEQ
	int32_t cpu = km_load((int32_t *)((char *)__builtin_thread_pointer() + km_rseq + 4));
	char *area = km_hot.percpu + ((intptr_t)cpu << KMEM_AREA_SHIFT);

	return km_load((uintptr_t *)(area + km_load(&cache->memcg.charged.inner.pcs)) + 1);
#else
	return km_owned_owner(&cache->memcg.charged);
#endif
}

/* ------------------------------------------------------------------ one object */

/*
 * Allocates an object charged to objcg; NULL: uncharged. Tries the plain sheaf directly, without the layer beneath: a
 * second hit needs no more. __GFP_ACCOUNT is cleared for the layer beneath: a layer that looks for an objcg again
 * would charge the object twice.
 */
static void *alloc_one(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	void *object = NULL;

	km_debug(objcg != &km_objcg_root && cache->memcg.charge, "a charged object has an objcg and a charge");
	if (objcg && !km_objcg_charge(objcg, cache->memcg.charge, gfp))
		return km_charge_failed(cache, gfp);
	if (km_likely(!(gfp & KM_CHARGED_ODD) && node == NUMA_NO_NODE && has_plain_pcs(cache)))
		object = km_pcs_pop(&cache->fast.pcs);
	if (!object)
		object = km_plain_alloc(cache, gfp & ~__GFP_ACCOUNT, node);
	if (km_likely(object))
		return km_charged_name_one(cache, gfp, objcg, object);
	if (objcg)
		km_objcg_uncharge(objcg, cache->memcg.charge);
	return NULL;
}

/*
 * Serves a miss. If gfp forbids waiting, the thread makes no system call in this function: every lock in the layers
 * beneath spins instead of sleeping (km_thread.no_calls). The scope begins here once, so that no function beneath
 * needs gfp for this purpose. Keeps errno over the refill: the caller did not ask for the refill, and half a sheaf may
 * be refused where one object is not. With per-CPU areas, and if every object is charged, the fast path has just found
 * the sheaf empty, or another group's. A second pop would fail again, and is skipped.
 */
static km_noinline void *alloc_slowly(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	km_calls_scope(was, km_gfp_may_wait(gfp));
	void *object = NULL;
	int saved_errno = errno;

	km_alloc_look(cache, km_gfp_may_wait(gfp));
	if (!objcg || objcg == &km_objcg_root)
		return alloc_one(cache, gfp & ~__GFP_ACCOUNT, node, NULL);
	if (km_unlikely(!km_load(&cache->memcg.charged.sheaf_mask)) && km_gfp_may_wait(gfp))
		km_charged_make(cache);
	if (km_load(&km_charged_pcs(cache)->inner.pcs) && !(gfp & KM_CHARGED_ODD) && node == NUMA_NO_NODE) {
		if (!km_hits_by_cpu() || !km_charges_all(cache))
			object = km_owned_pop(&cache->memcg.charged, (uintptr_t)objcg);
		if (!object)
			object = km_charged_refill(cache, objcg, gfp);
	}
	/* A failed refill says nothing about one object: memory for one object may suffice. */
	errno = saved_errno;
	return object ?: alloc_one(cache, gfp, node, objcg);
}

/* ------------------------------------------------------------------ direct path */

/*
 * Direct path: groups alternate on a CPU whose sheaf belongs to another group. The cache is charged only now and
 * then, or the fence for mixed sheaves was not made or is refused. An object is charged to the group's stock on this
 * CPU and comes from the plain sheaf, one per-CPU operation each; a free does the reverse. 1000 groups may use this
 * path constantly, so the path is as short as possible: calls only in tail position. A direct free leaves the object's
 * owner word unchanged, which is correct only where the word of a free object has no meaning (km_owners_exact): else a
 * walk, or the check of the next free, would take the free object for a charged object.
 */
#ifdef KMEM_HAVE_RSEQ
/* Returns: true if the CPU's charged sheaf cannot serve `owner`. other: the owner of the sheaf; 0: none, and `owner`
 * may adopt the sheaf unless MEM_CGROUP_SHELF is off. */
km_inline bool sheaf_is_of_another(const struct kmem_cache *cache, uintptr_t other, uintptr_t owner)
{
	return km_likely(other) ? other != owner : !km_memcg_modes[MEM_CGROUP_SHELF];
}

/* Ends alloc_direct after the charge, where the plain sheaf was empty (object NULL), or the owner word could not be set
 * quickly. If the owner can't be set, undoes both steps, and allocates by alloc_slowly. */
static km_noinline void *finish_direct(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *object)
{
	if (object && km_object_set_owner(cache, object, (uintptr_t)objcg, km_gfp_may_wait(gfp)))
		return object;
	bool was = km_calls_begin(km_gfp_may_wait(gfp));
	if (object)
		km_plain_free(cache, object);
	km_objcg_uncharge(objcg, cache->memcg.charge);
	km_calls_end(was);
	return alloc_slowly(cache, gfp, NUMA_NO_NODE, objcg);
}

/* Takes the bytes from the byte stock, then pops an object from the plain sheaf. In between the thread may migrate, or
 * run a signal handler: bytes taken out of a stock belong to the thread, and keep the objcg alive. */
km_inline void *alloc_direct(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg)
{
	const intptr_t rseq = km_rseq;

	if (km_unlikely(!km_rseq_stock_take(&objcg->slot, km_hot.percpu, rseq, cache->memcg.charge)))
		return alloc_slowly(cache, gfp, NUMA_NO_NODE, objcg);
	void *object = kmem_pcs_pop(&cache->fast.pcs.inner, km_hot.percpu, rseq);
	if (km_likely(object) && km_likely(km_object_set_owner_quick(cache, object, (uintptr_t)objcg)))
		return object;
	return finish_direct(cache, gfp, objcg, object);
}

/*
 * Puts the object's bytes into the objcg's byte stock, and the object on the plain sheaf. Returns: false where nothing
 * was done: in mode `drain`, where the CPU's one byte stock may belong to another objcg, or if the byte stock is closed
 * or full. After the put the objcg must not be read: another thread may take its last byte out of the stock at once.
 */
km_inline bool free_direct(struct kmem_cache *cache, void *object, struct obj_cgroup *objcg)
{
	const intptr_t rseq = km_rseq;

	km_debug(km_object_owner(cache, object) == (uintptr_t)objcg,
		 "bytes are uncharged from the objcg of the object");
	if (km_unlikely(km_memcg_modes[MEM_CGROUP_DRAIN]) ||
	    km_unlikely(!km_rseq_stock_put(&objcg->slot, km_hot.percpu, rseq, cache->memcg.charge, km_stock_most())))
		return false;
	if (km_unlikely(!kmem_pcs_push(&cache->fast.pcs.inner, km_hot.percpu, rseq, object)))
		km_plain_free(cache, object);
	return true;
}

/* Uncharges the former owner's bytes, and returns `object`. A tail call of recharge(), so recharge() saves no
 * registers. */
static km_noinline void *refund(struct obj_cgroup *owner, uint64_t bytes, void *object)
{
	km_objcg_uncharge(owner, bytes);
	return object;
}
#endif

/* Allocates while each charged sheaf has one owner: by alloc_direct while the CPU's sheaf is another objcg's and the
 * thread does not insist on a sheaf of its own (KM_CHARGED_INSIST), else by alloc_slowly. */
km_inline void *alloc_shared(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	km_charged_mix(cache, gfp);
#ifdef KMEM_HAVE_RSEQ
	if (km_likely(objcg && !(gfp & KM_CHARGED_ODD) && node == NUMA_NO_NODE && !km_is_seen(cache) &&
		      km_charged_is_direct(cache)) &&
	    sheaf_is_of_another(cache, block_owner(cache), (uintptr_t)objcg) &&
	    /* With charged sheaves off there is no sheaf to take over. */
	    (!km_charged_insist(cache, (uintptr_t)objcg) || !km_memcg_modes[MEM_CGROUP_SHELF]))
		return alloc_direct(cache, gfp, objcg);
#endif
	return alloc_slowly(cache, gfp, node, objcg);
}

/* ------------------------------------------------------------------ mixed sheaves */

/*
 * Charges an object in the caller's hand to objcg; NULL: leaves the object uncharged. The charge comes after the
 * object, against the order above: the owner of an object on a mixed sheaf is known only after the pop. A refused
 * charge frees the object.
 */
static void *charge_object(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *object)
{
	if (!objcg || km_objcg_charge(objcg, cache->memcg.charge, gfp))
		return km_charged_name_one(cache, gfp, objcg, object);
	km_plain_free(cache, object);
	return km_charge_failed(cache, gfp);
}

/* Serves a private group's request on a mixed sheaf from the group's child cache, and puts the popped object back. */
static km_noinline void *take_private(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *object)
{
	bool was = km_calls_begin(km_gfp_may_wait(gfp));

	if (!km_pcs_push(&cache->memcg.mixed, object))
		km_charged_give_up(cache, KM_OBJCGS_DIFFER, &object, 1);
	km_calls_end(was);
	return km_private_alloc(cache, gfp, NUMA_NO_NODE, objcg);
}

/*
 * Moves the charge of a popped object to objcg. The former owner is refunded before the new charge: a limit above
 * both groups then has room, in the former owner's stock if nowhere else.
 */
static km_noinline void *recharge_slowly(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *object)
{
	const uint64_t owner = km_object_owner(cache, object);
	km_calls_scope(was, km_gfp_may_wait(gfp));
	int saved_errno = errno;

	if (objcg == &km_objcg_root)
		objcg = NULL;
	if (owner != (uintptr_t)objcg) {
		if (owner)
			km_charged_disown(cache, owner, &object, 1);
		object = charge_object(cache, gfp & ~__GFP_ACCOUNT, objcg, object);
	}
	if (object)
		errno = saved_errno;
	return object;
}

/*
 * Moves the charge of a popped object to objcg on the short path: two per-CPU operations and a store. The new group is
 * charged before the former group is refunded: the charged sum is never less than the allocated bytes. The word is
 * stored in between, when either value is correct. Both objcgs are alive: the new objcg is active here, and the former
 * objcg has these bytes allocated. If the former stock is closed or full, the slow refund is the last step.
 */
static void *recharge(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *object,
		      uint64_t *word km_unused)
{
	if (km_unlikely(objcg->private) && km_is_private(objcg))
		return take_private(cache, gfp, objcg, object);
#ifdef KMEM_HAVE_RSEQ
	const intptr_t rseq = km_rseq;

	/* Only if `word` is the object's entry in a vector, not the page's word. */
	if (km_likely((uintptr_t)(word - km_hot.owner) >= km_load(&km_hot.pages)) && km_likely(word) &&
	    km_likely(!km_memcg_modes[MEM_CGROUP_DRAIN]) &&
	    km_likely(km_rseq_stock_take(&objcg->slot, km_hot.percpu, rseq, cache->memcg.charge))) {
		struct obj_cgroup *owner = (struct obj_cgroup *)(uintptr_t)(km_load(word) & ~KM_OWNER_NOBODY);

		km_debug(!owner || km_load(&owner->memcg),
			 "the objcg of an object is live until another objcg is charged");
		km_store(word, (uint64_t)(uintptr_t)objcg);
		if (km_likely(owner) && km_unlikely(!km_rseq_stock_put(&owner->slot, km_hot.percpu, rseq,
								       cache->memcg.charge, km_stock_most())))
			return refund(owner, cache->memcg.charge, object);
		return object;
	}
#endif
	return recharge_slowly(cache, gfp, objcg, object);
}

/* Pops from the mixed sheaf after a miss, and recharges an object of another owner. Hits never come here, but uncharged
 * requests, and requests to caches with child caches, always do. */
static void *mixed_alloc(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg)
{
	const uintptr_t mine = objcg && objcg != &km_objcg_root ? (uintptr_t)objcg : KM_OWNER_NOBODY;
	void *object = km_pcs_pop(&cache->memcg.mixed);
	uint64_t *word;

	if (!object)
		return alloc_slowly(cache, gfp, NUMA_NO_NODE, objcg);
	km_alloc_look(cache, km_gfp_may_wait(gfp));
	return km_likely(km_alloc_is_owner(cache, object, mine, &word)) ? object :
	       objcg ? recharge(cache, gfp, objcg, object, word) : recharge_slowly(cache, gfp, NULL, object);
}

static void *charged_alloc(struct kmem_cache *cache, gfp_t gfp, int node);

/* Allocates a zeroed object. Tries the charged sheaf first: where the default objcg is charged, the fast path sends
 * requests with __GFP_ZERO here without a pop. */
static km_noinline void *alloc_zeroed(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	void *object = NULL;

	gfp &= ~__GFP_ZERO;
	if (km_is_private(objcg))
		object = km_private_alloc(cache, gfp, node, objcg);
	else if (gfp & KM_CHARGED_ODD || node != NUMA_NO_NODE ||
		 !(object = km_owned_pop(&cache->memcg.charged, (uintptr_t)objcg)))
		object = charged_alloc(cache, gfp, node);
	return object ? km_cleared(cache, object) : NULL;
}

/*
 * Allocates after a miss of the fast path. The order of the tests matters. A private group's object must come from
 * the group's child cache in all cases, or mem_cgroup_destroy_all would miss the object. With mixed sheaves the owned
 * sheaf must not be used: the owned sheaf is closed for ever.
 */
static void *charged_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	struct obj_cgroup *objcg = km_charged_objcg(cache, gfp);

	if (km_unlikely(gfp & __GFP_ZERO) && objcg && !cache->form.ctor && !km_is_seen(cache))
		return alloc_zeroed(cache, gfp, node, objcg);
	if (km_unlikely(objcg && km_is_private(objcg)))
		return km_private_alloc(cache, gfp, node, objcg);
	if (km_charged_is_mixed(cache) && !(gfp & KM_CHARGED_ODD) && node == NUMA_NO_NODE && !km_is_seen(cache))
		return mixed_alloc(cache, gfp, objcg);
	return alloc_shared(cache, gfp, node, objcg);
}

/*
 * Frees to the charged sheaf of the owner; KM_OBJCGS_DIFFER: to the mixed sheaf, where the object keeps its owner word
 * and stays charged until another group pops the object, or a flush removes the object. Makes room by giving back half
 * of the sheaf, so that the next frees find room. Two tries: a handler or another thread may use the room made by the
 * first try. An object without a place is first disowned, then freed to the layer beneath. Keeps errno, because a free
 * can't fail.
 */
static km_noinline void free_slowly(struct kmem_cache *cache, void *object, uint64_t owner)
{
	int saved_errno = errno;

	km_alloc_look(cache, true);
	if (km_load(&km_charged_pcs(cache)->inner.pcs))
		for (int i = 0; object && i < 2; i++) {
			if (owner == KM_OBJCGS_DIFFER ? km_pcs_push(&cache->memcg.mixed, object) :
							km_owned_push(&cache->memcg.charged, owner, object)) {
				km_charged_see_back(cache);
				return;
			}
			if (!km_charged_make_room(cache, owner))
				break;
		}
	if (object)
		km_charged_disown(cache, owner, &object, 1);
	if (!has_plain_pcs(cache) || !object || !km_pcs_push(&cache->fast.pcs, object))
		km_plain_free(cache, object);
	errno = saved_errno;
}

#ifdef KMEM_HAVE_RSEQ
/* Returns whether free_direct is possible: the sheaves are owned, and the word of a free object has no meaning. */
km_inline bool may_free_direct(const struct kmem_cache *cache)
{
	const uint32_t state = km_load(&cache->memcg.charging);

	return state >= KM_CHARGING_ONE && state < KM_CHARGING_MIXED && km_charged_is_direct(cache) &&
	       !km_is_seen(cache);
}

/*
 * Frees to the owner's charged sheaf. Refunds the stock and pushes to the plain sheaf instead, if this thread's last
 * allocation for this owner met another group's sheaf, or if such a sheaf is here now.
 */
static void free_owned(struct kmem_cache *cache, void *object, uint64_t owner)
{
	struct obj_cgroup *objcg = (struct obj_cgroup *)(uintptr_t)owner;
	const bool last = km_charged_last.owner == owner && km_charged_last.cache == cache;

	if (last && free_direct(cache, object, objcg))
		return;
	if (km_rseq_owned_push(&cache->memcg.charged.inner, km_hot.percpu, km_rseq, owner, object))
		km_charged_see_back(cache);
	else if (!sheaf_is_of_another(cache, block_owner(cache), owner) || !free_direct(cache, object, objcg))
		free_slowly(cache, object, owner);
}
#endif

static void free_uncharged(struct kmem_cache *cache, void *object)
{
	km_alloc_look(cache, true);
	if (km_unlikely(!object) || !has_plain_pcs(cache) || !km_pcs_push(&cache->fast.pcs, object))
		km_plain_free(cache, object);
}

/*
 * Returns the owner of an object to be freed; 0: uncharged; KM_OBJCGS_DIFFER: the mixed sheaf needs no owner.
 * memcg.objcg is loaded once. memcg.objcg may change to KM_OBJCGS_DIFFER meanwhile, but not for this object: its owner
 * was set before this thread had the object. With KM_OBJCGS_DIFFER the owner is read from the object's own word; no
 * other thread writes this word while the object is in this thread's hand.
 */
static uint64_t owner_of_freed(const struct kmem_cache *cache, const void *object)
{
	uint64_t owner = km_load(&cache->memcg.objcg);

	if (km_charged_is_mixed(cache) && !km_is_seen(cache))
		return KM_OBJCGS_DIFFER;
	if (km_objcg_is_known(owner))
		return owner;
	return owner == KM_OBJCG_NOBODY ? 0 : km_freed_owner(cache, object);
}

static km_noinline void free_seen(struct kmem_cache *cache, void *object)
{
	const uint64_t owner = owner_of_freed(cache, object);

	if (!owner)
		free_uncharged(cache, object);
#ifdef KMEM_HAVE_RSEQ
	else if (may_free_direct(cache))
		free_owned(cache, object, owner);
#endif
	else
		free_slowly(cache, object, owner);
}

/* Frees in a cache with child caches: the object may be a child cache's. */
static km_noinline void free_private(struct kmem_cache *cache, void *object)
{
	if (km_private_is_own(cache, object) ||
	    !(km_likely(km_private_push(cache, object)) || km_private_free(cache, object)))
		free_seen(cache, object);
}

static void charged_free(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(km_is_parent(cache)))
		free_private(cache, object);
	else
		free_seen(cache, object);
}

/* Refunds the object's owner and frees the object past all sheaves. A child cache's object comes by the child
 * cache. */
static void charged_free_past(struct kmem_cache *cache, void *object)
{
	const uint64_t owner = owner_of_freed(cache, object);
	km_errno_scope(saved_errno);

	if (owner)
		km_charged_disown(cache, owner, &object, 1);
	km_ops_free_past(km_layer(cache, KM_LAYER_CHARGE + 1), cache, object);
}

const struct km_alloc_ops km_charged_ops = {
	.alloc = charged_alloc, .free = charged_free, .free_past = charged_free_past,
	.alloc_bulk = km_charged_alloc_bulk, .free_bulk = km_charged_free_bulk,
	.recharge = recharge, .recharge_bulk = km_charged_recharge_bulk,
};

const struct km_alloc_ops km_charged_block_ops = {
	.alloc = km_charged_block, .free = charged_free,
	.alloc_bulk = km_charged_alloc_bulk, .free_bulk = km_charged_free_bulk,
	.recharge = km_charged_recharge_block, .recharge_bulk = km_charged_recharge_bulk,
};
