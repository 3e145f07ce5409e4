/*
 * resize.c: the capacity of a cache's per-CPU sheaves: the initial capacity, the capacity by the cache's limit, and
 * changes with the load. Invariant: a mask is never larger than the mask of the memory of a sheaf. So the old and the
 * new mask are right for each sheaf, and a change of the mask needs no fence.
 */
#include "alloc_ops.h"

static uint32_t mask_of(unsigned capacity)
{
	return (uint32_t)km_pow2_up(((size_t)capacity + 2) * sizeof(void *)) - 1;
}

/* Changes the mask of sheaves by one store each: a sequence may see the old or the new mask, and both are right for
 * every sheaf. */
static void set_mask(struct kmem_cache *cache, uint32_t mask)
{
	km_debug(km_is_locked(&km_drain_lock) && mask <= cache->fast.pcs.sheaf_mask,
		 "the mask is at most the mask of the sheaf");
	km_store(&cache->fast.pcs.inner.mask, mask);
	km_store(&cache->fast.pcs.front.open.mask, mask);
	km_alloc_show(cache);
}

/* Bytes between the NULL of a sheaf of `limit` objects and the NULL of a sheaf that fills the mask. */
static uint32_t pad_of(const struct kmem_cache *cache, unsigned limit)
{
	if (!cache->layout.engine->array.tune)
		return 0;
	return (km_mask_capacity(mask_of(limit)) - limit) * (uint32_t)sizeof(void *);
}

void km_alloc_set_limit(struct kmem_cache *cache, unsigned limit)
{
	km_lock_scope(&km_drain_lock);
	km_debug(limit <= cache->tune.max_capacity, "the sheaves have room for the limit");
	km_store(&cache->fast.capacity, (uint16_t)limit);
	km_store(&cache->tune.pad, pad_of(cache, limit));
	set_mask(cache, mask_of(limit));
}

void km_alloc_resize(struct kmem_cache *cache, unsigned capacity)
{
	uint32_t mask = mask_of(km_min(capacity, (unsigned)cache->tune.max_capacity));

	if (!cache->fast.pcs.slot || cache->layout.engine->array.tune || mask == km_alloc_mask(cache))
		return;
	/* Only try the lock: a resize is not worth a wait. The thread is busy meanwhile, so that a signal handler does
	 * not wait for this lock. */
	km_busy_scope(was);
	if (km_trylock(&km_drain_lock)) {
		set_mask(cache, mask);
		km_unlock(&km_drain_lock);
	}
}

/* Sets up a cache not yet visible to other threads, so without lock and fence. If the cache's id has a per-CPU word,
 * the cache uses that word, so that kmalloc finds the sheaves. */
void km_alloc_open(struct kmem_cache *cache)
{
	struct km_pcs *pcs = &cache->fast.pcs;

	km_alloc_prove(cache);
	pcs->front.percpu = km_hot.percpu;
	pcs->front.rseq = km_gate.open[1];
	cache->memcg.charged_odd = KM_CHARGED_ODD;
	pcs->sheaf_mask = mask_of(cache->tune.max_capacity);
	pcs->front.open.mask = pcs->inner.mask = mask_of(cache->fast.capacity);
	cache->tune.pad = pad_of(cache, cache->fast.capacity);
	pcs->slot = 0;
	if (cache->layout.engine->front == KM_PERCPU_SHEAVES && cache->fast.capacity)
		pcs->slot = km_percpu.discipline == KM_DISCIPLINE_RSEQ && !cache->memcg.word_is_charged ?
				      cache->state.word : km_percpu_alloc(km_percpu_word_bytes());
	km_debug(pcs->inner.mask <= pcs->sheaf_mask && km_is_pow2(pcs->sheaf_mask + 1ul),
		 "the mask is at most the mask of the sheaf");
	if (pcs->slot)
		km_alloc_open_pcs(cache);
	else
		km_alloc_show(cache);
}
