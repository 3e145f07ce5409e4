/*
 * charge_bulk.c: charge.c's work for many objects at once. A bulk allocation charges all its objects in one charge,
 * or fails; a bulk free refunds objects of one objcg in one sum. Invariant: an object counts as charged to an objcg
 * only where the owner word of the object, or of its page, says so. Every other object is charged to the caller's
 * objcg, and refunded to its former objcg, before the caller has the object. The order of steps is that of charge.c.
 *
 * To find a run of objects with one owner, a page of one owner is taken for a page with many of the objects, if the
 * last eight objects lie in the page: then eight addresses at a time are compared with the page's address. Else each
 * object's page word is read.
 */
#include "charged_sheaf.h"
#include "child_cache.h"

typedef uint64_t lanes __attribute__((vector_size(16)));

/* Returns whether all eight objects lie in the page. */
km_inline bool eight_in_page(const uintptr_t *eight, uintptr_t page)
{
	const lanes pages = { page, page };
	lanes a, b, c, d;

	__builtin_memcpy(&a, eight, sizeof(a));
	__builtin_memcpy(&b, eight + 2, sizeof(b));
	__builtin_memcpy(&c, eight + 4, sizeof(c));
	__builtin_memcpy(&d, eight + 6, sizeof(d));
	a = (a ^ pages) | (b ^ pages) | (c ^ pages) | (d ^ pages);
	a |= __builtin_shufflevector(a, a, 1, 0);
	return a[0] < KM_PAGE_SIZE;
}

/* Walks objects[0, n) down from the last object, while the objects lie in the page. Returns: the number of objects not
 * reached; objects[result, n) lie in the page. */
km_inline size_t beyond_page(uintptr_t page, size_t n, const uintptr_t *objects)
{
	size_t left = n;

	while (left >= 8 && (objects[left - 8] ^ page) < KM_PAGE_SIZE && eight_in_page(objects + left - 8, page))
		left -= 8;
	while (left && (objects[left - 1] ^ page) < KM_PAGE_SIZE)
		left--;
	return left;
}

/* The owner words of the pages of the first range. */
struct words {
	const uint64_t *word;
	uintptr_t arena;
	size_t pages;
};

km_inline bool page_is_owners(const struct words *words, uintptr_t object, uint64_t owner)
{
	const uintptr_t index = (object - words->arena) >> KM_PAGE_SHIFT;

	return km_likely(index < words->pages) && km_load(&words->word[index]) == owner;
}

/* As beyond_page, while the page words of the objects name `owner`. Ends early before an object in the same page as
 * the object looked at last: the caller goes on with beyond_page or beyond_vector. */
km_inline size_t beyond_lone(const struct words *words, size_t n, const uintptr_t *objects, uint64_t owner)
{
	size_t left = n;

	for (; left >= 4; left -= 4) {
		const uintptr_t *four = objects + left - 4;

		if (!page_is_owners(words, four[3], owner))
			return left;
		if (!page_is_owners(words, four[2], owner))
			return left - 1;
		if (!page_is_owners(words, four[1], owner))
			return left - 2;
		if (!page_is_owners(words, four[0], owner))
			return left - 3;
		if (left > 4 && (four[-1] ^ four[0]) < KM_PAGE_SIZE)
			return left - 4;
	}
	return left;
}

/* Returns whether all four objects lie in the page. */
km_inline bool four_in_page(const uintptr_t *four, uintptr_t page)
{
	return ((four[0] ^ page) | (four[1] ^ page) | (four[2] ^ page) | (four[3] ^ page)) < KM_PAGE_SIZE;
}

/* Returns: the owner word of the object with number `place` = address >> shift. vector: the address of the page's
 * vector minus 8 bytes for each number below the page; an integer, because this address is in no object. */
km_inline uint64_t owner_at(uintptr_t vector, uintptr_t place)
{
	return km_load((uint64_t *)(vector + place * sizeof(uint64_t)));
}

/* As beyond_page, while the objects lie in the page and have this owner; for a page with a vector. seen: the page's
 * word. The vector is found from the address of any object in the page, so that a lookup is a shift and a
 * comparison. */
static km_noinline size_t beyond_vector(uintptr_t page, uint64_t seen, uint32_t shift, size_t n,
					const uintptr_t *objects, uint64_t owner)
{
	const uintptr_t vector = (uintptr_t)(seen - KM_OWNER_VECTOR) - (page >> shift) * sizeof(uint64_t);
	size_t left = n;

	for (; left >= 4; left -= 4) {
		const uintptr_t *four = objects + left - 4;

		if (!four_in_page(four, page) ||
		    ((owner_at(vector, four[0] >> shift) ^ owner) | (owner_at(vector, four[1] >> shift) ^ owner) |
		     (owner_at(vector, four[2] >> shift) ^ owner) | (owner_at(vector, four[3] >> shift) ^ owner)))
			break;
	}
	while (left && (objects[left - 1] ^ page) < KM_PAGE_SIZE &&
	       owner_at(vector, objects[left - 1] >> shift) == owner)
		left--;
	return left;
}

/* Walks objects[0, n) down from the last object, while the objects are charged to `owner`, not 0. Returns: the number
 * of objects not reached; objects[result, n) are charged to `owner`. */
km_inline size_t count_others(const struct kmem_cache *cache, size_t n, void *const *objects, uint64_t owner)
{
	const uintptr_t *addresses = (const uintptr_t *)objects;
	const struct words words = { km_hot.owner, (uintptr_t)km_hot.arena, km_load(&km_hot.pages) };
	size_t left = n;

	while (left) {
		const uintptr_t page = addresses[left - 1] & ~(uintptr_t)(KM_PAGE_SIZE - 1);
		const uintptr_t index = (page - words.arena) >> KM_PAGE_SHIFT;

		if (km_unlikely(index >= words.pages))
			break;
		/* Acquire pairs with make_vector: the vector is filled in. */
		const uint64_t seen = km_load_acquire(&words.word[index]);
		if (km_likely(seen == owner)) {
			if (left >= 8 && (addresses[left - 8] ^ page) < KM_PAGE_SIZE &&
			    (addresses[left - 2] ^ page) < KM_PAGE_SIZE)
				left = beyond_page(page, left, addresses);
			else
				left = beyond_lone(&words, left - 1, addresses, owner);
			continue;
		}
		/* One object alone first: the next object may lie anywhere. */
		const uint32_t shift = km_load(&cache->memcg.owner_shift);
		if (!(seen & KM_OWNER_VECTOR) ||
		    km_load(km_owner_in_vector(seen, addresses[left - 1] - page, shift)) != owner)
			break;
		if (--left && (addresses[left - 1] ^ page) < KM_PAGE_SIZE)
			left = beyond_vector(page, seen, shift, left, addresses, owner);
	}
	return left;
}

/* ------------------------------------------------------------------ taking */

/*
 * Charges the objects of other groups among objects[0, n) to objcg; the others of `all` are charged to objcg already.
 * A run is disowned before its new charge, so that a limit above both groups has room. If the charge is refused, all
 * popped objects go back: this run is uncharged, the objects before are charged as their words say, and the objects
 * behind are charged to objcg. Returns: SIZE_MAX if the call failed, with nothing left.
 */
static size_t take_others(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, size_t n, size_t all,
			  void **objects)
{
	uint64_t owner;

	for (size_t count; n; n -= count) {
		count = km_objects_of_one_owner(cache, n, objects, &owner);
		km_debug(count && count <= n, "each object is visited once");
		if (km_likely(owner == (uintptr_t)objcg))
			continue;
		void **run = objects + n - count;
		if (owner)
			km_charged_disown(cache, owner, run, count);
		if (km_likely(km_objcg_charge(objcg, count * cache->memcg.charge, gfp)) &&
		    km_likely(km_charged_name(cache, gfp, objcg, run, count)))
			continue;
		km_plain_free_bulk(cache, count, run);
		km_charged_give_up(cache, KM_OBJCGS_DIFFER, objects, n - count);
		km_charged_give_up(cache, (uintptr_t)objcg, objects + n, all - n);
		km_charge_failed(cache, gfp);
		return SIZE_MAX;
	}
	return all;
}

/* Objects of private groups and of the root take the slow path. */
km_inline bool may_take(const struct obj_cgroup *objcg)
{
	return km_likely(!objcg->private) && km_likely(objcg != &km_objcg_root);
}

/* Charges objects[0, others) by take_others. For an online private group or the root all objects are freed instead, and
 * the result is 0. No system call is made if gfp forbids waiting. */
static km_noinline size_t recharge_bulk_slowly(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg,
					       size_t others, size_t n, void **objects)
{
	km_calls_scope(was, km_gfp_may_wait(gfp));
	size_t taken = 0;

	if (!km_is_private(objcg) && objcg != &km_objcg_root)
		taken = take_others(cache, gfp, objcg, others, n, objects);
	else
		km_charged_give_up(cache, KM_OBJCGS_DIFFER, objects, n);
	return taken;
}

/* Recharges objects[0, n), popped from a mixed sheaf, to objcg. Returns: n; 0 or SIZE_MAX after all objects were freed
 * (struct km_alloc_ops). Called by the fast path and by the miss. */
km_line_start size_t km_charged_recharge_bulk(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, size_t n,
					      void **objects)
{
	const size_t others = may_take(objcg) ? count_others(cache, n, objects, (uintptr_t)objcg) : n;

	km_debug(others <= n, "at most n objects belong to another objcg");
	return km_likely(!others) ? n : recharge_bulk_slowly(cache, gfp, objcg, others, n, objects);
}

/* ------------------------------------------------------------------ many objects, in and out */

/*
 * Pops objects from the charged sheaf into the end of the array. Popped objects of other owners (mixed sheaf) are
 * recharged to objcg in runs. Missing objects are charged and allocated from the layer below. If their charge is
 * refused, the popped objects are freed and uncharged from objcg, because all are charged to objcg by now. If no object
 * was popped, objcg becomes the owner of the CPU's sheaf, so that the frees of the objects find a sheaf.
 */
static bool alloc_bulk_by(struct obj_cgroup *objcg, struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	size_t left = n;

	if (km_unlikely(!objcg || objcg == &km_objcg_root))
		return km_charged_take(cache, gfp, NULL, objects, n);
	if (km_unlikely(km_is_private(objcg)))
		return km_private_alloc_bulk(cache, gfp, n, objects, objcg);
	km_charged_mix(cache, gfp);
	const uint64_t owner = km_charged_owner(cache, (uintptr_t)objcg);
	if (km_likely(!(gfp & KM_CHARGED_ODD)))
		left -= km_charged_pop_n(cache, owner, objects, n);
	if (left < n && owner == KM_OBJCGS_DIFFER &&
	    km_charged_recharge_bulk(cache, gfp, objcg, n - left, objects + left) == SIZE_MAX)
		return false;
	if (left == n && km_load(&km_charged_pcs(cache)->inner.pcs) && km_owned_owner(&cache->memcg.charged) != owner)
		km_charged_claim(cache, (uintptr_t)objcg, gfp);
	if (km_likely(!left) || km_charged_take(cache, gfp, objcg, objects, left))
		return true;
	km_charged_give_up(cache, (uintptr_t)objcg, objects + left, n - left);
	return false;
}

/* After a failure objects[n, all), which the caller had already, are freed by km_free_bulk: their owner words tell
 * whether they are charged. */
int km_charged_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, size_t all, void **objects)
{
	bool was = km_calls_begin(km_gfp_may_wait(gfp));

	km_debug(n && n <= all, "some objects are still missing");
	bool done = alloc_bulk_by(km_charged_objcg(cache, gfp), cache, gfp, n, objects);

	if (km_unlikely(!done) && n < all)
		km_free_bulk(cache, all - n, objects + n);
	km_calls_end(was);
	return done ? (int)all : 0;
}

/*
 * Frees from the end of the array, run by run. The objects of a run have one cache or child cache and one owner, so
 * one push or one uncharge serves the run. With mixed sheaves a run may have many owners: objects that fit on the CPU's
 * sheaf stay charged, the others are uncharged. Each run is finished before the next is looked at.
 */
void km_charged_free_bulk(struct kmem_cache *cache, size_t n, size_t all km_unused, void **objects)
{
	int saved_errno = errno;

	while (n) {
		uint64_t owner = km_charged_owner(cache, 0);
		size_t own = km_unlikely(km_is_parent(cache))
				     ? km_private_free_last(cache, &n, objects)
				     : n;
		if (!own)
			continue;
		size_t count = owner ? own : km_objects_of_one_owner(cache, own, objects + n - own, &owner);
		void **run = objects + n - count;
		size_t left = count;

		n -= count;
		if (!owner) {
			km_plain_free_bulk(cache, count, run);
			continue;
		}
		left -= km_charged_push_n(cache, owner, run, left);
		if (left && km_memcg_modes[MEM_CGROUP_SHELF] && km_owned_owner(&cache->memcg.charged) != owner &&
		    km_charged_adopt(cache, owner))
			left -= km_charged_push_n(cache, owner, run, left);
		if (left < count)
			km_charged_see_back(cache);
		km_charged_give_up(cache, owner, run, left);
	}
	errno = saved_errno;
}
