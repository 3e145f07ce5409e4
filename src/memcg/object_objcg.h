/*
 * object_objcg.h: the owner word of an object: the objcg charged for the object (page/obj_cgroups.h). One object
 * here; many in object_objcg.c, page by page. Invariant: the owner word of an allocated object, or of an object on a
 * charged sheaf, names the charged objcg.
 */
#ifndef KM_MEMCG_OBJECT_OBJCG_H
#define KM_MEMCG_OBJECT_OBJCG_H

#include "os/die.h"
#include "cache/cache.h"
#include "page/obj_cgroups.h"

struct km_place {
	uint64_t *word;
	size_t offset;			/* bytes from the page's start to the object */
};

bool km_place_find_slowly(const struct kmem_cache *cache, const void *object, struct km_place *place) km_cold;

/* Finds the owner word of an object, without a function call. Returns: false if the object is not of this cache, or
 * the page map of the first range can't tell. */
km_inline bool km_place_find_quick(const struct kmem_cache *cache, const void *object, struct km_place *place)
{
	uintptr_t offset = (uintptr_t)object - (uintptr_t)km_hot.arena, index = offset >> KM_PAGE_SHIFT;

	if (km_unlikely(index >= km_load(&km_hot.pages)) || km_unlikely(km_hot.map[index] != cache->fast.id) ||
	    km_unlikely(cache->fast.id < KM_MAP_FIRST))
		return false;
	place->word = &km_hot.owner[index];
	place->offset = offset & (KM_PAGE_SIZE - 1);
	return true;
}

/* Finds the owner word of an object. Returns: false if the object is not of this cache. */
km_inline bool km_place_find(const struct kmem_cache *cache, const void *object, struct km_place *place)
{
	return km_likely(km_place_find_quick(cache, object, place)) ||
	       km_place_find_slowly(cache, object, place);
}

km_inline uint64_t km_place_owner(const struct kmem_cache *cache, const struct km_place *place)
{
	/* Acquire pairs with make_vector: the vector is filled in. */
	uint64_t seen = km_load_acquire(place->word);

	if (km_unlikely(seen & KM_OWNER_VECTOR))
		seen = km_load(km_owner_in_vector(seen, place->offset, km_load(&cache->memcg.owner_shift)));
	return seen & ~KM_OWNER_NOBODY;
}

/* Returns the object's owner; 0: uncharged, or not an object of this cache. */
km_inline uint64_t km_object_owner(const struct kmem_cache *cache, const void *object)
{
	struct km_place place;

	return km_likely(km_place_find(cache, object, &place)) ? km_place_owner(cache, &place) : 0;
}

/* Returns the owner of an object being freed; 0: uncharged. For a wrong address of a checked cache returns 0: a later
 * check refuses the free. */
km_inline uint64_t km_freed_owner(const struct kmem_cache *cache, const void *object)
{
	if (km_is_checked(cache) && km_cache_of(object) != cache)
		return 0;
	return km_object_owner(cache, object);
}

/* Returns whether owner words of free objects must be 0: the cache has uncharged objects too, or frees are checked. */
km_inline bool km_owners_exact(const struct kmem_cache *cache)
{
	return km_load(&cache->memcg.charging) < KM_CHARGING_ONE;
}

/* Notes that objects of the cache are charged to `owner` (0: uncharged); must be called before the first such object is
 * charged, or the owner gets a sheaf. A second owner makes the cache's frees read owner words (km_charged_differ).
 * Returns: false if the drain lock is not available without waiting; then the owner must not be charged. */
bool km_objcgs_note(struct kmem_cache *cache, uint64_t owner, bool may_wait);
/*
 * Sets the owner of objects[0, n), all in the caller's hand; 0: uncharged. Returns: the number of owners set, from
 * the front: n unless memory or the lock was missing. With may_wait false no system call is made, and the call may
 * fail for want of one.
 */
size_t km_objects_set_owner(struct kmem_cache *cache, void *const *objects, size_t n, uint64_t owner, bool may_wait);
/* Clears the owner words of objects to be freed, where km_owners_exact. */
void km_objects_clear_owner(struct kmem_cache *cache, void *const *objects, size_t n);
/* Returns how many objects at the end of objects[0, n) have one owner, and in *owner this owner (0: uncharged).
 * Reorders the objects. */
size_t km_objects_of_one_owner(struct kmem_cache *cache, size_t n, void **objects, uint64_t *owner);

/* Sets an owner other than 0 in a page with a vector, without a function call, so that callers need no further
 * registers. Returns: false for other pages, and if the cache has only one owner. */
km_inline bool km_object_set_owner_quick(const struct kmem_cache *cache, const void *object, uint64_t owner)
{
	struct km_place place;

	if (km_unlikely(km_load(&cache->memcg.objcg) != KM_OBJCGS_DIFFER) ||
	    km_unlikely(!km_place_find_quick(cache, object, &place)))
		return false;
	/* Acquire pairs with make_vector: the vector is filled in. */
	uint64_t seen = km_load_acquire(place.word);
	if (km_unlikely(!(seen & KM_OWNER_VECTOR)))
		return false;
	km_debug(owner && !(owner & (KM_OWNER_VECTOR | KM_OWNER_NOBODY)), "an owner is an objcg");
	km_store(km_owner_in_vector(seen, place.offset, km_load(&cache->memcg.owner_shift)), owner);
	return true;
}

km_inline bool km_object_set_owner(struct kmem_cache *cache, void *object, uint64_t owner, bool may_wait)
{
	return km_objects_set_owner(cache, &object, 1, owner, may_wait) == 1;
}

#endif
