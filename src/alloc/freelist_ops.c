/*
 * freelist_ops.c: the alloc ops of engines whose cached objects are in the CPU's own slab, linked through the
 * objects: no sheaves; the engine has all other objects. Invariant: a free of an object of the CPU's slab is a push,
 * or is found to be wrong, before the engine is called.
 *
 * The word of a CPU's freelist has two parts: the first free object, and a tag that names the slab. Only threads on
 * the CPU change the word, by sequences, so pop and push need no lock. Frees to this slab from other CPUs go to the
 * slab's own word in the page descriptor, which belongs to the engine (slub.c). The two freelists of a slab meet when
 * the CPU's freelist is empty and the engine takes over the other one.
 *
 * The push compares the object with the tag, and with the first free object. So an object of another slab is a miss,
 * and a second free of the last freed object is found. A second free of an earlier object is found late or never, and
 * with check:1 at once.
 *
 * Two ops have the same functions, because comparing a pointer costs less than loading a field. km_ops_chain: the
 * fast path works by CPU, so slow_path.c tries the sequence before the jump. km_ops_chain_soft: each call comes here.
 */
#include <errno.h>

#include "percpu/cpu_freelist_hit.h"
#include "alloc_ops.h"

/* Counts a pop in the cache's events, with KMEM_OPTIONS=stats:1. */
km_cold void *km_chain_popped(struct kmem_cache *cache, void *object)
{
	cache->layout.engine->hit(cache, KMEM_ALLOC_FASTPATH, 1);
	return object;
}

/* Allocates one object from the CPU's freelist. Requests for a named node, requests with odd gfp bits other than
 * __GFP_ZERO, and requests that find the freelist empty, go to the engine. */
static void *chain_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	if (km_unlikely(gfp & KMEM_GFP_ODD & ~__GFP_ZERO) || km_unlikely(node != NUMA_NO_NODE))
		return km_miss_one(cache, 0, 0, gfp, node);
	void *object = km_chain_pop(&cache->fast.chain);
	if (!object)
		return km_miss_one(cache, 0, 0, gfp, node);
	km_alloc_look(cache, km_gfp_may_wait(gfp));
	km_debug(cache->layout.live_shift || km_page_head(km_page_of(object))->cache == cache,
		 "a chain has objects of its own cache, or an overwritten link");
	if (km_unlikely(km_layout_options.count_events))
		km_chain_popped(cache, object);
	return km_likely(!(gfp & __GFP_ZERO)) ? object : km_cleared(cache, object);
}

/* Frees an object to the engine: an object of another slab than the CPU's. */
static km_noinline void chain_spill(struct kmem_cache *cache, void *object)
{
	bool entered = km_child_enter(cache);

	km_alloc_enter_thread(true);
	if (km_likely(object != NULL) && km_miss_enter_quick(cache)) {
		cache->layout.engine->free(cache, object);
		km_miss_leave_quick(cache);
	} else {
		km_miss_one_back(cache, object);
	}
	km_child_leave(cache, entered);
}

km_noinline void km_chain_pushed(struct kmem_cache *cache, void *object, enum km_chain_push pushed)
{
	if (pushed == KM_CHAIN_MISS)
		chain_spill(cache, object);
	else if (pushed == KM_CHAIN_TWICE && object)
		km_miss_free_twice(cache, object);
	else if (pushed == KM_CHAIN_TWICE)
		km_miss_free_null(cache);	/* NULL equals the empty freelist of a CPU without a slab */
	else
		cache->layout.engine->hit(cache, KMEM_FREE_FASTPATH, 1);
}

static void chain_free(struct kmem_cache *cache, void *object)
{
	if (km_hits_by_cpu() || km_unlikely(!object)) {
		/* With the fast path by CPU the push was tried before, except for child caches with counted events. */
		if (cache->memcg.child_of && km_layout_options.count_events)
			km_free_chained(cache, object);
		else
			chain_spill(cache, object);
		return;
	}
	enum km_chain_push pushed = km_chain_push_no_hit(&cache->fast.chain, object);
	if (km_unlikely(pushed != KM_CHAIN_PUSHED || km_layout_options.count_events))
		km_chain_pushed(cache, object, pushed);
	km_alloc_look(cache, true);
}

/* ------------------------------------------------------------------ many */

static int chain_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	if (km_bulk_is_odd(gfp))
		return km_bulk_one_by_one(cache, gfp, left, n, objects);
	km_alloc_look(cache, km_gfp_may_wait(gfp));
	size_t got = km_likely(!(gfp & __GFP_THISNODE)) ? km_chain_pop_n(&cache->fast.chain, objects, left) : 0;
	km_debug(got <= left && left <= n, "a chain returns at most the remaining objects");
	if (km_unlikely(km_layout_options.count_events))
		cache->layout.engine->hit(cache, KMEM_ALLOC_FASTPATH, got);
	if (km_likely(got == left))
		return (int)n;
	/* The popped objects stay at the front of the array, where the engine's objects follow. If memory runs out, the
	 * objects done before are freed with them. */
	if (km_likely(km_bulk_refill(cache, gfp, left - got, n - got, objects + got, km_bulk_take)))
		return (int)n;
	km_errno_scope(error);
	km_calls_scope(was, km_gfp_may_wait(gfp));
	km_unseen_free_bulk(cache, got, objects);
	return 0;
}

/* Enters the engine for frees slab by slab. Never for charged caches, whose ops have no `give`. */
km_inline bool enter(struct kmem_cache *cache)
{
	if (km_unlikely(km_thread.busy))
		return false;
	km_alloc_enter_thread(true);
	return km_miss_enter_quick(cache);
}

static bool chain_give(struct kmem_cache *cache, size_t n, void **objects)
{
	if (!enter(cache))
		return false;
	bool entered = km_child_enter(cache);
	km_bulk_give(cache, n, objects);
	km_miss_leave_quick(cache);
	km_child_leave(cache, entered);
	return true;
}

static size_t chain_give_last(struct kmem_cache *cache, size_t n, void **objects)
{
	unsigned count = (unsigned)km_min(n, KM_BULK_MOST);

	if (!enter(cache))
		return n;
	n -= count;
	bool entered = km_child_enter(cache);
	unsigned kept = cache->layout.engine->chain.give_last(cache, objects + n, count);
	km_debug(kept <= count, "an engine returns at most the given objects");
	n += kept;
	km_miss_leave_quick(cache);
	km_child_leave(cache, entered);
	return n;
}

static void chain_free_bulk(struct kmem_cache *cache, size_t n, size_t all km_unused, void **objects)
{
	if (!chain_give(cache, n, objects))
		km_bulk_spill(cache, n, objects, km_bulk_give);
}

/* km_ops_chain: for caches whose fast path slow_path.c tries first. km_ops_chain_soft: for all others. */
const struct km_alloc_ops km_ops_chain = {
	.alloc = chain_alloc, .free = chain_free, .alloc_bulk = chain_alloc_bulk, .free_bulk = chain_free_bulk,
	.give = chain_give, .give_last = chain_give_last,
};
const struct km_alloc_ops km_ops_chain_soft = {
	.alloc = chain_alloc, .free = chain_free, .alloc_bulk = chain_alloc_bulk, .free_bulk = chain_free_bulk,
	.give = chain_give, .give_last = chain_give_last,
};
