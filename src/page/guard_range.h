/*
 * guard_range.h: the addresses of guarded objects: a pool of pages, and the hook of the extension that serves the
 * pool. Invariant: the pool lies in no range of pages, so its addresses have id 0 in the page map. A free that reads
 * the page map misses by itself, and the engines find no slab for these addresses.
 */
#ifndef KM_PAGE_GUARD_RANGE_H
#define KM_PAGE_GUARD_RANGE_H

#include <kmem/kmem.h>

#include "base/cc.h"
#include "base/fields.h"

struct km_guarded {
	uintptr_t start;	/* address of the pool: pages without access alternate with the pages of objects */
	size_t bytes;		/* bytes of the pool; 0: there is no pool, and no hook is called */
	size_t page_bytes;	/* bytes of a system page: objects up to this size can be guarded */
	size_t objects, live;	/* capacity in objects; allocated objects */
	size_t samples, reports; /* guarded objects allocated since the start; errors reported */
	bool each;		/* mode `each`: guard every suitable request while there is room, not only samples */
	/* For readers outside of the process (base/fields.h). */
	const void *slot;	/* array of records, one for each object */
	const struct kmem_record_field *fields;
	unsigned field_count;
};
extern km_hidden struct km_guarded km_guarded;

km_inline bool km_is_guarded(const void *p)
{
	return km_unlikely((uintptr_t)p - km_guarded.start < km_guarded.bytes);
}

/* The settings of KMEM_OPTIONS. */
struct km_guard_options {
	unsigned ms;		/* average time between two samples in ms; 0 without each: off */
	unsigned objects;	/* capacity of the pool */
	bool each;
};

/* Description of the object, present or last, in a page of the pool. */
struct km_guarded_object {
	const char *start;
	size_t bytes;
	struct kmem_cache *cache;		/* its cache; NULL: the cache was destroyed */
	const char *name;			/* name of the cache */
	bool taken;
};

/* Hook of guarded objects (base/cc.h). alloc: allocate an object, zeroed or constructed as the cache and gfp demand;
 * NULL: not now. May make system calls. Requires: no lock is held. free: free the object at a guarded address. cache
 * NULL: any cache. function NULL: the object comes from a CPU's sheaf, long after the free by its user. Runs also in
 * signal handlers and under locks, so free takes no lock. again: the fast path allocates an object that the fast path
 * may have freed before. */
struct km_guard_ops {
	void (*start)(const struct km_guard_options *options);	/* called before the first cache is made */
	void (*ready)(void);					/* called when libc is ready as well: sampling may
								 * start */
	void (*tick)(uint64_t now_ms);
	void *(*alloc)(struct kmem_cache *cache, uint32_t bytes, uint32_t align, gfp_t gfp);
	void (*again)(struct kmem_cache *cache, void *object);
	void (*unseen)(struct kmem_cache *cache);	/* called when the cache loses its observers: from now on the
							 * fast path may free guarded objects */
	void (*free)(struct kmem_cache *cache, void *p, const char *function);
	/* Describe the object at p. False: the page of p never had an object. */
	bool (*look)(const void *p, struct km_guarded_object *seen);
	/* Visit each allocated object of a cache until visit returns non-zero, and return this value. */
	int (*walk)(struct kmem_cache *cache, int (*visit)(void *object, void *arg), void *arg);
	/* Check the bytes around the objects of a cache. Returns: the number of damaged objects; each is reported. */
	int (*check)(struct kmem_cache *cache);
	/* Detach a destroyed cache. Returns: the number of objects still allocated; these objects stay allocated. */
	size_t (*leave)(struct kmem_cache *cache);
};
extern km_hidden const struct km_guard_ops *km_guard_ops;

/* Describe the allocated object that begins at p. False: p is no allocated object; then *seen has no bytes. */
km_inline bool km_guarded_at(const void *p, struct km_guarded_object *seen)
{
	if (km_guard_ops->look(p, seen) && seen->taken && seen->start == p)
		return true;
	*seen = (struct km_guarded_object){ .bytes = 0 };
	return false;
}

#endif
