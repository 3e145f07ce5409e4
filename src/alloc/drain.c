/*
 * drain.c: takes objects back from other CPUs: for shrink, destroy, and idle sheaves. Invariant: sheaves closed here
 * are opened again here, also in the child of a fork.
 *
 * How a drain takes objects from a CPU on the fast path, without an atomic instruction in the fast path:
 *
 *	1. close	store 0 to the cache's word that a fast path reads first; one store serves all CPUs
 *	2. fence	membarrier aborts every sequence in progress; an abort is a miss
 *	3. take		no sequence uses the cache's words now, and none begins: plain loads and stores
 *	4. open		store the offset again, by a release that pairs with the dependent loads of a fast path
 *
 * Between 1 and 4 every fast path misses, and misses work without sheaves: no thread waits. The soft disciplines have
 * a lock in each per-CPU word instead, and skip 1, 2 and 4. One fence serves any number of caches, because a fence
 * interrupts each CPU on which this process runs.
 *
 * The system may refuse a fence, because the program may install a filter of system calls after start. Then the drain
 * takes nothing, because step 3 would race, and opens the sheaves unchanged. Two cases continue without a fence:
 * caches without users, because no sequence can use their words; and this CPU's own objects, taken by per-CPU
 * operations one sheaf at a time (collect_own).
 *
 * km_drain_lock makes close and open one transaction: between the two, no other drain, no resize and no change of the
 * charged sheaves may open closed sheaves. A signal handler must not wait for the lock. So the holder is busy, and a
 * resize only tries the lock.
 */
#include "alloc_ops.h"

struct km_lock km_drain_lock = KM_LOCK_INIT(KM_RANK_DRAIN);

void km_alloc_new_cpu(bool may_wait)
{
	if (!may_wait || km_thread.no_calls)
		return;
	km_busy_scope(was);
	km_cpu_begin();
}

void km_alloc_each_cpu(struct kmem_cache *cache, const struct km_cpu_list *from, const void *arg,
		       void (*take)(struct kmem_cache *cache, unsigned cpu, const void *arg))
{
	if (!from)
		km_for_each_cpu(cpu)
			take(cache, cpu, arg);
	for (size_t i = 0; from && i < from->count; i++)
		if (km_cpu_is_online(from->cpus[i]))
			take(cache, from->cpus[i], arg);
}

/* Takes a CPU's main and spare sheaf, and gives both to the engine, which keeps or empties them. */
static void collect_from(struct kmem_cache *cache, unsigned cpu, const void *unused km_unused)
{
	void **sheaf[2];

	km_pcs_take_cpu(&cache->fast.pcs, cpu, &sheaf[0], &sheaf[1]);
	for (int i = 0; i < 2; i++)
		if (sheaf[i])
			cache->layout.engine->array.retire(cache, sheaf[i]);
}

static void collect(struct kmem_cache *cache, const struct km_cpu_list *from)
{
	km_alloc_each_cpu(cache, from, NULL, collect_from);
}

/* Trims the sheaves on all CPUs, for engines with a trim() of their own (slab). The remaining sheaf returns to its CPU,
 * unless the CPU has another sheaf by now. */
static void trim(struct kmem_cache *cache, const struct km_cpu_list *unused km_unused)
{
	km_for_each_cpu(cpu) {
		void **sheaf, **spare;

		km_pcs_take_cpu(&cache->fast.pcs, cpu, &sheaf, &spare);
		/* Such an engine has no spare; a race has left one. */
		if (spare)
			cache->layout.engine->array.retire(cache, spare);
		if (sheaf)
			sheaf = cache->layout.engine->array.trim(cache, cpu, sheaf);
		if (sheaf && !km_pcs_put_cpu(&cache->fast.pcs, cpu, sheaf))
			cache->layout.engine->array.retire(cache, sheaf);
	}
}

/* Runs `act` for each cache while no sequence uses the cache's sheaves. unused: the caches have no users, so `act` runs
 * even without the fence. Returns: false if the system refused the fence; then, unless unused, `act` did not run. */
static bool do_closed(struct kmem_cache **caches, size_t count, bool unused,
		      void (*act)(struct kmem_cache *cache, const struct km_cpu_list *places),
		      const struct km_cpu_list *places)
{
	size_t pcs = 0;

	for (size_t i = 0; i < count; i++)
		pcs += caches[i]->fast.pcs.slot != 0;
	if (!pcs)
		return true;
	km_lock_scope(&km_drain_lock);
	for (size_t i = 0; i < count; i++)
		if (caches[i]->fast.pcs.slot)
			km_alloc_close_pcs(caches[i]);
	/* If the fence is refused, the sheaves stay as they are, because nothing was read yet. */
	bool fenced = km_pcs_fence();
	for (size_t i = 0; i < count; i++)
		if (caches[i]->fast.pcs.slot) {
			if (fenced || unused)
				act(caches[i], places);
			km_alloc_open_pcs(caches[i]);
		}
	return fenced;
}

void km_alloc_trim_all(struct kmem_cache **caches, size_t count)
{
	do_closed(caches, count, false, trim, NULL);
}

static bool lies_on(const struct km_pcs *pcs, const struct km_cpu_list *places)
{
	for (size_t i = 0; km_pcs_slot(pcs) && i < places->count; i++)
		if (km_cpu_is_online(places->cpus[i]) && km_pcs_count_cpu(pcs, places->cpus[i]))
			return true;
	return false;
}

/* Reads without a lock: a wrong answer only costs or delays a drain. */
bool km_alloc_lies_on(const struct kmem_cache *cache, const uint16_t *cpus, size_t cpu_count)
{
	const struct km_cpu_list these = { cpus, cpu_count };

	return (cache->fast.pcs.slot && lies_on(&cache->fast.pcs, &these)) || lies_on(&cache->memcg.charged, &these);
}

void km_alloc_leave_all(struct kmem_cache **caches, size_t count, const uint16_t *cpus, size_t cpu_count)
{
	const struct km_cpu_list left = { cpus, cpu_count };
	bool charged = false;

	for (size_t i = 0; i < count; i++)
		charged |= lies_on(&caches[i]->memcg.charged, &left);
	if (charged)
		km_charge_ops->drain(caches, count, false, &left);
	do_closed(caches, count, false, collect, &left);
}

/* Takes the objects on this CPU without a fence: pops up to a sheaf at a time. */
static void collect_own(struct kmem_cache *cache)
{
	enum { SOME = 64 };
	size_t count, most = 2 * (cache->tune.max_capacity / SOME + 1);
	void *objects[SOME];

	for (; cache->fast.pcs.slot && most; most--) {
		/* km_pcs_pop_n fills the array from its end. */
		while ((count = km_pcs_pop_n(&cache->fast.pcs, objects, SOME))) {
			km_debug(count <= SOME, "drained objects fit in the array");
			cache->layout.engine->give(cache, objects + SOME - count, (unsigned)count);
		}
		if (!km_pcs_swap(&cache->fast.pcs, true, false))
			break;
	}
}

static bool drain_all(struct kmem_cache **caches, size_t count, bool unused)
{
	if (km_has_accounting())
		km_charge_ops->drain(caches, count, unused, NULL);
	bool drained = do_closed(caches, count, unused, collect, NULL);
	/* Without a fence take at least this CPU's objects. */
	if (!drained && !unused)
		for (size_t i = 0; i < count; i++)
			collect_own(caches[i]);
	for (size_t i = 0; i < count; i++) {
		km_alloc_finish_deferred(caches[i]);
		km_parts_flush(caches[i]);
		if (caches[i]->layout.engine->chain.drain)
			drained &= caches[i]->layout.engine->chain.drain(caches[i], unused);
	}
	return drained;
}

bool km_alloc_drain_all(struct kmem_cache **caches, size_t count)
{
	return drain_all(caches, count, false);
}

void km_alloc_drain_unused(struct kmem_cache **caches, size_t count)
{
	drain_all(caches, count, true);
}

void km_alloc_drain(struct kmem_cache *cache)
{
	km_alloc_drain_all(&cache, 1);
}

/* Another cache may use the per-CPU words only after a fence, because a sequence that read the offset before the
 * store of 0 could store to the word later. If the fence is refused, the words are never reused. */
bool km_alloc_close_all(struct kmem_cache **caches, size_t count)
{
	drain_all(caches, count, true);
	km_lock_scope(&km_drain_lock);
	for (size_t i = 0; i < count; i++) {
		if (caches[i]->memcg.charged.slot)
			km_charge_ops->close(caches[i]);
		km_store(&caches[i]->fast.pcs.front.open.pcs, 0u);
		km_store(&caches[i]->fast.pcs.inner.pcs, 0u);
		km_alloc_show(caches[i]);
	}
	km_debug(!km_load(&caches[0]->fast.pcs.front.open.pcs),
		 "per-CPU sheaves are closed before their words are freed");
	/* The fence ends each sequence that has read the offset: only then another cache may get the words. */
	bool fenced = km_pcs_fence();
	for (size_t i = 0; i < count; i++) {
		struct kmem_cache *cache = caches[i];
		uint32_t slot = cache->fast.pcs.slot;

		if (fenced && cache->memcg.charged.slot)
			km_charge_ops->release(cache);
		/* Take the objects that a signal handler freed to the sheaves since the drain. */
		if (slot)
			collect(cache, NULL);
		if (fenced && slot != cache->state.word)
			km_percpu_free(slot, km_percpu_word_bytes());
		cache->fast.pcs.slot = 0;
	}
	return fenced;
}

void km_alloc_fork(bool before, bool child)
{
	km_lock_around_fork(&km_drain_lock, before, child);
}

static size_t objects_of(const struct km_pcs *pcs)
{
	size_t count = 0;

	if (km_pcs_slot(pcs))
		km_for_each_cpu(cpu)
			count += km_pcs_count_cpu(pcs, cpu);
	return count;
}

size_t km_alloc_pcs_objects(const struct kmem_cache *cache)
{
	return objects_of(&cache->fast.pcs) + objects_of(&cache->memcg.charged) + km_parts_waiting(cache);
}
