/*
 * sheaf.h: what the files of the engine sheaf share: a node with its barn and what it has of others, a slab's bits.
 */
#ifndef KM_SLAB_SHEAF_H
#define KM_SLAB_SHEAF_H

#include "partial.h"

/* Its lock protects all of it but `starved`, a hint; what is read without it (counts, crosses) is stored as one. */
struct barn {
	struct km_lock lock;
	uint32_t full_count, empty_count;
	void **full, **empty;		/* linked by their headers */
	size_t objects;			/* in the full ones */
	size_t most;			/* objects it may keep; 0: not grown */
	uint16_t swings;		/* from empty to overflowing, since the last reap */
	uint16_t putter;		/* the CPU that the last full block came from */
	bool touched;			/* since the last reap */
	bool starved;			/* it was empty since it last overflowed */
	bool crosses;			/* the last full block that was got came from another CPU */
	uint64_t gets, puts;		/* events, here because the line is in hand */
};

/* The objects of other nodes that a node's CPUs have, for requests that name those: a block of each. */
struct remote {
	struct km_lock lock;
	bool touched;			/* since the last reap */
	size_t objects;			/* in all of them */
	void **sheaf[KM_MAX_NODES];	/* by node; NULL: none */
};

/* Each cache has one: beyond 256 bytes it would take a piece of 512 (tests/unit/spread). */
struct sheaf_node {
	struct km_slabs slabs;		/* its lock protects all that follows but the barn, too */
	struct barn barn km_aligned(64);
	struct km_lock look;		/* one thread at a time looks for what may go */
	struct remote *remote;		/* NULL: there is one node, or no shelf */
	struct km_page *in_hand;	/* the slab that who looks has taken off the list; NULL: none */
	uint32_t extra;			/* slabs that may stay beside min_partial */
	uint32_t fewest;		/* that were on the list at any time since the last reap */
	uint8_t swings;			/* times that a slab was needed after one had gone, since the last reap */
	bool dropped;			/* one has gone since one was last needed */
	uint32_t going_count;		/* on the next */
	struct km_list going;		/* slabs that have left the list, and that who looks frees */
};
_Static_assert(offsetof(struct sheaf_node, slabs.counts) == 0, "readers find it there");

/* The slab that was in hand comes back to its place: behind the one that is looked at next. Lock held. */
km_inline void km_sheaf_list_again(struct sheaf_node *n, struct km_page *slab)
{
	struct km_list *before = n->slabs.looked ? &n->slabs.looked->list : &n->slabs.partial;

	km_store(&n->in_hand, (struct km_page *)NULL);
	km_slabs_list(&n->slabs, slab, false);
	if (before != &n->slabs.partial) {
		km_list_del(&slab->list);
		km_list_add_head(&slab->list, before);
	}
}

km_inline struct sheaf_node *sheaf_node(const struct kmem_cache *cache, unsigned node)
{
	return cache->node[node];
}

/* Of each page of a slab. */
struct sheaf_page {
	uint64_t bits[2];		/* of 128 objects */
	uint8_t hole;			/* sheaf_holes.c's mark */
};
KM_ENGINE_PAGE(sheaf_page, struct sheaf_page)

/* Count `taken` more objects out of the node's slabs. Requires the node's lock. */
km_inline void km_sheaf_count(const struct kmem_cache *cache, struct sheaf_node *n, long taken)
{
	km_bump(&n->slabs.counts.taken, taken);
	km_pages_slack(-taken * (long)cache->size);
}

/* Where 64 of the slab's bits are; a set bit is a free object. */
km_inline uint64_t *sheaf_bits(const struct kmem_cache *cache, struct km_page *slab,
			       const char *address, unsigned word)
{
	if (cache->tail_bits) {
		const char *end = address + (KM_PAGE_SIZE << slab->order);

		return (uint64_t *)end - (slab->objects + 63) / 64 + word;
	}
	return &sheaf_page(&slab[word / 2])->bits[word % 2];
}

/* ---- sheaf.c, for sheaf_cache.c */

unsigned km_sheaf_take(struct kmem_cache *cache, const struct km_request *request, void **objects,
		       unsigned want);
void km_sheaf_give(struct kmem_cache *cache, void **objects, unsigned count);
void **km_sheaf_refill(struct kmem_cache *cache, const struct km_request *request, void **empty);
void **km_sheaf_spill(struct kmem_cache *cache, void **full);
void km_sheaf_retire(struct kmem_cache *cache, void **sheaf);
bool km_sheaf_has_room(struct kmem_cache *cache);
/* Everything in the barn goes to the slabs, its blocks to metadata. */
void km_sheaf_flush_barn(struct kmem_cache *cache, struct barn *barn);
/* The same with what the node has of others. */
void km_sheaf_flush_remote(struct kmem_cache *cache, struct sheaf_node *n);
/* A slab leaves the list; lock held. And: to be freed. */
void km_sheaf_unlist(struct sheaf_node *n, struct km_page *slab);
void km_sheaf_drop(struct km_slabs *n, struct km_page *slab);
/* An all-free slab goes if more than `keep` are on the list; lock held. True: the caller frees it. */
bool km_sheaf_drop_if_empty(struct kmem_cache *cache, struct sheaf_node *n, struct km_page *slab, unsigned long keep);

/* ---- sheaf_holes.c, for both */

/* Pages in which nobody has anything: their memory goes. How many it was. */
size_t km_sheaf_hollow(struct kmem_cache *cache, struct sheaf_node *n);
/* Look at some slabs: free empty slabs beyond the number to keep, with `idle` all empty slabs; and purge pages without
 * live objects at this look and at the last look. `cold`: the cache is not in demand; more slabs are looked at, and one
 * look is enough to purge. Returns the number of freed slabs. */
size_t km_sheaf_reap(struct kmem_cache *cache, struct sheaf_node *n, bool idle, bool cold);
/* The memory that went is there again; the cache gives none from before this call on. False: the system has none. */
bool km_sheaf_fill(struct kmem_cache *cache, struct sheaf_node *n);
/* After a fork: the slab that nobody has in hand any more is on the list again, and those that nobody frees go. */
void km_sheaf_adopt(struct kmem_cache *cache, struct sheaf_node *n);
/* After a fork, by who had the node's lock. */
void km_sheaf_fork_holes(struct sheaf_node *n, bool child);
/* These objects of a slab with marks were taken: their pages have none; lock held. */
void km_sheaf_unmark(const struct kmem_cache *cache, struct km_page *slab, void *const *objects, unsigned count);
/* Damages of a slab's marks. */
int km_sheaf_check_holes(struct kmem_cache *cache, struct km_page *slab);

/* Slabs on the list beyond which empty ones go; lock held. */
km_inline unsigned long km_sheaf_keep(const struct kmem_cache *cache, const struct sheaf_node *n)
{
	return km_load(&cache->min_partial) + (km_load(&cache->own_min_partial) ? 0 : n->extra);
}

#endif
