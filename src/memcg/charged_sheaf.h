/*
 * charged_sheaf.h: the CPU's block of objects that are paid for already, for charge.c. Objects belong to who pays, an
 * objcg's address; KM_OBJCGS_DIFFER in its place: each to whom its owner word says.
 */
#ifndef KM_MEMCG_CHARGED_SHEAF_H
#define KM_MEMCG_CHARGED_SHEAF_H

#include <errno.h>

#include "cache/cache.h"
#include "percpu/owned_sheaf.h"
#include "objcg.h"
#include "object_objcg.h"

/* Times in a row that a thread must find another's block before it takes the CPU's shelf over. */
#define KM_CHARGED_INSIST 16u
/* Objects of the largest charged sheaf. */
#define KM_CHARGED_MOST 126u

/*
 * Where several pay, the CPU's block may have objects of them all (km_charged_hide_back). Once true, ever
 * so; who still takes it for one owner's finds that closed.
 */
km_inline bool km_charged_is_mixed(const struct kmem_cache *cache)
{
	/* Acquire pairs with charged_drain.c's mix: what else there is of `mixed` is filled in. */
	return km_pcs_slot(&cache->mixed) != 0;
}

/*
 * The one that is open, but while it is drained. The answer may be out of date when it is used: then its verbs find a
 * closed shelf, which is a miss.
 */
km_inline struct km_pcs *km_charged_pcs(struct kmem_cache *cache)
{
	return km_charged_is_mixed(cache) ? &cache->mixed : &cache->charged;
}

/* The owner's objects are nobody's any more, and paid back. Objects of many owners may change places. */
void km_charged_disown(struct kmem_cache *cache, uint64_t owner, void **objects, size_t n);
/* ... and they are free. */
void km_charged_give_up(struct kmem_cache *cache, uint64_t owner, void **objects, size_t n);
/* A block for this CPU, if it has none yet. */
bool km_charged_found(struct kmem_cache *cache, uint64_t owner);
/*
 * Where one pays, hits are to put what they free on the CPUs' blocks. Whoever does so in their place sees to that: not
 * only who fills a block, for who fills none may free to one again and again.
 */
void km_charged_open_back(struct kmem_cache *cache);
km_inline void km_charged_see_back(struct kmem_cache *cache)
{
	if (km_unlikely(!km_load(&cache->pcs.front.back.pcs)))
		km_charged_open_back(cache);
}

/* An allocation that can't be charged: returns NULL. */
km_inline void *km_charge_failed(struct kmem_cache *cache, gfp_t gfp)
{
	return km_alloc_failed(cache->name, cache->object_size, gfp | __GFP_NOWARN, ENOMEM);
}

/*
 * charged_drain.c: from now on the calls of the cache go to these ops, and no hit comes before. sheaf_bytes: the bytes
 * of a charged sheaf, which the cache has beside its plain sheaves; 0: no charged sheaf, or not yet: a second call adds
 * the sheaf. may_wait: for the lock. Returns: false where the lock could not be had.
 */
bool km_charged_set_ops(struct kmem_cache *cache, const struct km_alloc_ops *ops, uint32_t sheaf_bytes, bool may_wait);
/*
 * show: one objcg pays for all objects of the cache, and frees of them may be hits. hide: the objcgs differ from now
 * on; called before the sheaf of a CPU becomes another objcg's. may_wait: for the lock, and for a fence. Returns: false
 * where the lock could not be had, and nothing was done. Where hide may wait for a fence, and the cache `mixes`,
 * `mixed` is open afterwards: frees are hits again.
 */
void km_charged_show_back(struct kmem_cache *cache, bool may_wait);
bool km_charged_hide_back(struct kmem_cache *cache, bool may_wait);

/* Which objects on charged sheaves are taken, and what becomes of these objects, which then belong to no objcg. */
struct km_charged_drain {
	/* owner: of all objects, a name only where count is 0; KM_OBJCGS_DIFFER: each object has its own. */
	bool (*which)(struct kmem_cache *cache, uintptr_t owner, void *const *objects, size_t count, void *arg);
	void (*take)(struct kmem_cache *cache, uintptr_t owner, void **objects, size_t count, void *arg);
	void *arg;
};
/* charged_flush.c: takes all objects, and gives the objects to the engine. */
extern km_hidden const struct km_charged_drain km_charge_drain_all;
/* CPU by CPU, with one fence; the sheaf goes with its objects, and each empty sheaf goes as well. */
void km_charged_drain_some(struct kmem_cache **caches, size_t count, const struct km_charged_drain *how);

/* The objcg that pays for an allocation by this thread; NULL: none. */
km_inline struct obj_cgroup *km_charged_objcg(const struct kmem_cache *cache, gfp_t gfp)
{
	return km_likely(cache->charge_all || (gfp & __GFP_ACCOUNT) || km_account_here) ? km_objcg_now() : NULL;
}

/* charge_bulk.c: alloc_bulk, free_bulk and recharge_bulk of struct km_alloc_ops. */
int km_charged_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, size_t all, void **objects);
void km_charged_free_bulk(struct kmem_cache *cache, size_t n, size_t all, void **objects);
size_t km_charged_recharge_bulk(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, size_t n,
				void **objects);

/* Let the CPU's block be this owner's, who pays here: true where it is empty, or there was none. Not where mixed. */
bool km_charged_adopt(struct kmem_cache *cache, uint64_t owner);
/* Several pay, and the caller may wait: mix, if that is still to be done. */
void km_charged_mix(struct kmem_cache *cache, gfp_t gfp);
void km_charged_claim(struct kmem_cache *cache, uint64_t owner, gfp_t gfp);
void *km_charged_refill(struct kmem_cache *cache, struct obj_cgroup *objcg, gfp_t gfp);
bool km_charged_make_room(struct kmem_cache *cache, uint64_t owner);

/* charge_large.c: hits of large blocks that soft disciplines have, and what is done with another's; NULL: not this
 * way. */
void *km_charged_block(struct kmem_cache *cache, gfp_t gfp, int node);
void *km_charged_recharge_block(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *sheaf,
				uint64_t *word);

/*
 * Another's block is in the way. One thread that uses many groups in turn would have it changed at every call: so only
 * who finds it there for the 16th time in a row takes it over. The frees of such a one will find it there, too.
 */
struct km_charged_last {
	const struct kmem_cache *cache;
	uint64_t owner;			/* 0: it is not so any more */
	unsigned times;
};
extern km_hidden km_tls struct km_charged_last km_charged_last;

km_inline bool km_charged_insist(const struct kmem_cache *cache, uint64_t owner)
{
	if (km_likely(km_charged_last.owner != owner || km_charged_last.cache != cache)) {
		km_charged_last.cache = cache;
		km_charged_last.owner = owner;
		km_charged_last.times = 0;
	}
	/* Still true when it is asked again: until then nothing was taken over. */
	return ++km_charged_last.times >= KM_CHARGED_INSIST;
}

#endif
