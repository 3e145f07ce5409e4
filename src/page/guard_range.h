/*
 * guard_range.h: which addresses are those of guarded objects: a pool of pages, and the hook of the extension that
 * serves the pool. Invariant: the pool is in no range of pages, so that its addresses have id 0 in the page map: a
 * free that looks at the page misses by itself, and the engines find no slab for them.
 */
#ifndef KM_PAGE_GUARD_RANGE_H
#define KM_PAGE_GUARD_RANGE_H

#include <kmem/kmem.h>

#include "base/cc.h"
#include "base/fields.h"

struct km_guarded {
	uintptr_t start;	/* a page without access, then by turns an object's and one without */
	size_t bytes;		/* 0: there is no pool, and nothing below is called */
	size_t page_bytes;	/* the system's: the most that an object may have */
	size_t objects, live;	/* that there may be, and that are out */
	size_t samples, reports; /* that were out, ever; mistakes that were told */
	bool each;		/* each request that can be is served from there, as long as there is room */
	/* For readers outside of the process (base/fields.h). */
	const void *slot;	/* a record for each object */
	const struct km_field *fields;
	unsigned field_count;
};
extern km_hidden struct km_guarded km_guarded;

km_inline bool km_is_guarded(const void *p)
{
	return km_unlikely((uintptr_t)p - km_guarded.start < km_guarded.bytes);
}

/* Any number, for what should not be foreseen by habit; no secret. */
uint32_t km_guarded_random(void);

/* The settings of KMEM_OPTIONS. */
struct km_guard_options {
	unsigned ms;		/* between two samples, on the average; 0 and not each: off */
	unsigned objects;	/* that the pool has room for */
	bool each;
};

/* An address of the pool: the object that lies in its page, or did last. */
struct km_guarded_object {
	const char *start;
	size_t bytes;
	const struct kmem_cache *cache;		/* NULL: it is gone */
	const char *name;			/* the cache's */
	bool taken;
};

/*
 * The hook of guarded objects (base/cc.h). alloc: an object, zeroed or constructed as the cache and gfp say; NULL: not
 * now. May make system calls, and is called with no lock held. free: it is a guarded address; cache NULL: whatever its
 * cache; function NULL: it comes off a CPU's shelf, long after its user's free. Also in a signal handler, and under
 * locks: it takes none. again: a hit may have freed it, and hands it out now.
 */
struct km_guard_ops {
	void (*start)(const struct km_guard_options *options);	/* before the first cache is made */
	void (*ready)(void);					/* libc is, too: from now on objects are sampled */
	void (*tick)(uint64_t now_ms);
	void *(*alloc)(struct kmem_cache *cache, uint32_t bytes, uint32_t align, gfp_t gfp);
	void (*again)(struct kmem_cache *cache, void *object);
	void (*unseen)(struct kmem_cache *cache);	/* from now on a hit may free its objects that are out */
	void (*free)(struct kmem_cache *cache, void *p, const char *function);
	/* The cache, and the bytes, of an object that is out; NULL and 0: p is none. */
	struct kmem_cache *(*cache_of)(const void *p);
	size_t (*bytes)(const void *p);
	/* False: its page never had an object. */
	bool (*look)(const void *p, struct km_guarded_object *seen);
	/* The objects of a cache that are out: visit each until it returns non-zero, and return that. */
	int (*walk)(struct kmem_cache *cache, int (*visit)(void *object, void *arg), void *arg);
	/* How many of a cache's objects were written around: each is told. */
	int (*check)(struct kmem_cache *cache);
	/* The cache goes; how many of its objects were out, and stay so. */
	size_t (*leave)(struct kmem_cache *cache);
};
extern km_hidden const struct km_guard_ops *km_guard_ops;

#endif
