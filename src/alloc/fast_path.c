/*
 * fast_path.c: the fast path: allocate and free one object of a cache. Invariant: the fast path is one per-CPU
 * operation and one conditional branch (tests/tidy/hotpath disassembles the code).
 *
 * All rare cases look like empty or full sheaves. Cases of a cache: no sheaves on this CPU, observed, closed during a
 * drain. Cases of a call: gfp bits that need more than a cached object, a discipline other than rseq, no rseq
 * registration of the thread, an aborted sequence.
 *
 * The fast path keeps no value across its sequence. Each cache has a copy of two constants beside the offset of its
 * sheaves, in its first cache line: the address of area 0, and the offset of the thread's rseq area from the thread
 * pointer. The fast path therefore reads one line of the cache, the per-CPU word, and the top of the main sheaf.
 * After a miss, the cheapest question comes first: an objcg for this thread (thread-local), zeroing (a bit of an
 * argument), then the slow path.
 */
#include "fast_path.h"

km_hit_path void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t gfp)
{
#ifdef KMEM_HAVE_RSEQ
	const struct kmem_cache_front *front = &cache->fast.pcs.front;
	const intptr_t rseq = front->rseq;
	void *object = kmem_pcs_pop_gfp(&front->open, front->percpu, rseq, gfp);

	if (km_likely(object))
		return object;
	/* This thread has an objcg: try the charged sheaf. km_charged_alloc misses if the cache is uncharged. */
	if (km_objcg_here)
		return km_charged_alloc(cache, gfp, km_objcg_here, rseq);
	if (gfp & __GFP_ZERO)
		return kmem_cache_zalloc(cache, gfp);
#endif
	return km_alloc_miss(cache, gfp);
}

/* Allocates as kmem_cache_alloc, and zeroes the object. */
km_hit_path void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t gfp)
{
#ifdef KMEM_HAVE_RSEQ
	const struct kmem_cache_front *front = &cache->fast.pcs.front;
	const intptr_t rseq = front->rseq;
	void *object = kmem_pcs_pop_gfp(&front->open, front->percpu, rseq, gfp & ~__GFP_ZERO);

	if (km_likely(object))
		return km_cleared(cache, object);
	if (km_objcg_here)
		return km_charged_zalloc(cache, gfp, km_objcg_here, rseq);
#endif
	return km_alloc_miss(cache, gfp | __GFP_ZERO);
}

km_hit_path void kmem_cache_free(struct kmem_cache *cache, void *object)
{
#ifdef KMEM_HAVE_RSEQ
	const struct kmem_cache_front *front = &cache->fast.pcs.front;

	if (km_likely(kmem_pcs_push(&front->back, front->percpu, front->rseq, object)))
		return;
#endif
	km_free_miss(cache, object);
}

/* Serve a request whose gfp has a bit of KMEM_GFP_ODD: with __GFP_ZERO by kmem_cache_zalloc, which removes the bit;
 * with another bit by the slow path. */
void *km_odd_alloc(struct kmem_cache *cache, gfp_t gfp)
{
	return gfp & __GFP_ZERO ? kmem_cache_zalloc(cache, gfp) : km_charged_miss(cache, gfp);
}

void *kmem_cache_alloc_node(struct kmem_cache *cache, gfp_t gfp, int node)
{
	if (km_likely(km_alloc_any_node(node, &gfp)))
		return kmem_cache_alloc(cache, gfp);
	return km_alloc_miss_node(cache, gfp, node);
}
