/*
 * barn.h: a node's barn: full sheaves and empty sheaves that wait for a CPU of the node, and how many may wait. At
 * first a barn has room for ten of each. A program that frees and allocates many objects in turn raises the limit
 * (note_missed in sheaf.c), and reclaim lowers the limit again (km_sheaf_shed_barn). Invariants under the barn's lock:
 * the counts are the counts of the lists, and a full sheaf has an object.
 */
#ifndef KM_SLAB_BARN_H
#define KM_SLAB_BARN_H

#include "base/bits.h"
#include "engine.h"
#include "page/arena.h"

#define MAX_FULL_SHEAVES		10u	/* Kernel: MAX_FULL_SHEAVES */
#define MAX_EMPTY_SHEAVES	10u	/* Kernel: MAX_EMPTY_SHEAVES */
#define MAX_BARN_BYTES		((size_t)256 << 10)

/* A node's full and empty sheaves. Fields read without the lock (counts, missed, crosses) are stored as one word. */
struct barn {
	struct km_lock lock;
	uint32_t full_count, empty_count;
	void **full, **empty;		/* lists linked by the sheaves' headers */
	size_t objects;			/* objects in full sheaves */
	size_t more;			/* limit of `objects` above the initial limit: the learned amplitude of use */
	size_t high;			/* the largest number of objects since the last look */
	size_t missed;			/* objects returned to slabs for lack of room, and not taken from slabs since */
	/* The full sheaf that was last taken or added on top when the list was shortest since the last look; NULL: the
	 * list was empty. Sheaves behind it were not used since. */
	void **low;
	size_t low_objects;		/* objects in `low` and the sheaves behind */
	uint32_t low_count;		/* number of these sheaves */
	uint16_t putter;		/* CPU that stored the last full sheaf */
	bool touched;			/* used since the last reap */
	bool crosses;			/* the last full sheaf taken had been stored by another CPU */
	uint64_t gets, puts;		/* events, counted here because this line is already held */
};

/* Raises (negative: lowers) the barn's limit. Requires: the barn's lock. */
km_inline void km_sheaf_learn(const struct kmem_cache *cache, struct barn *barn, long objects)
{
	barn->more += (size_t)objects;
	km_pages_retain(objects * (long)cache->layout.size);
}

km_inline unsigned objects_in(const struct kmem_cache *cache, void **sheaf)
{
	return (unsigned)km_sheaf_objects(&cache->fast.pcs, sheaf);
}

km_inline void **pop_sheaf(const struct kmem_cache *cache, void ***list)
{
	void **sheaf = *list;

	if (sheaf)
		*list = (void **)(uintptr_t)*km_sheaf_header(&cache->fast.pcs, sheaf);
	return sheaf;
}

km_inline void push_sheaf(const struct kmem_cache *cache, void ***list, void **sheaf)
{
	km_store(km_sheaf_header(&cache->fast.pcs, sheaf), (uint64_t)(uintptr_t)*list);
	*list = sheaf;
}

/* Notes that the list of full sheaves is as short as never since the last look. Requires: the barn's lock. */
km_inline void set_low(struct barn *barn)
{
	barn->low = barn->full;
	barn->low_objects = barn->objects;
	barn->low_count = barn->full_count;
}

/* Requires: the barn's lock. */
km_inline void **pop_full(const struct kmem_cache *cache, struct barn *barn)
{
	void **sheaf = pop_sheaf(cache, &barn->full);

	if (sheaf) {
		km_store(&barn->crosses, barn->putter != km_cpu());
		km_bump(&barn->full_count, -1);
		km_debug(barn->objects >= objects_in(cache, sheaf) && *sheaf,
			 "a full sheaf has objects, and is counted");
		km_bump(&barn->objects, -(size_t)objects_in(cache, sheaf));
		if (sheaf == barn->low)
			set_low(barn);
	}
	return sheaf;
}

/* Returns the limit of the barn's objects. At first: ten full sheaves of the initial capacity, at most 256 KiB, but at
 * least one sheaf. */
km_inline size_t barn_most(const struct kmem_cache *cache, const struct barn *barn)
{
	const size_t capacity = km_load(&cache->fast.capacity);

	return km_min(MAX_FULL_SHEAVES * capacity, km_max(MAX_BARN_BYTES / cache->layout.size, capacity)) + barn->more;
}

km_inline bool barn_has_room(const struct kmem_cache *cache, const struct barn *barn)
{
	return barn->objects < barn_most(cache, barn);
}

km_inline bool push_full(const struct kmem_cache *cache, struct barn *barn, void **sheaf)
{
	if (!barn_has_room(cache, barn))
		return false;
	km_debug(km_is_locked(&barn->lock) && *sheaf && sheaf != barn->full,
		 "a full sheaf has objects, and is in one place");
	push_sheaf(cache, &barn->full, sheaf);
	barn->putter = (uint16_t)km_cpu();
	km_bump(&barn->full_count, 1);
	km_bump(&barn->objects, objects_in(cache, sheaf));
	barn->high = km_max(barn->high, barn->objects);
	return true;
}

km_inline void **pop_empty(const struct kmem_cache *cache, struct barn *barn)
{
	void **sheaf = pop_sheaf(cache, &barn->empty);

	km_debug(!sheaf || (!*sheaf && barn->empty_count), "an empty sheaf has no object");
	km_bump(&barn->empty_count, -(sheaf != NULL));
	return sheaf;
}

/* Returns the limit of empty sheaves. A grown barn keeps an empty sheaf for each full one that may come. */
km_inline size_t most_empty(const struct kmem_cache *cache, const struct barn *barn)
{
	return MAX_EMPTY_SHEAVES + barn->more / km_mask_capacity(km_alloc_mask(cache));
}

km_inline bool push_empty(const struct kmem_cache *cache, struct barn *barn, void **sheaf)
{
	if (barn->empty_count >= most_empty(cache, barn))
		return false;
	km_debug(km_is_locked(&barn->lock) && !*sheaf && sheaf != barn->empty,
		 "an empty sheaf has no object");
	push_sheaf(cache, &barn->empty, sheaf);
	km_bump(&barn->empty_count, 1);
	return true;
}

#endif
