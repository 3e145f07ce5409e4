/*
 * slab.h: declarations shared by the files of the engine slab: a node, a slab's list of free indices, the arrays.
 *
 *	CPU's array (a sheaf)  <->  shared array  <->  partial, free, full slabs  <->  pages
 *	       \-->  alien array of a remote node  -->  that node's shared array, or its slabs
 *
 * A slab records its free objects twice. The list of indices, one byte each, gives the order of allocation: entries
 * [inuse, objects) name the free objects, and entry `inuse` is allocated next. The list lies in a free object,
 * outside of the slab, or behind the last object. A free object that holds the list is the last entry, so it is
 * allocated only when the list is empty. The bits say the same without an order, in the slab's descriptor, or behind
 * the indices with more than 128 objects. A free is validated by the bits, and overwritten indices are rebuilt from
 * the bits. Kernel: only the list.
 */
#ifndef KM_SLAB_H
#define KM_SLAB_H

#include <kmem/record.h>

#include "slab/partial.h"

#define SLAB_MAX_OBJECTS	255u	/* an index is a byte. Kernel: the same, with pages of 4096 bytes */
#define SLAB_DESCRIPTOR_BITS	KMEM_RECORD_SLAB_BITS
#define SLAB_MOST_LIMIT		126u	/* a sheaf of 1 KiB; more if sheaf_capacity asks for more */
#define SLAB_BATCH_UNTOUCHED	16u	/* Kernel: BATCHREFILL_LIMIT */
#define SLAB_ALIEN_LIMIT	KMEM_RECORD_ALIEN
#define SLAB_REAP_NODE_MS	4000u	/* Kernel: REAPTIMEOUT_NODE */

enum slab_freelist {
	SLAB_IN_OBJECT,	/* Kernel: OBJFREELIST_SLAB */
	SLAB_OFF_SLAB,	/* Kernel: CFLGS_OFF_SLAB */
	SLAB_ON_SLAB,
};

struct slab_slab {
	struct km_coloured colour;
	uint8_t *freelist;		/* indices of free objects; NULL: no object is free */
	uint64_t bits[SLAB_DESCRIPTOR_BITS / 64];	/* set: free; stored elsewhere with more objects */
};
_Static_assert(offsetof(struct slab_slab, colour) == 0, "km_slab_first finds it there");
KM_ENGINE_PAGE(slab_slab, struct slab_slab)

/* Objects of one other node, freed by this node's CPUs. */
struct slab_alien {
	struct km_lock lock;
	unsigned avail;
	void *objects[SLAB_ALIEN_LIMIT];
};

struct slab_node {
	struct km_slabs slabs;		/* the slabs' lock also protects the fields below, unless stated otherwise */
	struct km_list full, free;
	size_t free_limit;		/* free slabs are freed while more objects than this are free */
	uint64_t next_reap_ms;		/* used by the look only, one at a time */
	bool free_touched, shared_touched;

	/* Shared array: a stack that grows down, newest first; objects [limit - slabs.counts.shared, limit). */
	void **shared;			/* NULL: no sheaf was spilled yet */
	unsigned shared_limit;

	uint32_t colour_next;		/* a racy hint */
	size_t ready;			/* objects in the shared and the alien arrays; atomic */
	struct slab_alien *alien;	/* one alien array for each node, from the first remote free on; NULL: none
					 * yet. Constant after that, so reads need no lock. */
	unsigned alien_next;		/* node drained next; used by the look only */

	uint64_t allocs, high, max_freeable;
};
_Static_assert(offsetof(struct slab_node, slabs.counts) == 0, "readers find it there");

/* One in each per-CPU area. Written by the CPU's misses and by looks without a lock: racy hints. */
struct slab_cpu {
	uint64_t seen;			/* the per-CPU top (pcs) at the last look */
	uint32_t touched;		/* a miss occurred since the last look */
	uint32_t idle;			/* the CPU's sheaf is to be trimmed */
};

km_inline struct slab_node *slab_node(const struct kmem_cache *cache, unsigned node)
{
	return cache->state.node[node];
}

/* NULL: no per-CPU memory */
km_inline struct slab_cpu *slab_cpu(const struct kmem_cache *cache, unsigned cpu)
{
	return cache->state.percpu_offset ? (struct slab_cpu *)(km_area(cpu) + cache->state.percpu_offset) : NULL;
}

/* Returns the size of the bits at the end of a slab, in bytes. */
km_inline size_t slab_tail_bits(unsigned objects)
{
	return objects > SLAB_DESCRIPTOR_BITS ? (objects + 63) / 64 * sizeof(uint64_t) : 0;
}

/* Returns the size of the indices and the bits behind the indices, in bytes. */
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

/* Does entry `at` name a free object? Only the last entry may name the object with the list. first: object 0. */
km_inline bool slab_entry_sound(const struct kmem_cache *cache, const struct km_page *slab,
				const char *first, unsigned at)
{
	unsigned index = slab_slab(slab)->freelist[at];
	bool holder = first + (size_t)index * cache->layout.size == (const char *)slab_slab(slab)->freelist;

	return index < slab->objects && slab_is_free(slab, index) &&
	       (!holder || at + 1 == slab->objects);
}

/* ---- slab.c: functions on objects */

/* Frees a slab and its list of indices. */
void km_slab_discard(struct kmem_cache *cache, struct km_page *slab);
unsigned km_slab_take(struct kmem_cache *cache, const struct km_request *request, void **objects, unsigned want);
void km_slab_give(struct kmem_cache *cache, void **objects, unsigned count);
void **km_slab_refill(struct kmem_cache *cache, const struct km_request *request, void **empty);
void **km_slab_spill(struct kmem_cache *cache, void **full);
void km_slab_retire(struct kmem_cache *cache, void **sheaf);
/* Frees a slab with any live objects. */
void km_slab_drop(struct kmem_cache *cache, struct km_page *slab);
/* Frees the oldest `count` objects of a sheaf. Returns: the new top. */
void **km_slab_give_oldest(struct kmem_cache *cache, void **sheaf, size_t count);
/* Frees all objects of the node's shared array, or a share of an idle one, oldest first. */
void km_slab_drain_shared(struct kmem_cache *cache, struct slab_node *n, bool all);
/* Returns the number of objects that an idle array of `avail` objects frees at a time. */
unsigned km_slab_idle_share(unsigned limit, size_t avail);
/* Returns the objects of the alien array for `other`. */
void km_slab_drain_alien(struct kmem_cache *cache, struct slab_node *n, unsigned other);
/* Frees up to `most` free slabs. Returns: number of freed slabs. */
size_t km_slab_free_slabs(struct kmem_cache *cache, struct slab_node *n, size_t most);

#endif
