/*
 * sheaf_ops.c: the alloc ops of engines with per-CPU sheaves: a main sheaf for the fast path, and a spare. A miss
 * pops again, because the fast path may only have been interrupted, then swaps main and spare, then exchanges a sheaf
 * with the engine. Invariant: a sheaf held by a thread is on no CPU and in no barn.
 *
 * No lock protects a sheaf held by a miss. km_pcs_detach looks at the per-CPU word in C and commits by one sequence.
 * After the commit the word no longer leads to the sheaf, and no fast path finds the sheaf, because every fast path
 * begins with the word. A fast path that had read the word before was aborted when this thread came to the CPU, and
 * is a miss. From then on the sheaf belongs to this thread alone, on any CPU. km_alloc_install returns the sheaf: the
 * sheaf becomes main, the former main becomes the spare, and a former spare goes to the engine, to be kept or
 * emptied.
 *
 * Every loop ends. A per-CPU operation fails if its sequence was interrupted or if nothing is available; the caller
 * cannot tell the two apart. So each loop has at most KM_MISS_TRIES rounds without progress. A loop over many objects
 * ends because every other round leaves fewer objects. Each loop has a next step: pop and push turn to the engine at
 * the first failed swap, and install gives the sheaf to the engine. Where the per-CPU sheaves are not usable (closed,
 * no CPU, another node), the engine serves one object.
 *
 *	alloc	pop -> swap, pop -> [detach the empty sheaf -> engine: a full one -> install]
 *	free	push -> swap, push -> [detach the full sheaf -> engine: an empty one -> install] -> one to the engine
 */
#include <errno.h>

#include "os/probe.h"
#include "alloc_ops.h"

/* Installs a sheaf as main. If every try fails, the engine takes the sheaf. */
void km_alloc_install(struct kmem_cache *cache, void **sheaf)
{
	void **evicted;

	km_debug(km_thread.busy, "a detached sheaf belongs to a busy thread");
	for (int i = 0; i < KM_MISS_TRIES; i++)
		if (km_pcs_install(&cache->fast.pcs, sheaf, &evicted)) {
			if (evicted)
				cache->layout.engine->array.retire(cache, evicted);
			return;
		}
	cache->layout.engine->array.retire(cache, sheaf);
}

/* Returns: true if the miss may exchange sheaves with the engine: the sheaves are open, and the request is for the
 * CPU's own node, because objects of another node would later go to every thread on this CPU. */
static bool may_refill(const struct kmem_cache *cache, const struct km_request *request)
{
	return km_load(&cache->fast.pcs.inner.pcs) && km_thread_has_cpu() &&
	       (km_likely(request->node < 0) || (unsigned)request->node == km_node_here());
}

/* ------------------------------------------------------------------ one object in */

/* Returns: true if the sheaves are closed: for checked objects, SLAB_NO_SHEAVES, or by a drain in progress. */
static bool is_closed(const struct kmem_cache *cache)
{
	return km_unlikely(!km_load(&cache->fast.pcs.inner.pcs));
}

/* Pops from the main sheaf, or from the spare after a swap. */
static void *array_pop(struct kmem_cache *cache, bool may_wait)
{
	for (int i = 0; i < KM_MISS_TRIES; i++) {
		void *object = km_pcs_pop(&cache->fast.pcs);

		if (object) {
			km_alloc_hit(cache, KMEM_ALLOCHIT, 1);
			km_alloc_look(cache, may_wait);
			return object;
		}
		if (!km_pcs_swap(&cache->fast.pcs, true, !km_alloc_lone(cache)))
			break;
		km_alloc_note(cache, KM_SWAP_POINTS);
	}
	return NULL;
}

/* Gets a full sheaf from the engine for the detached empty main. Without a spare the main is not detached: it becomes
 * the spare when the new sheaf is installed. */
static void **next_sheaf(struct kmem_cache *cache, const struct km_request *request)
{
	void **empty = km_pcs_detach(&cache->fast.pcs, true, km_alloc_lone(cache));
	km_debug(!empty || !*empty, "a sheaf detached for a refill is empty");
	if (km_load(&cache->state.wanted_at) != km_load(&km_slab_clock))
		km_store(&cache->state.wanted_at, km_load(&km_slab_clock));
	void **sheaf = cache->layout.engine->array.refill(cache, request, empty);

	km_debug(!sheaf || *sheaf, "a sheaf filled by the engine has an object");
	KM_PROBE3(refill, cache->registry.name, sheaf, request->gfp);
	if (km_unlikely(!sheaf) && empty)
		km_alloc_install(cache, empty);
	return sheaf;
}

static void *array_refill(struct kmem_cache *cache, const struct km_request *request)
{
	void *object = NULL;

	if (km_unlikely(!may_refill(cache, request) || request->gfp & __GFP_FULLEST)) {
		cache->layout.engine->take(cache, request, &object, 1);
		return object;
	}
	void **sheaf = next_sheaf(cache, request);
	if (km_unlikely(!sheaf))
		return NULL;
	object = *sheaf++;
	/* Another CPU may have freed the objects: fetch all their lines at once, not one by one at the first write. */
	km_alloc_install(cache, sheaf);
	return object;
}

/* Pushes to the main sheaf, or to the spare after a swap. False: both are full, or interrupted too often. */
static bool array_push(struct kmem_cache *cache, void *object)
{
	for (int i = 0; i < KM_MISS_TRIES; i++) {
		if (km_pcs_push(&cache->fast.pcs, object)) {
			km_alloc_hit(cache, KMEM_FREEHIT, 1);
			km_alloc_look(cache, true);
			return true;
		}
		if (!km_pcs_swap(&cache->fast.pcs, false, !km_alloc_lone(cache)))
			break;
		km_alloc_note(cache, KM_SWAP_POINTS);
	}
	return false;
}

/* Frees objects to the engine. A signal handler inside an engine frees to the CPU's sheaves instead, else to the
 * deferred list. */
static void send_home(struct kmem_cache *cache, void **objects, unsigned count, bool may_wait)
{
	if (!km_miss_enter()) {
		while (count)
			if (!array_push(cache, objects[--count]))
				km_miss_defer(cache, objects[count]);
		return;
	}
	bool was = km_calls_begin(may_wait);
	cache->layout.engine->give(cache, objects, count);
	km_calls_end(was);
	km_busy_end_clear();
}

/* Pops an object of the requested node. Objects of other nodes on top of the sheaf go back to the engine. */
static void *pop_named(struct kmem_cache *cache, const struct km_request *request)
{
	void *strangers[KM_MISS_TRIES], *object = NULL;
	unsigned count = 0;

	if (!may_refill(cache, request))
		return km_miss_take(cache, request, __GFP_THISNODE);
	while (count < KM_MISS_TRIES && (object = array_pop(cache, request->may_wait)) &&
	       km_page_node(object) != (unsigned)request->node) {
		strangers[count++] = object;
		object = NULL;
	}
	if (km_unlikely(count))
		send_home(cache, strangers, count, request->may_wait);
	return object;
}

/* Shortcut for the CPU's own node: the top of the main sheaf is mostly of this node. Pops, then checks. */
static void *pop_own(struct kmem_cache *cache, gfp_t gfp, int id)
{
	unsigned here = km_node_here();

	if (gfp & (__GFP_ACCOUNT | __GFP_FULLEST | ~__GFP_BITS_MASK) || id < 0 ||
	    km_node_of_id(id, gfp & __GFP_THISNODE) != (int)here)
		return NULL;
	void *object = km_pcs_pop(&cache->fast.pcs);
	if (km_likely(object) && km_likely(km_page_node(object) == here)) {
		km_alloc_hit(cache, KMEM_ALLOCHIT, 1);
		km_alloc_look(cache, km_gfp_may_wait(gfp));
		return km_miss_zeroed(cache, object, gfp, 0);
	}
	/* The full slow path frees the object to the engine. */
	if (object && !km_pcs_push(&cache->fast.pcs, object))
		send_home(cache, &object, 1, km_gfp_may_wait(gfp));
	return NULL;
}

void *km_array_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);
	void *object = km_likely(node == NUMA_NO_NODE) ? NULL : pop_own(cache, gfp, node);

	if (object)
		return object;
	if (!km_miss_prepare(cache, &request, node))
		return NULL;
	km_debug(cache->layout.engine->front == KM_PERCPU_SHEAVES, "an engine with these alloc ops fills sheaves");
	/* While the sheaves are closed, and for __GFP_FULLEST, take an object straight from the engine. */
	if (km_unlikely(gfp & __GFP_FULLEST) || (request.node < 0 && is_closed(cache)))
		object = km_miss_take(cache, &request, 0);
	else
		object = km_likely(request.node < 0) ? array_pop(cache, request.may_wait) : pop_named(cache, &request);
	if (object)
		return km_miss_zeroed(cache, object, gfp, 0);
	return km_miss_refill(cache, &request, array_refill);
}

/* ------------------------------------------------------------------ one object back */

/* Detaches the full main, and exchanges it at the engine for a sheaf with room. Returns: NULL if the engine has none or
 * the sheaves are closed. */
static void **next_room(struct kmem_cache *cache)
{
	if (!km_load(&cache->fast.pcs.inner.pcs) || !km_thread_has_cpu())
		return NULL;
	void **room = cache->layout.engine->array.spill(
		cache, km_pcs_detach(&cache->fast.pcs, false, km_alloc_lone(cache)));
	km_debug(!room || ((uintptr_t)room & cache->fast.pcs.sheaf_mask), "a sheaf for freed objects has room");
	return room;
}

/* Frees an object while main and spare are full: gets a sheaf with room, puts the object in, and installs the sheaf. */
static void array_spill(struct kmem_cache *cache, void *object)
{
	void **room = next_room(cache);

	if (km_unlikely(!room)) {
		cache->layout.engine->give(cache, &object, 1);
		return;
	}
	*--room = object;
	km_alloc_install(cache, room);
}

/* Keeps errno, as libc's free does: programs read errno after they have cleaned up. */
void km_array_free(struct kmem_cache *cache, void *object)
{
	int saved_errno = errno;

	if (km_unlikely(!object)) {
		km_miss_free_null(cache);
		return;
	}
	if (is_closed(cache)) {
		km_miss_give_past(cache, object);
		return;
	}
	km_alloc_enter_thread(true);
	if (!array_push(cache, object))
		km_miss_spill(cache, object, array_spill);
	errno = saved_errno;
}

/* ------------------------------------------------------------------ many */

/* Enlarges the sheaves so that a whole bulk request fits into one. Caches of whole pages have other bounds. */
static void fit_bulk(struct kmem_cache *cache, size_t n, bool may_wait)
{
	unsigned capacity = km_mask_capacity(km_alloc_mask(cache));

	if (n <= capacity || capacity >= cache->tune.max_capacity || !cache->fast.pcs.slot ||
	    cache->layout.engine->whole_pages)
		return;
	km_calls_scope(was, may_wait);
	km_alloc_resize(cache, (unsigned)km_min(n, (size_t)cache->tune.max_capacity));
}

/* Moves objects between the array and the CPU's two sheaves. Returns: the number of objects left. */
static size_t move_bulk(struct kmem_cache *cache, size_t left, void **objects, bool in)
{
	for (int tries = 0; left && tries < KM_MISS_TRIES;) {
		size_t moved = in ? km_pcs_pop_n(&cache->fast.pcs, objects, left) :
				    km_pcs_push_n(&cache->fast.pcs, objects, left);

		km_debug(moved <= left, "a copy moves at most the remaining objects");
		km_alloc_hit(cache, in ? KMEM_ALLOCHIT : KMEM_FREEHIT, moved);
		left -= moved;
		tries += !moved;
		if (!left || !km_pcs_swap(&cache->fast.pcs, in, false))
			break;
		km_alloc_note(cache, KM_SWAP_POINTS);
	}
	return left;
}

/* Copies objects to the array from full sheaves of the engine, and installs the rest of the last sheaf on the CPU. */
static size_t array_refill_bulk(struct kmem_cache *cache, const struct km_request *request, size_t left,
				void **objects)
{
	while (left && may_refill(cache, request)) {
		void **sheaf = next_sheaf(cache, request);

		if (!sheaf)
			return left;
		size_t moved = km_min(km_sheaf_objects(&cache->fast.pcs, sheaf), left);
		left -= moved;
		__builtin_memcpy(objects + left, sheaf, moved * sizeof(*sheaf));
		km_alloc_install(cache, sheaf + moved);
		left = move_bulk(cache, left, objects, true);
	}
	return km_bulk_take(cache, request, left, objects);
}

/* Allocates many objects. With __GFP_THISNODE the request goes to the engine, because a copy from a sheaf does not
 * check nodes. */
static int array_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	if (km_bulk_is_odd(gfp))
		return km_bulk_one_by_one(cache, gfp, left, n, objects);
	fit_bulk(cache, n, km_gfp_may_wait(gfp));
	km_alloc_look(cache, km_gfp_may_wait(gfp));
	if (km_likely(!(gfp & __GFP_THISNODE)))
		left = move_bulk(cache, left, objects, true);
	return !left ? (int)n : km_bulk_refill(cache, gfp, left, n, objects, array_refill_bulk);
}

static void array_spill_bulk(struct kmem_cache *cache, size_t left, void **objects)
{
	void **room;

	while (left && (room = next_room(cache))) {
		/* Fill only the room: a sheaf of which the engine took a part still has older objects. */
		size_t moved = km_min(km_sheaf_room(&cache->fast.pcs, room), left);

		km_debug(room - moved >= km_sheaf_base(&cache->fast.pcs, room), "copied objects fit in the sheaf");
		left -= moved;
		__builtin_memcpy(room - moved, objects + left, moved * sizeof(*objects));
		km_alloc_install(cache, room - moved);
		if (!moved)
			break;
		left = move_bulk(cache, left, objects, false);
	}
	km_bulk_give(cache, left, objects);
}

static void array_free_bulk(struct kmem_cache *cache, size_t n, size_t all, void **objects)
{
	fit_bulk(cache, all, true);
	n = move_bulk(cache, n, objects, false);
	if (n)
		km_bulk_spill(cache, n, objects, array_spill_bulk);
	km_alloc_look(cache, true);
}

const struct km_alloc_ops km_ops_array = {
	.alloc = km_array_alloc, .free = km_array_free,
	.free_past = km_miss_give_past,
	.alloc_bulk = array_alloc_bulk, .free_bulk = array_free_bulk, .pcs = true,
};
/* Ops of caches with sheaves while areas are indexed by concurrency id. */
const struct km_alloc_ops km_ops_array_by_cid = {
	.alloc = km_alloc_by_cid, .free = km_free_by_cid,
	.free_past = km_miss_give_past,
	.alloc_bulk = array_alloc_bulk, .free_bulk = array_free_bulk, .pcs = true,
};
