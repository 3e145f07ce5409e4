/*
 * fast_path.c: THE HOT PATH: one object of a cache, in and out.
 *
 * Everything rare looks like an empty or a full shelf: a cache that is not born on this CPU, one with watchers,
 * gfp bits that change a hit, a discipline that is not rseq, a thread that is not registered, a sequence that was
 * interrupted, a shelf that is being drained. So a hit has one conditional branch; tests/tidy/hotpath
 * disassembles it.
 *
 * A hit keeps nothing across its sequence: two constants of which each cache has a copy, the address of area 0 and the
 * offset of a thread's rseq area from its thread pointer, stand in its first line beside the shelf, so that one line of
 * the cache, the word and the top of its block are all that it reads. Behind a miss the order of the questions is that
 * of their answers' price: is somebody to pay (a thread's own word), are zeros wanted (a bit of an argument), and then
 * the jump.
 */
#include "fast_path.h"

km_hit_path void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t gfp)
{
#ifdef KMEM_HAVE_RSEQ
	const struct kmem_cache_front *front = &cache->pcs.front;
	const intptr_t rseq = front->rseq;
	void *object = kmem_pcs_pop_gfp(&front->open, front->percpu, rseq, gfp);

	if (km_likely(object))
		return object;
	/* The thread has named a payer. Whether this cache is paid for is found there: if not, it is a miss. */
	if (km_objcg_here)
		return km_charged_alloc(cache, gfp, km_objcg_here, rseq);
	if (gfp & __GFP_ZERO)
		return kmem_cache_zalloc(cache, gfp);
#endif
	return km_alloc_miss(cache, gfp);
}

/* The same hits, cleared: to be zeros changes what is done with an object, not which one it may be. */
km_hit_path void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t gfp)
{
#ifdef KMEM_HAVE_RSEQ
	const struct kmem_cache_front *front = &cache->pcs.front;
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
	const struct kmem_cache_front *front = &cache->pcs.front;

	if (km_likely(kmem_pcs_push(&front->back, front->percpu, front->rseq, object)))
		return;
#endif
	km_free_miss(cache, object);
}

/* __GFP_ZERO alone may be a hit after all: zalloc tries it without that bit, and any other odd bit misses there. */
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
