/*
 * cid_fast_path.c: hits, where areas go by concurrency id. By CPU each call misses then, and the miss begins here:
 * the hit that it would have been, on the public shelf, so closed where fast_path.c's is; frees go by `open`, because
 * a charged cache's `back` is another shelf. Invariant: as fast_path.c's, but that what is no hit here either goes on
 * as a miss does.
 */
#include "percpu/cid_index.h"

#include "alloc_ops.h"

#ifdef KMEM_HAVE_RSEQ
km_inline void *pop(struct kmem_cache *cache)
{
	return kmem_pcs_pop(&cache->pcs.front.open, km_percpu.base, km_cid_rseq);
}

/* Shut alone, as by a command that ended between its stores, the word of these hits opens here: no other miss looks. */
static km_noinline void *alloc_missed(struct kmem_cache *cache, gfp_t gfp, int node)
{
	if (km_way_is_shut(km_load(&km_cid_rseq)))
		km_alloc_note_request(cache, km_gfp_may_wait(gfp));
	return km_array_alloc(cache, gfp, node);
}

static km_noinline void free_missed(struct kmem_cache *cache, void *object)
{
	if (km_way_is_shut(km_load(&km_cid_rseq)))
		km_alloc_note_request(cache, true);
	km_array_free(cache, object);
}

KM_TEXT_BY_CID km_hit_path void *km_alloc_by_cid(struct kmem_cache *cache, gfp_t gfp, int node)
{
	void *object = NULL;

	/* One branch for both. */
	if (km_likely(!((gfp & KMEM_GFP_ODD) | (gfp_t)(node ^ NUMA_NO_NODE)))) {
		object = pop(cache);
		return km_likely(object) ? object : alloc_missed(cache, gfp, NUMA_NO_NODE);
	}
	if (!(gfp & KMEM_GFP_ODD & ~__GFP_ZERO) && node == NUMA_NO_NODE)
		object = pop(cache);
	return object ? km_cleared(cache, object) : alloc_missed(cache, gfp, node);
}

/* NULL is misuse, and km_array_free says it. */
KM_TEXT_BY_CID km_hit_path void km_free_by_cid(struct kmem_cache *cache, void *object)
{
	if (km_likely(object != NULL) &&
	    km_likely(kmem_pcs_push(&cache->pcs.front.open, km_percpu.base, km_cid_rseq, object)))
		return;
	free_missed(cache, object);
}
#endif
