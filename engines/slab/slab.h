/*
 * slab.h: what the files of the engine slab share: a node, a slab's list of free indices, the arrays.
 *
 *	CPU's array (a block of its shelf)  <->  shared array  <->  partial, free, full slabs  <->  pages
 *	       \-->  alien array of a remote node  -->  that node's shared array, or its slabs
 *
 * A slab knows its free objects twice. The list of indices, a byte each, says in which order they go: the entries
 * [inuse, objects) are the free ones, and the next to go is entry `inuse`. It lies in a free object, whose own index is
 * the last, so that it goes when it is not needed any more; or outside of the slab; or behind the last object. The bits
 * say the same without order, in the slab's descriptor (more than 128 objects: behind the indices): what comes back is
 * checked against them, and indices that somebody wrote over are made again from them. Kernel: the list alone.
 */
#ifndef KM_SLAB_H
#define KM_SLAB_H

#include "slab/partial.h"

#define SLAB_MAX_OBJECTS	255u	/* an index is a byte. Kernel: the same, where pages have 4096 bytes */
#define SLAB_DESCRIPTOR_BITS	128u
#define SLAB_MOST_LIMIT		126u	/* a block of 1 KiB; more where sheaf_capacity asked for it */
#define SLAB_BATCH_UNTOUCHED	16u	/* Kernel: BATCHREFILL_LIMIT */
#define SLAB_ALIEN_LIMIT	12u
#define SLAB_REAP_NODE_MS	4000u	/* Kernel: REAPTIMEOUT_NODE */

enum slab_freelist {
	SLAB_IN_OBJECT,	/* Kernel: OBJFREELIST_SLAB */
	SLAB_OFF_SLAB,	/* Kernel: CFLGS_OFF_SLAB */
	SLAB_ON_SLAB,
};

struct slab_slab {
	struct km_coloured colour;
	uint8_t *freelist;		/* indices of free objects; NULL: none is free */
	uint64_t bits[SLAB_DESCRIPTOR_BITS / 64];	/* set: free; where there are more objects, elsewhere */
};
_Static_assert(offsetof(struct slab_slab, colour) == 0, "km_slab_first finds it there");
KM_ENGINE_PAGE(slab_slab, struct slab_slab)

/* Another node's objects that this node's CPUs freed. */
struct slab_alien {
	struct km_lock lock;
	unsigned avail;
	void *objects[SLAB_ALIEN_LIMIT];
};

struct slab_node {
	struct km_slabs slabs;		/* its lock protects all below, too, where nothing else is said */
	struct km_list full, free;
	size_t free_limit;		/* free objects in slabs beyond which free slabs go */
	uint64_t next_reap_ms;		/* of who looks, one at a time */
	bool free_touched, shared_touched;

	/* The shared array: a stack that grows down, newest first; objects [limit - slabs.counts.shared, limit). */
	void **shared;			/* NULL: nobody spilt yet */
	unsigned shared_limit;

	uint32_t colour_next;		/* racy, a hint */
	size_t ready;			/* objects in the shared and alien arrays; atomic */
	struct slab_alien *alien;	/* one for each node, from the first remote object on; NULL: none yet. Read
					 * without the lock: never changed again */
	unsigned alien_next;		/* which is drained next; of who looks */

	uint64_t allocs, high, max_freeable;
};
_Static_assert(offsetof(struct slab_node, slabs.counts) == 0, "readers find it there");

/* In each CPU's area. Written on that CPU's misses and by looks, racy, hints all of them. */
struct slab_cpu {
	uint64_t seen;			/* the shelf's word when it was last looked at */
	uint32_t touched;		/* missed since */
	uint32_t idle;			/* to be trimmed */
};

km_inline struct slab_node *slab_node(const struct kmem_cache *cache, unsigned node)
{
	return cache->node[node];
}

/* NULL: there is no per-CPU memory. */
km_inline struct slab_cpu *slab_cpu(const struct kmem_cache *cache, unsigned cpu)
{
	return cache->percpu_offset ? (struct slab_cpu *)(km_area(cpu) + cache->percpu_offset) : NULL;
}

/* Bytes of the bits that stand at the end of a slab. */
km_inline size_t slab_tail_bits(unsigned objects)
{
	return objects > SLAB_DESCRIPTOR_BITS ? (objects + 63) / 64 * sizeof(uint64_t) : 0;
}

/* Bytes of the indices of so many objects, and of the bits behind them where there are any. */
km_inline size_t slab_list_bytes(unsigned objects)
{
	return ((objects + 7u) & ~7u) + slab_tail_bits(objects);
}

km_inline uint64_t *slab_bits(const struct km_page *slab)
{
	if (slab->objects <= SLAB_DESCRIPTOR_BITS)
		return slab_slab(slab)->bits;
	return (uint64_t *)((char *)km_page_address(slab) + (KM_PAGE_SIZE << slab->order) -
			    slab_tail_bits(slab->objects));
}

km_inline bool slab_is_free(const struct km_page *slab, unsigned index)
{
	return km_load(&slab_bits(slab)[index / 64]) >> index % 64 & 1;
}

/* Does entry `at` name a free object, and the one that the entries lie in only as the last? `first`: object 0. */
km_inline bool slab_entry_sound(const struct kmem_cache *cache, const struct km_page *slab,
				const char *first, unsigned at)
{
	unsigned index = slab_slab(slab)->freelist[at];
	bool holder = first + (size_t)index * cache->size == (const char *)slab_slab(slab)->freelist;

	return index < slab->objects && slab_is_free(slab, index) &&
	       (!holder || at + 1 == slab->objects);
}

/* ---- slab.c: what objects do. */

/* The slab's memory goes, with its list of indices. */
void km_slab_discard(struct kmem_cache *cache, struct km_page *slab);
unsigned km_slab_take(struct kmem_cache *cache, const struct km_request *request, void **objects,
		      unsigned want);
void km_slab_give(struct kmem_cache *cache, void **objects, unsigned count);
void **km_slab_refill(struct kmem_cache *cache, const struct km_request *request, void **empty);
void **km_slab_spill(struct kmem_cache *cache, void **full);
void km_slab_retire(struct kmem_cache *cache, void **sheaf);
/* A slab goes, whatever is in it. */
void km_slab_drop(struct kmem_cache *cache, struct km_page *slab);
/* Give the oldest `count` objects of a block back; returns its new top. */
void **km_slab_give_oldest(struct kmem_cache *cache, void **sheaf, size_t count);
/* Give back what the node's shared array holds, all or the oldest; what its alien array for `other` holds. */
void km_slab_drain_shared(struct kmem_cache *cache, struct slab_node *n, bool all);
/* How many of `avail` objects an idle array gives back at a time. */
unsigned km_slab_idle_share(unsigned limit, size_t avail);
void km_slab_drain_alien(struct kmem_cache *cache, struct slab_node *n, unsigned other);
/* Free up to `most` free slabs; returns how many. */
size_t km_slab_free_slabs(struct kmem_cache *cache, struct slab_node *n, size_t most);
/* Where the shared array is to hold so many objects: memory for it, NULL for none or no memory. */
void **km_slab_new_shared(unsigned limit);
void km_slab_free_shared(void **shared, unsigned limit);

#endif
