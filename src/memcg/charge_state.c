/*
 * charge_state.c: the state of a cache's charges (enum km_charging): the first charge, several objcgs, mixed sheaves;
 * the cache's charged sheaves open, close, and are drained. Invariant: the state changes, and charged sheaves open and
 * close, only with km_drain_lock held; at most one of `charged` and `mixed` is open. The steps of a drain are those of
 * alloc/drain.c.
 *
 *	from		event			to		what must hold				function
 *	NONE		objects may be charged	SOME		no SLAB_ACCOUNT; objcg is DIFFER	begin
 *	NONE		SLAB_ACCOUNT: creation	CHECKED		frees are checked; objcg is DIFFER	begin
 *	NONE		SLAB_ACCOUNT: creation	ONE		a sheaf may be mixed; objcg UNKNOWN	begin
 *	NONE		SLAB_ACCOUNT: creation	ONE_OWNED	no sheaf may be; objcg UNKNOWN		begin
 *	ONE		second objcg		DUE		frees miss; objcg is DIFFER		differ
 *	ONE_OWNED	second objcg		OWNED		frees miss; objcg is DIFFER		differ
 *	DUE		a call that may wait	MIXED		sheaves exist, closed and fenced	mix
 *	DUE		a fence is refused	OWNED		sheaves exist, closed			mix
 *	MIXED		end of the cache	OWNED		closed, fenced, empty		km_charge_release
 *	ONE		child cache		DUE, PARENT	objcg is DIFFER			differ
 *	ONE_OWNED	child cache		OWNED, PARENT	objcg is DIFFER			differ
 *	others but NONE	child cache		with PARENT	objcg is DIFFER			differ
 *
 * `objcg` is DIFFER in all states but ONE and ONE_OWNED. There `objcg` is UNKNOWN until the first object, then the
 * objcg of all objects, or NOBODY (km_objcgs_note of object_objcg.c, without a lock). Whether a sheaf may be mixed is
 * decided at the creation: hits index by CPU number, a free object's owner word has no meaning, sheaves are arrays and
 * found by the cache's id, and charged sheaves are in use.
 *
 * Hits read no state, but words computed from the state: `front` of the plain and of the charged sheaves
 * (alloc/publish.c), and `charged_odd`, all bits in state MIXED.
 */
#include "alloc/alloc_ops.h"
#include "page/metadata.h"
#include "charged_sheaf.h"

#define PCS_BYTES ((size_t)64 << 10)
#define BLOCKS_BYTES ((size_t)256 << 10)	/* a charged sheaf of large blocks: the pages of a page stock's group */

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

/* Opens the charged sheaves, except of an observed cache: hits on an open sheaf do not call the observers. */
static void open_charged(struct kmem_cache *cache)
{
	km_debug(km_is_locked(&km_drain_lock), "per-CPU sheaves closed here are opened again here");
	if (km_is_seen(cache) || km_alloc_has_out(cache)) {
		km_charge_close(cache);
		return;
	}
	if (km_charged_is_mixed(cache)) {
		km_pcs_open(&cache->memcg.mixed, false);
		/* In a cache with child caches the fast path neither pushes nor pops. */
		if (!km_is_parent(cache))
			km_store_release(&cache->memcg.charged.front.back.pcs, cache->memcg.mixed.slot);
	} else {
		km_pcs_open(&cache->memcg.charged, km_charges_all(cache));
	}
	km_alloc_show(cache);
}

/* ------------------------------------------------------------------ transitions */

static bool is_due(const struct kmem_cache *cache)
{
	return (cache->memcg.charging & ~KM_CHARGING_PARENT) == KM_CHARGING_DUE;
}

/* Returns whether the words read by other threads agree with the state. */
static km_unused bool agrees(const struct kmem_cache *cache)
{
	const uint32_t state = cache->memcg.charging & ~KM_CHARGING_PARENT;
	const bool one = state == KM_CHARGING_ONE || state == KM_CHARGING_ONE_OWNED;
	const bool mixed = state == KM_CHARGING_MIXED;

	return one == (km_load(&cache->memcg.objcg) != KM_OBJCGS_DIFFER) && mixed == (cache->memcg.mixed.slot != 0) &&
	       mixed == (cache->memcg.charged_odd == ~(gfp_t)0) && cache->memcg.charge &&
	       !(one && km_is_parent(cache));
}

/* Enters a state; PARENT stays. Release pairs with km_is_charged and km_charged_is_mixed: a thread with a view of the
 * new state sees all fields that the state needs. */
static void enter(struct kmem_cache *cache, uint32_t state)
{
	km_debug(km_is_locked(&km_drain_lock), "the state of charges changes under the drain lock");
	km_store_release(&cache->memcg.charging, state | (cache->memcg.charging & KM_CHARGING_PARENT));
	km_debug(agrees(cache), "words read without a lock agree with the state of charges");
}

/* Returns the bytes charged for an object: the object's size, and the size of its owner word in the page's vector. */
static uint32_t charge_of(const struct kmem_cache *cache)
{
	return cache->layout.size + (cache->layout.engine->whole_pages ? 0 : (uint32_t)sizeof(void *));
}

/* Returns the first state of a cache whose objects are all charged. */
static uint32_t state_of_all(const struct kmem_cache *cache)
{
	if (km_is_checked(cache))
		return KM_CHARGING_CHECKED;
	return km_charged_is_direct(cache) && cache->memcg.word_is_charged && cache->fast.id >= KM_MAP_FIRST &&
			       km_memcg_modes[MEM_CGROUP_SHELF] ? KM_CHARGING_ONE : KM_CHARGING_ONE_OWNED;
}

/*
 * Begins charging. The new state publishes the cache as charged: a thread with the old view gets an uncharged object,
 * as if the thread had come a moment earlier.
 */
static void begin(struct kmem_cache *cache)
{
	/* Other threads find a cache with SLAB_ACCOUNT in the registry only, and the registry is locked. */
	const uint32_t to = cache->layout.flags & SLAB_ACCOUNT ? state_of_all(cache) : KM_CHARGING_SOME;

	km_debug(cache->memcg.charging == KM_CHARGING_NONE && cache->memcg.objcg == KM_OBJCGS_DIFFER &&
		 !cache->memcg.charged.slot, "an uncharged cache has no charged per-CPU sheaves");
	if (to >= KM_CHARGING_ONE)
		cache->memcg.objcg = KM_OBJCG_UNKNOWN;
	km_store(&cache->memcg.owner_shift, km_owner_shift(cache->layout.size));
	km_store(&cache->memcg.charge, charge_of(cache));
	enter(cache, to);
}

/*
 * Makes the sheaves mixed. After the fence no per-CPU operation runs on an owned sheaf, and none begins: `charged`
 * stays closed. So a free may push any group's object, and each pop checks the owner. If the system refuses the
 * fence, the sheaves stay owned.
 */
static void mix(struct kmem_cache *cache)
{
	struct km_pcs *mixed = &cache->memcg.mixed;

	km_debug(is_due(cache) && cache->memcg.charged.slot && !cache->memcg.charged.inner.pcs,
		 "owned sheaves are closed before they become mixed");
	if (!km_pcs_fence()) {
		enter(cache, KM_CHARGING_OWNED);
		return;
	}
	/* Clear each sheaf's owner: else this owner's threads would pop without reading the objects' owner words. */
	km_for_each_cpu(cpu)
		km_owned_rename_cpu(&cache->memcg.charged, cpu, KM_OBJCGS_DIFFER);
	mixed->sheaf_mask = mixed->inner.mask = cache->memcg.charged.sheaf_mask;
	km_store(&cache->memcg.charged.front.back.mask, mixed->inner.mask);
	km_store_release(&mixed->slot, cache->memcg.charged.slot);
	km_store(&cache->memcg.charged_odd, ~(gfp_t)0);
	enter(cache, KM_CHARGING_MIXED);
}

/*
 * Hides the charged sheaves from frees. Needs no fence: a thread that makes another objcg the owner of a CPU's sheaf
 * comes here first, or saw that another thread did. A fast path in progress on that CPU restarts when it runs again,
 * and finds the sheaf closed. The lock is needed, because a drain would open the sheaf.
 */
static void differ(struct kmem_cache *cache, uint32_t parent)
{
	const uint32_t from = cache->memcg.charging;

	km_debug(from != KM_CHARGING_NONE, "a second objcg comes after the first");
	km_store(&cache->fast.pcs.front.back.pcs, 0u);
	if (cache->fast.id >= KM_MAP_FIRST) {
		km_store(&km_id_masks(cache->fast.id)->sheaf, 0u);
		if (km_cache_is(cache, KM_CACHE_SIZE_CHARGED))
			km_alloc_show_entries(cache, false);
	}
	/* Release pairs with the acquire in km_objcgs_note: a thread that reads DIFFER finds the sheaves closed. */
	km_store_release(&cache->memcg.objcg, KM_OBJCGS_DIFFER);
	if (from == KM_CHARGING_ONE || from == KM_CHARGING_ONE_OWNED)
		enter(cache, from == KM_CHARGING_ONE ? KM_CHARGING_DUE : KM_CHARGING_OWNED);
	if (parent) {
		km_store(&cache->memcg.charging, cache->memcg.charging | parent);
		km_debug(agrees(cache), "a cache with child caches has several objcgs");
	}
}

bool km_charged_differ(struct kmem_cache *cache, uint32_t parent, bool may_wait)
{
	if (!km_lock_may(&km_drain_lock, may_wait))
		return false;
	/* Look again with the lock held: another thread may have announced the second objcg. */
	if (parent || km_load(&cache->memcg.objcg) != KM_OBJCGS_DIFFER)
		differ(cache, parent);
	if (may_wait && cache->memcg.charged.slot && (is_due(cache) || km_charged_is_mixed(cache))) {
		close_charged(cache);
		if (is_due(cache))
			mix(cache);
		open_charged(cache);
	}
	km_unlock_may(&km_drain_lock, may_wait);
	return true;
}

/* ------------------------------------------------------------------ charged sheaves of a cache */

/* Returns the bytes of a charged sheaf: as many objects as the bound allows, at least two. 0: no charged sheaf. */
static uint32_t pcs_block(const struct kmem_cache *cache)
{
	const size_t most = cache->layout.engine->whole_pages ? BLOCKS_BYTES : PCS_BYTES;
	uint32_t words = KM_CHARGED_MOST + 2;

	if (cache->layout.engine->front != KM_PERCPU_SHEAVES || !cache->fast.capacity)
		return 0;
	while (words > 4 && (words - 2) * (size_t)charge_of(cache) > most)
		words /= 2;
	return words * (uint32_t)sizeof(void *);
}

/* Makes the charged sheaves. Without room for per-CPU words each object is charged by itself. One attempt only: if
 * there was no room, there will be none. */
static void make_charged(struct kmem_cache *cache)
{
	struct km_pcs *pcs = &cache->memcg.charged;
	const uint32_t sheaf_bytes = pcs_block(cache);

	if (!sheaf_bytes || pcs->sheaf_mask)
		return;
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
 * Charged sheaves need words on every CPU, a fence and memory, and so system calls. The first call with the right to
 * wait makes the sheaves; until then objects are charged one at a time, correctly and slowly.
 */
km_noinline void km_charged_make(struct kmem_cache *cache)
{
	if (km_thread.busy || !pcs_block(cache))
		return;
	km_busy_scope(was);
	km_lock_scope(&km_drain_lock);
	make_charged(cache);
}

/*
 * Requires: with SLAB_ACCOUNT, no other thread knows the cache yet. Else several threads may call at once, and one
 * begins. The public sheaf closes without a fence: a fast path still running elsewhere handles an uncharged object. A
 * charged object reaches another thread only after these stores, and the thread then sees the stores. The lock is
 * needed: a concurrent drain or resize would open the sheaf again.
 */
bool km_charge_begin(struct kmem_cache *cache, bool may_wait)
{
	const bool blocks = cache->layout.engine->whole_pages;

	if (km_is_charged(cache))
		return true;
	/* Shared pages have no owner words. Uncharged large blocks have other classes. Kernel: no accounting with
	 * SLOB. */
	if (cache->layout.engine->shared_pages || (blocks && !(cache->layout.flags & SLAB_ACCOUNT)) ||
	    cache->memcg.child_of || cache->layout.dead || !km_lock_may(&km_drain_lock, may_wait))
		return false;
	const bool first = !km_is_charged(cache);
	if (first)
		begin(cache);
	if (may_wait)
		make_charged(cache);
	if (first) {
		km_layer_set_locked(cache, KM_LAYER_CHARGE, blocks ? &km_charged_block_ops : &km_charged_ops);
		km_store(&cache->fast.pcs.front.open.pcs, 0u);
		km_alloc_show(cache);
	}
	km_unlock_may(&km_drain_lock, may_wait);
	return true;
}

void km_charged_open_back(struct kmem_cache *cache)
{
	const bool may_wait = !km_thread.no_calls;

	if (km_thread.busy || !cache->memcg.word_is_charged || !km_objcg_is_known(km_load(&cache->memcg.objcg)))
		return;
	km_busy_scope(was);
	if (km_lock_may(&km_drain_lock, may_wait)) {
		km_alloc_show(cache);
		km_unlock_may(&km_drain_lock, may_wait);
	}
}

/* ------------------------------------------------------------------ drain */

static void release_sheaf(struct kmem_cache *cache, unsigned cpu)
{
	void **sheaf = km_owned_release_cpu(&cache->memcg.charged, cpu);

	if (!sheaf)
		return;
	km_metadata_free(km_sheaf_base(&cache->memcg.charged, sheaf), cache->memcg.charged.sheaf_mask + 1);
	km_sub(&cache->memcg.charged_sheaves, 1u);
}

/* Returns the objects of a CPU's charged sheaf, from `top` on, for reads only: under disciplines without rseq another
 * thread may pop and push meanwhile. */
static void *const *objects_on(const struct km_pcs *pcs, unsigned cpu)
{
	return (void *const *)(km_area(cpu) + km_pcs_top_cpu(pcs, cpu));
}

/* Returns whether one of the objects is charged to the group, or to a group below; `root` NULL: all objects count. One
 * look-up for a run of one owner. */
static bool has_charged_to(const struct kmem_cache *cache, uintptr_t owner, void *const *objects, size_t count,
			   const struct mem_cgroup *root)
{
	uint64_t last = 0;

	if (!root || owner != KM_OBJCGS_DIFFER)
		return !root || km_memcg_below((struct obj_cgroup *)owner, root);
	for (size_t i = 0; i < count; i++) {
		uint64_t now = km_object_owner(cache, objects[i]);

		if (now && now != last && km_memcg_below((struct obj_cgroup *)(uintptr_t)now, root))
			return true;
		last = now;
	}
	return false;
}

/* Gives objects taken off a sheaf to the engine, uncharged. */
static void give_uncharged(struct kmem_cache *cache, uintptr_t owner, void **objects, size_t count)
{
	if (!count)
		return;
	km_debug(owner, "an object of a charged sheaf has an owner");
	km_charged_disown(cache, owner, objects, count);
	cache->layout.engine->give(cache, objects, (unsigned)count);
}

/* The objects of a CPU's charged sheaf on their way out. Static, because a handler's stack is small. */
static void *taken[KM_CHARGED_MOST];

/*
 * Takes the CPU's charged objects, if one belongs to the group, and the sheaf: a sheaf without an owner must not stay.
 * The owner named by an empty sheaf may be gone, and must not be read.
 */
static void take_charged(struct kmem_cache *cache, unsigned cpu, const void *root)
{
	uintptr_t owner = km_owned_owner_cpu(&cache->memcg.charged, cpu);
	size_t count = km_pcs_count_cpu(&cache->memcg.charged, cpu);

	if (!owner)
		return;
	km_debug(km_is_locked(&km_drain_lock) && count <= KM_CHARGED_MOST, "drained objects fit in the array");
	void *const *there = objects_on(&cache->memcg.charged, cpu);
	if (count && !has_charged_to(cache, km_charged_owner(cache, owner), there, count, root))
		return;
	count = km_owned_take_cpu(&cache->memcg.charged, cpu, taken, &owner);
	give_uncharged(cache, km_charged_owner(cache, owner), taken, count);
	release_sheaf(cache, cpu);
}

/* Frees all charged sheaves of the cache with their objects, and the per-CPU offset, at the end of the cache. Requires:
 * the sheaves are closed, and no thread is in a per-CPU operation on them. */
void km_charge_release(struct kmem_cache *cache)
{
	struct km_pcs *pcs = &cache->memcg.charged;

	km_debug(!km_load(&pcs->inner.pcs) && !km_load(&cache->memcg.mixed.inner.pcs),
		 "released per-CPU sheaves are closed");
	km_alloc_each_cpu(cache, NULL, NULL, take_charged);
	km_for_each_cpu(cpu)
		release_sheaf(cache, cpu);
	if (pcs->slot != cache->state.word)
		km_percpu_free(pcs->slot, km_owned_word_bytes());
	pcs->slot = cache->memcg.mixed.slot = 0;
	if (km_charged_is_mixed(cache)) {
		cache->memcg.charged_odd = KM_CHARGED_ODD;
		enter(cache, KM_CHARGING_OWNED);
	}
}

/* Takes this CPU's objects without a fence, all or nothing. The owner is checked after the pop. */
static void take_own_charged(struct kmem_cache *cache, const struct mem_cgroup *root)
{
	uint64_t owner = km_charged_owner(cache, km_owned_owner(&cache->memcg.charged));
	void *objects[KM_CHARGED_MOST];
	size_t count = km_charged_pop_n(cache, owner, objects, KM_CHARGED_MOST);
	/* The objects are at the end of the array, and go back from the end. */
	void **there = objects + KM_CHARGED_MOST - count;

	if (count && !has_charged_to(cache, owner, there, count, root))
		count -= km_charged_push_n(cache, owner, there, count);
	give_uncharged(cache, owner, there, count);
}

/* Drains the charged sheaves, as do_closed does: those with objects of the group, or all with `root` NULL. */
static void drain_charged(struct kmem_cache **caches, size_t count, bool unused, const struct mem_cgroup *root,
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
			km_alloc_each_cpu(caches[i], places, root, take_charged);
		open_charged(caches[i]);
		if (!fenced && !unused && !places)
			take_own_charged(caches[i], root);
	}
	km_unlock(&km_drain_lock);
}

void km_charged_drain_group(struct kmem_cache **caches, size_t count, const struct mem_cgroup *root)
{
	drain_charged(caches, count, false, root, NULL);
}

/* Called by alloc/drain.c through km_charge_ops: drains all charged sheaves on the CPUs `places`. */
void km_charge_drain(struct kmem_cache **caches, size_t count, bool unused, const struct km_cpu_list *places)
{
	drain_charged(caches, count, unused, NULL, places);
}
