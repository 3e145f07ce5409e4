/*
 * child_cache.h: private groups, for who charges and who has groups: child_cache.c, child_cache_end.c.
 */
#ifndef KM_MEMCG_CHILD_CACHE_H
#define KM_MEMCG_CHILD_CACHE_H

#include "percpu/rseq.h"
#include "objcg.h"

#define KM_CHILD_BUCKETS	64u

/* A twin's slabs, each at a place: the first pieces' worth of them in an array that grows, the others in pieces. */
#define KM_CHILD_PIECE	4096u		/* slabs */
struct km_child_slabs {
	struct km_page **first;
	struct km_page ***pieces;	/* after the first: room for a power of two of them */
	size_t count, room;		/* slabs */
};

struct km_child {
	struct kmem_cache *parent;	/* NULL: free to be used again */
	struct kmem_cache *cache;
	uint8_t bucket;
	struct km_child *next;		/* in the bucket; never changes while the group has a reference */
	struct km_private *private;	/* its group's */
	struct km_list same;		/* on parent->twin_list; under the registry's lock */
	struct km_list spare;		/* of a spare: on km_private_spares; under the registry's lock */
	struct km_child_slabs slabs;	/* with the lock of `private` */
};

km_inline struct km_page **km_child_slab(const struct km_child *child, size_t place)
{
	return place < KM_CHILD_PIECE ? &child->slabs.first[place] :
				       &child->slabs.pieces[place / KM_CHILD_PIECE - 1][place % KM_CHILD_PIECE];
}

struct km_private {
	struct km_child *bucket[KM_CHILD_BUCKETS];
	struct obj_cgroup *objcg;
	unsigned number;		/* its group's */
	bool namesake;			/* another one had the same name when it came: its twins show the number */
	uint64_t name;			/* hashed */
	struct km_private *next_named, **named_by;	/* under the registry's lock */
	struct km_lock lock;		/* slabs, large */
	struct km_list large;		/* blocks of whole pages */
	struct km_list all;		/* among those that are living, or orphans; under the registry's lock */
};

/* Does what is allocated in its name lie in slabs of its own? Not once its group is offline. */
km_inline bool km_is_private(const struct obj_cgroup *objcg)
{
	return objcg->private && !km_load(&objcg->dead);
}

km_inline struct km_child *km_private_find(const struct km_private *private, const struct kmem_cache *parent)
{
	struct km_child *child = km_load_acquire(&private->bucket[parent->id % KM_CHILD_BUCKETS]);

	/* Acquire pairs with child_cache.c's attach: the rest of the link is filled in. */
	while (child && km_load_acquire(&child->parent) != parent)
		child = child->next;
	return child;
}

/* It lies in a slab of the cache's own: the object, if there is one, is no twin's. */
km_inline bool km_private_is_own(const struct kmem_cache *cache, const void *object)
{
	uintptr_t id = km_id_of(object);

	return id == cache->id && id >= KM_MAP_FIRST;
}

/* The way back, where the page map and the address say that the object is some twin's of this cache. */
km_inline bool km_private_push(const struct kmem_cache *parent, void *object)
{
#ifdef KMEM_HAVE_RSEQ
	uintptr_t id = km_id_of(object);
	const struct kmem_cache *cache = km_load(&km_hot.caches[id]);

	return cache && km_id_valid(id, object) && cache->child_of == parent &&
	       km_rseq_push_id(&km_id_masks(id)->sheaf, id, km_hot.percpu, km_rseq, object);
#else
	(void)parent, (void)object;
	return false;
#endif
}

/* As a shape's, for such an objcg; cache: the one that was asked, whose twin serves. */
void *km_private_alloc(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg);
bool km_private_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects, struct obj_cgroup *objcg);
/* Of a cache with twins: free an object of one of them, or report one that is of neither. False: it is the cache's. */
bool km_private_free(struct kmem_cache *cache, void *object);
/* Of objects[0, *n): how many of the last are the cache's own; 0: the last, and before it those of the same twin, were
 * freed, and *n is less now. */
size_t km_private_free_last(struct kmem_cache *cache, size_t *n, void **objects);
/* The twin's objects on shelves and its empty slabs go back. With the registry locked. */
void km_private_flush(struct kmem_cache *child);
/* The payer of all slabs of a twin. */
struct obj_cgroup *km_private_owner(const struct kmem_cache *child);

/* child_cache.c, for child_cache_end.c: the spares' place; and, with the registry locked: a twin without slabs is its
 * group's now. */
extern struct km_private km_private_pool;
extern km_hidden struct km_list km_private_spares;
extern km_hidden size_t km_private_spare_count;
void km_private_call_after(struct km_child *child);
/* It has none: what kept their places is free. */
void km_private_free_places(struct km_child_slabs *slabs);

/* Make an objcg that nobody knows yet private, for a group that has its name and number; false: no memory. And undo
 * that. */
bool km_private_create(struct obj_cgroup *objcg, const struct mem_cgroup *group);
void km_private_drop(struct obj_cgroup *objcg);
/* Its group has no reference left: twins go as they come to be empty. */
void km_private_release(struct obj_cgroup *objcg);
/* Look at all that groups left. Each group that comes or goes looks at a few. */
void km_private_reap(void);
/* With `all`: look at all orphans, and destroy spares. Else a part of both, without waiting. */
void km_private_tidy(bool all);
void km_private_fork(bool before, bool child);

#endif
