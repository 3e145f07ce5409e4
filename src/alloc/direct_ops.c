/*
 * direct_ops.c: the alloc ops of engines without cached objects on CPUs: each call enters the engine, an ordinary
 * call by the shortest path, kmalloc's included where one cache serves all sizes. Invariant: any other call takes the
 * full slow path of slow_path.c, with nothing done before.
 *
 * An ordinary call may wait, names no node, and finds no deferred free. Then the engine's lock is all that the call
 * needs. The notes of a miss are not taken, because every call would take them. Reclaim runs at every 64th call
 * (km_miss_leave_quick).
 *
 * NULL from the shortest path is not final: other caches may free their cached objects. So the full slow path asks
 * the engine once more, between calls of km_alloc_relieve.
 */
#include "alloc_ops.h"

km_inline bool enter_alloc(struct kmem_cache *cache, const struct km_request *request, gfp_t no_hit)
{
	return km_likely(!(request->gfp & no_hit) && request->may_wait) && km_miss_enter_quick(cache);
}

static void *none_alloc_sized(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);
	void *object = NULL;

	km_debug(bytes < KM_PAGE_SIZE, "an engine that allocates by size allocates less than a page");
	request.bytes = (uint32_t)bytes;
	request.align = (uint32_t)align;
	if (km_likely(node == NUMA_NO_NODE) && enter_alloc(cache, &request, KMEM_GFP_ODD & ~__GFP_ZERO)) {
		object = cache->layout.engine->alloc(cache, &request);
		km_miss_leave_quick(cache);
	}
	return km_likely(object) ? km_miss_zeroed(cache, object, request.gfp, request.bytes) :
				   km_miss_one(cache, request.bytes, request.align, request.gfp, node);
}

static void *none_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	return none_alloc_sized(cache, 0, 0, gfp, node);
}

/* Frees one object. NULL is misuse, reported by the slow path. */
static void none_free(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(!object) || !km_miss_enter_quick(cache)) {
		km_miss_one_back(cache, object);
		return;
	}
	cache->layout.engine->free(cache, object);
	km_miss_leave_quick(cache);
}

/* Frees a block of kmalloc's single cache by the shortest path. Returns: false if not possible, or if the engine
 * refuses the block; then nothing has changed, and the caller reports the misuse. */
bool km_free_sized(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(km_load(&cache->layers[0]) != &km_ops_none) || !km_miss_enter_quick(cache))
		return false;
	enum km_misuse what = cache->layout.engine->sized.free(cache, object);
	km_miss_leave_quick(cache);
	return km_likely(what == KM_NO_MISUSE);
}

/* Takes up to `want` objects from the engine by the shortest path. Returns: their number; the caller gets the rest by
 * the slow path. */
unsigned km_alloc_take(struct kmem_cache *cache, const struct km_request *request, void **objects, unsigned want)
{
	if (km_unlikely(km_load(&cache->layers[0]) != &km_ops_none) || !enter_alloc(cache, request, KMEM_GFP_ODD))
		return 0;
	unsigned got = cache->layout.engine->take(cache, request, objects, want);
	km_debug(got <= want, "an engine returns at most the requested objects");
	km_miss_leave_quick(cache);
	return got;
}

bool km_alloc_give(struct kmem_cache *cache, void **objects, size_t n)
{
	if (km_unlikely(km_load(&cache->layers[0]) != &km_ops_none) || !km_miss_enter_quick(cache))
		return false;
	km_bulk_give(cache, n, objects);
	km_miss_leave_quick(cache);
	return true;
}

static int none_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);

	if (km_bulk_is_odd(gfp))
		return km_bulk_one_by_one(cache, gfp, left, n, objects);
	if (enter_alloc(cache, &request, KMEM_GFP_ODD)) {
		left = km_bulk_take(cache, &request, left, objects);
		km_miss_leave_quick(cache);
	}
	return km_likely(!left) ? (int)n : km_bulk_refill(cache, gfp, left, n, objects, km_bulk_take);
}

static void none_free_bulk(struct kmem_cache *cache, size_t n, size_t all km_unused, void **objects)
{
	if (!km_alloc_give(cache, objects, n))
		km_bulk_spill(cache, n, objects, km_bulk_give);
}

const struct km_alloc_ops km_ops_none = {
	.alloc = none_alloc, .alloc_sized = none_alloc_sized, .free = none_free,
	.alloc_bulk = none_alloc_bulk, .free_bulk = none_free_bulk,
};
