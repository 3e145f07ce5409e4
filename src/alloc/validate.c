/*
 * validate.c: what stands before a shape where each free is looked at, at once, and for little (page/alloc_map.h): an
 * object's byte is set as it is handed out, and cleared as it is freed. So an address that is not that of an object
 * which its user has is found before anything is done for it: freed already, inside of an object, another cache's, or
 * none of ours. Invariant: an object that lies on a shelf, in a barn or in a slab has a byte of 0, and one that is out
 * has its proof.
 *
 * A free clears the byte before it pushes the object, by a step that nothing divides (km_alloc_map_claim), and an
 * allocation sets it after the pop. Between the two the object is in the hand of one thread. A thread that frees an
 * object has it from the one that allocated it, and so sees the byte that was stored there.
 *
 * The public shelf of such a cache is closed, so that hits of all other caches are as they were. Its own hits are
 * here, on the same shelf: a miss of fast_path.c and a jump away, and inline at the doors that know the cache by a
 * size or an address (validate.h). The sequence that misses first, and the jump, are the price of not being known to
 * those hits.
 *
 * The steps of a free, in this order, each of which ends it if it fails:
 *
 *	its page	is of the first range, and the map has the cache's id for it; else the descriptor is asked
 *	its byte	is its proof; else it is free, or no object: the engine's layout says which, for the message
 *	clear the byte	the same step: a second free fails here
 *	canary		where objects have one, it is looked at
 *	zeros		where freed objects are to have no content
 *	quarantine	where there is one, another object goes on in this one's place, or none
 *	push		to the CPU's block, as every free; a full one goes the way of the shape below
 *
 * A watcher (observed_ops.c) stands before this, so that an object that it has seen come is proved when it goes.
 * Objects that an engine could not hand out in the end, in bulk, have not passed here, and go back past it (is_done
 * in alloc_bulk.c).
 */
#include <errno.h>

#include "percpu/cpu_freelist_hit.h"
#include "alloc_ops.h"

/* In the first range, as nearly all. */
km_inline bool is_near(const void *object)
{
	return km_page_index(object) < km_load(&km_hot.pages);
}

/* In any range. */
km_inline uint8_t *byte_of(const struct kmem_cache *cache, const void *object)
{
	return km_likely(is_near(object)) ? km_validated_byte(cache, object) :
						km_alloc_map_find(object, cache->live_shift);
}

/* ------------------------------------------------------------------ out */

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

/* Its link is the head of the CPU's freelist now. A user wrote to it, or to the object's place in the list. */
km_cold static void cut(struct kmem_cache *cache, const void *object)
{
	km_chain_cut(&cache->chain);
	km_misuse(KM_MISUSE_WRITTEN, "kmem_cache_alloc", object, cache->name);
}

/* A chain's object was another one's link, to which a user may have written after its free; and so may its own be. */
static km_noinline bool links_are_sound(struct kmem_cache *cache, const void *object)
{
	if (km_unlikely(!is_object(cache, object))) {
		cut(cache, object);
		return false;
	}
	const void *next = km_load((void *const *)((const char *)object + cache->freeptr));
	if (km_unlikely(next && !is_object(cache, next)))
		cut(cache, object);
	return true;
}

/* A link leads there that was written over, or our records were written to. */
static km_cold bool somebodys(struct kmem_cache *cache, const void *object)
{
	if (cache->engine->front == KM_PERCPU_FREELIST)
		cut(cache, object);
	else
		km_misuse(KM_MISUSE_WRITTEN, "kmem_cache_alloc", object, cache->name);
	return false;
}

km_inline bool hand_out(struct kmem_cache *cache, void *object)
{
	if (cache->engine->front == KM_PERCPU_FREELIST && km_unlikely(!links_are_sound(cache, object)))
		return false;
	uint8_t *byte = byte_of(cache, object);
	km_debug(byte, "an object that is handed out lies in a range");
	if (km_unlikely(!km_alloc_map_mark(byte, object)))
		return somebodys(cache, object);
	if (km_unlikely(cache->comes_in_parts))
		km_parts_comes(cache, object);
	return true;
}

bool km_validated_hand_out(struct kmem_cache *cache, void *object)
{
	return hand_out(cache, object);
}

static km_noinline void *alloc_slowly(struct kmem_cache *cache, gfp_t gfp, int node)
{
	/* After a warning it goes on; a list that is so damaged fails the call. */
	for (unsigned tries = 0; tries < KM_MOST_LOST; tries++) {
		void *object = km_layer_below(cache, KM_LAYER_VALIDATE)->alloc(cache, gfp & ~__GFP_ZERO, node);

		if (km_unlikely(!object))
			return NULL;
		if (km_likely(hand_out(cache, object)))
			return km_miss_zeroed(cache, object, gfp, 0);
	}
	return km_alloc_failed(cache->name, cache->object_size, gfp, ENOMEM);
}

/* It is in another range, or somebody's. */
void *km_validated_handed(struct kmem_cache *cache, gfp_t gfp, void *object)
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
	if (km_likely(km_alloc_map_claim(byte, object)))
		return true;
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
	return km_validated_claim(cache, object);
}

/* The object is its user's no more. Returns the one that may go on: itself, one that waited, or NULL: none does, or it
 * was not its user's, which is said. */
km_inline void *claim(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(!claim_near(cache, object)) && !claim_slowly(cache, object))
		return NULL;
	return cache->parts ? km_parts_goes(cache, object) : object;
}

static void validated_free_past(struct kmem_cache *cache, void *object)
{
	object = claim(cache, object);
	if (km_likely(object))
		km_ops_free_past(km_layer_below(cache, KM_LAYER_VALIDATE), cache, object);
}

/* ------------------------------------------------------------------ many */

static int validated_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	size_t kept = 0;

	/* No link is followed before what it leads to is proved. */
	if (km_bulk_is_odd(gfp) || cache->engine->front == KM_PERCPU_FREELIST)
		return km_bulk_one_by_one(cache, gfp, left, n, objects);
	km_debug(left == n, "nothing comes of a shelf that is closed");
	if (!km_layer_below(cache, KM_LAYER_VALIDATE)->alloc_bulk(cache, gfp, left, n, objects))
		return 0;
	for (size_t i = 0; i < left; i++)
		if (km_likely(hand_out(cache, objects[i])))
			objects[kept++] = objects[i];
	/* An object that somebody has is left to that one. */
	if (km_unlikely(kept < left) && !km_bulk_one_by_one(cache, gfp, left - kept, left - kept, objects + kept))
		return 0;
	return (int)n;
}

static void validated_free_bulk(struct kmem_cache *cache, size_t n, size_t all, void **objects)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (km_likely((objects[kept] = claim(cache, objects[i])) != NULL))
			kept++;
	if (kept)
		km_layer_below(cache, KM_LAYER_VALIDATE)->free_bulk(cache, kept, km_min(all, kept), objects);
}

/* ------------------------------------------------------------------ one object */

/*
 * The hits: of blocks of pointers, found by CPU. Whatever is rare is a jump at the end, so that neither has a frame.
 */
km_hit_path void *km_validated_alloc(struct kmem_cache *cache, gfp_t gfp)
{
#ifdef KMEM_HAVE_RSEQ
	void *object = kmem_pcs_pop(&cache->pcs.inner, km_hot.percpu, km_rseq);

	if (km_likely(object))
		return km_likely(km_validated_take(cache, object)) ? object : km_validated_handed(cache, gfp, object);
#endif
	return alloc_slowly(cache, gfp, NUMA_NO_NODE);
}

static void *validated_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	if (km_likely(!((gfp & KMEM_GFP_ODD) | (gfp_t)(node ^ NUMA_NO_NODE))))
		return km_validated_alloc(cache, gfp);
	return alloc_slowly(cache, gfp, node);
}

/* To the CPU's block, as every free; a full one goes the way of the shape below. */
km_inline void push(struct kmem_cache *cache, void *object)
{
#ifdef KMEM_HAVE_RSEQ
	if (km_likely(kmem_pcs_push(&cache->pcs.inner, km_hot.percpu, km_rseq, object)))
		return;
#endif
	km_ops_free(km_layer_below(cache, KM_LAYER_VALIDATE), cache, object);
}

static km_hit_path km_noinline void put_in_parts(struct kmem_cache *cache, void *object)
{
	if (km_likely(!cache->goes_in_parts))
		km_wipe(object, cache->cleared);
	else
		object = km_parts_goes(cache, object);
	if (km_likely(object))
		push(cache, object);
}

km_hit_path void km_validated_put(struct kmem_cache *cache, void *object)
{
	if (cache->parts)
		put_in_parts(cache, object);
	else
		push(cache, object);
}

static km_noinline void free_slowly(struct kmem_cache *cache, void *object)
{
	if (claim_slowly(cache, object))
		km_validated_put(cache, object);
}

km_hit_path void km_validated_free(struct kmem_cache *cache, void *object)
{
	if (km_likely(claim_near(cache, object)))
		km_validated_put(cache, object);
	else
		free_slowly(cache, object);
}

const struct km_alloc_ops km_ops_validated = {
	.alloc = validated_alloc, .free = km_validated_free,
	.free_past = validated_free_past, .alloc_bulk = validated_alloc_bulk, .free_bulk = validated_free_bulk,
};

/* A CPU's slab, found by CPU. */
static void validated_chain_free(struct kmem_cache *cache, void *object)
{
	object = claim(cache, object);
	if (km_unlikely(!object))
		return;
	enum km_chain_push pushed = km_chain_rseq_push(&cache->chain, object);
	if (km_unlikely(pushed != KM_CHAIN_PUSHED || km_layout_options.count_events))
		km_chain_pushed(cache, object, pushed);
}

static const struct km_alloc_ops validated_chain = {
	.alloc = alloc_slowly, .free = validated_chain_free,
	.free_past = validated_free_past, .alloc_bulk = validated_alloc_bulk, .free_bulk = validated_free_bulk,
};

/* The other disciplines and shapes, and where hits are counted. */
static void validated_free_softly(struct kmem_cache *cache, void *object)
{
	object = claim(cache, object);
	if (km_likely(object))
		km_layer_below(cache, KM_LAYER_VALIDATE)->free(cache, object);
}

static const struct km_alloc_ops validated_softly = {
	.alloc = alloc_slowly, .free = validated_free_softly,
	.free_past = validated_free_past, .alloc_bulk = validated_alloc_bulk, .free_bulk = validated_free_bulk,
};

const struct km_alloc_ops *km_validate_layer(struct kmem_cache *cache)
{
	const enum km_front front = cache->engine->front;

	if (!cache->live_shift)
		return NULL;
	if (front == KM_PERCPU_FREELIST && km_hits_by_cpu())
		return &validated_chain;
	if (front == KM_PERCPU_SHEAVES && km_hits_by_cpu() && !km_layout_options.count_events)
		return &km_ops_validated;
	return &validated_softly;
}

/* Unless somebody looks closer already, or the engine does. */
void km_alloc_prove(struct kmem_cache *cache)
{
	if (!km_hardening.live || km_is_hooked(cache) || cache->checked || cache->engine->shared_pages ||
	    cache->engine->whole_pages)
		return;
	cache->live_shift = (uint8_t)km_alloc_map_shift(cache->size);
	cache->live = km_alloc_map_place(cache->live_shift);
	cache->usable = 0;
	cache->live_id = cache->id >= KM_MAP_FIRST ? cache->id : UINT32_MAX;
	km_parts_begin(cache);
	km_debug(cache->live && !cache->pcs.front.open.pcs, "a cache's objects are proved from the first one on");
	km_layers_choose(cache);
}
