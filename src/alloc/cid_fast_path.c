/*
 * cid_fast_path.c: the fast path with areas by concurrency id (cid). The fast path by CPU then always misses, and the
 * miss begins here, on the public sheaves: closed whenever the sheaves of fast_path.c are. Frees use `open`, because
 * `back` of a charged cache means other sheaves. Invariant: as in fast_path.c, but a call that misses here continues
 * as a miss.
 */
#include "percpu/cid_index.h"

#include "alloc_ops.h"

#ifdef KMEM_HAVE_RSEQ
km_inline void *pop(struct kmem_cache *cache)
{
	return kmem_pcs_pop(&cache->fast.pcs.front.open, km_percpu.base, km_cid_rseq);
}

/* Allocates after a miss. Opens the fast-path gate if only km_cid_rseq was shut, as by a command that ended between its
 * two stores: no other miss looks at km_cid_rseq. */
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

	/* One branch tests gfp and node together. */
	if (km_likely(!((gfp & KMEM_GFP_ODD) | (gfp_t)(node ^ NUMA_NO_NODE)))) {
		object = pop(cache);
		return km_likely(object) ? object : alloc_missed(cache, gfp, NUMA_NO_NODE);
	}
	if (!(gfp & KMEM_GFP_ODD & ~__GFP_ZERO) && node == NUMA_NO_NODE)
		object = pop(cache);
	return object ? km_cleared(cache, object) : alloc_missed(cache, gfp, node);
}

/* Frees an object by concurrency id. NULL is misuse, which km_array_free reports. */
KM_TEXT_BY_CID km_hit_path void km_free_by_cid(struct kmem_cache *cache, void *object)
{
	if (km_likely(object != NULL) &&
	    km_likely(kmem_pcs_push(&cache->fast.pcs.front.open, km_percpu.base, km_cid_rseq, object)))
		return;
	free_missed(cache, object);
}
#endif
