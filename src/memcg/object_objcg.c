/*
 * object_objcg.c: sets and reads the owners of many objects, page by page: neighbours in an array are mostly of one
 * page, and share one look-up of the page's word. Invariant: see object_objcg.h.
 */
#include "charged_sheaf.h"

#include "os/die.h"

/* Objects searched for one owner at a time, where owners alternate: few, so that the window stays in the CPU's nearest
 * cache. */
#define WINDOW	64u
/* A run of one owner shorter than this is extended: gather_last searches the window for more objects of the owner. */
#define FEW	8u

km_cold bool km_place_find_slowly(const struct kmem_cache *cache, const void *object, struct km_place *place)
{
	struct km_page *page = km_page_of(object);
	struct km_page *head = page ? km_page_head(page) : NULL;

	if (!head || head->type != KM_PAGE_SLAB || head->cache != cache)
		return false;
	place->word = km_owner_of_page(page);
	place->offset = (uintptr_t)object & (KM_PAGE_SIZE - 1);
	return true;
}

bool km_objcgs_note(struct kmem_cache *cache, uint64_t owner, bool may_wait)
{
	km_debug(km_objcg_is_known(owner), "an owner word is a known objcg");
	owner = owner ?: KM_OBJCG_NOBODY;
	/* Acquire pairs with km_charged_differ: if the word is DIFFER, the sheaves closed there are closed for this
	 * thread. */
	uint64_t seen = km_load_acquire(&cache->memcg.objcg);

	if (km_likely(seen == owner || seen == KM_OBJCGS_DIFFER))
		return true;
	uint64_t unknown = KM_OBJCG_UNKNOWN;
	/* Release pairs with an acquire of `objcg`: this thread's later stores follow the announcement. */
	if (km_cas_release(&cache->memcg.objcg, &unknown, owner) || unknown == owner)
		return true;
	/* The thread may be a handler that interrupted a holder of the lock. */
	if (km_thread.busy)
		return false;
	km_busy_scope(was);
	km_calls_scope(calls, may_wait);
	return km_charged_differ(cache, 0, may_wait);
}

/* ------------------------------------------------------------------ setting */

/* Sets the owner of an object where the page's word must become a vector: an allocation of metadata, under a lock that
 * the code interrupted by a handler may hold. So a busy thread is refused. A free never comes here: where a free must
 * clear a word, the page has a vector since its first charged object. */
static bool set_slowly(struct kmem_cache *cache, const struct km_place *place, uint64_t owner, bool may_wait)
{
	if (km_thread.busy)
		return false;
	km_debug(place->offset < KM_PAGE_SIZE, "an object begins in its page");
	km_busy_scope(was);
	km_calls_scope(calls, may_wait);
	return km_owner_set(place->word, owner, place->offset, km_load(&cache->memcg.owner_shift),
			    km_owners_exact(cache), may_wait);
}

/*
 * Sets the owner of the objects of objects[0, n) in the first object's page. Returns: their number; 0: no memory, or
 * not an object of this cache. Another thread may replace the page's word by a vector meanwhile; the vector begins with
 * the word's owner for all objects, so the run's result is the same.
 */
static size_t set_in_page(struct kmem_cache *cache, void *const *objects, size_t n, uint64_t owner, bool may_wait)
{
	struct km_place place;
	size_t count = 0;

	if (!km_place_find(cache, objects[0], &place))
		return 0;
	km_debug(n, "a run has at least one object");
	uintptr_t page = (uintptr_t)objects[0] - place.offset, offset = place.offset;
	uint64_t seen = km_load_acquire(place.word);
	bool vector = seen & KM_OWNER_VECTOR;
	if (km_unlikely(!vector && (seen != owner || (km_owners_exact(cache) && owner))))
		return set_slowly(cache, &place, owner, may_wait);
	do {
		if (vector)
			km_store(km_owner_in_vector(seen, offset, km_load(&cache->memcg.owner_shift)), owner);
		if (++count == n)
			break;
		offset = (uintptr_t)objects[count] - page;
	} while (offset < KM_PAGE_SIZE);
	return count;
}

size_t km_objects_set_owner(struct kmem_cache *cache, void *const *objects, size_t n, uint64_t owner, bool may_wait)
{
	size_t done = 0;

	if (km_unlikely(!km_objcgs_note(cache, owner, may_wait)))
		return 0;
	if (!km_owners_exact(cache))
		owner = owner ?: KM_OWNER_NOBODY;
	for (size_t now; done < n; done += now) {
		now = set_in_page(cache, objects + done, n - done, owner, may_wait);
		if (km_unlikely(!now))
			break;
	}
	km_debug(done <= n, "at most n owners are set");
	return done;
}

void km_objects_clear_owner(struct kmem_cache *cache, void *const *objects, size_t n)
{
	if (!km_owners_exact(cache))
		return;
	/* An object that has no owner word is not of this cache; the layer below reports the bad free. */
	for (size_t i = 0; i < n; i += 1 + km_objects_set_owner(cache, objects + i, n - i, 0, false))
		;
}

/* ------------------------------------------------------------------ reading */

/* Returns how many objects at the end of objects[0, n) lie in the page of the last object, and have its owner. ANY in
 * *owner is replaced by the owner found. 0: the last object has another owner than *owner, or is not of this cache. */
#define ANY	KM_OWNER_VECTOR

static size_t run_in_page(const struct kmem_cache *cache, size_t n, void *const *objects, uint64_t *owner)
{
	struct km_place place;
	size_t left = n;

	if (!km_place_find(cache, objects[n - 1], &place))
		return 0;
	const uint64_t whose = km_place_owner(cache, &place);
	if (*owner == ANY)
		*owner = whose;
	if (whose != *owner)
		return 0;
	const uintptr_t page = (uintptr_t)objects[n - 1] - place.offset;
	const uint32_t shift = km_load(&cache->memcg.owner_shift);
	/* Acquire pairs with make_vector: the vector is filled in. A word of one owner may be replaced by a vector now:
	 * all entries then have this owner. */
	const uint64_t seen = km_load_acquire(place.word);
	if (!(seen & KM_OWNER_VECTOR)) {
		while (--left && (uintptr_t)objects[left - 1] - page < KM_PAGE_SIZE)
			;
		return n - left;
	}
#pragma GCC unroll 4
	while (--left) {
		uintptr_t offset = (uintptr_t)objects[left - 1] - page;

		if (offset >= KM_PAGE_SIZE ||
		    (km_load(km_owner_in_vector(seen, offset, shift)) & ~KM_OWNER_NOBODY) != whose)
			break;
	}
	return n - left;
}

/* Moves the owner's objects among the last WINDOW objects of objects[0, n) to the end. Returns: their number. */
static size_t gather_last(const struct kmem_cache *cache, size_t n, void **objects, uint64_t owner)
{
	size_t to = n;

	for (size_t i = n; i && n - i < WINDOW; i--) {
		void *object = objects[i - 1];

		if (km_object_owner(cache, object) != owner)
			continue;
		objects[i - 1] = objects[--to];
		objects[to] = object;
	}
	km_debug(to <= n && n - to <= WINDOW, "objects are visited in windows");
	return n - to;
}

size_t km_objects_of_one_owner(struct kmem_cache *cache, size_t n, void **objects, uint64_t *owner)
{
	size_t count = 0, more;

	*owner = km_load(&cache->memcg.objcg);
	if (km_likely(km_objcg_is_known(*owner)))
		return n;
	if (km_is_checked(cache)) {
		*owner = km_freed_owner(cache, objects[n - 1]);
		return 1;
	}
	*owner = ANY;
	while (count < n && (more = run_in_page(cache, n - count, objects, owner)))
		count += more;
	if (km_unlikely(*owner == ANY))
		*owner = 0;
	km_debug(count <= n && (count || !*owner), "gathered objects have one owner");
	return count < FEW && count < n ? gather_last(cache, n, objects, *owner) : count;
}
