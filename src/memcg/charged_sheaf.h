/*
 * charged_sheaf.h: the CPU's sheaf of charged cached objects, for charge.c. Invariant: a sheaf has one owner, the
 * address of an objcg, and all cached objects are charged to the owner; or the owner is KM_OBJCGS_DIFFER, and each
 * object is charged to the objcg in its owner word.
 */
#ifndef KM_MEMCG_CHARGED_SHEAF_H
#define KM_MEMCG_CHARGED_SHEAF_H

#include <errno.h>

#include "cache/cache.h"
#include "percpu/owned_sheaf.h"
#include "objcg.h"
#include "object_objcg.h"

/* Misses in a row on another group's sheaf before a thread takes the CPU's sheaf over. */
#define KM_CHARGED_INSIST 16u
/* most objects of a charged sheaf */
#define KM_CHARGED_MOST 126u

/* Alloc ops of the layer CHARGE: for objects (charge.c), and for cached large blocks (charge_large.c). */
extern km_hidden const struct km_alloc_ops km_charged_ops, km_charged_block_ops;

/*
 * Returns whether the cache has mixed sheaves: sheaves with objects of several objcgs. Never becomes false again while
 * the cache is in use. A thread with the old answer finds the owned sheaf closed.
 */
km_inline bool km_charged_is_mixed(const struct kmem_cache *cache)
{
	/* Acquire pairs with enter of charge_state.c: all other fields of `mixed` are filled in. */
	return km_load_acquire(&cache->memcg.charging) >= KM_CHARGING_MIXED;
}

/* Returns the charged sheaves in use. The answer may be stale: per-CPU operations then find a closed sheaf, a miss. */
km_inline struct km_pcs *km_charged_pcs(struct kmem_cache *cache)
{
	return km_charged_is_mixed(cache) ? &cache->memcg.mixed : &cache->memcg.charged;
}

/* Returns `owner`; with mixed sheaves KM_OBJCGS_DIFFER. The operations below use the mixed sheaf for this value. */
km_inline uint64_t km_charged_owner(const struct kmem_cache *cache, uint64_t owner)
{
	return km_charged_is_mixed(cache) ? KM_OBJCGS_DIFFER : owner;
}

/* km_pcs_pop_n and km_pcs_push_n for the CPU's charged sheaf of this owner. */
km_inline size_t km_charged_pop_n(struct kmem_cache *cache, uint64_t owner, void **objects, size_t n)
{
	return owner == KM_OBJCGS_DIFFER ? km_pcs_pop_n(&cache->memcg.mixed, objects, n) :
					   km_owned_pop_n(&cache->memcg.charged, owner, objects, n);
}

km_inline size_t km_charged_push_n(struct kmem_cache *cache, uint64_t owner, void *const *objects, size_t n)
{
	return owner == KM_OBJCGS_DIFFER ? km_pcs_push_n(&cache->memcg.mixed, objects, n) :
					   km_owned_push_n(&cache->memcg.charged, owner, objects, n);
}

/* Returns whether charge.c's direct path is possible: a charge from the byte stock, and a pop of the plain sheaf. */
km_inline bool km_charged_is_direct(const struct kmem_cache *cache)
{
	return km_hits_by_cpu() && cache->layout.engine->front == KM_PERCPU_SHEAVES;
}

/* Uncharges the owner's objects, and clears their owner words. With KM_OBJCGS_DIFFER objects may change places. */
void km_charged_disown(struct kmem_cache *cache, uint64_t owner, void **objects, size_t n);
/* Uncharges objects by km_charged_disown, and frees them to the layer below. */
void km_charged_give_up(struct kmem_cache *cache, uint64_t owner, void **objects, size_t n);
/*
 * Sets the owner words of n objects, whose bytes are charged to objcg; NULL: the objects are uncharged. Returns: false
 * where the words can't be set; the bytes are then uncharged.
 */
bool km_charged_name(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void **objects, size_t n);
/* Allocates objects[0, n), and charges all to objcg at once (NULL: uncharged). Returns: false if none was allocated. */
bool km_charged_take(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void **objects, size_t n);
/*
 * charge_state.c: opens the free fast path of a cache with one objcg: frees then push to the CPU's charged sheaf.
 * Every slow path that pushes to a charged sheaf must call km_charged_see_back, not only a refill: a thread may free
 * again and again without a refill.
 */
void km_charged_open_back(struct kmem_cache *cache);
km_inline void km_charged_see_back(struct kmem_cache *cache)
{
	if (km_unlikely(!km_load(&cache->fast.pcs.front.back.pcs)))
		km_charged_open_back(cache);
}

/* Reports that an allocation failed because its charge was refused. Returns: NULL. */
km_inline void *km_charge_failed(struct kmem_cache *cache, gfp_t gfp)
{
	return km_alloc_failed(cache->registry.name, cache->layout.object_size, gfp | __GFP_NOWARN, ENOMEM);
}

/* Sets the owner of an object as km_charged_name does. Returns: the object; NULL after a failure: the object is freed
 * to the layer beneath. */
km_inline void *km_charged_name_one(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *object)
{
	if (km_likely(km_charged_name(cache, gfp, objcg, &object, 1)))
		return object;
	km_plain_free(cache, object);
	return km_charge_failed(cache, gfp);
}

/* charge_state.c: makes the charged sheaves of a cache whose charging began in a call with no right to wait. */
void km_charged_make(struct kmem_cache *cache);
/*
 * charge_state.c: the objcgs of the cache's objects differ from now on; must be called before the sheaf of a CPU gets
 * another owner. parent: KM_CHARGING_PARENT: the cache will have a child cache; else 0. may_wait: for the lock, and
 * for a fence: the sheaves may be mixed afterwards. Returns: false where the lock could not be had, and nothing was
 * done.
 */
bool km_charged_differ(struct kmem_cache *cache, uint32_t parent, bool may_wait);
/* Makes the sheaves mixed in state KM_CHARGING_DUE, if the caller may wait: the second group's first charge could not
 * wait for a fence. */
km_inline void km_charged_mix(struct kmem_cache *cache, gfp_t gfp)
{
	const uint32_t state = km_load(&cache->memcg.charging) & ~KM_CHARGING_PARENT;

	if (km_likely(state != KM_CHARGING_DUE) || !km_gfp_may_wait(gfp) || km_thread.busy ||
	    !km_pcs_slot(&cache->memcg.charged))
		return;
	km_busy_scope(was);
	km_charged_differ(cache, 0, true);
}

/* charge_state.c: drains sheaves with objects of the group or of a group below, CPU by CPU, with one fence. A sheaf is
 * freed with its objects; an empty sheaf is freed as well. */
void km_charged_drain_group(struct kmem_cache **caches, size_t count, const struct mem_cgroup *root);

/* Returns the objcg to charge for an allocation by this thread; NULL: uncharged. */
km_inline struct obj_cgroup *km_charged_objcg(const struct kmem_cache *cache, gfp_t gfp)
{
	return km_likely(km_charges_all(cache) || (gfp & __GFP_ACCOUNT) || km_account_here) ? km_objcg_now() : NULL;
}

/* charge_bulk.c: alloc_bulk, free_bulk and recharge_bulk of struct km_alloc_ops. */
int km_charged_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, size_t all, void **objects);
void km_charged_free_bulk(struct kmem_cache *cache, size_t n, size_t all, void **objects);
size_t km_charged_recharge_bulk(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, size_t n,
				void **objects);

/* Installs a charged sheaf on this CPU, if the CPU has none. Returns: true if a sheaf was installed. */
bool km_charged_found(struct kmem_cache *cache, uint64_t owner);
/* Makes `owner` the owner of the CPU's sheaf, if the sheaf is empty or missing; KM_OBJCGS_DIFFER: installs a missing
 * mixed sheaf. Returns: true if done. */
bool km_charged_adopt(struct kmem_cache *cache, uint64_t owner);
/* Gives the CPU a sheaf for objects of `owner`: a mixed sheaf, or the owner's. Returns: false where not possible. */
bool km_charged_claim(struct kmem_cache *cache, uint64_t owner, gfp_t gfp);
void *km_charged_refill(struct kmem_cache *cache, struct obj_cgroup *objcg, gfp_t gfp);
/* Makes room on the CPU's sheaf for an object of this owner. Returns: false where the sheaf is another owner's. */
bool km_charged_make_room(struct kmem_cache *cache, uint64_t owner);

/* charge_large.c: fast path of large blocks for disciplines without rseq, and the recharge of another group's block.
 * Returns: NULL where this path can't serve the request. */
void *km_charged_block(struct kmem_cache *cache, gfp_t gfp, int node);
void *km_charged_recharge_block(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *sheaf,
				uint64_t *word);

/* This thread's misses in a row on a sheaf of another owner. Frees of `owner` use the direct path meanwhile. A thread
 * that alternates between many groups would change the sheaf's owner at every call, so the thread takes the sheaf over
 * only after KM_CHARGED_INSIST misses. */
struct km_charged_last {
	const struct kmem_cache *cache;
	uint64_t owner;			/* owner that missed on another owner's sheaf; 0: none */
	unsigned times;
};

km_inline bool km_charged_insist(const struct kmem_cache *cache, uint64_t owner)
{
	if (km_likely(km_charged_last.owner != owner || km_charged_last.cache != cache)) {
		km_charged_last.cache = cache;
		km_charged_last.owner = owner;
		km_charged_last.times = 0;
	}
	/* `times` is reset only when the sheaf is taken over (owner = 0). */
	return ++km_charged_last.times >= KM_CHARGED_INSIST;
}

#endif
