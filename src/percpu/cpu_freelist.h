/*
 * cpu_freelist.h: per-CPU state of an engine whose cached objects form a chain through the free objects of one slab
 * (the kernel's struct kmem_cache_cpu), and the per-CPU operations on a chain, under the three disciplines of pcpu.h.
 *
 *	area of a CPU + open	[ freelist | slab | .. | partial | .. ]	one line; see struct km_chain_cpu
 *
 * A tag names the CPU's slab: the slab's address, with the number of bits of the slab's size in the low bits. An
 * object is in the slab if (object ^ tag) >> tag == 0, without a load of a descriptor. A tag of 0 fits no object.
 *
 * Closed: `open` is 0, and words 0 and 1 of every area are always 0: no freelist, no slab, no partial.
 *
 * The operations, in pseudo-code (each commits with its last store, or does nothing). Under rseq {freelist, slab}
 * is one 16-byte store. One store is enough, because other CPUs read the pair only after close and fence:
 *	pop		object = freelist; if (!object) miss; freelist = next(object)
 *	push		if (not of this slab) miss; if (object == freelist) twice;
 *			next(object) = freelist; freelist = object
 *	pop_n		pop, again and again, one commit
 *	push_list	push of a chain
 *	swap		old = {freelist, slab}; {freelist, slab} = new
 *	partial_pop	link = partial; if (!link) miss; partial = link->next
 *	partial_push	if (as many as `most` lie there) they are the caller's, else link->next = partial;
 *			partial = link
 *
 * Under lock every operation runs inside the CPU's trylock. Under cmpxchg {freelist, transaction id} is one word
 * pair, and pop and push compare and swap the pair. An operation on the slab or the partial list holds the lock. To
 * change the slab, the operation clears the slab before the change of the id, and sets the slab after. So a push
 * with a current id has read a current slab.
 */
#ifndef KM_PERCPU_CPU_FREELIST_H
#define KM_PERCPU_CPU_FREELIST_H

#include "pcpu.h"

/* A cache's chain: where the CPUs' words are. In the first cache line of struct kmem_cache. Sequences read `open` and
 * `freeptr`. */
struct km_chain {
	uint32_t open;		/* offset of struct km_chain_cpu in each CPU's area; 0: closed */
	uint32_t freeptr;	/* offset of the link in a free object, in bytes */
	uint32_t slot;		/* value of `open` while open, kept while closed; 0: no chain */
};

/* Link of the slabs on a CPU's partial list: part of the slab's descriptor. */
struct km_chain_link {
	struct km_chain_link *next;
	uint64_t count;		/* number of slabs from this one to the list's end */
};

/* The slab from which a CPU allocates, and its freelist on the CPU. */
struct km_chain_top {
	void *freelist;
	uint64_t slab;		/* the slab as a tag; 0: no slab */
} km_aligned(16);

/* A cache's words on one CPU. Only the operations below may use the fields. */
struct km_chain_cpu {
	union {
		struct km_chain_top top;	/* freelist and slab, in disciplines lock and rseq */
		struct km_soft soft;		/* discipline cmpxchg: pair.first is the freelist, pair.second the
						 * transaction id */
	};
	struct km_chain_link *partial;
	uint64_t slab;		/* discipline cmpxchg: the tag of the slab */
	uint32_t for_fork;	/* a fork in progress holds the CPU's lock */
	uint64_t failures;	/* number of lost compare-and-swaps, for KMEM_CMPXCHG_DOUBLE_CPU_FAIL */
} km_aligned(64);

km_inline uint64_t km_chain_tag(const void *address, unsigned size_bits)
{
	return (uintptr_t)address | size_bits;
}

km_inline void *km_chain_tag_address(uint64_t tag)
{
	return (void *)(uintptr_t)(tag & ~(uint64_t)(KM_PAGE_SIZE - 1));
}

km_inline bool km_chain_tag_fits(uint64_t tag, const void *object)
{
	return ((uintptr_t)object ^ tag) >> (tag & 63) == 0;
}

/* Allocate the per-CPU words, and open the chain. Returns: false without memory; the chain stays closed. */
bool km_chain_init(struct km_chain *chain, uint32_t freeptr);
/* Free the per-CPU words. Requires: the objects and slabs of all CPUs have been taken. */
void km_chain_fini(struct km_chain *chain);

/* Result of a push. A miss also covers an object of another slab. */
enum km_chain_push {
	KM_CHAIN_MISS,
	KM_CHAIN_PUSHED,
	KM_CHAIN_TWICE,		/* the object is the first of the freelist already: a double free */
};

/* pop, pop_n, push and push_list for disciplines lock and cmpxchg; cpu_freelist_hit.h has the inline functions. */
void *km_chain_soft_pop(struct km_chain *chain);
size_t km_chain_soft_pop_n(struct km_chain *chain, void **out, size_t count);
enum km_chain_push km_chain_soft_push(struct km_chain *chain, void *head, void *tail);

/* Exchange the CPU's slab. Returns: false if this thread has no usable CPU (closed, unregistered, interrupted too
 * often). */
bool km_chain_swap(struct km_chain *chain, struct km_chain_top new_top, struct km_chain_top *old);
struct km_chain_link *km_chain_partial_pop(struct km_chain *chain);
/* Pushes a slab to the CPU's partial list. *drained: the former list, if the list had `most` slabs or more; else
 * NULL. */
bool km_chain_partial_push(struct km_chain *chain, struct km_chain_link *link, uint64_t most,
			   struct km_chain_link **drained);
/* Drain as for sheaves: close, km_pcs_fence, take the slab and list of each CPU, open. One drain at a time. The soft
 * disciplines take under their lock and need no closing. */
void km_chain_close(struct km_chain *chain);
void km_chain_take_cpu(struct km_chain *chain, unsigned cpu, struct km_chain_top *top, struct km_chain_link **partial);
void km_chain_open(struct km_chain *chain);

/* Empties this CPU's freelist, whose links are damaged. The objects are lost: they stay in use. */
void km_chain_cut(struct km_chain *chain);

/* Reads a CPU's freelist, slab and partial list. Racy; exact while no thread uses the chain. */
void km_chain_look_cpu(const struct km_chain *chain, unsigned cpu, struct km_chain_top *top,
		       struct km_chain_link **partial);
/* Sum and reset the lost compare-and-swaps of all CPUs. */
uint64_t km_chain_failures(const struct km_chain *chain);
void km_chain_clear_failures(struct km_chain *chain);

/* Around fork: keep threads out of soft operations during the fork, and leave no lock taken in the child. */
void km_chain_fork(struct km_chain *chain, bool before, bool child);

#endif
