/*
 * alloc_ops.h: the steps of a miss that are the same whatever lies on a CPU; the files of the shapes put them
 * together (struct km_alloc_ops in fast_path.h). Invariants: a call enters an engine only if it found km_thread_busy
 * clear, and sets it first; a call that finds it set is nested, in a handler, and its allocation fails, its free is
 * deferred; errno is as the caller left it unless NULL is returned.
 */
#ifndef KM_ALLOC_ALLOC_OPS_H
#define KM_ALLOC_ALLOC_OPS_H

#include "fast_path.h"

/* Objects in a row that are no more to be had: then a list is so damaged that the call fails. */
#define KM_MOST_LOST 1024u
/* How often a loop calls a verb that was interrupted or lost a race, before it takes its next step. */
#define KM_MISS_TRIES 8

extern km_hidden const struct km_alloc_ops km_ops_array, km_ops_array_by_cid, km_ops_chain_soft;
extern km_hidden const struct km_alloc_ops km_ops_none, km_ops_observed, km_ops_profiled, km_ops_dead,
	km_ops_sampled;

/* drain.c. The words of publish.c and the layers of caches change under this lock, too. */
extern km_hidden struct km_lock km_drain_lock;
/* sampled_ops.c, observed_ops.c, validate.c: the ops by which the cache has their layers (layers.c); NULL: it is
 * without. */
km_layer_fn km_sample_layer, km_observe_layer, km_validate_layer;
/* The ops of the layer become `to` if they are `from`; NULL: the cache is without the layer. The public shelf opens or
 * closes by it. False: they are others, or not now. Nobody is made to wait in vain: may_wait, with no lock of a higher
 * rank held. */
bool km_alloc_change_layer(struct kmem_cache *cache, enum km_layer layer, const struct km_alloc_ops *from,
			   const struct km_alloc_ops *to, bool may_wait) km_cold;
/* An object that did not come by that shape is its user's from now on. False: it is somebody's, which is said. */
bool km_validated_hand_out(struct kmem_cache *cache, void *object);
/* A new cache, whose id is known: are its frees to be looked at (page/alloc_map.h)? */
void km_alloc_prove(struct kmem_cache *cache);

km_inline bool km_miss_enter(void)
{
	if (km_unlikely(km_thread_busy))
		return false;
	km_busy_begin();
	return true;
}

/* For shapes whose misses mostly enter the engine: no note, no km_calls_begin. False: a handler asks, or deferred frees
 * wait; km_miss_begin is for those. */
km_inline bool km_miss_enter_quick(struct kmem_cache *cache)
{
	if (km_unlikely(km_load(&cache->deferred) != NULL) || !km_miss_enter())
		return false;
	km_alloc_touch(cache);
	return true;
}

/* Told again: reclaim, which passes a cache that nobody has touched since, may have come by in the middle. */
km_inline void km_miss_leave_quick(struct kmem_cache *cache)
{
	km_debug(km_thread_busy, "an engine is entered and left with handlers kept out");
	km_alloc_touch(cache);
	km_alloc_tick_rarely();
	km_busy_end_clear();
}

/*
 * Into the engine: the miss is noted, and what handlers left is done. NO_ENTRY: this is a handler that struck inside of
 * one. rarely: reclaim has its turn, but not at each call.
 */
enum km_entry { KM_NO_ENTRY = -1 };
int km_miss_begin(struct kmem_cache *cache, bool may_wait);
void km_miss_end(struct kmem_cache *cache, int entry, bool may_wait, bool rarely);

/* The request's node becomes ours: `node` is the caller's, by its number to the system. False: it is a bad one, that
 * was said. The thread has a CPU from here on, where it can. */
bool km_miss_prepare(const struct kmem_cache *cache, struct km_request *request, int node);
void *km_miss_failed(const struct kmem_cache *cache, const struct km_request *request) km_cold;

/* With __GFP_ZERO zeros; of a block that is served by size, so many as its user has of it. */
void *km_miss_clear(const struct kmem_cache *cache, void *object, size_t bytes);
km_inline void *km_miss_zeroed(const struct kmem_cache *cache, void *object, gfp_t gfp, size_t bytes)
{
	return km_likely(!(gfp & __GFP_ZERO)) ? object : km_miss_clear(cache, object, bytes);
}

typedef void *km_refill_fn(struct kmem_cache *cache, const struct km_request *request);
typedef void km_spill_fn(struct kmem_cache *cache, void *object);

/* Of the node that is named as long as that has some, before what other nodes have ready. */
void *km_miss_refill_named(struct kmem_cache *cache, const struct km_request *request, km_refill_fn *refill);
/* The same by the shortest way; NULL: go on. */
void *km_miss_take_named(struct kmem_cache *cache, const struct km_request *request);
/* One object of a slab, or one back to it, past what lies ready: no miss that asks for larger blocks. NULL: go on. */
void *km_miss_take_past(struct kmem_cache *cache, const struct km_request *request);
void km_miss_give_past(struct kmem_cache *cache, void *object);

/* One object from the engine; as long as there is none, others give back what they have ready. */
km_inline void *km_miss_refill(struct kmem_cache *cache, const struct km_request *request, km_refill_fn *refill)
{
	const bool named = km_unlikely(request->node >= 0);
	int entry = km_miss_begin(cache, request->may_wait);
	void *object = NULL;
	unsigned tries = 0;

	if (km_likely(entry != KM_NO_ENTRY)) {
		do
			object = named ? km_miss_refill_named(cache, request, refill) : refill(cache, request);
		while (km_unlikely(!object) && request->may_wait && km_alloc_relieve(cache, &tries));
		km_miss_end(cache, entry, request->may_wait, named);
	}
	return km_likely(object) ? km_miss_zeroed(cache, object, request->gfp, request->bytes) :
				   km_miss_failed(cache, request);
}

/* A free that may not enter the engine: linked through the object, finished by the next miss. */
void km_miss_defer(struct kmem_cache *cache, void *object) km_cold;

/* A free has no gfp: it may wait, unless the call that caused it may not (km_no_calls). */
km_inline void km_miss_spill(struct kmem_cache *cache, void *object, km_spill_fn *spill)
{
	int entry = km_miss_begin(cache, true);

	if (km_unlikely(entry == KM_NO_ENTRY)) {
		km_miss_defer(cache, object);
		return;
	}
	spill(cache, object);
	km_miss_end(cache, entry, true, false);
}

/* ---- many: objects[0, left) of n are to be had or freed, the others are done. */
#define KM_BULK_MOST ((size_t)4096)	/* in one call of an engine */
typedef size_t km_bulk_refill_fn(struct kmem_cache *cache, const struct km_request *request, size_t left,
				 void **objects);
typedef void km_bulk_spill_fn(struct kmem_cache *cache, size_t left, void **objects);
/* A refill and a spill that go by no shelf. */
size_t km_bulk_take(struct kmem_cache *cache, const struct km_request *request, size_t left, void **objects);
void km_bulk_give(struct kmem_cache *cache, size_t left, void **objects);
/* From the engine, as km_miss_refill; to it, as km_miss_spill. */
int km_bulk_refill(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects,
		   km_bulk_refill_fn *refill);
void km_bulk_spill(struct kmem_cache *cache, size_t left, void **objects, km_bulk_spill_fn *spill);
/* Each object wants more than to be had: it is served as one. */
km_inline bool km_bulk_is_odd(gfp_t gfp)
{
	return km_unlikely(gfp & (__GFP_ZERO | __GFP_FULLEST | ~__GFP_BITS_MASK));
}
int km_bulk_one_by_one(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects);
void km_bulk_free_one_by_one(struct kmem_cache *cache, size_t n, size_t all, void **objects);
/* Objects straight from the engine, not shown yet to validate.c or observed_ops.c: they go past them. */
km_inline void km_unseen_free_bulk(struct kmem_cache *cache, size_t n, void **objects)
{
	km_layer_below(cache, KM_LAYER_VALIDATE)->free_bulk(cache, n, n, objects);
}
/* The end of a bulk allocation. Returns n if `left` is 0; else frees all objects, reports the failure, returns 0. */
int km_bulk_done(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects);

/* The ops below the layer CHARGE: objects that nobody pays for. */
km_inline const struct km_alloc_ops *km_plain_ops(const struct kmem_cache *cache)
{
	return km_layer(cache, KM_LAYER_CHARGE + 1);
}

/* The calls of sheaf_ops.c, and those of cid_fast_path.c before it. */
void *km_array_alloc(struct kmem_cache *cache, gfp_t gfp, int node);
void km_array_free(struct kmem_cache *cache, void *object);
#ifdef KMEM_HAVE_RSEQ
void *km_alloc_by_cid(struct kmem_cache *cache, gfp_t gfp, int node);
void km_free_by_cid(struct kmem_cache *cache, void *object);
#else
#define km_alloc_by_cid km_array_alloc
#define km_free_by_cid km_array_free
#endif

/* The work that a chain's pop and push leave: to count them, to say what is wrong, or everything. */
void *km_chain_popped(struct kmem_cache *cache, void *object);
void km_chain_pushed(struct kmem_cache *cache, void *object, enum km_chain_push pushed);

/* The long way of engines that are asked for each object that does not lie ready: their alloc, and free. */
void *km_miss_one(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node);
void km_miss_one_back(struct kmem_cache *cache, void *object);

void km_miss_free_null(struct kmem_cache *cache) km_cold;
void km_miss_free_twice(struct kmem_cache *cache, void *object) km_cold;

#endif
