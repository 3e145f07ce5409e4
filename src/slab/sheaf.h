/*
 * sheaf.h: declarations shared by the files of the engine sheaf: a node with its barn and its remote sheaves, and
 * a slab's free bits.
 */
#ifndef KM_SLAB_SHEAF_H
#define KM_SLAB_SHEAF_H

#include "barn.h"
#include "partial.h"

/* A node's sheaves of remote objects, for requests that name another node: one sheaf for each other node. */
struct remote {
	struct km_lock lock;
	bool touched;			/* used since the last reap */
	size_t objects;			/* objects in all sheaves */
	void **sheaf[KM_MAX_NODES];	/* indexed by node; NULL: none */
};

/* The engine's struct per node and cache. Beyond 256 bytes each struct would use 512 (tests/unit/spread). */
struct sheaf_node {
	struct km_slabs slabs;		/* the slabs' lock also protects all fields below but the barn */
	struct barn barn km_aligned(64);
	struct km_lock look;		/* held by the one thread that looks for memory to release */
	struct remote *remote;		/* NULL: only one node, or no sheaves */
	struct km_page *in_hand;	/* slab taken off the list by the look; NULL: none */
	uint32_t going_count;		/* length of `going` */
	struct km_list going;		/* slabs off the list, to be freed by the look */
};
_Static_assert(offsetof(struct sheaf_node, slabs.counts) == 0, "readers find it there");

/* Puts the slab in hand back behind the next slab to look at. Requires: the node's lock. */
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
	return cache->state.node[node];
}

/* The engine's part of the descriptor of each page of a slab. */
struct sheaf_page {
	uint64_t bits[2];		/* free bits of 128 objects */
	uint8_t hole;			/* mark of sheaf_holes.c */
};
KM_ENGINE_PAGE(sheaf_page, struct sheaf_page)

/* Count `taken` more objects out of the node's slabs. Requires the node's lock. */
km_inline void km_sheaf_count(const struct kmem_cache *cache, struct sheaf_node *n, long taken)
{
	km_bump(&n->slabs.counts.taken, taken);
	km_pages_slack(-taken * (long)cache->layout.size);
}

/* Returns the address of word `word` of the slab's free bits. A set bit is a free object. */
km_inline uint64_t *sheaf_bits(const struct kmem_cache *cache, struct km_page *slab,
			       const char *address, unsigned word)
{
	if (cache->layout.tail_bits) {
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
/* Returns the barn's objects to the slabs, and frees the barn's sheaves. */
void km_sheaf_flush_barn(struct kmem_cache *cache, struct barn *barn);
/* Does the same with the full sheaves that were not used since the last call, and lowers the limit by their objects. */
void km_sheaf_shed_barn(struct kmem_cache *cache, struct barn *barn);
/* Does the same for the node's remote sheaves. */
void km_sheaf_flush_remote(struct kmem_cache *cache, struct sheaf_node *n);
/* Takes a slab off the list, and counts the slab as freed. Requires: the node's lock. */
void km_sheaf_drop(struct km_slabs *n, struct km_page *slab);
/* Drops an empty slab if more than `keep` slabs are on the list. Requires: the node's lock. Returns: true if the
 * caller must free the slab. */
bool km_sheaf_drop_if_empty(struct kmem_cache *cache, struct sheaf_node *n, struct km_page *slab, unsigned long keep);

/* ---- sheaf_holes.c, for sheaf.c and sheaf_cache.c */

/* Releases the memory of pages without live objects. Returns: number of pages. */
size_t km_sheaf_hollow(struct kmem_cache *cache, struct sheaf_node *n);
/* Look at some slabs: free empty slabs beyond the number to keep, with `idle` all empty slabs; and purge pages without
 * live objects at this look and at the last look. `cold`: the cache is not in demand; more slabs are looked at, and one
 * look is enough to purge. Returns the number of freed slabs. */
size_t km_sheaf_reap(struct kmem_cache *cache, struct sheaf_node *n, bool idle, bool cold);
/* Restores released memory; from now on the cache releases none. Returns: false if the system has no memory. */
bool km_sheaf_fill(struct kmem_cache *cache, struct sheaf_node *n);
/* After a fork, in the child: lists the slab that a lost thread had in hand, and frees the slabs in `going`. */
void km_sheaf_adopt(struct kmem_cache *cache, struct sheaf_node *n);
/* Fork handler, before the locks are released: lists the slab in hand in the child, if this fork had the node's
 * lock. */
void km_sheaf_fork_holes(struct sheaf_node *n, bool child);
/* Clears the marks of pages of these taken objects. Requires: the node's lock, and a slab with marks. */
void km_sheaf_unmark(const struct kmem_cache *cache, struct km_page *slab, void *const *objects, unsigned count);
/* Returns the number of damages of a slab's marks. */
int km_sheaf_check_holes(struct kmem_cache *cache, struct km_page *slab);

#endif
