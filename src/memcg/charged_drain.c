/*
 * charged_drain.c: a cache's charged sheaves open, close, become sheaves of many owners, and are drained. Invariant:
 * charged sheaves change their state only with km_drain_lock held; at most one of `charged` and `mixed` is open. The
 * steps of a drain are those of alloc/drain.c.
 */
#include "alloc/drain.h"
#include "page/metadata.h"
#include "charged_sheaf.h"

static void close_charged(struct kmem_cache *cache)
{
	km_debug(km_is_locked(&km_drain_lock), "a charged shelf changes under the lock of draining");
	km_pcs_close(&cache->charged);
	km_pcs_close(&cache->mixed);
	km_store(&cache->charged.front.back.pcs, 0u);
}

/* Also where it was open: soft disciplines don't close for a drain. */
void km_charge_close(struct kmem_cache *cache)
{
	close_charged(cache);
	km_store(&cache->charged.front.open.pcs, 0u);
	km_store(&cache->charged.inner.pcs, 0u);
}

/* A watcher would not see what comes and goes there. */
static void open_charged(struct kmem_cache *cache)
{
	km_debug(km_is_locked(&km_drain_lock), "a shelf that is closed here is opened again here");
	if (km_is_seen(cache) || km_alloc_has_out(cache)) {
		km_charge_close(cache);
		return;
	}
	if (cache->mixed.slot) {
		km_pcs_open(&cache->mixed, false);
		/* Where an object may be a twin's, hits neither put nor take. */
		if (!km_load(&cache->children))
			km_store_release(&cache->charged.front.back.pcs, cache->mixed.slot);
	} else {
		km_pcs_open(&cache->charged, cache->charge_all);
	}
	km_alloc_show(cache);
}

/* Where there is no room for it each object is paid for as it comes. */
static void make_charged(struct kmem_cache *cache, uint32_t sheaf_bytes)
{
	struct km_pcs *pcs = &cache->charged;

	km_debug(km_is_pow2(sheaf_bytes) && sheaf_bytes >= 32 && !pcs->slot, "a charged shelf is made once");
	km_store(&pcs->sheaf_mask, sheaf_bytes - 1);
	pcs->inner.mask = pcs->front.open.mask = sheaf_bytes - 1;
	pcs->front.percpu = km_hot.percpu;
	pcs->front.rseq = km_gate.open[1];
	km_store_release(&pcs->slot, cache->word_is_charged ? cache->word : km_percpu_alloc(km_owned_word_bytes()));
	if (pcs->slot)
		open_charged(cache);
}

/*
 * The public shelf closes without a fence: a hit that is under way elsewhere is of an object that nobody pays for. One
 * that is paid for comes to another thread after these stores, and so does what that thread sees of it. But with the
 * lock: whoever drains or resizes meanwhile would open the shelf again.
 */
bool km_charged_set_ops(struct kmem_cache *cache, const struct km_alloc_ops *ops, uint32_t sheaf_bytes, bool may_wait)
{
	if (!km_lock_may(&km_drain_lock, may_wait))
		return false;
	const bool begun = cache->charge;

	if (!begun)
		ops->begin(cache);
	/* Once: where there was no room for it there will be none. */
	if (sheaf_bytes && !cache->charged.sheaf_mask)
		make_charged(cache, sheaf_bytes);
	if (!begun) {
		km_layer_set_locked(cache, KM_LAYER_CHARGE, ops);
		/* A guarded object is nobody's, and hits would not see that: they put none on a block of many owners
		 * then. Pairs with sampled_ops.c, where it is counted first. */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (km_load(&cache->guarded))
			km_store(&cache->mixes, false);
		km_store(&cache->pcs.front.open.pcs, 0u);
		km_alloc_show(cache);
	}
	km_unlock_may(&km_drain_lock, may_wait);
	return true;
}

/* Before, the block of a CPU was given its owner: a free that finds the word finds whose block it is. */
void km_charged_show_back(struct kmem_cache *cache, bool may_wait)
{
	if (!km_lock_may(&km_drain_lock, may_wait))
		return;
	km_alloc_show(cache);
	km_unlock_may(&km_drain_lock, may_wait);
}

/*
 * From the fence on no sequence is on a block of one owner, and none comes there: `charged` stays closed. So what is
 * freed may be put there whoever pays for it, and who takes it looks. Refused: as without.
 */
static void mix(struct kmem_cache *cache)
{
	struct km_pcs *mixed = &cache->mixed;

	close_charged(cache);
	if (!mixed->slot && km_pcs_fence()) {
		/* No block is one owner's any more: whoever it names would not look. */
		km_for_each_cpu(cpu)
			km_owned_rename_cpu(&cache->charged, cpu, KM_OBJCGS_DIFFER);
		mixed->sheaf_mask = mixed->inner.mask = cache->charged.sheaf_mask;
		km_store(&cache->charged.front.back.mask, mixed->inner.mask);
		/* Release pairs with km_charged_is_mixed: a copy asks for block_mask before its sequence. */
		km_store_release(&mixed->slot, cache->charged.slot);
		km_store(&cache->charged_odd, ~(gfp_t)0);
	}
	km_store(&cache->mixes, mixed->slot != 0);
	open_charged(cache);
}

/*
 * No fence: whoever makes a CPU's block another's came here first, or saw that somebody did; a hit that was under way
 * on that CPU begins anew when it gets the CPU back, and finds this closed. But with the lock: a drain would open it.
 */
bool km_charged_hide_back(struct kmem_cache *cache, bool may_wait)
{
	if (!km_lock_may(&km_drain_lock, may_wait))
		return false;
	km_store(&cache->pcs.front.back.pcs, 0u);
	if (cache->id >= KM_MAP_FIRST) {
		km_store(&km_id_masks(cache->id)->sheaf, 0u);
		if (cache->size_paid)
			km_alloc_show_entries(cache, false);
	}
	/* Release pairs with the acquire of a thread that reads it: what this closed is closed for that one. */
	km_store_release(&cache->objcg, KM_OBJCGS_DIFFER);
	if (may_wait && cache->mixes && cache->charged.slot)
		mix(cache);
	km_unlock_may(&km_drain_lock, may_wait);
	return true;
}

static void release_sheaf(struct kmem_cache *cache, unsigned cpu)
{
	void **sheaf = km_owned_release_cpu(&cache->charged, cpu);

	if (!sheaf)
		return;
	km_meta_free(km_sheaf_base(&cache->charged, sheaf), cache->charged.sheaf_mask + 1);
	km_sub(&cache->charged_sheaves, 1u);
}

/* For a look at them, not more: under the soft disciplines they come and go meanwhile. */
static void *const *objects_on(const struct km_pcs *pcs, unsigned cpu)
{
	return (void *const *)(km_area(cpu) + km_pcs_top_cpu(pcs, cpu));
}

/* Of a CPU's charged block, while they change hands: a handler's stack is small. */
static void *taken[KM_CHARGED_MOST];

/*
 * The CPU's charged objects, if they are the right owner's, and the block with them: one that is nobody's must not lie
 * there. The owner that an empty block names may be gone: nobody asks it.
 */
static void take_charged(struct kmem_cache *cache, unsigned cpu, const void *arg)
{
	const struct km_charged_drain *how = arg;
	uintptr_t owner = km_owned_owner_cpu(&cache->charged, cpu);
	size_t count = km_pcs_count_cpu(&cache->charged, cpu);

	if (!owner)
		return;
	km_debug(km_is_locked(&km_drain_lock) && count <= KM_CHARGED_MOST, "what leaves a shelf has room in the array");
	const bool mixed = cache->mixed.slot != 0;
	void *const *there = objects_on(&cache->charged, cpu);
	if (count && !how->which(cache, mixed ? KM_OBJCGS_DIFFER : owner, there, count, how->arg))
		return;
	count = km_owned_take_cpu(&cache->charged, cpu, taken, &owner);
	if (count)
		how->take(cache, mixed ? KM_OBJCGS_DIFFER : owner, taken, count, how->arg);
	release_sheaf(cache, cpu);
}

/* Closed, and no sequence holds its offset: its blocks go too, with what was put there since it was drained. */
void km_charge_release(struct kmem_cache *cache)
{
	struct km_pcs *pcs = &cache->charged;

	km_debug(!km_load(&pcs->inner.pcs) && !km_load(&cache->mixed.inner.pcs),
		 "a shelf that goes is closed");
	km_alloc_each_cpu(cache, NULL, &km_charge_drain_all, take_charged);
	km_for_each_cpu(cpu)
		release_sheaf(cache, cpu);
	if (pcs->slot != cache->word)
		km_percpu_free(pcs->slot, km_owned_word_bytes());
	pcs->slot = cache->mixed.slot = 0;
}

/* The objects on this CPU can be had without a fence, all or nothing. It is asked for when it is in hand. */
static void take_own_charged(struct kmem_cache *cache, const struct km_charged_drain *how)
{
	const bool mixed = cache->mixed.slot != 0;
	uintptr_t owner = mixed ? KM_OBJCGS_DIFFER : km_owned_owner(&cache->charged);
	void *objects[KM_CHARGED_MOST];
	size_t count = mixed ? km_pcs_pop_n(&cache->mixed, objects, KM_CHARGED_MOST) :
			       km_owned_pop_n(&cache->charged, owner, objects, KM_CHARGED_MOST);
	/* They come to the end of the array, and go back from its end. */
	void **there = objects + KM_CHARGED_MOST - count;

	if (count && !how->which(cache, owner, there, count, how->arg))
		count -= mixed ? km_pcs_push_n(&cache->mixed, there, count) :
				 km_owned_push_n(&cache->charged, owner, there, count);
	if (count)
		how->take(cache, owner, there, count, how->arg);
}

/* As do_closed, of the shelves of what is paid for, which has owners to be asked. */
static void drain_charged(struct kmem_cache **caches, size_t count, bool unused, const struct km_charged_drain *how,
			  const struct km_cpu_list *places)
{
	size_t pcs = 0;

	for (size_t i = 0; i < count; i++)
		pcs += km_pcs_slot(&caches[i]->charged) != 0;
	if (!pcs)
		return;
	km_lock(&km_drain_lock);
	for (size_t i = 0; i < count; i++)
		if (caches[i]->charged.slot) {
			close_charged(caches[i]);
			km_alloc_show(caches[i]);
		}
	bool fenced = km_pcs_fence();
	for (size_t i = 0; i < count; i++) {
		if (!caches[i]->charged.slot)
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

/* The hook of alloc/drain.c: all objects, on these CPUs. */
void km_charge_drain(struct kmem_cache **caches, size_t count, bool unused, const struct km_cpu_list *places)
{
	drain_charged(caches, count, unused, &km_charge_drain_all, places);
}
