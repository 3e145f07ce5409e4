/*
 * proved.c: what stands before a shape where each free is looked at, at once, and for little (page/live.h): an
 * object's byte is set as it is handed out, and cleared as it is freed. So an address that is not that of an object
 * which its user has is found before anything is done for it: freed already, inside of an object, another cache's, or
 * none of ours. Invariant: an object that lies on a shelf, in a barn or in a slab has a byte of 0, and one that is out
 * has its proof.
 *
 * The order of the two steps is what makes plain loads and stores do: a free clears the byte before it pushes the
 * object, and an allocation sets it after the pop. Between the two the object is in the hand of one thread. A
 * thread that frees an object has it from the one that allocated it, and so sees the byte that was stored there.
 *
 * The public shelf of such a cache is closed, so that hits of all other caches are as they were. Its own hits are
 * here, on the same shelf: a miss of front.c and a jump away. The sequence that misses first, and the jump, are the
 * price of not being known to those hits.
 *
 * The steps of a free, in this order, each of which ends it if it fails:
 *
 *	its page	is of the first range, and the map has the cache's id for it; else the descriptor is asked
 *	its byte	is its proof; else it is free, or no object: the engine's layout says which, for the message
 *	clear the byte	from here on a second free fails at the step before
 *	zeros		where freed objects are to have no content
 *	push		to the CPU's block, as every free; a full one goes the way of the shape below
 *
 * A watcher (watched.c) stands before this, so that an object that it has seen come is proved when it goes. Objects
 * that an engine could not hand out in the end, in bulk, have not passed here, and go back past it (is_done in bulk.c).
 */
#include <errno.h>

#include "../page/live.h"
#include "../port/chain_hit.h"
#include "hardened.h"
#include "shape.h"

#define MOST_LOST 1024u		/* objects in a row that can't be handed out */

/* In the first range, as nearly all. */
km_inline bool is_near(const void *object)
{
	return km_page_index(object) < km_load(&km_hot.pages);
}

/* ... then its byte. */
km_inline uint8_t *byte_near(const struct kmem_cache *cache, const void *object)
{
	return (uint8_t *)(cache->live + ((uintptr_t)object >> cache->live_shift));
}

/* In any range. */
km_inline uint8_t *byte_of(const struct kmem_cache *cache, const void *object)
{
	return km_likely(is_near(object)) ? byte_near(cache, object) : km_live_find(object, cache->live_shift);
}

/* ------------------------------------------------------------------ out */

/* It was freed twice, by two threads at once: one of its users has it. Or somebody wrote to our records. */
static km_cold bool handed_out_twice(struct kmem_cache *cache, void *object)
{
	km_miss_free_twice(cache, object);
	return false;
}

/* False: nothing was done. */
km_inline bool take_near(struct kmem_cache *cache, void *object)
{
	uint8_t *byte = byte_near(cache, object);

	if (km_unlikely(km_load(byte)))
		return false;
	km_store(byte, km_live_proof(object));
	if (km_unlikely(cache->comes_in_parts))
		km_parts_comes(cache, object);
	return true;
}

/* Is it the start of an object of the cache? By its address, or by the descriptor of its page. */
static bool is_object(const struct kmem_cache *cache, const void *object)
{
	if (km_likely(is_near(object)) && km_likely(km_hot.map[km_page_index(object)] == cache->live_id) &&
	    km_likely(km_hot.caches[cache->live_id]))
		return km_likely(km_id_valid(cache->live_id, object));
	const struct km_page *page = km_page_of(object), *slab = page ? km_page_head((struct km_page *)page) : NULL;
	return slab && slab->type == KM_PAGE_SLAB && slab->cache == cache &&
	       km_object_index(cache, slab, km_slab_first(cache, slab), object) >= 0;
}

/* A chain's next object is what stood in the last one, to which a user may have written after its free. */
static km_noinline bool link_is_sound(struct kmem_cache *cache, void *object)
{
	if (km_likely(is_object(cache, object)))
		return true;
	km_misuse(KM_MISUSE_WRITTEN, "kmem_cache_alloc", object, cache->name);
	return false;
}

km_inline bool hand_out(struct kmem_cache *cache, void *object)
{
	if (cache->engine->front == KM_FRONT_CHAIN && km_unlikely(!link_is_sound(cache, object)))
		return false;
	uint8_t *byte = byte_of(cache, object);
	km_debug(byte, "an object that is handed out lies in a range");
	if (km_unlikely(km_load(byte)))
		return handed_out_twice(cache, object);
	km_store(byte, km_live_proof(object));
	if (km_unlikely(cache->comes_in_parts))
		km_parts_comes(cache, object);
	return true;
}

bool km_proved_hand_out(struct kmem_cache *cache, void *object)
{
	return hand_out(cache, object);
}

static km_noinline void *alloc_slowly(struct kmem_cache *cache, gfp_t gfp, int node)
{
	/* After a warning it goes on; a list that is so damaged fails the call. */
	for (unsigned tries = 0; tries < MOST_LOST; tries++) {
		void *object = cache->below->alloc(cache, gfp & ~__GFP_ZERO, node);

		if (km_unlikely(!object))
			return NULL;
		if (km_likely(hand_out(cache, object)))
			return km_miss_zeroed(cache, object, gfp, 0);
	}
	return km_front_failed(cache->name, cache->object_size, gfp, ENOMEM);
}

/* An object that was popped, and is in another range or somebody's. */
static km_noinline void *handed_slowly(struct kmem_cache *cache, gfp_t gfp, void *object)
{
	return hand_out(cache, object) ? object : alloc_slowly(cache, gfp, NUMA_NO_NODE);
}

/* ------------------------------------------------------------------ back */

/* By the page's descriptor, for slabs of an odd order, and caches without an id; else the mistake is said. */
static km_noinline bool claim_slowly(struct kmem_cache *cache, void *object)
{
	int index;
	struct km_page *slab = km_slab_of(cache, object, &index, "kmem_cache_free");
	uint8_t *byte = slab ? byte_of(cache, object) : NULL;

	if (!slab)
		return false;
	if (km_likely(km_load(byte) == km_live_proof(object))) {
		km_store(byte, (uint8_t)0);
		return true;
	}
	km_tell_of(slab, object, KM_MISUSE_DOUBLE_FREE);
	km_miss_free_twice(cache, object);
	return false;
}

/* By its address alone, and one byte. False: nothing was done. */
km_inline bool claim_near(const struct kmem_cache *cache, void *object)
{
	const uintptr_t index = km_page_index(object);

	if (km_unlikely(index >= km_load(&km_hot.pages)) || km_unlikely(km_hot.map[index] != cache->live_id))
		return false;
	uint8_t *byte = byte_near(cache, object);
	if (km_unlikely(km_load(byte) != km_live_proof(object)))
		return false;
	km_store(byte, (uint8_t)0);
	return true;
}

/* The object is its user's no more. False: it was not, which is said. */
km_inline bool claim(struct kmem_cache *cache, void *object)
{
	return km_likely(claim_near(cache, object)) || claim_slowly(cache, object);
}

/* The object that may go on, having been claimed; NULL: none. */
km_inline void *pass(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(cache->goes_in_parts))
		return km_parts_goes(cache, object);
	if (cache->wiped)
		__builtin_memset(object, 0, cache->cleared);
	return object;
}

/* ------------------------------------------------------------------ many */

static bool proved_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	size_t kept = 0;

	if (km_bulk_is_odd(gfp))
		return km_bulk_one_by_one(cache, gfp, left, n, objects);
	km_debug(left == n, "nothing comes of a shelf that is closed");
	if (!cache->below->alloc_bulk(cache, gfp, left, n, objects))
		return false;
	for (size_t i = 0; i < left; i++)
		if (km_likely(hand_out(cache, objects[i])))
			objects[kept++] = objects[i];
	/* An object that somebody has is left to that one. */
	return km_likely(kept == left) || km_bulk_one_by_one(cache, gfp, left - kept, left - kept, objects + kept);
}

static void proved_free_bulk(struct kmem_cache *cache, size_t n, size_t all, void **objects)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (km_likely(claim(cache, objects[i])) && (objects[kept] = pass(cache, objects[i])))
			kept++;
	if (kept)
		cache->below->free_bulk(cache, kept, km_min(all, kept), objects);
}

/* ------------------------------------------------------------------ one object */

/*
 * The hits: of blocks of pointers, found by CPU. Whatever is rare is a jump at the end, so that neither has a frame.
 */
km_hit_path void *km_proved_pop(struct kmem_cache *cache)
{
#ifdef KMEM_HAVE_RSEQ
	void *object = kmem_shelf_pop(&cache->shelf.inner, km_hot.percpu, km_rseq);

	if (km_unlikely(!object))
		return NULL;
	if (km_likely(is_near(object)) && km_likely(take_near(cache, object)))
		return object;
	return hand_out(cache, object) ? object : NULL;
#else
	(void)cache;
	return NULL;
#endif
}

km_hit_path void *km_proved_alloc(struct kmem_cache *cache, gfp_t gfp)
{
#ifdef KMEM_HAVE_RSEQ
	void *object = kmem_shelf_pop(&cache->shelf.inner, km_hot.percpu, km_rseq);

	if (km_likely(object) && km_likely(is_near(object)) && km_likely(take_near(cache, object)))
		return object;
	if (object)
		return handed_slowly(cache, gfp, object);
#endif
	return alloc_slowly(cache, gfp, NUMA_NO_NODE);
}

static void *proved_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	if (km_likely(!((gfp & KMEM_GFP_ODD) | (gfp_t)(node ^ NUMA_NO_NODE))))
		return km_proved_alloc(cache, gfp);
	return alloc_slowly(cache, gfp, node);
}

static km_noinline void free_in_parts(struct kmem_cache *cache, void *object)
{
	object = pass(cache, object);
	if (km_unlikely(!object))
		return;
#ifdef KMEM_HAVE_RSEQ
	if (km_likely(kmem_shelf_push(&cache->shelf.inner, km_hot.percpu, km_rseq, object)))
		return;
#endif
	cache->below->free(cache, object);
}

static km_noinline void free_slowly(struct kmem_cache *cache, void *object)
{
	if (claim_slowly(cache, object))
		free_in_parts(cache, object);
}

km_hit_path void km_proved_free(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(!claim_near(cache, object))) {
		free_slowly(cache, object);
		return;
	}
	if (km_unlikely(cache->parts)) {
		free_in_parts(cache, object);
		return;
	}
#ifdef KMEM_HAVE_RSEQ
	if (km_likely(kmem_shelf_push(&cache->shelf.inner, km_hot.percpu, km_rseq, object)))
		return;
#endif
	cache->below->free(cache, object);
}

const struct km_shape km_shape_proved = {
	.alloc = proved_alloc, .free = km_proved_free,
	.alloc_bulk = proved_alloc_bulk, .free_bulk = proved_free_bulk,
};

/* A CPU's slab, found by CPU. */
static void proved_chain_free(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(!claim(cache, object)) || !(object = pass(cache, object)))
		return;
	enum km_chain_push pushed = km_chain_rseq_push(&cache->chain, object);
	if (km_unlikely(pushed != KM_CHAIN_PUSHED || km_layout_options.count_events))
		km_chain_pushed(cache, object, pushed);
}

static const struct km_shape proved_chain = {
	.alloc = alloc_slowly, .free = proved_chain_free,
	.alloc_bulk = proved_alloc_bulk, .free_bulk = proved_free_bulk,
};

/* The other disciplines and shapes, and where hits are counted. */
static void proved_free_softly(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(!claim(cache, object)) || !(object = pass(cache, object)))
		return;
	cache->below->free(cache, object);
}

static const struct km_shape proved_softly = {
	.alloc = alloc_slowly, .free = proved_free_softly,
	.alloc_bulk = proved_alloc_bulk, .free_bulk = proved_free_bulk,
};

const struct km_shape *km_proved_shape(const struct kmem_cache *cache)
{
	const enum km_front front = cache->engine->front;

	if (front == KM_FRONT_CHAIN && km_hits_by_cpu())
		return &proved_chain;
	if (front == KM_FRONT_ARRAY && km_hits_by_cpu() && !km_layout_options.count_events)
		return &km_shape_proved;
	return &proved_softly;
}

/* Unless somebody looks closer already, or the engine does. */
void km_front_prove(struct kmem_cache *cache)
{
	if (!km_hardening.live || cache->hooks || cache->checked || cache->engine->shared_pages ||
	    cache->engine->whole_pages)
		return;
	cache->live_shift = (uint8_t)km_live_shift(cache->size);
	cache->live = km_live_place(cache->live_shift);
	cache->live_id = cache->id >= KM_MAP_FIRST ? cache->id : UINT32_MAX;
	km_parts_begin(cache);
	km_debug(cache->live && !cache->shelf.front.open.shelf, "a cache's objects are proved from the first one on");
	km_front_choose_shape(cache);
}
