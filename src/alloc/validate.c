/*
 * validate.c: the layer VALIDATE: checks every free at once and at a small cost, by the allocation state map
 * (page/alloc_map.h). An allocation sets the object's byte, and a free clears the byte. So a free of an address
 * without an allocated object is found before the free has an effect: a double free, a pointer into an object, an
 * object of another cache, or a foreign address. Invariant: an object in a sheaf, a barn or a slab has a byte of 0,
 * and an allocated object has its validation byte.
 *
 * A free clears the byte before the push, by one atomic step (km_alloc_map_claim), and an allocation sets the byte
 * after the pop. Between the two one thread holds the object. A thread that frees an object got the object from the
 * allocating thread, and so sees the byte stored at the allocation.
 *
 * The public sheaves of such a cache are closed, so that the fast path of all other caches is unchanged. The fast
 * path of validated objects is here, on the same sheaves: a miss of fast_path.c and one jump away. Callers that find
 * the cache by a size or an address have the fast path inline (validate.h). The cost of a closed public path is the
 * sequence that misses first, and the jump.
 *
 * The steps of a free, in this order; a step that fails ends the free:
 *
 *	page		in the first range, and the page map has the cache's id; else the page descriptor decides
 *	byte		the validation byte; else the object is free, or the address is no object: the engine's layout
 *			tells the two apart for the message
 *	clear		the same step clears the byte: a second free fails here
 *	canary		checked, where objects have canaries
 *	zeros		written, where freed objects must have no content
 *	quarantine	where there is one, another object continues in place of this one, or none
 *	push		to the CPU's main sheaf, as every free; if full, through the ops of the layer below
 *
 * The layer OBSERVE (observed_ops.c) is above, so an object observed at allocation is validated at its free. Objects
 * of a bulk allocation that fails in the end were not validated, and go back below this layer (bulk_done
 * in alloc_bulk.c).
 */
#include <errno.h>

#include "percpu/cpu_freelist_hit.h"
#include "alloc_ops.h"

/* Returns: true if the object is in the first range of pages, as nearly all objects are. */
km_inline bool is_near(const void *object)
{
	return km_page_index(object) < km_load(&km_hot.pages);
}

/* Returns: the object's byte in the allocation state map, for an object in any range. */
km_inline uint8_t *byte_of(const struct kmem_cache *cache, const void *object)
{
	return km_likely(is_near(object)) ? km_validated_byte(cache, object) :
						km_alloc_map_find(object, cache->layout.live_shift);
}

/* ------------------------------------------------------------------ out */

/* Returns: true if the address is the start of an object of the cache, by the page map, or by the page descriptor. */
static bool is_object(const struct kmem_cache *cache, const void *object)
{
	if (km_likely(is_near(object)) && km_likely(km_hot.map[km_page_index(object)] == cache->ext.live_id) &&
	    km_likely(km_hot.caches[cache->ext.live_id]))
		return km_likely(km_id_valid(cache->ext.live_id, object));
	return km_is_object(cache, object);
}

/* Drops the CPU's freelist, because a user wrote to a free object and destroyed its link. The objects are lost. */
km_cold static void cut(struct kmem_cache *cache, const void *object)
{
	km_chain_cut(&cache->fast.chain);
	km_misuse(KM_MISUSE_WRITTEN, "kmem_cache_alloc", object, cache->registry.name);
}

/* Checks the first object of a freelist, and its link to the next: a user may have written to either after the free. */
static km_noinline bool links_are_sound(struct kmem_cache *cache, const void *object)
{
	if (km_unlikely(!is_object(cache, object))) {
		cut(cache, object);
		return false;
	}
	const void *next = km_load((void *const *)((const char *)object + cache->layout.freeptr));
	if (km_unlikely(next && !is_object(cache, next)))
		cut(cache, object);
	return true;
}

/* Reports that a popped object is allocated already: a user overwrote a link of the freelist, or the library's
 * records. */
static km_cold bool somebodys(struct kmem_cache *cache, const void *object)
{
	if (cache->layout.engine->front == KM_PERCPU_FREELIST)
		cut(cache, object);
	else
		km_misuse(KM_MISUSE_WRITTEN, "kmem_cache_alloc", object, cache->registry.name);
	return false;
}

km_inline bool hand_out(struct kmem_cache *cache, void *object)
{
	if (cache->layout.engine->front == KM_PERCPU_FREELIST && km_unlikely(!links_are_sound(cache, object)))
		return false;
	uint8_t *byte = byte_of(cache, object);
	km_debug(byte, "an allocated object is in a page range");
	if (km_unlikely(!km_alloc_map_mark(byte, object)))
		return somebodys(cache, object);
	if (km_unlikely(cache->ext.comes_in_parts))
		km_parts_comes(cache, object);
	return true;
}

bool km_validated_hand_out(struct kmem_cache *cache, void *object)
{
	return hand_out(cache, object);
}

static km_noinline void *alloc_slowly(struct kmem_cache *cache, gfp_t gfp, int node)
{
	/* A damaged object is skipped after its report; KM_MOST_LOST in a row fail the call. */
	for (unsigned tries = 0; tries < KM_MOST_LOST; tries++) {
		void *object = km_layer_below(cache, KM_LAYER_VALIDATE)->alloc(cache, gfp & ~__GFP_ZERO, node);

		if (km_unlikely(!object))
			return NULL;
		if (km_likely(hand_out(cache, object)))
			return km_miss_zeroed(cache, object, gfp, 0);
	}
	return km_alloc_failed(cache->registry.name, cache->layout.object_size, gfp, ENOMEM);
}

/* Validates a popped object for which km_validated_take failed: an object outside of the first range, or one already
 * allocated. */
void *km_validated_handed(struct kmem_cache *cache, gfp_t gfp, void *object)
{
	return hand_out(cache, object) ? object : alloc_slowly(cache, gfp, NUMA_NO_NODE);
}

/* ------------------------------------------------------------------ back */

/* Clears the object's byte after a look at the page descriptor, for slabs of an odd order and caches without an id.
 * Reports misuse. */
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

/* Clears the object's byte if page map and byte prove an allocated object. Returns: false if nothing was done. */
km_inline bool claim_near(const struct kmem_cache *cache, void *object)
{
	const uintptr_t index = km_page_index(object);

	if (km_unlikely(index >= km_load(&km_hot.pages)) || km_unlikely(km_hot.map[index] != cache->ext.live_id))
		return false;
	return km_validated_claim(cache, object);
}

/* Clears the object's byte. Returns: the object to free: the object itself, or another object from the quarantine.
 * NULL: no object is to be freed now, or the object was not allocated, after a report. */
km_inline void *claim(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(!claim_near(cache, object)) && !claim_slowly(cache, object))
		return NULL;
	return cache->ext.parts ? km_parts_goes(cache, object) : object;
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

	/* With a freelist take one object at a time, because each link must be validated before it is followed. */
	if (km_bulk_is_odd(gfp) || cache->layout.engine->front == KM_PERCPU_FREELIST)
		return km_bulk_one_by_one(cache, gfp, left, n, objects);
	km_debug(left == n, "closed per-CPU sheaves return no object");
	if (!km_layer_below(cache, KM_LAYER_VALIDATE)->alloc_bulk(cache, gfp, left, n, objects))
		return 0;
	for (size_t i = 0; i < left; i++)
		if (km_likely(hand_out(cache, objects[i])))
			objects[kept++] = objects[i];
	/* Objects found to be allocated are left to their users; allocate others in their place. */
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

/* The fast paths of validated caches with sheaves indexed by CPU. Each rare case is a jump at the end, so that neither
 * function has a frame. */
km_hit_path void *km_validated_alloc(struct kmem_cache *cache, gfp_t gfp)
{
#ifdef KMEM_HAVE_RSEQ
	void *object = kmem_pcs_pop(&cache->fast.pcs.inner, km_hot.percpu, km_rseq);

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

/* Pushes to the CPU's main sheaf, as every free; if full, frees through the ops of the layer below. */
km_inline void push(struct kmem_cache *cache, void *object)
{
#ifdef KMEM_HAVE_RSEQ
	if (km_likely(kmem_pcs_push(&cache->fast.pcs.inner, km_hot.percpu, km_rseq, object)))
		return;
#endif
	km_ops_free(km_layer_below(cache, KM_LAYER_VALIDATE), cache, object);
}

static km_hit_path km_noinline void put_in_parts(struct kmem_cache *cache, void *object)
{
	if (km_likely(!cache->ext.goes_in_parts))
		km_wipe(object, cache->layout.cleared);
	else
		object = km_parts_goes(cache, object);
	if (km_likely(object))
		push(cache, object);
}

km_hit_path void km_validated_put(struct kmem_cache *cache, void *object)
{
	if (cache->ext.parts)
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

/* Validates an object, and frees it by the layer below: for caches with a freelist, other disciplines than rseq, and
 * counted events. */
static void validated_free_below(struct kmem_cache *cache, void *object)
{
	const struct km_alloc_ops *below = km_layer_below(cache, KM_LAYER_VALIDATE);

	object = claim(cache, object);
	if (km_unlikely(!object))
		return;
	if (below == &km_ops_chain)
		km_free_chained(cache, object);
	else
		below->free(cache, object);
}

static const struct km_alloc_ops validated_below = {
	.alloc = alloc_slowly, .free = validated_free_below,
	.free_past = validated_free_past, .alloc_bulk = validated_alloc_bulk, .free_bulk = validated_free_bulk,
};

const struct km_alloc_ops *km_validate_layer(struct kmem_cache *cache)
{
	if (!cache->layout.live_shift)
		return NULL;
	if (cache->layout.engine->front == KM_PERCPU_SHEAVES && km_hits_by_cpu() && !km_layout_options.count_events)
		return &km_ops_validated;
	return &validated_below;
}

/* Adds the layer to a new cache, unless hooks, checks or the engine validate each object already. */
void km_alloc_prove(struct kmem_cache *cache)
{
	if (!km_hardening.live || km_is_hooked(cache) || cache->layout.checked || cache->layout.engine->shared_pages ||
	    cache->layout.engine->whole_pages)
		return;
	cache->layout.live_shift = (uint8_t)km_alloc_map_shift(cache->layout.size);
	cache->ext.live = km_alloc_map_place(cache->layout.live_shift);
	cache->layout.usable = 0;
	cache->ext.live_id = cache->fast.id >= KM_MAP_FIRST ? cache->fast.id : UINT32_MAX;
	km_parts_begin(cache);
	km_debug(cache->ext.live && !cache->fast.pcs.front.open.pcs,
		 "a cache is validated from its first object on");
	km_layers_choose(cache);
}
