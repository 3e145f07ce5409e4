/*
 * private.h: private groups, for who charges and who has groups: private.c.
 */
#ifndef KM_WATCH_PRIVATE_H
#define KM_WATCH_PRIVATE_H

#include "memcg.h"

/* Does what is allocated in its name lie in slabs of its own? Not once its group is offline. */
km_inline bool km_is_private(const struct obj_cgroup *objcg)
{
	return objcg->private && !km_load(&objcg->dead);
}

/* charge.c: from now on each free of the cache looks whose the object is. */
void km_charge_look(struct kmem_cache *cache);

/* As km_charging's, for such an objcg; cache: the one that was asked, whose twin serves. */
void *km_private_alloc(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg);
bool km_private_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects, struct obj_cgroup *objcg);
/* Of a cache with twins: free an object of one of them, or report one that is of neither. False: it is the cache's. */
bool km_private_free(struct kmem_cache *cache, void *object);
/* Of objects[0, *n): how many of the last are the cache's own; 0: some that are not were freed, and *n is less now. */
size_t km_private_free_last(struct kmem_cache *cache, size_t *n, void **objects);
/* Who pays for all slabs of a twin. */
struct obj_cgroup *km_private_owner(const struct kmem_cache *twin);
/* What lies ready in a twin goes back, if `root` or one below pays for it. Visits the registry. */
void km_private_flush(struct kmem_cache *twin, struct mem_cgroup *root);

/* Make an objcg that nobody knows yet private; false: no memory. And undo that. */
bool km_private_create(struct obj_cgroup *objcg);
void km_private_drop(struct obj_cgroup *objcg);
/* Its group has no reference left: twins go as they come to be empty. */
void km_private_release(struct obj_cgroup *objcg);
void km_private_fork(bool before, bool child);

#endif
