/*
 * charged_drain.c: a cache's charged sheaves open, close, become mixed, and are drained. Invariant: charged sheaves
 * change their state only with km_drain_lock held; at most one of `charged` and `mixed` is open. The steps of a drain
 * are those of alloc/drain.c.
 */
#include "alloc/alloc_ops.h"
#include "page/metadata.h"
#include "charged_sheaf.h"

static void close_charged(struct kmem_cache *cache)
{
	km_debug(km_is_locked(&km_drain_lock), "charged per-CPU sheaves change under the drain lock");
	km_pcs_close(&cache->memcg.charged);
	km_pcs_close(&cache->memcg.mixed);
	km_store(&cache->memcg.charged.front.back.pcs, 0u);
}

/* Clears `open` and `inner` too: disciplines without rseq leave these open during a drain. */
void km_charge_close(struct kmem_cache *cache)
{
	close_charged(cache);
	km_store(&cache->memcg.charged.front.open.pcs, 0u);
	km_store(&cache->memcg.charged.inner.pcs, 0u);
}

/* Observers would miss the traffic of an open sheaf, so the sheaves stay closed for observed caches. */
static void open_charged(struct kmem_cache *cache)
{
	km_debug(km_is_locked(&km_drain_lock), "per-CPU sheaves closed here are opened again here");
	if (km_is_seen(cache) || km_alloc_has_out(cache)) {
		km_charge_close(cache);
		return;
	}
	if (cache->memcg.mixed.slot) {
		km_pcs_open(&cache->memcg.mixed, false);
		/* In a cache with child caches the fast path neither pushes nor pops. */
		if (!km_load(&cache->memcg.children))
			km_store_release(&cache->memcg.charged.front.back.pcs, cache->memcg.mixed.slot);
	} else {
		km_pcs_open(&cache->memcg.charged, cache->memcg.charge_all);
	}
	km_alloc_show(cache);
}

/* Makes the charged sheaves. Without room for per-CPU words each object is charged by itself. */
static void make_charged(struct kmem_cache *cache, uint32_t sheaf_bytes)
{
	struct km_pcs *pcs = &cache->memcg.charged;

	km_debug(km_is_pow2(sheaf_bytes) && sheaf_bytes >= 32 && !pcs->slot,
		 "charged per-CPU sheaves are created once");
	km_store(&pcs->sheaf_mask, sheaf_bytes - 1);
	pcs->inner.mask = pcs->front.open.mask = sheaf_bytes - 1;
	pcs->front.percpu = km_hot.percpu;
	pcs->front.rseq = km_gate.open[1];
	km_store_release(&pcs->slot, cache->memcg.word_is_charged
					     ? cache->state.word
					     : km_percpu_alloc(km_owned_word_bytes()));
	if (pcs->slot)
		open_charged(cache);
}

/*
 * Replaces the alloc ops. The public sheaf closes without a fence: a fast path still running elsewhere handles an
 * uncharged object. A charged object reaches another thread only after these stores, and the thread then sees the
 * stores. The lock is needed: a concurrent drain or resize would open the sheaf again.
 */
bool km_charged_set_ops(struct kmem_cache *cache, const struct km_alloc_ops *ops, uint32_t sheaf_bytes, bool may_wait)
{
	if (!km_lock_may(&km_drain_lock, may_wait))
		return false;
	const bool begun = cache->memcg.charge;

	if (!begun)
		ops->begin(cache);
	/* One attempt only: if there was no room, there will be none. */
	if (sheaf_bytes && !cache->memcg.charged.sheaf_mask)
		make_charged(cache, sheaf_bytes);
	if (!begun) {
		km_layer_set_locked(cache, KM_LAYER_CHARGE, ops);
		/* A guarded object is uncharged, and the fast path would not see this: such a cache gets no mixed
		 * sheaves. Pairs with sampled_ops.c, where guarded objects are counted first. */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (km_load(&cache->ext.guarded))
			km_store(&cache->memcg.mixes, false);
		km_store(&cache->fast.pcs.front.open.pcs, 0u);
		km_alloc_show(cache);
	}
	km_unlock_may(&km_drain_lock, may_wait);
	return true;
}

/* Opens frees. Requires: the CPU's sheaf has its owner already: a free that finds the word finds the owner. */
void km_charged_show_back(struct kmem_cache *cache, bool may_wait)
{
	if (!km_lock_may(&km_drain_lock, may_wait))
		return;
	km_alloc_show(cache);
	km_unlock_may(&km_drain_lock, may_wait);
}

/*
 * Makes the sheaves mixed. After the fence no per-CPU operation runs on an owned sheaf, and none begins: `charged`
 * stays closed. So a free may push any group's object, and each pop checks the owner. If the system refuses the
 * fence, the sheaves stay owned.
 */
static void mix(struct kmem_cache *cache)
{
	struct km_pcs *mixed = &cache->memcg.mixed;

	close_charged(cache);
	if (!mixed->slot && km_pcs_fence()) {
		/* No sheaf has one owner any more: a named owner would pop without a check of the owner word. */
		km_for_each_cpu(cpu)
			km_owned_rename_cpu(&cache->memcg.charged, cpu, KM_OBJCGS_DIFFER);
		mixed->sheaf_mask = mixed->inner.mask = cache->memcg.charged.sheaf_mask;
		km_store(&cache->memcg.charged.front.back.mask, mixed->inner.mask);
		/* Release pairs with km_charged_is_mixed: push_n and pop_n read sheaf_mask before their operation. */
		km_store_release(&mixed->slot, cache->memcg.charged.slot);
		km_store(&cache->memcg.charged_odd, ~(gfp_t)0);
	}
	km_store(&cache->memcg.mixes, mixed->slot != 0);
	open_charged(cache);
}

/*
 * Hides the charged sheaves from frees. Needs no fence: a thread that makes another objcg the owner of a CPU's sheaf
 * comes here first, or saw that another thread did. A fast path in progress on that CPU restarts when it runs again,
 * and finds the sheaf closed. The lock is needed, because a drain would open the sheaf.
 */
bool km_charged_hide_back(struct kmem_cache *cache, bool may_wait)
{
	if (!km_lock_may(&km_drain_lock, may_wait))
		return false;
	km_store(&cache->fast.pcs.front.back.pcs, 0u);
	if (cache->fast.id >= KM_MAP_FIRST) {
		km_store(&km_id_masks(cache->fast.id)->sheaf, 0u);
		if (km_cache_is(cache, KM_CACHE_SIZE_PAID))
			km_alloc_show_entries(cache, false);
	}
	/* Release pairs with the acquire of a thread that reads this word: the sheaves closed above are closed for
	 * the thread. */
	km_store_release(&cache->memcg.objcg, KM_OBJCGS_DIFFER);
	if (may_wait && cache->memcg.mixes && cache->memcg.charged.slot)
		mix(cache);
	km_unlock_may(&km_drain_lock, may_wait);
	return true;
}

static void release_sheaf(struct kmem_cache *cache, unsigned cpu)
{
	void **sheaf = km_owned_release_cpu(&cache->memcg.charged, cpu);

	if (!sheaf)
		return;
	km_meta_free(km_sheaf_base(&cache->memcg.charged, sheaf), cache->memcg.charged.sheaf_mask + 1);
	km_sub(&cache->memcg.charged_sheaves, 1u);
}

/* For reads only: under disciplines without rseq the objects change meanwhile. */
static void *const *objects_on(const struct km_pcs *pcs, unsigned cpu)
{
	return (void *const *)(km_area(cpu) + km_pcs_top_cpu(pcs, cpu));
}

/* The objects of a CPU's charged sheaf on their way out. Static, because a handler's stack is small. */
static void *taken[KM_CHARGED_MOST];

/*
 * Takes the CPU's charged objects, if `how` selects the owner, and the sheaf: a sheaf without an owner must not stay.
 * The owner named by an empty sheaf may be gone, and must not be read.
 */
static void take_charged(struct kmem_cache *cache, unsigned cpu, const void *arg)
{
	const struct km_charged_drain *how = arg;
	uintptr_t owner = km_owned_owner_cpu(&cache->memcg.charged, cpu);
	size_t count = km_pcs_count_cpu(&cache->memcg.charged, cpu);

	if (!owner)
		return;
	km_debug(km_is_locked(&km_drain_lock) && count <= KM_CHARGED_MOST, "drained objects fit in the array");
	const bool mixed = cache->memcg.mixed.slot != 0;
	void *const *there = objects_on(&cache->memcg.charged, cpu);
	if (count && !how->which(cache, mixed ? KM_OBJCGS_DIFFER : owner, there, count, how->arg))
		return;
	count = km_owned_take_cpu(&cache->memcg.charged, cpu, taken, &owner);
	if (count)
		how->take(cache, mixed ? KM_OBJCGS_DIFFER : owner, taken, count, how->arg);
	release_sheaf(cache, cpu);
}

/* Requires: closed, and no per-CPU operation holds the offset. Takes the objects pushed since the last drain, and all
 * sheaves. */
void km_charge_release(struct kmem_cache *cache)
{
	struct km_pcs *pcs = &cache->memcg.charged;

	km_debug(!km_load(&pcs->inner.pcs) && !km_load(&cache->memcg.mixed.inner.pcs),
		 "released per-CPU sheaves are closed");
	km_alloc_each_cpu(cache, NULL, &km_charge_drain_all, take_charged);
	km_for_each_cpu(cpu)
		release_sheaf(cache, cpu);
	if (pcs->slot != cache->state.word)
		km_percpu_free(pcs->slot, km_owned_word_bytes());
	pcs->slot = cache->memcg.mixed.slot = 0;
}

/* Takes this CPU's objects without a fence, all or nothing. The owner is checked after the pop. */
static void take_own_charged(struct kmem_cache *cache, const struct km_charged_drain *how)
{
	const bool mixed = cache->memcg.mixed.slot != 0;
	uintptr_t owner = mixed ? KM_OBJCGS_DIFFER : km_owned_owner(&cache->memcg.charged);
	void *objects[KM_CHARGED_MOST];
	size_t count = mixed ? km_pcs_pop_n(&cache->memcg.mixed, objects, KM_CHARGED_MOST) :
			       km_owned_pop_n(&cache->memcg.charged, owner, objects, KM_CHARGED_MOST);
	/* The objects are at the end of the array, and go back from the end. */
	void **there = objects + KM_CHARGED_MOST - count;

	if (count && !how->which(cache, owner, there, count, how->arg))
		count -= mixed ? km_pcs_push_n(&cache->memcg.mixed, there, count) :
				 km_owned_push_n(&cache->memcg.charged, owner, there, count);
	if (count)
		how->take(cache, owner, there, count, how->arg);
}

/* Drains the charged sheaves, as do_closed does, and selects objects by owner. */
static void drain_charged(struct kmem_cache **caches, size_t count, bool unused, const struct km_charged_drain *how,
			  const struct km_cpu_list *places)
{
	size_t pcs = 0;

	for (size_t i = 0; i < count; i++)
		pcs += km_pcs_slot(&caches[i]->memcg.charged) != 0;
	if (!pcs)
		return;
	km_lock(&km_drain_lock);
	for (size_t i = 0; i < count; i++)
		if (caches[i]->memcg.charged.slot) {
			close_charged(caches[i]);
			km_alloc_show(caches[i]);
		}
	bool fenced = km_pcs_fence();
	for (size_t i = 0; i < count; i++) {
		if (!caches[i]->memcg.charged.slot)
			continue;
		if (fenced || unused)
			km_alloc_each_cpu(caches[i], places, how, take_charged);
		open_charged(caches[i]);
		if (!fenced && !unused && !places)
			take_own_charged(caches[i], how);
	}
	km_unlock(&km_drain_lock);
}

void km_charged_drain_some(struct kmem_cache **caches, size_t count, const struct km_charged_drain *how)
{
	drain_charged(caches, count, false, how, NULL);
}

/* The hook of alloc/drain.c: drains all objects on these CPUs. */
void km_charge_drain(struct kmem_cache **caches, size_t count, bool unused, const struct km_cpu_list *places)
{
	drain_charged(caches, count, unused, &km_charge_drain_all, places);
}
