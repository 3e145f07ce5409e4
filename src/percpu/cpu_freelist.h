/*
 * cpu_freelist.h: the per-CPU state of an engine whose shelf is a chain through the free objects of one slab (the
 * kernel's struct kmem_cache_cpu), and the verbs that work on it, under the same three disciplines as pcpu.h.
 *
 *	area of a CPU + open	[ freelist | slab | .. | partial | .. ]	one line; see struct km_chain_cpu
 *
 * The CPU's slab is named by a tag: its address, in the low bits the number of bits of its size. So whether an
 * object is in it is (object ^ tag) >> tag == 0, with no look at a descriptor. A tag of 0 fits no object.
 *
 * Closed: `open` is 0, and word 0 and 1 of every area are 0 for ever: no freelist, no slab, no partial.
 *
 * The verbs, in pseudo-code (each commits with its last store, or does nothing; under rseq {freelist, slab}
 * is one 16-byte store, which is enough: other CPUs look only after close and fence):
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
 * Under lock every verb runs inside the CPU's trylock. Under cmpxchg {freelist, transaction id} is one word pair:
 * pop, push and their like compare and swap it; what changes the slab or the partial list holds the lock, clears
 * the slab before it moves the id and sets it after, so that a push with a current id has read a current slab.
 */
#ifndef KM_PERCPU_CPU_FREELIST_H
#define KM_PERCPU_CPU_FREELIST_H

#include "pcpu.h"

/* Where a cache's chain is; in the first line of struct kmem_cache. Sequences read `open` and `freeptr`. */
struct km_chain {
	uint32_t open;		/* offset of struct km_chain_cpu in each CPU's area; 0: closed */
	uint32_t freeptr;	/* where the link is in a free object */
	uint32_t slot;		/* `open`, open or closed; 0: has none */
};

/* Links the slabs on a CPU's partial list: part of the slab's descriptor. */
struct km_chain_link {
	struct km_chain_link *next;
	uint64_t count;		/* slabs from here to the end */
};

/* The slab that a CPU allocates from. */
struct km_chain_top {
	void *freelist;
	uint64_t slab;		/* a tag */
} km_aligned(16);

/* A CPU's state. Not to be touched but by the verbs. */
struct km_chain_cpu {
	union {
		struct km_chain_top top;	/* lock, rseq */
		struct km_soft soft;		/* first the freelist */
	};
	struct km_chain_link *partial;
	uint64_t slab;		/* cmpxchg: the tag */
	uint32_t for_fork;	/* the lock is held by a fork in progress */
	uint64_t failures;	/* compare-and-swaps lost */
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

/* Get the words, open; false: there are none, and the chain stays closed. */
bool km_chain_init(struct km_chain *chain, uint32_t freeptr);
/* Give the words back; what lay there must have been taken. */
void km_chain_fini(struct km_chain *chain);

/* The result of a push: a miss is an object of another slab as well. */
enum km_chain_push {
	KM_CHAIN_MISS,
	KM_CHAIN_PUSHED,
	KM_CHAIN_TWICE,		/* the object is on top of the freelist already */
};

/* pop, pop_n, push and push_list are inline, in cpu_freelist_hit.h; this is their soft half. */
void *km_chain_soft_pop(struct km_chain *chain);
size_t km_chain_soft_pop_n(struct km_chain *chain, void **out, size_t count);
enum km_chain_push km_chain_soft_push(struct km_chain *chain, void *head, void *tail);

/* False: there is no CPU to speak of now (closed, unregistered, interrupted too often). */
bool km_chain_swap(struct km_chain *chain, struct km_chain_top new_top, struct km_chain_top *old);
struct km_chain_link *km_chain_partial_pop(struct km_chain *chain);
/* *drained: the list that was there, if it had `most` slabs or more; else NULL. */
bool km_chain_partial_push(struct km_chain *chain, struct km_chain_link *link, uint64_t most,
			   struct km_chain_link **drained);
/*
 * Close for everybody, fence (false: can't), take what each CPU has, open: as with shelves. One drain at a
 * time. The soft disciplines take by their lock and need no closing.
 */
void km_chain_close(struct km_chain *chain);
bool km_chain_fence(void);
void km_chain_take_cpu(struct km_chain *chain, unsigned cpu, struct km_chain_top *top,
		       struct km_chain_link **partial);
void km_chain_open(struct km_chain *chain);

/* This CPU's freelist can't be followed: it is empty from now on, and its objects stay in use. */
void km_chain_cut(struct km_chain *chain);

/* A racy look; exact when nobody uses it. */
void km_chain_look_cpu(const struct km_chain *chain, unsigned cpu, struct km_chain_top *top,
		       struct km_chain_link **partial);
/* Compare-and-swaps lost, over all CPUs; and forget them. */
uint64_t km_chain_failures(const struct km_chain *chain);
void km_chain_clear_failures(struct km_chain *chain);

/* Around fork: nobody is inside a verb of the soft disciplines meanwhile, and no lock stays taken. */
void km_chain_fork(struct km_chain *chain, bool before, bool child);

#endif
