/*
 * charged_sheaf.c: the CPU's sheaf of charged cached objects: its owner, refill and draining. While one objcg is
 * charged for all objects of a cache, and where mixed sheaves are not possible, a sheaf has one owner, the word
 * beside the sheaf's top. A mixed sheaf has objects of several objcgs, each charged to the objcg in its owner word.
 * Invariant: each object on a sheaf is charged to its owner.
 */
#include "charged_sheaf.h"

#include "os/die.h"

#include "page/metadata.h"

/* A refill charges at most this part of the bytes left below the group's limits. */
#define MARGIN_PART 8u

/* ------------------------------------------------------------------ giving up */

/* Works in runs of one owner, from the end of the array. The owner words are cleared before the uncharge: the objcg may
 * end with the last byte, and a word must not name a dead objcg. */
void km_charged_disown(struct kmem_cache *cache, uint64_t owner, void **objects, size_t n)
{
	const bool mixed = owner == KM_OBJCGS_DIFFER;

	for (size_t count = n; n; n -= count, count = n) {
		if (mixed)
			count = km_objects_of_one_owner(cache, n, objects, &owner);
		km_debug(count && count <= n, "an object has one objcg");
		if (!owner)
			continue;
		km_debug(km_object_owner(cache, objects[n - 1]) == owner,
			 "a returned object has its objcg as owner");
		km_debug(km_load(&((struct obj_cgroup *)(uintptr_t)owner)->memcg),
			 "the objcg of an allocated object is live");
		km_objects_clear_owner(cache, objects + n - count, count);
		km_objcg_uncharge((struct obj_cgroup *)(uintptr_t)owner, count * cache->memcg.charge);
	}
}

void km_charged_give_up(struct kmem_cache *cache, uint64_t owner, void **objects, size_t n)
{
	if (!n)
		return;
	km_charged_disown(cache, owner, objects, n);
	km_plain_free_bulk(cache, n, objects);
}

/* ------------------------------------------------------------------ the CPU's charged sheaf */

/* most attempts at adopting a sheaf, because an attempt may be interrupted */
#define TRIES 8

static bool has_top(const struct km_pcs *pcs)
{
	return km_thread_has_cpu() && km_pcs_top_cpu(pcs, km_cpu());
}

/*
 * Installs a sheaf on this CPU. Returns: false if the CPU has one already, or no memory is left.
 * At the first use of the CPU, and not when the cache is created: most caches are used on few CPUs. The thread is busy
 * while the memory is allocated, so that a signal handler does not install the same sheaf. The thread may migrate to a
 * CPU with a sheaf; then the memory is freed.
 */
bool km_charged_found(struct kmem_cache *cache, uint64_t owner)
{
	struct km_pcs *pcs = km_charged_pcs(cache);

	if (km_thread.busy || !km_load(&pcs->inner.pcs))
		return false;
	/* The caller may have looked before the cache became mixed. */
	owner = pcs == &cache->memcg.mixed ? KM_OBJCGS_DIFFER : owner;
	/* This may be the thread's first call on this CPU. */
	km_alloc_enter_thread(!km_thread.no_calls);
	if (!km_thread_has_cpu() || has_top(pcs))
		return false;
	km_busy_scope(was);
	bool installed = false;
	size_t bytes = pcs->sheaf_mask + 1;
	bool may = !cache->layout.engine->array.may_charge || cache->layout.engine->array.may_charge(cache);
	void *memory = may ? km_metadata_alloc(bytes, true) : NULL;

	if (memory) {
		/* Count before the bit is set: charged_flush.c clears the bit, and then reads the count. */
		km_add_both(&cache->memcg.charged_sheaves, 1u);
		km_alloc_set_ready(cache, true);
		km_debug(!((uintptr_t)memory & (bytes - 1)), "a sheaf is aligned to its size");
		for (int i = 0; i < TRIES && !installed && !has_top(pcs); i++)
			installed = km_owned_install(pcs, km_owned_prepare(pcs, memory), owner);
		if (!installed) {
			km_metadata_free(memory, bytes);
			km_sub(&cache->memcg.charged_sheaves, 1u);
		}
	}
	return installed;
}

/* Returns whether the CPU has a mixed sheaf, after an attempt to install a missing sheaf. */
static bool has_mixed(struct kmem_cache *cache)
{
	return has_top(&cache->memcg.mixed) || km_charged_found(cache, KM_OBJCGS_DIFFER);
}

/* Returns whether the CPU has an empty sheaf. */
static bool is_empty(const struct km_pcs *pcs)
{
	return km_load(&pcs->inner.pcs) && has_top(pcs) && !km_pcs_count_cpu(pcs, km_cpu());
}

bool km_charged_adopt(struct kmem_cache *cache, uint64_t owner)
{
	struct km_pcs *pcs = &cache->memcg.charged;

	if (owner == KM_OBJCGS_DIFFER)
		return km_charged_found(cache, owner);
	bool done = km_owned_adopt(pcs, owner) || km_charged_found(cache, owner);

	km_debug(km_objcg_is_known(owner), "the owner of a sheaf is a known objcg");
	for (int i = 1; i < TRIES && !done && is_empty(pcs); i++)
		done = km_owned_adopt(pcs, owner);
	if (done)
		km_charged_see_back(cache);
	return done;
}

km_tls struct km_charged_last km_charged_last;

/*
 * Makes `owner` the owner of the CPU's sheaf. Returns: false while another owner's sheaf has objects, and this thread
 * has not yet met the sheaf KM_CHARGED_INSIST times. The former owner's objects are uncharged and freed before the
 * owner changes: an object on an owned sheaf is charged to the owner of the sheaf. Also returns false if another thread
 * pushes an object in between.
 */
static bool take_over(struct kmem_cache *cache, uint64_t owner)
{
	uint64_t other = km_owned_owner(&cache->memcg.charged);
	void *objects[KM_CHARGED_MOST];

	if (other && other != owner) {
		if (!km_charged_adopt(cache, owner) && !km_charged_insist(cache, owner))
			return false;
		size_t n = km_owned_pop_n(&cache->memcg.charged, other, objects, KM_CHARGED_MOST);
		km_charged_give_up(cache, other, objects + KM_CHARGED_MOST - n, n);
	}
	km_charged_last.owner = 0;
	if (km_owned_owner(&cache->memcg.charged) != owner && !km_charged_adopt(cache, owner))
		return false;
	km_charged_see_back(cache);
	return true;
}

static bool may_use(void)
{
	return !km_thread.busy && km_memcg_modes[MEM_CGROUP_SHELF];
}

bool km_charged_claim(struct kmem_cache *cache, uint64_t owner, gfp_t gfp)
{
	if (!may_use() || !km_objcgs_note(cache, owner, km_gfp_may_wait(gfp)))
		return false;
	return km_charged_is_mixed(cache) ? has_mixed(cache) : take_over(cache, owner);
}

/* ------------------------------------------------------------------ many objects */

bool km_charged_name(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void **objects, size_t n)
{
	/* objcg NULL: only where every object is charged the words must be set. A free would use the page's word, and
	 * uncharge bytes never charged. */
	if (!objcg && !km_charges_all(cache))
		return true;
	size_t set = km_objects_set_owner(cache, objects, n, (uintptr_t)objcg, km_gfp_may_wait(gfp));
	if (km_likely(set == n))
		return true;
	/* The objects will be freed to the layer below, and a free object's owner word must not name an objcg. */
	km_objects_clear_owner(cache, objects, set);
	if (objcg)
		km_objcg_uncharge(objcg, n * cache->memcg.charge);
	return false;
}

bool km_charged_take(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void **objects, size_t n)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, (size_t)cache->memcg.charge, &bytes) ||
	    (objcg && !km_objcg_charge(objcg, bytes, gfp)))
		return km_charge_failed(cache, gfp) != NULL;
	if (!km_plain_alloc_bulk(cache, gfp & ~__GFP_ACCOUNT, n, objects)) {
		if (objcg)
			km_objcg_uncharge(objcg, bytes);
		return false;
	}
	if (km_likely(km_charged_name(cache, gfp, objcg, objects, n)))
		return true;
	km_plain_free_bulk(cache, n, objects);
	return km_charge_failed(cache, gfp) != NULL;
}

/* The part of km_charged_refill with the array: a function of its own, so that the calls before have more stack. */
static km_noinline void *refill(struct kmem_cache *cache, struct obj_cgroup *objcg, size_t n, gfp_t gfp)
{
	const uint64_t owner = km_charged_owner(cache, (uintptr_t)objcg);
	void *objects[KM_CHARGED_MOST];

	km_debug(n <= km_owned_capacity(&cache->memcg.charged), "at most a sheaf of objects is charged");
	if (!km_charged_take(cache, gfp, objcg, objects, n))
		return NULL;
	size_t moved = km_charged_push_n(cache, owner, objects + 1, n - 1);
	km_debug(moved < n, "an object is in the sheaf or is returned");
	km_charged_give_up(cache, (uintptr_t)objcg, objects + 1, n - 1 - moved);
	return objects[0];
}

/*
 * Charges and allocates objects, returns one, and pushes the others on this CPU's charged sheaf: half a sheaf, at most
 * an eighth of the bytes left below the nearest limit. Returns: NULL if fewer than two objects are possible, or after a
 * failure: the caller must then charge one object with the unchanged gfp.
 */
void *km_charged_refill(struct kmem_cache *cache, struct obj_cgroup *objcg, gfp_t gfp)
{
	size_t n = km_min(km_owned_capacity(&cache->memcg.charged) / 2,
			  (size_t)(km_objcg_spare(objcg) / MARGIN_PART / cache->memcg.charge));

	km_debug(objcg != &km_objcg_root && n <= KM_CHARGED_MOST,
		 "a charged sheaf is filled for an objcg that is not the root's");
	if (n < 2 || !km_charged_claim(cache, (uintptr_t)objcg, gfp))
		return NULL;
	/* A charge ahead must neither exceed a limit nor run the group's out-of-memory callback. */
	gfp = (gfp & ~(KM_CHARGED_ODD | __GFP_NOFAIL | __GFP_HIGH)) | __GFP_NOWARN | __GFP_NORETRY;
	return refill(cache, objcg, n, gfp);
}

/* Makes room on the CPU's charged sheaf for a freed object of `owner`: uncharges and frees half of the objects, or
 * makes `owner` the owner of an empty sheaf. Returns: false if the sheaf has another owner's objects, the thread is
 * busy, or MEM_CGROUP_SHELF is off. */
bool km_charged_make_room(struct kmem_cache *cache, uint64_t owner)
{
	const size_t half = km_owned_capacity(&cache->memcg.charged) / 2;
	void *objects[KM_CHARGED_MOST];

	km_debug(half <= KM_CHARGED_MOST, "the removed objects fit in the array");
	if (!may_use())
		return false;
	owner = km_charged_owner(cache, owner);
	if (owner != KM_OBJCGS_DIFFER && km_owned_owner(&cache->memcg.charged) != owner)
		return km_charged_adopt(cache, owner);
	size_t n = km_charged_pop_n(cache, owner, objects, half);
	km_charged_give_up(cache, owner, objects + half - n, n);
	return n || (owner == KM_OBJCGS_DIFFER && has_mixed(cache));
}
