/*
 * drain.c: taking objects back from other CPUs: for shrink, destroy, and idle shelves. Invariant: a shelf that is
 * closed here is opened again here, in the child of a fork as well.
 *
 * How objects are taken from a CPU that runs a hit at the same time, without an atomic instruction in the hit:
 *
 *	1. close	the word that a hit reads first becomes 0, on all CPUs at once, because it is the cache's
 *	2. fence	membarrier aborts every sequence that is under way, and an abort is a miss
 *	3. take		now no sequence is on any of the cache's words, and none comes: plain loads and stores
 *	4. open		the word is back, by a release, which pairs with the dependent loads of a hit
 *
 * Between 1 and 4 hits miss, and misses work without the shelf: nobody waits. The soft disciplines have a lock in each
 * slot instead, and skip 1, 2 and 4. One fence serves any number of caches, since it costs an interrupt of each CPU on
 * which this process runs.
 *
 * A fence can be refused (a filter of system calls that the program installed after its start). Then nothing is taken,
 * because the reading of step 3 would race: the shelves open again as they were. Two cases go on all the same: caches
 * that nobody uses any more, on whose words no sequence can be; and this CPU's own objects, which the verbs of misses
 * take one block at a time (collect_own).
 *
 * The lock makes closing and opening one transaction: between the two no other drain, no resizing and no change of who
 * pays may open what is closed. A handler must not wait for it, so that its holder is busy, and resizing only tries.
 */
#include "harden.h"
#include "drain.h"

struct km_lock km_drain_lock = KM_LOCK_INIT(KM_RANK_DRAIN);

void km_alloc_new_cpu(bool may_wait)
{
	if (!may_wait || km_no_calls)
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

/* The blocks go as they are; the engine keeps them, or takes them apart. */
static void collect_from(struct kmem_cache *cache, unsigned cpu, const void *unused km_unused)
{
	void **sheaf[2];

	km_pcs_take_cpu(&cache->pcs, cpu, &sheaf[0], &sheaf[1]);
	for (int i = 0; i < 2; i++)
		if (sheaf[i])
			cache->engine->array.retire(cache, sheaf[i]);
}

static void collect(struct kmem_cache *cache, const struct km_cpu_list *from)
{
	km_alloc_each_cpu(cache, from, NULL, collect_from);
}

/* Of an engine that keeps its own time: what it leaves of the block goes back on the CPU, if none has come there. */
static void trim(struct kmem_cache *cache, const struct km_cpu_list *unused km_unused)
{
	km_for_each_cpu(cpu) {
		void **sheaf, **spare;

		km_pcs_take_cpu(&cache->pcs, cpu, &sheaf, &spare);
		/* Such an engine has one block a CPU; a race left this. */
		if (spare)
			cache->engine->array.retire(cache, spare);
		if (sheaf)
			sheaf = cache->engine->array.trim(cache, cpu, sheaf);
		if (sheaf && !km_pcs_put_cpu(&cache->pcs, cpu, sheaf))
			cache->engine->array.retire(cache, sheaf);
	}
}

/*
 * Do it to each while no sequence is on any CPU's shelf of theirs. False: the system refused the fence, and, unless the
 * caches are unused, so that no sequence is there in any case, it was not done.
 */
static bool do_closed(struct kmem_cache **caches, size_t count, bool unused,
		      void (*act)(struct kmem_cache *cache, const struct km_cpu_list *places),
		      const struct km_cpu_list *places)
{
	size_t pcs = 0;

	for (size_t i = 0; i < count; i++)
		pcs += caches[i]->pcs.slot != 0;
	if (!pcs)
		return true;
	km_lock_scope(&km_drain_lock);
	for (size_t i = 0; i < count; i++)
		if (caches[i]->pcs.slot)
			km_alloc_close_pcs(caches[i]);
	/* Where the fence is refused the shelves stay as they are: nothing was read yet. */
	bool fenced = km_pcs_fence();
	for (size_t i = 0; i < count; i++)
		if (caches[i]->pcs.slot) {
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

/* Without the lock: reclaim asks this of many caches, and a wrong answer costs a drain or delays one. */
bool km_alloc_lies_on(const struct kmem_cache *cache, const uint16_t *cpus, size_t cpu_count)
{
	const struct km_cpu_list these = { cpus, cpu_count };

	return (cache->pcs.slot && lies_on(&cache->pcs, &these)) || lies_on(&cache->charged, &these);
}

void km_alloc_leave_all(struct kmem_cache **caches, size_t count, const uint16_t *cpus, size_t cpu_count)
{
	const struct km_cpu_list left = { cpus, cpu_count };
	bool charged = false;

	for (size_t i = 0; i < count; i++)
		charged |= lies_on(&caches[i]->charged, &left);
	if (charged)
		km_charge_ops->drain(caches, count, false, &left);
	do_closed(caches, count, false, collect, &left);
}

/* The objects on this CPU can be had without a fence, by those verbs that take them one block at a time. */
static void collect_own(struct kmem_cache *cache)
{
	enum { SOME = 64 };
	size_t count, most = 2 * (cache->max_capacity / SOME + 1);
	void *objects[SOME];

	for (; cache->pcs.slot && most; most--) {
		/* They come to the end of the array. */
		while ((count = km_pcs_pop_n(&cache->pcs, objects, SOME))) {
			km_debug(count <= SOME, "what leaves a shelf has room in the array");
			cache->engine->give(cache, objects + SOME - count, (unsigned)count);
		}
		if (!km_pcs_swap(&cache->pcs, true, false))
			break;
	}
}

static bool drain_all(struct kmem_cache **caches, size_t count, bool unused)
{
	if (km_has_accounting())
		km_charge_ops->drain(caches, count, unused, NULL);
	bool drained = do_closed(caches, count, unused, collect, NULL);
	/* The system refused the fence, and may do so from now on. */
	if (!drained && !unused)
		for (size_t i = 0; i < count; i++)
			collect_own(caches[i]);
	for (size_t i = 0; i < count; i++) {
		km_alloc_finish_deferred(caches[i]);
		km_parts_flush(caches[i]);
		if (caches[i]->engine->chain.drain)
			drained &= caches[i]->engine->chain.drain(caches[i], unused);
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

/*
 * The words may be another cache's only after a fence: a sequence that read an offset here before it was 0 could store
 * to it later. Where the fence is refused they are never given out again.
 */
bool km_alloc_close_all(struct kmem_cache **caches, size_t count)
{
	drain_all(caches, count, true);
	km_lock_scope(&km_drain_lock);
	for (size_t i = 0; i < count; i++) {
		if (caches[i]->charged.slot)
			km_charge_ops->close(caches[i]);
		km_store(&caches[i]->pcs.front.open.pcs, 0u);
		km_store(&caches[i]->pcs.inner.pcs, 0u);
		km_alloc_show(caches[i]);
	}
	km_debug(!km_load(&caches[0]->pcs.front.open.pcs), "a shelf is closed before its words go");
	/* No sequence may hold an offset when somebody else gets it. */
	bool fenced = km_pcs_fence();
	for (size_t i = 0; i < count; i++) {
		struct kmem_cache *cache = caches[i];
		uint32_t slot = cache->pcs.slot;

		if (fenced && cache->charged.slot)
			km_charge_ops->release(cache);
		/* The objects that a handler put there since. */
		if (slot)
			collect(cache, NULL);
		if (fenced && slot != cache->word)
			km_percpu_free(slot, km_percpu_word_bytes());
		cache->pcs.slot = 0;
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
	return objects_of(&cache->pcs) + objects_of(&cache->charged) + km_parts_waiting(cache);
}
