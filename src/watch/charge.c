/*
 * charge.c: objects that somebody pays for. It stands before the front of a cache with SLAB_ACCOUNT, or one that was
 * once asked for an object with __GFP_ACCOUNT, and sees to it that each such object costs its group cache->charge bytes
 * from the moment it is handed out until it is freed.
 *
 *	hit	the CPU's charged shelf holds objects of this group, paid for when they were put there: pop, push
 *	refill	half a shelf at a time: paid for in one charge, taken from the plain shelf, their owner words set
 *	else	one object: its bytes from or to the group's stock on this CPU, itself from or to the plain shelf
 *
 * Invariants: the owner word of an object that is out, or on a charged shelf, says whose it is, and whose it is has
 * paid. On a charged shelf there are at most 64 KiB, or two objects, of one cache on one CPU; near a limit less is
 * taken; and all of it is given back before anybody is refused (flush).
 */
#include <errno.h>
#include <kmem/memcg.h>

#include "../cache/cache.h"
#include "../page/meta.h"
#include "../port/owned.h"
#include "memcg.h"
#include "payers.h"
#include "private.h"

/* Bits that make an object another than the one on the shelf. */
#define ODD (__GFP_ZERO | __GFP_THISNODE | ~__GFP_BITS_MASK)

#define SHELF_BYTES ((size_t)64 << 10)
/* Times in a row that a thread must find another's block before it takes the CPU's shelf over. */
#define INSIST 16u
/* Of what a group may still use, a shelf takes no more than this part at once. */
#define MARGIN_PART 8u

km_inline bool allows_blocking(gfp_t gfp)
{
	return (gfp & __GFP_DIRECT_RECLAIM) != 0;
}

/* Objects may go to and from there without passing by the front: nobody watches or checks each. */
km_inline bool has_plain_shelf(const struct kmem_cache *cache)
{
	return cache->engine->front == KM_FRONT_ARRAY && !cache->hooks && !cache->checked;
}

/* ------------------------------------------------------------------ giving up */

/* What the owner had is nobody's any more, and paid back. */
static void disown(struct kmem_cache *cache, uint64_t owner, void *const *objects, size_t n)
{
	km_payers_clear(cache, objects, n);
	km_objcg_uncharge((struct obj_cgroup *)(uintptr_t)owner, n * cache->charge);
}

static void give_up(struct kmem_cache *cache, uint64_t owner, void **objects, size_t n)
{
	if (!n)
		return;
	disown(cache, owner, objects, n);
	km_plain_free_bulk(cache, n, objects);
}

/* ------------------------------------------------------------------ the CPU's charged shelf */

/*
 * Whose the CPU's block is, 0 for nobody or none: a look for those who then do a sequence, or go the slow way. Of a
 * thread without a CPU that is a word of the zeros below the areas.
 */
km_inline uintptr_t block_owner(const struct kmem_cache *cache)
{
#ifdef KMEM_HAVE_RSEQ
	int32_t cpu = km_load((int32_t *)((char *)__builtin_thread_pointer() + km_rseq + 4));
	char *area = km_hot.percpu + ((intptr_t)cpu << KMEM_AREA_SHIFT);

	return km_load((uintptr_t *)(area + km_load(&cache->charged.inner.shelf)) + 1);
#else
	return km_owned_owner(&cache->charged);
#endif
}

/* A block for this CPU, if it has none yet. */
static bool found_block(struct kmem_cache *cache, uint64_t owner)
{
	if (km_front_busy || !km_load(&cache->charged.inner.shelf) || !km_thread_has_cpu() ||
	    km_shelf_top_cpu(&cache->charged, km_cpu()))
		return false;
	bool was = km_busy_begin(), found = false;
	size_t bytes = cache->charged.block_mask + 1;
	void *memory = km_meta_alloc(bytes, !km_no_calls);

	if (memory) {
		found = km_owned_found(&cache->charged, km_owned_prepare(&cache->charged, memory), owner);
		if (!found)
			km_meta_free(memory, bytes);
	}
	km_busy_end(was);
	return found;
}

/* Let the CPU's block be this owner's, who pays here: true where it is empty, or there was none. */
static bool adopt(struct kmem_cache *cache, uint64_t owner)
{
	return km_owned_adopt(&cache->charged, owner) || found_block(cache, owner);
}

/*
 * Another's block is in the way. One thread that uses many groups in turn would have it changed at every call: so only
 * who finds it there for the 16th time in a row takes it over. What such a one frees will find it there, too.
 */
static km_tls struct {
	const struct kmem_cache *cache;
	uint64_t owner;			/* 0: it is not so any more */
	unsigned times;
} last;

km_inline bool insist(const struct kmem_cache *cache, uint64_t owner)
{
	if (km_likely(last.owner != owner || last.cache != cache)) {
		last.cache = cache;
		last.owner = owner;
		last.times = 0;
	}
	/* Still true when it is asked again: until then nothing was taken over. */
	return ++last.times >= INSIST;
}

/* Where one pays hits put what they free there from now on, too. */
static km_noinline void open_back(struct kmem_cache *cache)
{
	if (!cache->word_is_charged || !km_payer_is_known(km_load(&cache->payer)))
		return;
	bool was = km_busy_begin();
	km_front_one_pays(cache, !km_no_calls);
	km_busy_end(was);
}

/* Take the CPU's shelf over; false: it is another's, and busy. */
static bool take_over(struct kmem_cache *cache, uint64_t owner)
{
	uint64_t other = km_owned_owner(&cache->charged);
	void *objects[KM_CHARGED_MOST];

	if (other && other != owner) {
		if (!adopt(cache, owner) && !insist(cache, owner))
			return false;
		size_t n = km_owned_pop_n(&cache->charged, other, objects, KM_CHARGED_MOST);
		give_up(cache, other, objects + KM_CHARGED_MOST - n, n);
	}
	last.owner = 0;
	if (km_owned_owner(&cache->charged) != owner && !adopt(cache, owner))
		return false;
	if (km_unlikely(!km_load(&cache->shelf.front.back.shelf)))
		open_back(cache);
	return true;
}

/* Whoever comes with many at once says whose the shelf is, so that they find it when they are freed. */
static void claim(struct kmem_cache *cache, uint64_t owner)
{
	if (km_load(&cache->charged.inner.shelf) && km_owned_owner(&cache->charged) != owner &&
	    !km_front_busy && km_memcg_modes[MEM_CGROUP_SHELF] && km_payers_note(cache, owner, false))
		take_over(cache, owner);
}

/* Pay for half a shelf, and take one of it. NULL: not this way. */
static void *refill(struct kmem_cache *cache, struct obj_cgroup *objcg, gfp_t gfp)
{
	uint64_t owner = (uintptr_t)objcg;
	size_t n = km_min(km_owned_capacity(&cache->charged) / 2,
			  (size_t)(km_objcg_spare(objcg) / MARGIN_PART / cache->charge));
	void *objects[KM_CHARGED_MOST];

	if (n < 2 || km_front_busy || !km_memcg_modes[MEM_CGROUP_SHELF] ||
	    !km_payers_note(cache, owner, allows_blocking(gfp)) || !take_over(cache, owner))
		return NULL;
	/* What is more than the caller's one object is not worth going beyond a limit, nor a callback's last resort. */
	gfp = (gfp & ~(ODD | __GFP_ACCOUNT | __GFP_NOFAIL | __GFP_HIGH)) | __GFP_NOWARN | __GFP_NORETRY;
	if (!km_objcg_charge(objcg, n * cache->charge, gfp))
		return NULL;
	if (!km_plain_alloc_bulk(cache, gfp, n, objects)) {
		km_objcg_uncharge(objcg, n * cache->charge);
		return NULL;
	}
	size_t set = km_payers_set(cache, objects, n, owner, allows_blocking(gfp));
	if (km_unlikely(set < n)) {
		km_payers_clear(cache, objects, set);
		km_objcg_uncharge(objcg, n * cache->charge);
		km_plain_free_bulk(cache, n, objects);
		return NULL;
	}
	size_t moved = km_owned_push_n(&cache->charged, owner, objects + 1, n - 1);
	give_up(cache, owner, objects + 1, n - 1 - moved);
	return objects[0];
}

/* Room on the CPU's shelf for an object of this owner; false: it is another's. */
static bool make_room(struct kmem_cache *cache, uint64_t owner)
{
	void *objects[KM_CHARGED_MOST];

	if (km_front_busy || !km_memcg_modes[MEM_CGROUP_SHELF])
		return false;
	if (km_owned_owner(&cache->charged) != owner)
		return adopt(cache, owner);
	size_t half = km_owned_capacity(&cache->charged) / 2;
	size_t n = km_owned_pop_n(&cache->charged, owner, objects, half);
	give_up(cache, owner, objects + half - n, n);
	return n != 0;
}

/* ------------------------------------------------------------------ one object */

km_inline struct obj_cgroup *payer(const struct kmem_cache *cache, gfp_t gfp)
{
	return km_likely(cache->charge_all || (gfp & __GFP_ACCOUNT) || km_account_here) ? km_objcg_now() : NULL;
}

static void *charge_failed(struct kmem_cache *cache, gfp_t gfp)
{
	return km_front_failed(cache->name, cache->object_size, gfp | __GFP_NOWARN, ENOMEM);
}

static void *alloc_unpaid(struct kmem_cache *cache, gfp_t gfp, int node)
{
	void *object = NULL;

	if (km_likely(!(gfp & ODD) && node == NUMA_NO_NODE && has_plain_shelf(cache)))
		object = km_shelf_pop(&cache->shelf);
	if (!object)
		object = km_plain_alloc(cache, gfp, node);
	if (km_likely(!object || !cache->charge_all || km_payer_set(cache, object, 0, allows_blocking(gfp))))
		return object;
	km_plain_free(cache, object);
	return charge_failed(cache, gfp);
}

static void *alloc_paid(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	void *object = NULL;

	if (!km_objcg_charge(objcg, cache->charge, gfp))
		return charge_failed(cache, gfp);
	if (km_likely(!(gfp & ODD) && node == NUMA_NO_NODE && has_plain_shelf(cache)))
		object = km_shelf_pop(&cache->shelf);
	if (!object)
		object = km_plain_alloc(cache, gfp & ~__GFP_ACCOUNT, node);
	if (km_likely(object && km_payer_set(cache, object, (uintptr_t)objcg, allows_blocking(gfp))))
		return object;
	if (object)
		km_plain_free(cache, object);
	km_objcg_uncharge(objcg, cache->charge);
	return object ? charge_failed(cache, gfp) : NULL;
}

/* Bytes of a block: as many objects as the bound allows, two at least; 0: each is paid for as it comes. */
static uint32_t shelf_block(const struct kmem_cache *cache)
{
	uint32_t words = KM_CHARGED_MOST + 2;

	if (cache->engine->front != KM_FRONT_ARRAY || !cache->capacity)
		return 0;
	while (words > 4 && (words - 2) * (size_t)cache->charge > SHELF_BYTES)
		words /= 2;
	return words * (uint32_t)sizeof(void *);
}

static const struct km_charging charging;

/* It began to be charged where nobody might wait: the first who may gives it its shelf. */
static km_noinline void give_shelf(struct kmem_cache *cache)
{
	uint32_t bytes = shelf_block(cache);

	if (!bytes || km_front_busy)
		return;
	bool was = km_busy_begin();
	km_front_ask_first(cache, &charging, bytes, true);
	km_busy_end(was);
}

static void *alloc_by_shelf(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	void *object = NULL;
	int saved_errno = errno;

	if (!objcg || objcg == &km_objcg_root)
		return alloc_unpaid(cache, gfp & ~__GFP_ACCOUNT, node);
	if (km_unlikely(!km_load(&cache->charged.block_mask)) && allows_blocking(gfp))
		give_shelf(cache);
	if (km_load(&cache->charged.inner.shelf) && !(gfp & ODD) && node == NUMA_NO_NODE) {
		if (km_percpu.discipline != KM_DISCIPLINE_RSEQ || !cache->charge_all)
			object = km_owned_pop(&cache->charged, (uintptr_t)objcg);
		if (!object)
			object = refill(cache, objcg, gfp);
	}
	/* Where there is no memory for half a shelf, there may be for one object. */
	errno = saved_errno;
	return object ?: alloc_paid(cache, gfp, node, objcg);
}

static km_noinline void *alloc_slowly(struct kmem_cache *cache, gfp_t gfp, int node,
				      struct obj_cgroup *objcg)
{
	bool was = km_calls_begin(allows_blocking(gfp));
	void *object = alloc_by_shelf(cache, gfp, node, objcg);

	km_calls_end(was);
	return object;
}

/* ------------------------------------------------------------------ groups in turn */

/*
 * Groups in turn on a CPU: the block there is another's. Then an object is paid for out of the group's stock on this
 * CPU and comes from the plain shelf, a sequence each, and goes back the same way. As 1000 groups may do that all the
 * time it is as short as it can be: no call but at the end of a function.
 */
#define TURNS_TAKE 1u	/* by rseq, from an array */
#define TURNS_PUT 2u	/* ... and a free object's word need not say that nobody pays */

static uint8_t turns_of(const struct kmem_cache *cache)
{
	if (km_percpu.discipline != KM_DISCIPLINE_RSEQ || cache->engine->front != KM_FRONT_ARRAY)
		return 0;
	return km_payers_exact(cache) ? TURNS_TAKE : TURNS_TAKE | TURNS_PUT;
}

#ifdef KMEM_HAVE_RSEQ
/* Nobody's is there for the taking, unless there are to be no shelves. */
km_inline bool in_the_way(const struct kmem_cache *cache, uintptr_t other, uintptr_t owner)
{
	return km_likely(other) ? other != owner : !km_memcg_modes[MEM_CGROUP_SHELF];
}

/* What is paid for has no object, or the word of the object's slab must change. */
static km_noinline void *finish_turn(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *object)
{
	if (object && km_payer_set(cache, object, (uintptr_t)objcg, allows_blocking(gfp)))
		return object;
	bool was = km_calls_begin(allows_blocking(gfp));
	if (object)
		km_plain_free(cache, object);
	km_objcg_uncharge(objcg, cache->charge);
	km_calls_end(was);
	return alloc_slowly(cache, gfp, NUMA_NO_NODE, objcg);
}

km_inline void *alloc_in_turn(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg)
{
	const intptr_t rseq = km_rseq;

	if (km_unlikely(!km_rseq_stock_take(&objcg->slot, km_hot.percpu, rseq, cache->charge)))
		return alloc_slowly(cache, gfp, NUMA_NO_NODE, objcg);
	void *object = kmem_shelf_pop(&cache->shelf.inner, km_hot.percpu, rseq);
	if (km_likely(object) && km_likely(km_payer_set_quick(cache, object, (uintptr_t)objcg)))
		return object;
	return finish_turn(cache, gfp, objcg, object);
}

/* False: nothing was done. Not under `drain`, where the CPU's one stock may be another's. */
km_inline bool put_in_turn(struct kmem_cache *cache, void *object, struct obj_cgroup *objcg)
{
	const intptr_t rseq = km_rseq;

	if (km_unlikely(km_memcg_modes[MEM_CGROUP_DRAIN]) ||
	    km_unlikely(!km_rseq_stock_put(&objcg->slot, km_hot.percpu, rseq, cache->charge, KM_PAGE_SIZE)))
		return false;
	if (km_unlikely(!kmem_shelf_push(&cache->shelf.inner, km_hot.percpu, rseq, object)))
		km_plain_free(cache, object);
	return true;
}
#endif

km_inline void *alloc_shared(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
#ifdef KMEM_HAVE_RSEQ
	if (km_likely(objcg && !(gfp & ODD) && node == NUMA_NO_NODE && !cache->hooks &&
		      km_load(&cache->turns) & TURNS_TAKE) &&
	    in_the_way(cache, block_owner(cache), (uintptr_t)objcg) &&
	    /* Where there are to be no shelves there is none to be taken over. */
	    (!insist(cache, (uintptr_t)objcg) || !km_memcg_modes[MEM_CGROUP_SHELF]))
		return alloc_in_turn(cache, gfp, objcg);
#endif
	return alloc_slowly(cache, gfp, node, objcg);
}

static void *charged_alloc(struct kmem_cache *cache, gfp_t gfp, int node);

/* An object like any other, zeroed: the front has not looked for it on the shelf. */
static km_noinline void *alloc_zeroed(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	void *object = NULL;

	gfp &= ~__GFP_ZERO;
	if (km_is_private(objcg))
		object = km_private_alloc(cache, gfp, node, objcg);
	else if (gfp & ODD || node != NUMA_NO_NODE || !(object = km_owned_pop(&cache->charged, (uintptr_t)objcg)))
		object = charged_alloc(cache, gfp, node);
	return object ? km_cleared(cache, object) : NULL;
}

/* What was no hit of the front's. */
static void *charged_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	struct obj_cgroup *objcg = payer(cache, gfp);

	if (km_unlikely(gfp & __GFP_ZERO) && objcg && !cache->ctor && !cache->hooks)
		return alloc_zeroed(cache, gfp, node, objcg);
	if (km_unlikely(objcg && km_is_private(objcg)))
		return km_private_alloc(cache, gfp, node, objcg);
	return alloc_shared(cache, gfp, node, objcg);
}

static km_noinline void free_slowly(struct kmem_cache *cache, void *object, uint64_t owner)
{
	int saved_errno = errno;

	if (km_load(&cache->charged.inner.shelf))
		for (int i = 0; i < 2; i++) {
			if (km_owned_push(&cache->charged, owner, object))
				return;
			if (!make_room(cache, owner))
				break;
		}
	disown(cache, owner, &object, 1);
	if (!has_plain_shelf(cache) || !km_shelf_push(&cache->shelf, object))
		km_plain_free(cache, object);
	errno = saved_errno;
}

#ifdef KMEM_HAVE_RSEQ
/* It was not pushed: the block is full, or another's, or nobody's. */
static km_noinline void free_unpushed(struct kmem_cache *cache, void *object, uint64_t owner)
{
	if (!in_the_way(cache, block_owner(cache), owner) ||
	    !put_in_turn(cache, object, (struct obj_cgroup *)(uintptr_t)owner))
		free_slowly(cache, object, owner);
}
#endif

static void free_unpaid(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(!object) || !has_plain_shelf(cache) || !km_shelf_push(&cache->shelf, object))
		km_plain_free(cache, object);
}

/* It must be found out whose it is. */
static km_noinline void free_seen(struct kmem_cache *cache, void *object)
{
	uint64_t owner = km_load(&cache->payer);

	if (!km_payer_is_known(owner))
		owner = owner == KM_PAYER_NOBODY ? 0 : km_payer_of_freed(cache, object);
	if (!owner)
		free_unpaid(cache, object);
#ifdef KMEM_HAVE_RSEQ
	else if (km_load(&cache->turns) & TURNS_PUT && !cache->hooks)
		free_unpushed(cache, object, owner);
#endif
	else
		free_slowly(cache, object, owner);
}

/* The object may be a twin's. */
static km_noinline void free_private(struct kmem_cache *cache, void *object)
{
	if (km_private_is_own(cache, object) ||
	    !(km_likely(km_private_push(cache, object)) || km_private_free(cache, object)))
		free_seen(cache, object);
}

/* Whoever came by another's block when it took an object finds it there when it frees one; else it is the owner's. */
static void charged_free(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(km_load(&cache->twins))) {
		free_private(cache, object);
		return;
	}
#ifdef KMEM_HAVE_RSEQ
	uint64_t owner = 0;

	if (km_likely(km_load(&cache->turns) & TURNS_PUT && !cache->hooks))
		owner = km_payer_quick(cache, object);
	if (km_likely(owner)) {
		if (last.owner == owner && last.cache == cache &&
		    km_likely(put_in_turn(cache, object, (struct obj_cgroup *)(uintptr_t)owner)))
			return;
		if (km_unlikely(!km_rseq_owned_push(&cache->charged.inner, km_hot.percpu, km_rseq, owner,
						    object)))
			free_unpushed(cache, object, owner);
		return;
	}
#endif
	free_seen(cache, object);
}

/* ------------------------------------------------------------------ many */

static bool alloc_bulk_unpaid(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	if (!km_plain_alloc_bulk(cache, gfp, n, objects))
		return false;
	if (!cache->charge_all || km_payers_set(cache, objects, n, 0, allows_blocking(gfp)) == n)
		return true;
	km_plain_free_bulk(cache, n, objects);
	return charge_failed(cache, gfp) != NULL;
}

/* objects[0, n), paid for in one. */
static bool alloc_bulk_paid(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects,
			    struct obj_cgroup *objcg)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, (size_t)cache->charge, &bytes) ||
	    !km_objcg_charge(objcg, bytes, gfp))
		return charge_failed(cache, gfp) != NULL;
	if (!km_plain_alloc_bulk(cache, gfp & ~__GFP_ACCOUNT, n, objects)) {
		km_objcg_uncharge(objcg, bytes);
		return false;
	}
	size_t set = km_payers_set(cache, objects, n, (uintptr_t)objcg, allows_blocking(gfp));
	if (km_likely(set == n))
		return true;
	km_payers_clear(cache, objects, set);
	km_objcg_uncharge(objcg, bytes);
	km_plain_free_bulk(cache, n, objects);
	return charge_failed(cache, gfp) != NULL;
}

static bool alloc_bulk_by(struct obj_cgroup *objcg, struct kmem_cache *cache, gfp_t gfp, size_t n,
			  void **objects)
{
	size_t left = n;

	if (km_unlikely(!objcg || objcg == &km_objcg_root))
		return alloc_bulk_unpaid(cache, gfp & ~__GFP_ACCOUNT, n, objects);
	if (km_unlikely(km_is_private(objcg)))
		return km_private_alloc_bulk(cache, gfp, n, objects, objcg);
	if (km_likely(!(gfp & ODD)))
		left -= km_owned_pop_n(&cache->charged, (uintptr_t)objcg, objects, n);
	if (left == n)
		claim(cache, (uintptr_t)objcg);
	if (km_likely(!left) || alloc_bulk_paid(cache, gfp, left, objects, objcg))
		return true;
	give_up(cache, (uintptr_t)objcg, objects + left, n - left);
	return false;
}

static bool charged_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	bool was = km_calls_begin(allows_blocking(gfp));
	bool done = alloc_bulk_by(payer(cache, gfp), cache, gfp, n, objects);

	km_calls_end(was);
	return done;
}

static void charged_free_bulk(struct kmem_cache *cache, size_t n, void **objects)
{
	int saved_errno = errno;

	while (n) {
		uint64_t owner;
		size_t own = km_unlikely(km_load(&cache->twins)) ? km_private_free_last(cache, &n, objects) : n;
		if (!own)
			continue;
		size_t count = km_payers_gather(cache, own, objects + n - own, &owner), left = count;
		void **run = objects + n - count;

		n -= count;
		if (!owner) {
			km_plain_free_bulk(cache, count, run);
			continue;
		}
		left -= km_owned_push_n(&cache->charged, owner, run, left);
		if (left && km_memcg_modes[MEM_CGROUP_SHELF] && km_owned_owner(&cache->charged) != owner &&
		    adopt(cache, owner))
			left -= km_owned_push_n(&cache->charged, owner, run, left);
		give_up(cache, owner, run, left);
	}
	errno = saved_errno;
}

/* ------------------------------------------------------------------ by pointer */

struct mem_cgroup *mem_cgroup_from_obj(const void *object)
{
	struct kmem_cache *cache = ZERO_OR_NULL_PTR(object) ? NULL : kmem_cache_of(object);
	uint64_t owner = 0;

	if (cache && cache->twin_of)
		owner = (uintptr_t)km_private_owner(cache);
	else if (cache && cache->charging)
		owner = km_payer_of(cache, object);
	else if (!cache && !ZERO_OR_NULL_PTR(object))
		owner = km_large_owner(object);
	return owner ? km_objcg_memcg((struct obj_cgroup *)(uintptr_t)owner) : NULL;
}

bool kmem_cache_charge(void *object, gfp_t gfp)
{
	struct kmem_cache *cache = ZERO_OR_NULL_PTR(object) ? NULL : kmem_cache_of(object);
	struct obj_cgroup *objcg = km_objcg_now();

	if (!objcg || objcg == &km_objcg_root || ZERO_OR_NULL_PTR(object) || (cache && cache->twin_of))
		return true;
	/* What a private group has it has from the first on: or destroy_all would free it. */
	if (!cache)
		return km_large_owner(object) || (!objcg->private && km_large_charge(object, gfp));
	if (!cache->charging && !km_front_may_charge(cache, gfp))
		return false;
	/* It is somebody's already. Kernel: true as well. */
	if (km_payer_of(cache, object))
		return true;
	if (!km_objcg_charge(objcg, cache->charge, gfp))
		return false;
	if (km_payer_set(cache, object, (uintptr_t)objcg, allows_blocking(gfp)))
		return true;
	km_objcg_uncharge(objcg, cache->charge);
	return false;
}

static const struct km_charging charging = {
	charged_alloc, charged_free, charged_alloc_bulk, charged_free_bulk,
};

/* ------------------------------------------------------------------ beginning, and giving back */

/* With SLAB_ACCOUNT before anybody else knows the cache; else in several threads at once, which write the same. */
bool km_charge_begin(struct kmem_cache *cache, bool may_wait)
{
	if (cache->charging)
		return true;
	/* Its objects don't say whose they are. Kernel: SLOB was not to be had together with accounting. */
	if (cache->engine->shared_pages || cache->twin_of || cache->dead)
		return false;
	km_store(&cache->charge, cache->size + (uint32_t)sizeof(void *));
	km_store(&cache->slab_mask, (uint32_t)(KM_PAGE_SIZE << cache->order) - 1);
	if (cache->flags & SLAB_ACCOUNT) {
		cache->charge_all = true;
		cache->payer = cache->checked ? KM_PAYERS_DIFFER : KM_PAYER_UNKNOWN;
	}
	km_store(&cache->turns, turns_of(cache));
	return km_front_ask_first(cache, &charging, may_wait ? shelf_block(cache) : 0, may_wait);
}

static int begin_each(struct kmem_cache *cache, void *arg km_unused)
{
	km_charge_begin(cache, true);
	return 0;
}

/* Under the registry's lock: a cache is made before, and begins here, or after, and begins when it is made. */
static km_cold void charge_everything(void)
{
	if (!km_boot())
		return;
	km_registry_lock();
	if (!km_charge_everything) {
		km_store(&km_charge_everything, true);
		km_registry_each(begin_each, NULL);
	}
	km_registry_unlock();
}

bool mem_cgroup_account_all(bool on)
{
	bool was = km_account_here;

	if (on && km_unlikely(!km_load(&km_charge_everything)))
		charge_everything();
	km_account_here = on;
	return was;
}

static bool any(uintptr_t owner, void *arg)
{
	(void)owner, (void)arg;
	return true;
}

static void take_back(struct kmem_cache *cache, uintptr_t owner, void **objects, size_t count, void *arg)
{
	(void)arg;
	disown(cache, owner, objects, count);
	cache->engine->give(cache, objects, (unsigned)count);
}

const struct km_charged_drain km_charge_drain_all = { any, take_back, NULL };

static bool below(uintptr_t owner, void *arg)
{
	return km_memcg_below((struct obj_cgroup *)owner, arg);
}

static int flush_cache(struct kmem_cache *cache, void *root)
{
	struct km_charged_drain how = { below, take_back, root };
	bool some = false;

	/* Also an empty one: without shelves none is to be used. */
	if (cache->charged.slot)
		km_for_each_cpu(cpu)
			some |= km_owned_owner_cpu(&cache->charged, cpu) != 0;
	if (some)
		km_front_drain_charged(&cache, 1, &how);
	if (cache->twin_of)
		km_private_flush(cache, root);
	return 0;
}

/*
 * What lies charged on shelves for the group and those below, and in large blocks that handlers freed. Caches neither
 * come nor go meanwhile.
 */
static void flush(struct mem_cgroup *root)
{
	bool was = km_busy_begin();

	km_large_finish_deferred();
	km_registry_visit(flush_cache, root);
	km_busy_end(was);
}

void (*km_memcg_flush_shelves)(struct mem_cgroup *root) = flush;
