/*
 * child_cache.h: private groups and their child caches, for charges and for the tree of groups: child_cache.c,
 * child_cache_end.c.
 */
#ifndef KM_MEMCG_CHILD_CACHE_H
#define KM_MEMCG_CHILD_CACHE_H

#include "percpu/rseq.h"
#include "objcg.h"

#define KM_CHILD_BUCKETS	64u

/* The array of a child cache's slabs, in pieces. The owner word of a slab has the address of the slab's entry. */
struct km_child_piece {
	struct km_child_piece *before, *after;	/* pieces after km_child_slabs.last are empty, for later slabs */
	uint32_t room, count;			/* entries of slab[]: in all, and in use */
	struct km_page *slab[];
};
struct km_child_slabs {
	struct km_child_piece *last;	/* the piece with the last slab; without slabs the first piece, or NULL */
	size_t count;			/* number of slabs in all pieces */
};

struct km_child {
	struct kmem_cache *parent;	/* cache named by the group's requests; NULL: the link is free for reuse */
	struct kmem_cache *cache;
	uint8_t bucket;
	struct km_child *next;		/* in the bucket; constant while the group has a reference */
	struct km_private *private;	/* of the group */
	struct km_list same;		/* on parent->child_list; under the registry lock */
	struct km_list spare;		/* a spare's, on km_private_spares; under the registry lock */
	struct km_child_slabs slabs;	/* under km_private_lock */
};

struct km_private {
	struct km_child *bucket[KM_CHILD_BUCKETS];
	struct obj_cgroup *objcg;
	unsigned number;		/* mem_cgroup.number of the private group */
	bool namesake;			/* another group had the same name at creation: names of child caches end with
					 * "~number" */
	uint64_t name;			/* hash of the group's name */
	struct km_private *next_named, **named_by;	/* under the registry lock */
	struct km_list large;		/* blocks of whole pages; under km_private_lock */
	struct km_list orphan;		/* on `orphans`; under the registry lock */
};

/* Guards the slabs and large blocks of all private groups, for some instructions: pages come from a node's one lock,
 * too. */
extern km_hidden struct km_lock km_private_lock;

/* Returns whether allocations for the objcg use slabs of the group's own: not after the group went offline. */
km_inline bool km_is_private(const struct obj_cgroup *objcg)
{
	return objcg->private && !km_load(&objcg->dead);
}

km_inline struct km_child *km_private_find(const struct km_private *private, const struct kmem_cache *parent)
{
	struct km_child *child = km_load_acquire(&private->bucket[parent->fast.id % KM_CHILD_BUCKETS]);

	/* Acquire pairs with attach of child_cache.c: the rest of the link is filled in. */
	while (child && km_load_acquire(&child->parent) != parent)
		child = child->next;
	return child;
}

/* Returns whether the address is in a slab of `cache` itself, and so not of a child cache. */
km_inline bool km_private_is_own(const struct kmem_cache *cache, const void *object)
{
	uintptr_t id = km_id_of(object);

	return id == cache->fast.id && id >= KM_MAP_FIRST;
}

/* Pushes an object to the sheaf of its child cache, if page map and address name a child cache of `parent`. Returns:
 * false otherwise. */
km_inline bool km_private_push(const struct kmem_cache *parent, void *object)
{
#ifdef KMEM_HAVE_RSEQ
	uintptr_t id = km_id_of(object);
	const struct kmem_cache *cache = km_load(&km_hot.caches[id]);

	return cache && km_id_valid(id, object) && cache->memcg.child_of == parent &&
	       km_rseq_push_id(&km_id_masks(id)->sheaf, id, km_hot.percpu, km_rseq, object);
#else
	(void)parent, (void)object;
	return false;
#endif
}

/* Allocates from the group's child cache of `cache`. Requires: km_is_private(objcg). */
void *km_private_alloc(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg);
bool km_private_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects, struct obj_cgroup *objcg);
/* Frees an object of a child cache of `cache`, or reports a foreign address. Returns: false: the object is of `cache`
 * itself. */
bool km_private_free(struct kmem_cache *cache, void *object);
/* Returns how many objects at the end of objects[0, *n) are of `cache` itself. 0: the last object was of a child cache;
 * the objects of this child cache at the end were freed, and *n is reduced. */
size_t km_private_free_last(struct kmem_cache *cache, size_t *n, void **objects);
/* Gives a child cache's cached objects and empty slabs back. Context: registry locked. */
void km_private_flush(struct kmem_cache *child);
/* Returns the objcg charged for all slabs of a child cache. */
struct obj_cgroup *km_private_owner(const struct kmem_cache *child);

/* child_cache.c, for child_cache_end.c: the record that all spares belong to, their list and count; and
 * km_private_call_after: names a child cache without slabs after its new group. Context: registry locked. */
extern struct km_private km_private_pool;
extern km_hidden struct km_list km_private_spares;
extern km_hidden size_t km_private_spare_count;
void km_private_call_after(struct km_child *child);
/* Frees the pieces of a child cache's array of slabs. */
void km_private_free_places(struct km_child_slabs *slabs);

/* Makes a new objcg private, for a group with a name and number. Returns: false: no memory. km_private_drop undoes
 * this. */
bool km_private_create(struct obj_cgroup *objcg, const struct mem_cgroup *group);
void km_private_drop(struct obj_cgroup *objcg);
/* Releases a group without references: its child caches go as they become empty. */
void km_private_release(struct obj_cgroup *objcg);
/* Makes spares of all empty child caches of released groups. Creation and release of a private group do a part of this
 * work. */
void km_private_reap(void);
/* With `all`: works on all orphans, and destroys all spares. Else does a part of both, without waiting. */
void km_private_tidy(bool all);

#endif
