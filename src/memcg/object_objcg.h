/*
 * object_objcg.h: who pays for an object of a cache, as its owner word says (page/obj_cgroups.h): one object here,
 * many in object_objcg.c, page by page. Invariant: the owner word of an object that is out, or on a charged shelf,
 * says whose it is.
 */
#ifndef KM_MEMCG_OBJECT_OBJCG_H
#define KM_MEMCG_OBJECT_OBJCG_H

#include "os/die.h"
#include "cache/cache.h"
#include "page/obj_cgroups.h"

struct km_place {
	uint64_t *word;
	size_t offset;			/* in the page */
};

bool km_place_find_slowly(const struct kmem_cache *cache, const void *object, struct km_place *place) km_cold;

/* Where the owner of an object of this cache is written; false: it is none of this cache, or lies where few do. */
km_inline bool km_place_find_quick(const struct kmem_cache *cache, const void *object, struct km_place *place)
{
	uintptr_t offset = (uintptr_t)object - (uintptr_t)km_hot.arena, index = offset >> KM_PAGE_SHIFT;

	if (km_unlikely(index >= km_load(&km_hot.pages)) || km_unlikely(km_hot.map[index] != cache->id) ||
	    km_unlikely(cache->id < KM_MAP_FIRST))
		return false;
	place->word = &km_hot.owner[index];
	place->offset = offset & (KM_PAGE_SIZE - 1);
	return true;
}

/* The same; false: it is none of this cache. */
km_inline bool km_place_find(const struct kmem_cache *cache, const void *object, struct km_place *place)
{
	return km_likely(km_place_find_quick(cache, object, place)) ||
	       km_place_find_slowly(cache, object, place);
}

km_inline uint64_t km_place_owner(const struct kmem_cache *cache, const struct km_place *place)
{
	/* Acquire pairs with make_vector: it is filled in. */
	uint64_t seen = km_load_acquire(place->word);

	if (km_unlikely(seen & KM_OWNER_VECTOR))
		seen = km_load(km_owner_in_vector(seen, place->offset, km_load(&cache->owner_shift)));
	return seen & ~KM_OWNER_NOBODY;
}

/* 0: nobody, or it is none of this cache. */
km_inline uint64_t km_object_owner(const struct kmem_cache *cache, const void *object)
{
	struct km_place place;

	return km_likely(km_place_find(cache, object, &place)) ? km_place_owner(cache, &place) : 0;
}

/* Of one that is freed. Where frees are checked, what is no object is nobody's: a check comes later, and refuses it. */
km_inline uint64_t km_freed_owner(const struct kmem_cache *cache, const void *object)
{
	if (km_is_checked(cache) && km_cache_of(object) != cache)
		return 0;
	return km_object_owner(cache, object);
}

/*
 * cache->payer (slab/engine.h has what it may be). As long as one group pays for all objects of a cache that are out,
 * and that is how many programs use accounting, no free needs to look who it is, and hits put objects on each CPU's
 * charged block. Whoever charges an object to another, or to nobody, and whoever makes a block another's, says first
 * that frees must look; another thread that frees that object knows of it from where it has the object.
 */

/* Not all of its objects are somebody's, or each free is looked at: so a free object's word must be 0. */
km_inline bool km_owners_exact(const struct kmem_cache *cache)
{
	return !cache->charge_all || km_is_checked(cache);
}

/* Several pay, and the caller may wait: CPUs' blocks may have objects of them all from now on, if that can be done. */
void km_objcgs_mix(struct kmem_cache *cache);
/* Said before `owner` (0: nobody) pays for its first object. False: the lock of draining is not to be had, and may not
 * be waited for; then the owner must not pay. */
bool km_objcgs_note(struct kmem_cache *cache, uint64_t owner, bool may_wait);
/*
 * Owners of objects[0, n) that are in the caller's hand; 0: nobody pays. How many were set, from the front: n unless
 * there was no memory, or no lock. may_wait false: it makes no system call, and then may fail for that.
 */
size_t km_objects_set_owner(struct kmem_cache *cache, void *const *objects, size_t n, uint64_t owner, bool may_wait);
/* Of objects that go back: nobody's, where that must be said. */
void km_objects_clear_owner(struct kmem_cache *cache, void *const *objects, size_t n);
/* How many of the last of objects[0, n) are the same one's, and whose (0: nobody's); the others may change places. */
size_t km_objects_of_one_owner(struct kmem_cache *cache, size_t n, void **objects, uint64_t *owner);

/*
 * The ordinary case where several pay, with no call: so its callers need no registers beyond what they have. Whose is
 * it? 0: not this way. And: it is this owner's from now on, who is somebody; false: not this way.
 */
km_inline uint64_t km_object_owner_quick(const struct kmem_cache *cache, const void *object)
{
	struct km_place place;

	if (km_unlikely(km_load(&cache->objcg) != KM_OBJCGS_DIFFER) ||
	    km_unlikely(!km_place_find_quick(cache, object, &place)))
		return 0;
	/* Acquire pairs with make_vector: it is filled in. */
	uint64_t seen = km_load_acquire(place.word);
	if (km_likely(seen & KM_OWNER_VECTOR))
		seen = km_load(km_owner_in_vector(seen, place.offset, km_load(&cache->owner_shift)));
	return seen & ~KM_OWNER_NOBODY;
}

km_inline bool km_object_set_owner_quick(const struct kmem_cache *cache, const void *object, uint64_t owner)
{
	struct km_place place;

	if (km_unlikely(km_load(&cache->objcg) != KM_OBJCGS_DIFFER) ||
	    km_unlikely(!km_place_find_quick(cache, object, &place)))
		return false;
	/* Acquire pairs with make_vector: it is filled in. */
	uint64_t seen = km_load_acquire(place.word);
	if (km_unlikely(!(seen & KM_OWNER_VECTOR)))
		return false;
	km_debug(owner && !(owner & (KM_OWNER_VECTOR | KM_OWNER_NOBODY)), "an owner is somebody");
	km_store(km_owner_in_vector(seen, place.offset, km_load(&cache->owner_shift)), owner);
	return true;
}

km_inline bool km_object_set_owner(struct kmem_cache *cache, void *object, uint64_t owner, bool may_wait)
{
	return km_objects_set_owner(cache, &object, 1, owner, may_wait) == 1;
}

#endif
