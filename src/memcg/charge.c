/*
 * charge.c: the shape of objects that somebody pays for, one at a time (many: charge_bulk.c). It stands before the
 * plain shape of a cache with SLAB_ACCOUNT, or of one that was once asked for an object with __GFP_ACCOUNT, and sees
 * to it that each such object costs its group cache->charge bytes from the moment it is handed out until it is freed.
 *
 *	hit	the CPU's charged shelf holds objects of this group, paid for when they were put there: pop, push
 *	recharge where several pay, blocks have objects of them all: what is another's is charged to who pops it
 *	refill	half a shelf at a time: paid for in one charge, taken from the plain shelf, their owner words set
 *	else	one object: its bytes from or to the group's stock on this CPU, itself from or to the plain shelf
 *
 * Invariants: the owner word of an object that is out, or on a charged shelf, says whose it is, and whose it is has
 * paid. On a charged shelf there are at most 64 KiB, of large blocks 256 KiB, or two objects, of one cache on one CPU;
 * near a limit less is taken; and all of it is given back before anybody is refused (flush).
 */
#include <errno.h>
#include <kmem/memcg.h>

#include "charged_sheaf.h"
#include "child_cache.h"

/*
 * The order of steps, which is the same wherever one object or many change hands:
 *
 *	in	1. bytes are charged	2. the object is taken from beneath	3. its word names the payer
 *	out	1. its word is cleared	2. the object's bytes go back		3. the object goes beneath
 *
 * In: a charge is the step that waits, reclaims, calls back and is refused most often, so it comes while there is
 * nothing to be put back. Each later step that fails undoes those before it, and the payer can't be gone by then, since
 * the bytes that were just charged keep it. Until the word is set the object is in this thread's hand, and nobody reads
 * what an earlier owner left in the word: it counts only for an object that is out, or on a charged shelf.
 *
 * Out: as soon as the object lies beneath, another thread may have it and set its word, so that a word cleared later
 * could be that thread's. And the bytes are the last that is done with the payer: with the last byte it may be over.
 *
 * In between an object is never out without being paid for. It may be paid for without being out, for the length of a
 * call: then a limit refuses a little early, and the next attempt, after a flush, finds the bytes.
 */

#define PCS_BYTES ((size_t)64 << 10)
#define BLOCKS_BYTES ((size_t)256 << 10)	/* of large blocks: as many pages as a page stock has */

/* Objects may go to and from there without passing by the front: nobody watches or checks each. */
km_inline bool has_plain_pcs(const struct kmem_cache *cache)
{
	return cache->engine->front == KM_PERCPU_SHEAVES && !km_is_seen(cache) && !cache->checked;
}

/*
 * The owner of the CPU's block, 0 for nobody or none: a look for those who then do a sequence, or go the slow way. Of a
 * thread without a CPU that is a word of the zeros below the areas.
 */
km_inline uintptr_t block_owner(const struct kmem_cache *cache)
{
#ifdef KMEM_HAVE_RSEQ
	int32_t cpu = km_load((int32_t *)((char *)__builtin_thread_pointer() + km_rseq + 4));
	char *area = km_hot.percpu + ((intptr_t)cpu << KMEM_AREA_SHIFT);

	return km_load((uintptr_t *)(area + km_load(&cache->charged.inner.pcs)) + 1);
#else
	return km_owned_owner(&cache->charged);
#endif
}

/* ------------------------------------------------------------------ one object */

/*
 * Nobody pays, and in a cache all of whose objects are paid for otherwise that must be said: without it a free would
 * believe the page's word, and pay back what was never charged.
 */
static void *alloc_unpaid(struct kmem_cache *cache, gfp_t gfp, int node)
{
	void *object = NULL;

	if (km_likely(!(gfp & KM_CHARGED_ODD) && node == NUMA_NO_NODE && has_plain_pcs(cache)))
		object = km_pcs_pop(&cache->pcs);
	if (!object)
		object = km_plain_alloc(cache, gfp, node);
	if (km_likely(!object || !cache->charge_all || km_object_set_owner(cache, object, 0, km_gfp_may_wait(gfp))))
		return object;
	km_plain_free(cache, object);
	return km_charge_failed(cache, gfp);
}

/*
 * The plain shelf is asked without going through the shape beneath, because that is all that a second hit needs. gfp
 * loses __GFP_ACCOUNT on the way down: where the shape beneath asks again who pays, the object would be paid for twice.
 */
static void *alloc_paid(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	void *object = NULL;

	km_debug(objcg != &km_objcg_root && cache->charge, "an object that is paid for has a payer and a price");
	if (!km_objcg_charge(objcg, cache->charge, gfp))
		return km_charge_failed(cache, gfp);
	if (km_likely(!(gfp & KM_CHARGED_ODD) && node == NUMA_NO_NODE && has_plain_pcs(cache)))
		object = km_pcs_pop(&cache->pcs);
	if (!object)
		object = km_plain_alloc(cache, gfp & ~__GFP_ACCOUNT, node);
	if (km_likely(object && km_object_set_owner(cache, object, (uintptr_t)objcg, km_gfp_may_wait(gfp))))
		return object;
	if (object)
		km_plain_free(cache, object);
	km_objcg_uncharge(objcg, cache->charge);
	return object ? km_charge_failed(cache, gfp) : NULL;
}

/* The price of an object for its payer: its word among its page's owners, too. */
static uint32_t charge_of(const struct kmem_cache *cache)
{
	return cache->size + (cache->engine->whole_pages ? 0 : (uint32_t)sizeof(void *));
}

/* Bytes of a block: as many objects as the bound allows, two at least; 0: each is paid for as it comes. */
static uint32_t pcs_block(const struct kmem_cache *cache)
{
	const size_t most = cache->engine->whole_pages ? BLOCKS_BYTES : PCS_BYTES;
	uint32_t words = KM_CHARGED_MOST + 2;

	if (cache->engine->front != KM_PERCPU_SHEAVES || !cache->capacity)
		return 0;
	while (words > 4 && (words - 2) * (size_t)charge_of(cache) > most)
		words /= 2;
	return words * (uint32_t)sizeof(void *);
}

static const struct km_alloc_ops charged;

/*
 * It began to be charged where nobody might wait: the first who may gives it its shelf. The shelf of paid objects
 * needs words on every CPU, a fence and memory for blocks, none of which a thread gets that may not call the system.
 * Until somebody comes that may, objects are paid for one at a time, which is correct and slow. Two threads that come
 * at once are told apart by the lock of draining (charged_drain.c): the second finds a shelf.
 */
static km_noinline void give_pcs(struct kmem_cache *cache)
{
	uint32_t bytes = pcs_block(cache);

	if (!bytes || km_thread_busy)
		return;
	struct km_busy_was was = km_busy_begin();
	km_charged_set_ops(cache, &charged, bytes, true);
	km_busy_end(was);
}

/*
 * A request that no hit has served. errno is kept over the refill, since that is an attempt of ours which the caller
 * did not ask for: half a shelf may be refused where the caller's one object is not. With areas by CPU the front has
 * just found the shelf empty, or another's, and a second pop would find the same.
 */
static void *alloc_by_pcs(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	void *object = NULL;
	int saved_errno = errno;

	km_alloc_look(cache, km_gfp_may_wait(gfp));
	if (!objcg || objcg == &km_objcg_root)
		return alloc_unpaid(cache, gfp & ~__GFP_ACCOUNT, node);
	if (km_unlikely(!km_load(&cache->charged.sheaf_mask)) && km_gfp_may_wait(gfp))
		give_pcs(cache);
	if (km_load(&km_charged_pcs(cache)->inner.pcs) && !(gfp & KM_CHARGED_ODD) && node == NUMA_NO_NODE) {
		if (!km_hits_by_cpu() || !cache->charge_all)
			object = km_owned_pop(&cache->charged, (uintptr_t)objcg);
		if (!object)
			object = km_charged_refill(cache, objcg, gfp);
	}
	/* Where there is no memory for half a shelf, there may be for one object. */
	errno = saved_errno;
	return object ?: alloc_paid(cache, gfp, node, objcg);
}

/*
 * From here on the thread may not call the system where gfp says so: every lock further down spins instead of sleeping
 * (km_no_calls). It is said once, at the door, so that nothing beneath has to hand gfp on for this purpose.
 */
static km_noinline void *alloc_slowly(struct kmem_cache *cache, gfp_t gfp, int node,
				      struct obj_cgroup *objcg)
{
	km_calls_scope(was, km_gfp_may_wait(gfp));
	return alloc_by_pcs(cache, gfp, node, objcg);
}

/* ------------------------------------------------------------------ groups in turn */

/*
 * Groups in turn on a CPU whose block is one owner's, and another's: the cache is charged now and then, or nobody has
 * made the fence for blocks of many owners, or could. Then an object is paid for out of the group's stock on this CPU
 * and comes from the plain shelf, a sequence each, and goes back the same way. As 1000 groups may do that all the time
 * it is as short as it can be: no call but at the end of a function. cache->direct says which of the two is to be had.
 */
#define DIRECT_ALLOC 1u	/* by rseq, from an array */
#define DIRECT_FREE 2u	/* ... and a free object's word need not say that nobody pays */

/*
 * A free by the direct way leaves the object's word as it is. That is right only where the word of a free object means
 * nothing (km_owners_exact): else a walk, or a check of the next free, would take the object for somebody's.
 */
static uint8_t direct_of(const struct kmem_cache *cache)
{
	if (!km_hits_by_cpu() || cache->engine->front != KM_PERCPU_SHEAVES)
		return 0;
	return km_owners_exact(cache) ? DIRECT_ALLOC : DIRECT_ALLOC | DIRECT_FREE;
}

#ifdef KMEM_HAVE_RSEQ
/* Nobody's is there for the taking, unless there are to be no shelves. */
km_inline bool in_the_way(const struct kmem_cache *cache, uintptr_t other, uintptr_t owner)
{
	return km_likely(other) ? other != owner : !km_memcg_modes[MEM_CGROUP_SHELF];
}

/* The charge has no object, or the word of the object's slab must change. */
static km_noinline void *finish_direct(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *object)
{
	if (object && km_object_set_owner(cache, object, (uintptr_t)objcg, km_gfp_may_wait(gfp)))
		return object;
	bool was = km_calls_begin(km_gfp_may_wait(gfp));
	if (object)
		km_plain_free(cache, object);
	km_objcg_uncharge(objcg, cache->charge);
	km_calls_end(was);
	return alloc_slowly(cache, gfp, NUMA_NO_NODE, objcg);
}

/*
 * Two sequences, each all or nothing, and between them the thread may be moved to another CPU, or be struck by a
 * handler: no harm, because the bytes are the thread's own by then. And objcg stays, also where its group goes just
 * then: bytes that were taken out of a stock count as out with a user.
 */
km_inline void *alloc_direct(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg)
{
	const intptr_t rseq = km_rseq;

	if (km_unlikely(!km_rseq_stock_take(&objcg->slot, km_hot.percpu, rseq, cache->charge)))
		return alloc_slowly(cache, gfp, NUMA_NO_NODE, objcg);
	void *object = kmem_pcs_pop(&cache->pcs.inner, km_hot.percpu, rseq);
	if (km_likely(object) && km_likely(km_object_set_owner_quick(cache, object, (uintptr_t)objcg)))
		return object;
	return finish_direct(cache, gfp, objcg, object);
}

/*
 * False: nothing was done. Not under `drain`, where the CPU's one stock may be another's. The bytes go back before the
 * object does, as always; here both fit into this CPU's words or the slow way is taken with nothing done. Once the put
 * has succeeded the payer is not looked at any more: another thread may take its last byte out of the stock at once.
 */
km_inline bool free_direct(struct kmem_cache *cache, void *object, struct obj_cgroup *objcg)
{
	const intptr_t rseq = km_rseq;

	km_debug(km_object_owner(cache, object) == (uintptr_t)objcg, "bytes go back to who paid for the object");
	if (km_unlikely(km_memcg_modes[MEM_CGROUP_DRAIN]) ||
	    km_unlikely(!km_rseq_stock_put(&objcg->slot, km_hot.percpu, rseq, cache->charge, km_stock_most())))
		return false;
	if (km_unlikely(!kmem_pcs_push(&cache->pcs.inner, km_hot.percpu, rseq, object)))
		km_plain_free(cache, object);
	return true;
}

/* In a function of its own, which recharge() ends with: so that saves no register. */
static km_noinline void *pay_back(struct obj_cgroup *owner, uint64_t bytes, void *object)
{
	km_objcg_uncharge(owner, bytes);
	return object;
}
#endif

km_inline void *alloc_shared(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	if (km_load(&cache->mixes))
		km_charged_mix(cache, gfp);
#ifdef KMEM_HAVE_RSEQ
	if (km_likely(objcg && !(gfp & KM_CHARGED_ODD) && node == NUMA_NO_NODE && !km_is_seen(cache) &&
		      km_load(&cache->direct) & DIRECT_ALLOC) &&
	    in_the_way(cache, block_owner(cache), (uintptr_t)objcg) &&
	    /* Where there are to be no shelves there is none to be taken over. */
	    (!km_charged_insist(cache, (uintptr_t)objcg) || !km_memcg_modes[MEM_CGROUP_SHELF]))
		return alloc_direct(cache, gfp, objcg);
#endif
	return alloc_slowly(cache, gfp, node, objcg);
}

/* ------------------------------------------------------------------ blocks of many owners */

/*
 * The object is to be had, and nobody's; objcg pays for it from now on, or is NULL for nobody. Here the object comes
 * first and the charge second, against the order above: the object was on a mixed block, where nobody can see whose it
 * is before having popped it. So a refusal has an object to put back, and does.
 */
static void *pay_for(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *object)
{
	const uint64_t mine = (uintptr_t)objcg;

	if (mine && !km_objcg_charge(objcg, cache->charge, gfp)) {
		km_plain_free(cache, object);
		return km_charge_failed(cache, gfp);
	}
	if (km_likely(km_object_set_owner(cache, object, mine, km_gfp_may_wait(gfp))))
		return object;
	if (mine)
		km_objcg_uncharge(objcg, cache->charge);
	km_plain_free(cache, object);
	return km_charge_failed(cache, gfp);
}

/* A request for a private group that comes by the way of all is served by the group's twin. */
static km_noinline void *take_private(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *object)
{
	bool was = km_calls_begin(km_gfp_may_wait(gfp));

	if (!km_pcs_push(&cache->mixed, object))
		km_charged_give_up(cache, KM_OBJCGS_DIFFER, &object, 1);
	km_calls_end(was);
	return km_private_alloc(cache, gfp, NUMA_NO_NODE, objcg);
}

/*
 * It has another owner, if any, whose no longer it is before somebody else pays: so there is room below a limit that
 * both have, in the owner's stock if nowhere else.
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
		object = pay_for(cache, gfp & ~__GFP_ACCOUNT, objcg, object);
	}
	if (object)
		errno = saved_errno;
	return object;
}

/*
 * Groups in turn on a CPU come by each other's objects all the time: what one pays more, the other pays less. The
 * short way, of two sequences and a store. The new payer pays before the former one is paid back: in between both pay,
 * so the sum of what is charged is never less than what is out, and a thread that is stopped there keeps nobody from
 * anything but `charge` bytes. The word is stored in the middle, when either of them would be right. Both are alive:
 * the new one is active here, the former one has these very bytes out. A former payer whose stock is closed or full is
 * paid back the slow way; by then it is the last that is done.
 */
static void *recharge(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *object,
		      uint64_t *word km_unused)
{
	if (km_unlikely(objcg->private) && km_is_private(objcg))
		return take_private(cache, gfp, objcg, object);
#ifdef KMEM_HAVE_RSEQ
	const intptr_t rseq = km_rseq;

	/* Its own word, not its page's. */
	if (km_likely((uintptr_t)(word - km_hot.owner) >= km_load(&km_hot.pages)) && km_likely(word) &&
	    km_likely(!km_memcg_modes[MEM_CGROUP_DRAIN]) &&
	    km_likely(km_rseq_stock_take(&objcg->slot, km_hot.percpu, rseq, cache->charge))) {
		struct obj_cgroup *owner = (struct obj_cgroup *)(uintptr_t)(km_load(word) & ~KM_OWNER_NOBODY);

		km_debug(!owner || km_load(&owner->memcg), "who paid for an object lives until somebody else does");
		km_store(word, (uint64_t)(uintptr_t)objcg);
		if (km_likely(owner) && km_unlikely(!km_rseq_stock_put(&owner->slot, km_hot.percpu, rseq,
								       cache->charge, km_stock_most())))
			return pay_back(owner, cache->charge, object);
		return object;
	}
#endif
	return recharge_slowly(cache, gfp, objcg, object);
}

/* The hit of who was not let to it: nobody pays, or the cache has twins. */
static void *mixed_alloc(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg)
{
	const uintptr_t mine = objcg && objcg != &km_objcg_root ? (uintptr_t)objcg : KM_OWNER_NOBODY;
	void *object = km_pcs_pop(&cache->mixed);
	uint64_t *word;

	if (!object)
		return alloc_slowly(cache, gfp, NUMA_NO_NODE, objcg);
	km_alloc_look(cache, km_gfp_may_wait(gfp));
	return km_likely(km_alloc_is_owner(cache, object, mine, &word)) ? object :
	       objcg ? recharge(cache, gfp, objcg, object, word) : recharge_slowly(cache, gfp, NULL, object);
}

/*
 * On a mixed block an object keeps its word and stays paid for: its payer pays for it until somebody else pops it, or
 * a flush takes it off. Two tries, since the room that the first one made may go to a handler or another thread.
 */
static km_noinline void mixed_free(struct kmem_cache *cache, void *object)
{
	int saved_errno = errno;

	km_alloc_look(cache, true);
	for (int i = 0; object && i < 2; i++) {
		if (km_pcs_push(&cache->mixed, object))
			return;
		if (!km_charged_make_room(cache, 0))
			break;
	}
	if (object)
		km_charged_disown(cache, KM_OBJCGS_DIFFER, &object, 1);
	km_plain_free(cache, object);
	errno = saved_errno;
}

static void *charged_alloc(struct kmem_cache *cache, gfp_t gfp, int node);

/* An object like any other, zeroed: the front has not looked for it on the shelf. */
static km_noinline void *alloc_zeroed(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	void *object = NULL;

	gfp &= ~__GFP_ZERO;
	if (km_is_private(objcg))
		object = km_private_alloc(cache, gfp, node, objcg);
	else if (gfp & KM_CHARGED_ODD || node != NUMA_NO_NODE ||
		 !(object = km_owned_pop(&cache->charged, (uintptr_t)objcg)))
		object = charged_alloc(cache, gfp, node);
	return object ? km_cleared(cache, object) : NULL;
}

/*
 * A request that was no hit of the front's. The questions stand in the order in which a wrong answer would cost most:
 * an object of a private group must come from its twin whatever else is true, or destroy_all would miss it; a mixed
 * cache must not be taken for one owner's, since its owned shelf is closed for ever.
 */
static void *charged_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	struct obj_cgroup *objcg = km_charged_objcg(cache, gfp);

	if (km_unlikely(gfp & __GFP_ZERO) && objcg && !cache->ctor && !km_is_seen(cache))
		return alloc_zeroed(cache, gfp, node, objcg);
	if (km_unlikely(objcg && km_is_private(objcg)))
		return km_private_alloc(cache, gfp, node, objcg);
	if (km_charged_is_mixed(cache) && !(gfp & KM_CHARGED_ODD) && node == NUMA_NO_NODE && !km_is_seen(cache))
		return mixed_alloc(cache, gfp, objcg);
	return alloc_shared(cache, gfp, node, objcg);
}

/*
 * Room is made by giving half of the block back, so that the next frees find some. The object that does not fit
 * anywhere is disowned first and goes beneath last; errno is kept, because a free has no way to fail.
 */
static km_noinline void free_slowly(struct kmem_cache *cache, void *object, uint64_t owner)
{
	int saved_errno = errno;

	km_alloc_look(cache, true);
	if (km_load(&cache->charged.inner.pcs))
		for (int i = 0; i < 2; i++) {
			if (km_owned_push(&cache->charged, owner, object)) {
				km_charged_see_back(cache);
				return;
			}
			if (!km_charged_make_room(cache, owner))
				break;
		}
	km_charged_disown(cache, owner, &object, 1);
	if (!has_plain_pcs(cache) || !km_pcs_push(&cache->pcs, object))
		km_plain_free(cache, object);
	errno = saved_errno;
}

#ifdef KMEM_HAVE_RSEQ
/* It was not pushed: the block is full, or another's, or nobody's. */
static km_noinline void free_unpushed(struct kmem_cache *cache, void *object, uint64_t owner)
{
	if (!in_the_way(cache, block_owner(cache), owner) ||
	    !free_direct(cache, object, (struct obj_cgroup *)(uintptr_t)owner))
		free_slowly(cache, object, owner);
}
#endif

static void free_unpaid(struct kmem_cache *cache, void *object)
{
	km_alloc_look(cache, true);
	if (km_unlikely(!object) || !has_plain_pcs(cache) || !km_pcs_push(&cache->pcs, object))
		km_plain_free(cache, object);
}

/*
 * It must be found out whose it is. The payer of the cache is loaded once, at the start: it may come to differ
 * meanwhile, but not for this object, which had its payer before this thread had it. And what differs is then read from
 * the object's own word, which nobody else writes while the object is in this thread's hand.
 */
static km_noinline void free_seen(struct kmem_cache *cache, void *object)
{
	uint64_t owner = km_load(&cache->objcg);

	if (km_charged_is_mixed(cache) && !km_is_seen(cache)) {
		mixed_free(cache, object);
		return;
	}
	if (!km_objcg_is_known(owner))
		owner = owner == KM_OBJCG_NOBODY ? 0 : km_freed_owner(cache, object);
	if (!owner)
		free_unpaid(cache, object);
#ifdef KMEM_HAVE_RSEQ
	else if (km_load(&cache->direct) & DIRECT_FREE && !km_is_seen(cache))
		free_unpushed(cache, object, owner);
#endif
	else
		free_slowly(cache, object, owner);
}

/* The object may be a twin's. */
static km_noinline void free_private(struct kmem_cache *cache, void *object)
{
	if (km_private_is_own(cache, object) ||
	    !(km_likely(km_private_push(cache, object)) || km_private_free(cache, object)))
		free_seen(cache, object);
}

/* Whoever came by another's block when it took an object finds it there when it frees one; else it is the owner's. */
static void charged_free(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(km_load(&cache->children))) {
		free_private(cache, object);
		return;
	}
#ifdef KMEM_HAVE_RSEQ
	uint64_t owner = 0;

	if (km_likely(km_load(&cache->direct) & DIRECT_FREE && !km_is_seen(cache) && !km_charged_is_mixed(cache)))
		owner = km_object_owner_quick(cache, object);
	if (km_likely(owner)) {
		if (km_charged_last.owner == owner && km_charged_last.cache == cache &&
		    km_likely(free_direct(cache, object, (struct obj_cgroup *)(uintptr_t)owner)))
			return;
		if (km_unlikely(!km_rseq_owned_push(&cache->charged.inner, km_hot.percpu, km_rseq, owner,
						    object)))
			free_unpushed(cache, object, owner);
		return;
	}
#endif
	free_seen(cache, object);
}

/* Past all shelves: whoever pays for it is paid back, and it goes to its slab. A twin's object comes by the twin. */
static void charged_free_past(struct kmem_cache *cache, void *object)
{
	uint64_t owner = km_load(&cache->objcg);
	km_errno_scope(saved_errno);

	if (km_charged_is_mixed(cache) && !km_is_seen(cache))
		owner = KM_OBJCGS_DIFFER;
	else if (!km_objcg_is_known(owner))
		owner = owner == KM_OBJCG_NOBODY ? 0 : km_freed_owner(cache, object);
	if (owner)
		km_charged_disown(cache, owner, &object, 1);
	km_ops_free_past(km_layer(cache, KM_LAYER_CHARGE + 1), cache, object);
}

/* ------------------------------------------------------------------ beginning */

/*
 * The last store opens the door: as long as `charge` is 0 nobody takes the cache for one that is charged, and whoever
 * sees it not 0 sees all that is set here. A thread that has not seen it yet has its object unpaid for, as if it had
 * come a moment earlier.
 */
static void begin(struct kmem_cache *cache)
{
	/* Nobody else knows the cache yet. */
	if (cache->flags & SLAB_ACCOUNT) {
		cache->charge_all = true;
		cache->objcg = km_is_checked(cache) ? KM_OBJCGS_DIFFER : KM_OBJCG_UNKNOWN;
	}
	km_store(&cache->owner_shift, km_owner_shift(cache->size));
	km_store(&cache->direct, direct_of(cache));
	km_store(&cache->mixes, cache->direct & DIRECT_FREE && cache->word_is_charged && cache->id >= KM_MAP_FIRST &&
				       km_memcg_modes[MEM_CGROUP_SHELF]);
	/* Release pairs with km_is_charged. */
	km_store_release(&cache->charge, charge_of(cache));
}

static const struct km_alloc_ops charged = {
	.alloc = charged_alloc, .free = charged_free, .free_past = charged_free_past,
	.alloc_bulk = km_charged_alloc_bulk, .free_bulk = km_charged_free_bulk,
	.begin = begin, .recharge = recharge, .recharge_bulk = km_charged_recharge_bulk,
};

/* Of large blocks: what is no hit goes by kmalloc/large.c. */
static const struct km_alloc_ops charged_blocks = {
	.alloc = km_charged_block, .free = charged_free,
	.alloc_bulk = km_charged_alloc_bulk, .free_bulk = km_charged_free_bulk,
	.begin = begin, .recharge = km_charged_recharge_block, .recharge_bulk = km_charged_recharge_bulk,
};

/* With SLAB_ACCOUNT before anybody else knows the cache; else in several threads at once, of which one begins. */
bool km_charge_begin(struct kmem_cache *cache, bool may_wait)
{
	if (km_is_charged(cache))
		return true;
	/* Its objects don't say whose they are, or are blocks that nobody pays for: those have other classes. Kernel:
	 * SLOB was not to be had together with accounting. */
	const bool blocks = cache->engine->whole_pages;

	km_debug(!km_load(&cache->mixed.inner.pcs), "a cache that is not charged yet has no shelf of paid objects");
	if (cache->engine->shared_pages || (blocks && !(cache->flags & SLAB_ACCOUNT)) || cache->child_of || cache->dead)
		return false;
	return km_charged_set_ops(cache, blocks ? &charged_blocks : &charged, may_wait ? pcs_block(cache) : 0,
				  may_wait);
}
