/*
 * drain.c: taking objects back from other CPUs: for shrink, destroy, resizing, and idle shelves. Invariant: a
 * shelf that is closed here is opened again here, in the child of a fork as well.
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
#include "page/guard_range.h"
#include "page/metadata.h"
#include "os/die.h"
#include "os/os.h"
#include "percpu/owned_sheaf.h"
#include "harden.h"
#include "alloc_ops.h"

struct km_lock km_drain_lock = KM_LOCK_INIT(KM_RANK_DRAIN);
/* Of a CPU's charged block, while they change hands: a handler's stack is small. */
static void *taken[KM_CHARGED_MOST];

void km_alloc_new_cpu(bool may_wait)
{
	if (!may_wait || km_no_calls)
		return;
	km_busy_scope(was);
	km_cpu_begin();
}

static bool public_pcs(const struct kmem_cache *cache)
{
	return km_alloc_ops(cache)->pcs && !(km_layout_options.count_events && cache->engine->hit);
}

/* One owner pays for all objects that are out: a free need not look at the object's word. */
static bool one_pays(const struct kmem_cache *cache)
{
	return cache->word_is_charged && cache->charged.inner.pcs && km_objcg_is_known(km_load(&cache->objcg));
}

/* Where hits put objects; the entry's word is that of its id. */
static void show_back(struct kmem_cache *cache)
{
	struct kmem_cache_front *front = &cache->pcs.front;
	struct kmem_pcs back = front->open.pcs ? front->open :
				 one_pays(cache) ? cache->charged.inner : cache->charged.front.back;

	km_store(&front->back.mask, back.mask);
	km_store_release(&front->back.pcs, back.pcs);
	if (cache->id >= KM_MAP_FIRST)
		km_store_release(&km_id_masks(cache->id)->sheaf,
				 back.pcs && back.pcs == cache->word && km_hot.caches[cache->id] ? back.mask : 0u);
}

/* A table whose hits find nothing for now: what caches would show there stands in another. Written with the lock. */
static struct { const uint16_t *ids; uint16_t *kept; size_t count; } shut;

static uint16_t *entries_of(const struct kmem_cache *cache)
{
	size_t at = (size_t)(cache->size_ids - shut.ids);

	return at < shut.count ? shut.kept + at : cache->size_ids;
}

/*
 * The entries of its sizes. Those of a part are let alone, unless that is closed: then its sizes are served as they
 * were before it. But not where it is closed because its objects are those of a sibling: then it has an id there that
 * no cache has, and misses as 0 does.
 */
static void show_sizes(struct kmem_cache *cache, bool open)
{
	const uint16_t closed = cache->size_part && km_alloc_has_out(cache) ? KM_MAP_DESC : KM_MAP_NONE;
	uint16_t *ids = entries_of(cache);

	for (uint32_t i = 0; i < cache->size_count; i++) {
		uint16_t shown = km_load(&ids[i]);

		if (!shown || shown == cache->id || cache->size_part)
			km_store_release(&ids[i], open ? cache->id : closed);
	}
}

/* The words that hits see follow from which shelves are open; all are written before the fence. */
static void show(struct kmem_cache *cache)
{
	const struct kmem_cache_front *front = &cache->pcs.front;

	show_back(cache);
	if (cache->id < KM_MAP_FIRST)
		return;
	if (cache->size_paid)
		show_sizes(cache, front->back.pcs && front->back.pcs == cache->word && cache->word_is_charged);
	else
		show_sizes(cache, front->open.pcs != 0);
}

/* Several threads may be the first to ask; *kind becomes true. */
static void show_sizes_as(struct kmem_cache *cache, uint16_t *ids, size_t count, bool *kind)
{
	km_lock_scope(&km_drain_lock);
	if (kind)
		*kind = true;
	cache->size_ids = ids;
	cache->size_count = (uint32_t)count;
	show(cache);
}

void km_alloc_show_sizes(struct kmem_cache *cache, uint16_t *ids, size_t count)
{
	show_sizes_as(cache, ids, count, NULL);
}

void km_alloc_show_part(struct kmem_cache *cache, uint16_t *ids, size_t count)
{
	show_sizes_as(cache, ids, count, &cache->size_part);
}

void km_alloc_show_paid(struct kmem_cache *cache, uint16_t *ids, size_t count)
{
	show_sizes_as(cache, ids, count, &cache->size_paid);
}

void km_alloc_shut_sizes(uint16_t *ids, uint16_t *kept, size_t count, bool now)
{
	km_lock_scope(&km_drain_lock);
	km_debug(!shut.count || shut.ids == ids, "one table of sizes is shut at a time");
	for (size_t i = 0; now != (shut.count != 0) && i < count; i++) {
		uint16_t *from = now ? &ids[i] : &kept[i], *to = now ? &kept[i] : &ids[i];

		/* Release: as where a cache shows its id first. */
		km_store_release(to, km_load(from));
		km_store(from, (uint16_t)KM_MAP_NONE);
	}
	shut.ids = ids;
	shut.kept = kept;
	shut.count = now ? count : 0;
}

/* Some CPUs; NULL: all. */
struct places {
	const uint16_t *cpus;
	size_t count;
};

static void each_cpu(struct kmem_cache *cache, const struct places *from, const struct km_charged_drain *how,
		     void (*take)(struct kmem_cache *cache, unsigned cpu, const struct km_charged_drain *how))
{
	if (!from)
		km_for_each_cpu(cpu)
			take(cache, cpu, how);
	for (size_t i = 0; from && i < from->count; i++)
		if (km_cpu_is_online(from->cpus[i]))
			take(cache, from->cpus[i], how);
}

/* The blocks go as they are; the engine keeps them, or takes them apart. */
static void collect_from(struct kmem_cache *cache, unsigned cpu, const struct km_charged_drain *how km_unused)
{
	void **sheaf[2];

	km_pcs_take_cpu(&cache->pcs, cpu, &sheaf[0], &sheaf[1]);
	for (int i = 0; i < 2; i++)
		if (sheaf[i])
			cache->engine->array.retire(cache, sheaf[i]);
}

static void collect(struct kmem_cache *cache, const struct places *from)
{
	each_cpu(cache, from, NULL, collect_from);
}

/* Of an engine that keeps its own time: what it leaves of the block goes back on the CPU, if none has come there. */
static void trim(struct kmem_cache *cache, const struct places *unused km_unused)
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

static void close_pcs(struct kmem_cache *cache)
{
	km_debug(km_is_locked(&km_drain_lock), "a shelf that is closed here is opened again here");
	km_pcs_close(&cache->pcs);
	show(cache);
}

static void open_pcs(struct kmem_cache *cache)
{
	km_pcs_open(&cache->pcs, public_pcs(cache));
	show(cache);
}

/* Without a fence: see sampled_ops.c. */
bool km_alloc_change_layer(struct kmem_cache *cache, enum km_layer layer, const struct km_alloc_ops *from,
			   const struct km_alloc_ops *to, bool may_wait)
{
	km_busy_scope(was);
	bool changed = false;

	if (km_lock_may(&km_drain_lock, may_wait)) {
		changed = km_layer(cache, layer) == (from ?: km_layer_below(cache, layer));
		if (changed)
			km_layer_set_locked(cache, layer, to);
		if (changed && cache->pcs.slot) {
			km_store(&cache->pcs.front.open.pcs, 0u);
			open_pcs(cache);
		}
		km_unlock_may(&km_drain_lock, may_wait);
	}
	return changed;
}

/*
 * Do it to each while no sequence is on any CPU's shelf of theirs. False: the system refused the fence, and, unless the
 * caches are unused, so that no sequence is there in any case, it was not done.
 */
static bool do_closed(struct kmem_cache **caches, size_t count, bool unused,
		      void (*act)(struct kmem_cache *cache, const struct places *places), const struct places *places)
{
	size_t pcs = 0;

	for (size_t i = 0; i < count; i++)
		pcs += caches[i]->pcs.slot != 0;
	if (!pcs)
		return true;
	km_lock_scope(&km_drain_lock);
	for (size_t i = 0; i < count; i++)
		if (caches[i]->pcs.slot)
			close_pcs(caches[i]);
	/* Where the fence is refused the shelves stay as they are: nothing was read yet. */
	bool fenced = km_pcs_fence();
	for (size_t i = 0; i < count; i++)
		if (caches[i]->pcs.slot) {
			if (fenced || unused)
				act(caches[i], places);
			open_pcs(caches[i]);
		}
	return fenced;
}

void km_alloc_trim_all(struct kmem_cache **caches, size_t count)
{
	do_closed(caches, count, false, trim, NULL);
}

static bool lies_on(const struct km_pcs *pcs, const struct places *places)
{
	for (size_t i = 0; km_pcs_slot(pcs) && i < places->count; i++)
		if (km_cpu_is_online(places->cpus[i]) && km_pcs_count_cpu(pcs, places->cpus[i]))
			return true;
	return false;
}

/* Without the lock: reclaim asks this of many caches, and a wrong answer costs a drain or delays one. */
bool km_alloc_lies_on(const struct kmem_cache *cache, const uint16_t *cpus, size_t cpu_count)
{
	const struct places these = { cpus, cpu_count };

	return (cache->pcs.slot && lies_on(&cache->pcs, &these)) || lies_on(&cache->charged, &these);
}

static void drain_charged(struct kmem_cache **caches, size_t count, bool unused, const struct km_charged_drain *how,
			  const struct places *places);

void km_alloc_leave_all(struct kmem_cache **caches, size_t count, const uint16_t *cpus, size_t cpu_count)
{
	const struct places left = { cpus, cpu_count };
	bool charged = false;

	for (size_t i = 0; i < count; i++)
		charged |= lies_on(&caches[i]->charged, &left);
	if (charged)
		drain_charged(caches, count, false, km_charge_ops->drain, &left);
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
		drain_charged(caches, count, unused, km_charge_ops->drain, NULL);
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

static uint32_t mask_of(unsigned capacity)
{
	return (uint32_t)km_pow2_up(((size_t)capacity + 2) * sizeof(void *)) - 1;
}

/* One store each: a sequence may see the old mask or the new, and both are right for every block. */
static void set_mask(struct kmem_cache *cache, uint32_t mask)
{
	km_debug(km_is_locked(&km_drain_lock) && mask <= cache->pcs.sheaf_mask,
		 "a mask is that of the block or smaller");
	km_store(&cache->pcs.inner.mask, mask);
	km_store(&cache->pcs.front.open.mask, mask);
	show(cache);
}

/* Bytes between the NULL of a block of `limit` objects and where it would be if they filled the mask. */
static uint32_t pad_of(const struct kmem_cache *cache, unsigned limit)
{
	if (!cache->engine->array.tune)
		return 0;
	return (km_mask_capacity(mask_of(limit)) - limit) * (uint32_t)sizeof(void *);
}

void km_alloc_set_limit(struct kmem_cache *cache, unsigned limit)
{
	km_lock_scope(&km_drain_lock);
	km_debug(limit <= cache->max_capacity, "blocks have room for the limit");
	km_store(&cache->capacity, (uint16_t)limit);
	km_store(&cache->pad, pad_of(cache, limit));
	set_mask(cache, mask_of(limit));
}

void km_alloc_resize(struct kmem_cache *cache, unsigned capacity)
{
	uint32_t mask = mask_of(km_min(capacity, (unsigned)cache->max_capacity));

	if (!cache->pcs.slot || cache->engine->array.tune || mask == km_alloc_mask(cache))
		return;
	/* A handler that wants to drain must not wait for us. */
	km_busy_scope(was);
	if (km_trylock(&km_drain_lock)) {
		set_mask(cache, mask);
		km_unlock(&km_drain_lock);
	}
}

/* Nobody knows the cache yet: no lock, and no fence. Where its id has a word it uses that, so that kmalloc finds it. */
void km_alloc_open(struct kmem_cache *cache)
{
	struct km_pcs *pcs = &cache->pcs;

	km_alloc_prove(cache);
	pcs->front.percpu = km_hot.percpu;
	pcs->front.rseq = km_gate.open[1];
	cache->charged_odd = KM_CHARGED_ODD;
	pcs->sheaf_mask = mask_of(cache->max_capacity);
	pcs->front.open.mask = pcs->inner.mask = mask_of(cache->capacity);
	cache->pad = pad_of(cache, cache->capacity);
	pcs->slot = 0;
	if (cache->engine->front == KM_PERCPU_SHEAVES && cache->capacity)
		pcs->slot = km_percpu.discipline == KM_DISCIPLINE_RSEQ && !cache->word_is_charged ?
				      cache->word : km_percpu_alloc(km_percpu_word_bytes());
	km_debug(pcs->inner.mask <= pcs->sheaf_mask && km_is_pow2(pcs->sheaf_mask + 1ul),
		 "a mask is that of the block or smaller");
	if (pcs->slot)
		open_pcs(cache);
	else
		show(cache);
}

static void close_charged(struct kmem_cache *cache)
{
	km_debug(km_is_locked(&km_drain_lock), "a charged shelf changes under the lock of draining");
	km_pcs_close(&cache->charged);
	km_pcs_close(&cache->mixed);
	km_store(&cache->charged.front.back.pcs, 0u);
}

/* Also where it was open: soft disciplines don't close for a drain. */
static void shut_charged(struct kmem_cache *cache)
{
	close_charged(cache);
	km_store(&cache->charged.front.open.pcs, 0u);
	km_store(&cache->charged.inner.pcs, 0u);
}

static void release_sheaf(struct kmem_cache *cache, unsigned cpu)
{
	void **sheaf = km_owned_release_cpu(&cache->charged, cpu);

	if (!sheaf)
		return;
	km_meta_free(km_sheaf_base(&cache->charged, sheaf), cache->charged.sheaf_mask + 1);
	km_sub(&cache->charged_sheaves, 1u);
}

static void take_charged(struct kmem_cache *cache, unsigned cpu, const struct km_charged_drain *how);

/* Closed, and no sequence holds its offset: its blocks go too, with what was put there since it was drained. */
static void free_charged(struct kmem_cache *cache)
{
	struct km_pcs *pcs = &cache->charged;

	km_debug(!km_load(&pcs->inner.pcs) && !km_load(&cache->mixed.inner.pcs),
		 "a shelf that goes is closed");
	each_cpu(cache, NULL, km_charge_ops->drain, take_charged);
	km_for_each_cpu(cpu)
		release_sheaf(cache, cpu);
	if (pcs->slot != cache->word)
		km_percpu_free(pcs->slot, km_owned_word_bytes());
	pcs->slot = cache->mixed.slot = 0;
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
			shut_charged(caches[i]);
		km_store(&caches[i]->pcs.front.open.pcs, 0u);
		km_store(&caches[i]->pcs.inner.pcs, 0u);
		show(caches[i]);
	}
	km_debug(!km_load(&caches[0]->pcs.front.open.pcs), "a shelf is closed before its words go");
	/* No sequence may hold an offset when somebody else gets it. */
	bool fenced = km_pcs_fence();
	for (size_t i = 0; i < count; i++) {
		struct kmem_cache *cache = caches[i];
		uint32_t slot = cache->pcs.slot;

		if (fenced && cache->charged.slot)
			free_charged(cache);
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

/* ------------------------------------------------------------------ what can be seen at rest */

/* Said, and counted: a check names all that is wrong, not the first. */
static int damaged(const struct kmem_cache *cache, bool damage, const char *what)
{
	if (damage)
		km_warn("check: %s: %s", cache->name, what);
	return damage;
}

/* From a block's top to its NULL there are objects of the cache, and no more than have room. */
static bool sheaf_is_right(const struct kmem_cache *cache, void *const *top)
{
	size_t count = km_sheaf_objects(&cache->pcs, top);

	if (count > km_mask_capacity(cache->pcs.sheaf_mask) || top[count])
		return false;
	for (size_t i = 0; i < count; i++) {
		struct km_page *page = km_page_of(top[i]);

		/* A guarded one, freed by a hit (sampled_ops.c). */
		if (km_is_guarded(top[i]) && km_guard_ops->cache_of(top[i]) == cache)
			continue;
		page = page ? km_page_head(page) : NULL;
		if (!page || page->cache != cache)
			return false;
	}
	return true;
}

static bool sheaves_are_right(const struct kmem_cache *cache)
{
	bool right = true;

	km_for_each_cpu(cpu) {
		uintptr_t top = km_pcs_top_cpu(&cache->pcs, cpu), spare;
		void *const *sheaf = (void *const *)(km_area(cpu) + top);

		if (!top)
			continue;
		spare = *km_sheaf_header(&cache->pcs, sheaf);
		right &= spare != top && sheaf_is_right(cache, sheaf) &&
			 (!spare || sheaf_is_right(cache, (void *const *)(km_area(cpu) + spare)));
	}
	return right;
}

/*
 * With the lock, so that nobody closes a shelf meanwhile: at rest each is open where it has words, and hits see it if
 * nobody is to be asked first. A CPU's blocks are found by its word, which under every discipline is the first.
 */
int km_alloc_check(struct kmem_cache *cache)
{
	const struct km_pcs *pcs = &cache->pcs;
	uint32_t open = km_load(&pcs->front.open.pcs);
	int damages = 0;

	km_lock_scope(&km_drain_lock);
	damages += damaged(cache, pcs->inner.pcs != pcs->slot, "its shelf was left closed");
	damages += damaged(cache, open && (open != pcs->slot || !public_pcs(cache)),
			   "hits find a shelf that is not for them");
	damages += damaged(cache, pcs->slot && (pcs->inner.mask > pcs->sheaf_mask ||
						  pcs->front.open.mask != pcs->inner.mask),
			   "its shelf has a mask that is not of its blocks");
	damages += damaged(cache, pcs->slot && !sheaves_are_right(cache),
			   "a block on a shelf holds what is no object of it");
	damages += damaged(cache, cache->charged.inner.pcs && cache->mixed.inner.pcs,
			   "two shelves of what is paid for are open");
	return damages;
}

/* ------------------------------------------------------------------ shelves of what is paid for */

/* A watcher would not see what comes and goes there. */
static void open_charged(struct kmem_cache *cache)
{
	km_debug(km_is_locked(&km_drain_lock), "a shelf that is closed here is opened again here");
	if (km_is_seen(cache) || km_alloc_has_out(cache)) {
		shut_charged(cache);
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
	show(cache);
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
bool km_alloc_set_charging(struct kmem_cache *cache, const struct km_alloc_ops *ops, uint32_t sheaf_bytes,
			bool may_wait)
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
		show(cache);
	}
	km_unlock_may(&km_drain_lock, may_wait);
	return true;
}

/* Before, the block of a CPU was given its owner: a free that finds the word finds whose block it is. */
void km_alloc_back_open(struct kmem_cache *cache, bool may_wait)
{
	if (!km_lock_may(&km_drain_lock, may_wait))
		return;
	show(cache);
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
bool km_alloc_back_close(struct kmem_cache *cache, bool may_wait)
{
	if (!km_lock_may(&km_drain_lock, may_wait))
		return false;
	km_store(&cache->pcs.front.back.pcs, 0u);
	if (cache->id >= KM_MAP_FIRST) {
		km_store(&km_id_masks(cache->id)->sheaf, 0u);
		if (cache->size_paid)
			show_sizes(cache, false);
	}
	/* Release pairs with the acquire of a thread that reads it: what this closed is closed for that one. */
	km_store_release(&cache->objcg, KM_OBJCGS_DIFFER);
	if (may_wait && cache->mixes && cache->charged.slot)
		mix(cache);
	km_unlock_may(&km_drain_lock, may_wait);
	return true;
}

/* For a look at them, not more: under the soft disciplines they come and go meanwhile. */
static void *const *objects_on(const struct km_pcs *pcs, unsigned cpu)
{
	return (void *const *)(km_area(cpu) + km_pcs_top_cpu(pcs, cpu));
}

/*
 * The CPU's charged objects, if they are the right owner's, and the block with them: one that is nobody's must not lie
 * there. The owner that an empty block names may be gone: nobody asks it.
 */
static void take_charged(struct kmem_cache *cache, unsigned cpu, const struct km_charged_drain *how)
{
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
			  const struct places *places)
{
	size_t pcs = 0;

	for (size_t i = 0; i < count; i++)
		pcs += km_pcs_slot(&caches[i]->charged) != 0;
	if (!pcs)
		return;
	km_lock_scope(&km_drain_lock);
	for (size_t i = 0; i < count; i++)
		if (caches[i]->charged.slot) {
			close_charged(caches[i]);
			show(caches[i]);
		}
	bool fenced = km_pcs_fence();
	for (size_t i = 0; i < count; i++) {
		if (!caches[i]->charged.slot)
			continue;
		if (fenced || unused)
			each_cpu(caches[i], places, how, take_charged);
		open_charged(caches[i]);
		if (!fenced && !unused && !places)
			take_own_charged(caches[i], how);
	}
}

void km_alloc_drain_charged(struct kmem_cache **caches, size_t count, const struct km_charged_drain *how)
{
	drain_charged(caches, count, false, how, NULL);
}
