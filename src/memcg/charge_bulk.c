/*
 * charge_bulk.c: charge.c's work for many objects at once. A bulk allocation charges all its objects in one charge, or
 * fails; a bulk free refunds objects of one objcg in one sum. Where several groups pay, this file also tells which of
 * the taken objects are already charged to the caller's objcg. Invariant: an object counts as charged to an objcg only
 * where the owner word of the object, or of its page, says so; every other object is charged to the caller's objcg, and
 * refunded to its former objcg, before the caller has the object. The order of steps is that of charge.c.
 *
 * A page that is all one owner's has many of the objects, or one: the last eight say which. Of many, eight at a time
 * are compared with the page's address alone; a lone one is looked at by its page's word. To remember other pages is
 * not worth a branch that is predicted badly.
 */
#include "charged_sheaf.h"
#include "child_cache.h"

typedef uint64_t lanes __attribute__((vector_size(16)));

/* Do all eight lie in the page? */
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

/* objects[0, n): how many are left, from the last on, when one does not lie in the page. */
km_inline size_t beyond_page(uintptr_t page, size_t n, const uintptr_t *objects)
{
	size_t left = n;

	while (left >= 8 && (objects[left - 8] ^ page) < KM_PAGE_SIZE && eight_in_page(objects + left - 8, page))
		left -= 8;
	while (left && (objects[left - 1] ^ page) < KM_PAGE_SIZE)
		left--;
	return left;
}

/* The words of the pages of the first range. */
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

/* objects[0, n): how many are left, from the last on, when one's page is not all the owner's, or two lie in one. */
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

/* Do they all lie in the page? */
km_inline bool four_in_page(const uintptr_t *four, uintptr_t page)
{
	return ((four[0] ^ page) | (four[1] ^ page) | (four[2] ^ page) | (four[3] ^ page)) < KM_PAGE_SIZE;
}

/* vector: where the vector would begin, had it a place for each address from 0 on: a number, no pointer. */
km_inline uint64_t owner_at(uintptr_t vector, uintptr_t place)
{
	return km_load((uint64_t *)(vector + place * sizeof(uint64_t)));
}

/*
 * objects[0, n), from the last on: how many are left when one is not this owner's, or does not lie in the page, whose
 * word, of a vector, was seen. Two branches for four looks; the vector is found from the address of any object in the
 * page, so that a look is a shift and a comparison.
 */
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

/* objects[0, n), from the last on: those behind the ones that are left are this owner's, who is somebody. */
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
		/* Acquire pairs with make_vector: it is filled in. */
		const uint64_t seen = km_load_acquire(&words.word[index]);
		if (km_likely(seen == owner)) {
			if (left >= 8 && (addresses[left - 8] ^ page) < KM_PAGE_SIZE &&
			    (addresses[left - 2] ^ page) < KM_PAGE_SIZE)
				left = beyond_page(page, left, addresses);
			else
				left = beyond_lone(&words, left - 1, addresses, owner);
			continue;
		}
		/* The one alone first: the next one may lie anywhere. */
		const uint32_t shift = km_load(&cache->owner_shift);
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
 * Of objects[0, n) those that are another's are charged to objcg instead; the others of `all` are objcg's. A run is
 * disowned before it is charged to the caller, so that a limit which both groups have above them has room for it; in
 * between it is in this thread's hand, and nobody's. Where the charge is refused everything that was popped goes back,
 * each part by its own way: this run is nobody's, those before it are whose their words say, those behind it are the
 * caller's by now. SIZE_MAX: the call has failed, and nothing of it is left.
 */
static size_t take_others(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, size_t n, size_t all,
			  void **objects)
{
	uint64_t owner;

	for (size_t count; n; n -= count) {
		count = km_objects_of_one_owner(cache, n, objects, &owner);
		km_debug(count && count <= n, "each object is looked at once");
		if (km_likely(owner == (uintptr_t)objcg))
			continue;
		void **run = objects + n - count;
		if (owner)
			km_charged_disown(cache, owner, run, count);
		bool charged = km_objcg_charge(objcg, count * cache->charge, gfp);
		if (km_likely(charged) && km_likely(km_objects_set_owner(cache, run, count, (uintptr_t)objcg,
								  km_gfp_may_wait(gfp)) == count))
			continue;
		if (charged)
			km_objcg_uncharge(objcg, count * cache->charge);
		km_plain_free_bulk(cache, count, run);
		km_charged_give_up(cache, KM_OBJCGS_DIFFER, objects, n - count);
		km_charged_give_up(cache, (uintptr_t)objcg, objects + n, all - n);
		km_charge_failed(cache, gfp);
		return SIZE_MAX;
	}
	return all;
}

/* Those of a private group, and of the root, are served elsewhere. */
km_inline bool may_take(const struct obj_cgroup *objcg)
{
	return km_likely(!objcg->private) && km_likely(objcg != &km_objcg_root);
}

/* Objects go back as gfp allows. A private group that is offline takes objects as its parent does, but not as a hit. */
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

/* Hits come here as well. */
km_line_start size_t km_charged_recharge_bulk(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, size_t n,
					      void **objects)
{
	const size_t others = may_take(objcg) ? count_others(cache, n, objects, (uintptr_t)objcg) : n;

	km_debug(others <= n, "no more objects are another's than there are");
	return km_likely(!others) ? n : recharge_bulk_slowly(cache, gfp, objcg, others, n, objects);
}

/* ------------------------------------------------------------------ many objects, in and out */

static bool alloc_bulk_unpaid(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	if (!km_plain_alloc_bulk(cache, gfp, n, objects))
		return false;
	if (!cache->charge_all || km_objects_set_owner(cache, objects, n, 0, km_gfp_may_wait(gfp)) == n)
		return true;
	km_plain_free_bulk(cache, n, objects);
	return km_charge_failed(cache, gfp) != NULL;
}

/*
 * objects[0, n), paid for in one charge: all are had or none, so that a caller near its limit is not left with a part
 * that it must count. Words that were set are cleared again where the rest could not be: one that stays would say of a
 * free object that it is somebody's.
 */
static bool alloc_bulk_paid(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects,
			    struct obj_cgroup *objcg)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, (size_t)cache->charge, &bytes) ||
	    !km_objcg_charge(objcg, bytes, gfp))
		return km_charge_failed(cache, gfp) != NULL;
	if (!km_plain_alloc_bulk(cache, gfp & ~__GFP_ACCOUNT, n, objects)) {
		km_objcg_uncharge(objcg, bytes);
		return false;
	}
	size_t set = km_objects_set_owner(cache, objects, n, (uintptr_t)objcg, km_gfp_may_wait(gfp));
	if (km_likely(set == n))
		return true;
	km_objects_clear_owner(cache, objects, set);
	km_objcg_uncharge(objcg, bytes);
	km_plain_free_bulk(cache, n, objects);
	return km_charge_failed(cache, gfp) != NULL;
}

/*
 * The block has objects of anybody, popped from its end: those that are the caller's cost nothing, the others are
 * charged to it in runs (charge_bulk.c). The remainder is paid for and taken from beneath; if that is refused all
 * that was popped goes back, in the caller's name, because by now all of it is.
 */
static bool alloc_bulk_mixed(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects, struct obj_cgroup *objcg)
{
	size_t left = n;

	if (km_likely(!(gfp & KM_CHARGED_ODD)))
		left -= km_pcs_pop_n(&cache->mixed, objects, n);
	if (left == n)
		km_charged_claim(cache, (uintptr_t)objcg, gfp);
	else if (km_charged_recharge_bulk(cache, gfp, objcg, n - left, objects + left) == SIZE_MAX)
		return false;
	if (km_likely(!left) || alloc_bulk_paid(cache, gfp, left, objects, objcg))
		return true;
	km_charged_give_up(cache, (uintptr_t)objcg, objects + left, n - left);
	return false;
}

static bool alloc_bulk_by(struct obj_cgroup *objcg, struct kmem_cache *cache, gfp_t gfp, size_t n,
			  void **objects)
{
	size_t left = n;

	if (km_unlikely(!objcg || objcg == &km_objcg_root))
		return alloc_bulk_unpaid(cache, gfp & ~__GFP_ACCOUNT, n, objects);
	if (km_unlikely(km_is_private(objcg)))
		return km_private_alloc_bulk(cache, gfp, n, objects, objcg);
	if (km_load(&cache->mixes))
		km_charged_mix(cache, gfp);
	if (km_charged_is_mixed(cache))
		return alloc_bulk_mixed(cache, gfp, n, objects, objcg);
	if (km_likely(!(gfp & KM_CHARGED_ODD)))
		left -= km_owned_pop_n(&cache->charged, (uintptr_t)objcg, objects, n);
	if (left == n)
		km_charged_claim(cache, (uintptr_t)objcg, gfp);
	if (km_likely(!left) || alloc_bulk_paid(cache, gfp, left, objects, objcg))
		return true;
	km_charged_give_up(cache, (uintptr_t)objcg, objects + left, n - left);
	return false;
}

/* The objects of `all` that there are already are paid for; or they began to be meanwhile: those are nobody's. */
int km_charged_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, size_t all, void **objects)
{
	bool was = km_calls_begin(km_gfp_may_wait(gfp));

	km_debug(n && n <= all, "some of the objects are still to be had");
	bool done = alloc_bulk_by(km_charged_objcg(cache, gfp), cache, gfp, n, objects);

	if (km_unlikely(!done) && n < all)
		km_free_bulk(cache, all - n, objects + n);
	km_calls_end(was);
	return done ? (int)all : 0;
}

/* As many as there is room for stay paid for. */
static void mixed_free_bulk(struct kmem_cache *cache, size_t n, void **objects)
{
	n -= km_pcs_push_n(&cache->mixed, objects, n);
	if (n && km_memcg_modes[MEM_CGROUP_SHELF] && km_charged_found(cache, KM_OBJCGS_DIFFER))
		n -= km_pcs_push_n(&cache->mixed, objects, n);
	km_charged_give_up(cache, KM_OBJCGS_DIFFER, objects, n);
}

/*
 * From the end of the array, run by run: a run is of one cache or twin, and of one payer, so that its bytes go back in
 * one sum. Each run is done with before the next one is looked at; a handler that strikes between two runs finds
 * nothing half done.
 */
void km_charged_free_bulk(struct kmem_cache *cache, size_t n, size_t all km_unused, void **objects)
{
	int saved_errno = errno;

	while (n) {
		uint64_t owner;
		size_t own = km_unlikely(km_load(&cache->children)) ? km_private_free_last(cache, &n, objects) : n;
		if (!own)
			continue;
		if (km_charged_is_mixed(cache)) {
			mixed_free_bulk(cache, own, objects + n - own);
			n -= own;
			continue;
		}
		size_t count = km_objects_of_one_owner(cache, own, objects + n - own, &owner), left = count;
		void **run = objects + n - count;

		n -= count;
		if (!owner) {
			km_plain_free_bulk(cache, count, run);
			continue;
		}
		left -= km_owned_push_n(&cache->charged, owner, run, left);
		if (left && km_memcg_modes[MEM_CGROUP_SHELF] && km_owned_owner(&cache->charged) != owner &&
		    km_charged_adopt(cache, owner))
			left -= km_owned_push_n(&cache->charged, owner, run, left);
		if (left < count)
			km_charged_see_back(cache);
		km_charged_give_up(cache, owner, run, left);
	}
	errno = saved_errno;
}
