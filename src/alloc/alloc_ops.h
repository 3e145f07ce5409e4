/*
 * alloc_ops.h: the steps of a miss shared by all alloc ops (struct km_alloc_ops in fast_path.h). Invariants: a call
 * enters an engine only if the call found km_thread.busy clear, and sets km_thread.busy first. A call that finds
 * km_thread.busy set is nested in a signal handler: an allocation fails, and a free is deferred. A call keeps errno
 * unless NULL is returned.
 */
#ifndef KM_ALLOC_ALLOC_OPS_H
#define KM_ALLOC_ALLOC_OPS_H

#include "fast_path.h"

/* So many damaged objects in a row make an allocation fail: the freelist counts as destroyed. */
#define KM_MOST_LOST 1024u
/* Attempts at a per-CPU operation that was interrupted or lost a race, before the miss takes its next step. */
#define KM_MISS_TRIES 8

extern km_hidden const struct km_alloc_ops km_ops_array, km_ops_array_by_cid, km_ops_chain_soft;
extern km_hidden const struct km_alloc_ops km_ops_none, km_ops_observed, km_ops_profiled, km_ops_dead,
	km_ops_sampled;

/* A request of kmalloc or malloc whose cache is sampled or probed; the caller's stack has the structure. */
struct km_asked {
	const struct kmem_cache *cache;
	size_t bytes, align;
};

/* drain.c. Also protects the words of publish.c and the layers of caches. */
extern km_hidden struct km_lock km_drain_lock;
/* sampled_ops.c, observed_ops.c, validate.c: return the cache's ops for their layers (layers.c); NULL: no such
 * layer. */
km_layer_fn km_sample_layer, km_observe_layer, km_validate_layer;
/* Replaces the ops `from` of a layer by `to`, and opens or closes the public sheaves to match. NULL: no layer.
 * Requires, with may_wait: no lock of a higher rank held. Returns: false if the ops are not `from`, or if the lock is
 * taken and the call may not wait. */
bool km_alloc_change_layer(struct kmem_cache *cache, enum km_layer layer, const struct km_alloc_ops *from,
			   const struct km_alloc_ops *to, bool may_wait) km_cold;
/* Marks an object that does not come from the layer VALIDATE as allocated. Returns: false after a report, if the object
 * is allocated already. */
bool km_validated_hand_out(struct kmem_cache *cache, void *object);
/* Adds the layer VALIDATE to a new cache, where frees are to be validated. Requires: the cache's id is set. */
void km_alloc_prove(struct kmem_cache *cache);

km_inline bool km_miss_enter(void)
{
	if (km_unlikely(km_thread.busy))
		return false;
	km_busy_begin();
	return true;
}

/* Enters the engine for one short operation. Unlike km_miss_begin notes no miss, and does not count system calls.
 * Returns: false in a signal handler inside the library, or with deferred frees pending; the caller then uses
 * km_miss_begin. */
km_inline bool km_miss_enter_quick(struct kmem_cache *cache)
{
	if (km_unlikely(km_load(&cache->state.deferred) != NULL) || !km_miss_enter())
		return false;
	km_alloc_touch(cache);
	return true;
}

/* Leaves the engine after km_miss_enter_quick. Touches the cache again, because reclaim may have run since the entry,
 * and skips untouched caches. */
km_inline void km_miss_leave_quick(struct kmem_cache *cache)
{
	km_debug(km_thread.busy, "signal handlers are kept out inside of an engine");
	km_alloc_touch(cache);
	km_alloc_tick_rarely();
	km_busy_end_clear();
}

/* km_miss_begin enters the engine: notes the miss and finishes deferred frees. Returns: KM_NO_ENTRY in a signal handler
 * inside the library. km_miss_end leaves; rarely: only some calls run reclaim. */
enum km_entry { KM_NO_ENTRY = -1 };
int km_miss_begin(struct kmem_cache *cache, bool may_wait);
void km_miss_end(struct kmem_cache *cache, int entry, bool may_wait, bool rarely);

/* Gives the thread a CPU where possible, and resolves `node` (the system's number) into the request's node. Returns:
 * false for a bad node, after a report. */
bool km_miss_prepare(const struct kmem_cache *cache, struct km_request *request, int node);
void *km_miss_failed(const struct kmem_cache *cache, const struct km_request *request) km_cold;

/* Zeroes an object for __GFP_ZERO. bytes: requested size of a block served by size, or 0. */
void *km_miss_clear(const struct kmem_cache *cache, void *object, size_t bytes);
km_inline void *km_miss_zeroed(const struct kmem_cache *cache, void *object, gfp_t gfp, size_t bytes)
{
	return km_likely(!(gfp & __GFP_ZERO)) ? object : km_miss_clear(cache, object, bytes);
}

typedef void *km_refill_fn(struct kmem_cache *cache, const struct km_request *request);
typedef void km_spill_fn(struct kmem_cache *cache, void *object);

/* Allocates one object by `refill` from the requested node, then from other nodes unless gfp has __GFP_THISNODE. */
void *km_miss_refill_named(struct kmem_cache *cache, const struct km_request *request, km_refill_fn *refill);
/* Takes one object from a slab, or frees one to its slab, without the sheaves. No miss is noted, so the sheaves do not
 * grow. only: 0, or __GFP_THISNODE. Returns: NULL if there is none. */
void *km_miss_take(struct kmem_cache *cache, const struct km_request *request, gfp_t only);
void km_miss_give_past(struct kmem_cache *cache, void *object);

/* Allocates one object from the engine. While the engine has none, drains other caches and tries again. */
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

/* Defers a free that may not enter the engine: links the object to cache->state.deferred for the next miss. */
void km_miss_defer(struct kmem_cache *cache, void *object) km_cold;

/* Enters the engine to free one object by `spill`; in a signal handler inside the library defers the free instead. The
 * free may wait, unless the call around it may not (km_thread.no_calls). */
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

/* ---- bulk: objects[0, left) of n are still to be allocated or freed; the rest is done. */
#define KM_BULK_MOST ((size_t)4096)	/* most objects in one call of an engine */
typedef size_t km_bulk_refill_fn(struct kmem_cache *cache, const struct km_request *request, size_t left,
				 void **objects);
typedef void km_bulk_spill_fn(struct kmem_cache *cache, size_t left, void **objects);
/* The refill and the spill of a cache without per-CPU sheaves: the engine allocates, or frees, objects[0, left).
 * km_bulk_take returns the number of missing objects, as `left` for the next call. */
size_t km_bulk_take(struct kmem_cache *cache, const struct km_request *request, size_t left, void **objects);
void km_bulk_give(struct kmem_cache *cache, size_t left, void **objects);
/* Refills from the engine as km_miss_refill, spills to the engine as km_miss_spill. */
int km_bulk_refill(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects,
		   km_bulk_refill_fn *refill);
void km_bulk_spill(struct kmem_cache *cache, size_t left, void **objects, km_bulk_spill_fn *spill);
/* True if each object of a bulk request needs more than a cached object; then each object is a request of its own. */
km_inline bool km_bulk_is_odd(gfp_t gfp)
{
	return km_unlikely(gfp & (__GFP_ZERO | __GFP_FULLEST | ~__GFP_BITS_MASK));
}
int km_bulk_one_by_one(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects);
void km_bulk_free_one_by_one(struct kmem_cache *cache, size_t n, size_t all, void **objects);
/* Frees objects that came from the engine and have not passed the layers VALIDATE and OBSERVE, without these layers. */
km_inline void km_unseen_free_bulk(struct kmem_cache *cache, size_t n, void **objects)
{
	km_layer_below(cache, KM_LAYER_VALIDATE)->free_bulk(cache, n, n, objects);
}

/* Returns: the ops below the layer CHARGE, which serve uncharged objects. */
km_inline const struct km_alloc_ops *km_plain_ops(const struct kmem_cache *cache)
{
	return km_layer(cache, KM_LAYER_CHARGE + 1);
}

/* ---- drain.c, publish.c, resize.c. Context: km_drain_lock held, or the cache is not visible to other threads. */

/* A list of CPUs. A NULL pointer to a list means all online CPUs. */
struct km_cpu_list {
	const uint16_t *cpus;
	size_t count;
};

/* Calls `take` for each online CPU of the list. */
void km_alloc_each_cpu(struct kmem_cache *cache, const struct km_cpu_list *from, const void *arg,
		       void (*take)(struct kmem_cache *cache, unsigned cpu, const void *arg));
/* Close or open the cache's per-CPU sheaves, and publish this (km_alloc_show); the caller makes the fence. */
void km_alloc_close_pcs(struct kmem_cache *cache);
void km_alloc_open_pcs(struct kmem_cache *cache);
/* Computes and stores all words of the cache that the fast path reads (publish.c). */
void km_alloc_show(struct kmem_cache *cache);
/* Stores the cache's id, or 0 if not `open`, into the cache's entries of a table of sizes. */
void km_alloc_show_entries(struct kmem_cache *cache, bool open);

/* ---- The functions of sheaf_ops.c, and the functions of cid_fast_path.c in front of them. */
void *km_array_alloc(struct kmem_cache *cache, gfp_t gfp, int node);
void km_array_free(struct kmem_cache *cache, void *object);
#ifdef KMEM_HAVE_RSEQ
void *km_alloc_by_cid(struct kmem_cache *cache, gfp_t gfp, int node);
void km_free_by_cid(struct kmem_cache *cache, void *object);
#else
#define km_alloc_by_cid km_array_alloc
#define km_free_by_cid km_array_free
#endif

/* km_chain_popped counts a pop. km_chain_pushed ends a push: counts it, reports misuse, or serves the free by the slow
 * path. */
void *km_chain_popped(struct kmem_cache *cache, void *object);
void km_chain_pushed(struct kmem_cache *cache, void *object, enum km_chain_push pushed);

/* Slow path of engines that serve each object not cached on the CPU: allocation, from the wanted node first, and free.
 * The callers (direct_ops.c, freelist_ops.c) tried a shorter path before. Returns: NULL if the request failed. */
void *km_miss_one(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node);
void km_miss_one_back(struct kmem_cache *cache, void *object);

void km_miss_free_null(struct kmem_cache *cache) km_cold;
void km_miss_free_twice(struct kmem_cache *cache, void *object) km_cold;

#endif
