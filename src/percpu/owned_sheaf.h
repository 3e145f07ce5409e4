/*
 * owned_sheaf.h: a shelf whose objects all belong to one owner. For accounting: what lies on it is charged to that
 * owner already, so that an object that comes or goes charges nothing. A CPU has one block, without a partner, and
 * beside the shelf's word another one that names the owner:
 *
 *	area of a CPU + shelf	[ top | owner ]			owner 0: nobody's; then there is no object either
 *				    |
 *	block, as in pcpu.h	[ .. | obj | obj | obj | NULL | 0 ]	the pad is 0, and so is the header
 *
 * The verbs, in pseudo-code (each commits with its last store, or does nothing). An owner is never 0, but it is where a
 * shelf is closed (words 0 and 1 of every area are 0 for ever), and where it is not yet born, unless a `install` was
 * interrupted there: then the top is still 0, and there is neither an object nor room. So one comparison stands for all
 * three. It waits for nothing that a hit stores, and the line that it looks at is the hit's own.
 *
 *	pop		if (owner is another) miss; object = *top; if (!object) miss; top += 8
 *	push		if (owner is another) miss; if (full) miss; *--top = object
 *	pop_n, push_n	the same, as many as there are, one commit; pop_n asks whether it is born
 *	adopt		if (not yet born, or *top) miss; owner = the caller's
 *	install		if (closed, or born) miss; owner = the caller's; top = block
 *
 * Where several pay, under rseq, the same words lead to blocks of many owners: then pcpu.h's verbs
 * are used, by another struct km_pcs, this one is closed for ever, and the word beside the top is no owner's, but not
 * 0.
 *
 * Soft disciplines: the owner changes under the slot's lock only, and only while there is no object. A pop under
 * cmpxchg has no lock: it looks at the owner between its look at the pair and its compare-and-swap; for the owner to
 * be another one meanwhile, somebody has taken the last object, and that has moved the transaction id.
 */
#ifndef KM_PERCPU_OWNED_SHEAF_H
#define KM_PERCPU_OWNED_SHEAF_H

#include "pcpu.h"

/*
 * A struct km_pcs of its own for each cache: `slot` from km_percpu_alloc(km_owned_word_bytes()), inner.mask and
 * block_mask set, front.open left closed; open once km_pcs_open(shelf, false) was called. block_mask + 1: a power
 * of two from 32.
 */
size_t km_owned_word_bytes(void);

/* Objects that a block takes, where inner.mask allows it. */
km_inline size_t km_owned_capacity(const struct km_pcs *pcs)
{
	return km_mask_capacity(pcs->sheaf_mask);
}

/* Make an empty block of block_mask + 1 bytes, aligned to as much; what it returns is for km_owned_install. */
void **km_owned_prepare(const struct km_pcs *pcs, void *memory);

/*
 * Objects of `owner`, which is never 0, but that a pop of nobody's objects is a miss. The hits of caches are inline:
 * km_rseq_owned_pop and km_rseq_owned_push.
 */
void *km_owned_pop(struct km_pcs *pcs, uintptr_t owner);
bool km_owned_push(struct km_pcs *pcs, uintptr_t owner, void *object);
/* Up to count, into the end of out[0 .. count), from the end of in[0 .. count). */
size_t km_owned_pop_n(struct km_pcs *pcs, uintptr_t owner, void **out, size_t count);
size_t km_owned_push_n(struct km_pcs *pcs, uintptr_t owner, void *const *in, size_t count);
/* This CPU's block, which is empty, is `owner`'s from now on; false: it is not empty, or there is none. */
bool km_owned_adopt(struct km_pcs *pcs, uintptr_t owner);
/* This CPU's block is `block` from now on, and `owner`'s (0: nobody's); false: it has one. */
bool km_owned_install(struct km_pcs *pcs, void **sheaf, uintptr_t owner);
/* The owner of this CPU's block, 0 for nobody or none: a racy look. */
uintptr_t km_owned_owner(const struct km_pcs *pcs);

/* The same of that CPU's. */
uintptr_t km_owned_owner_cpu(const struct km_pcs *pcs, unsigned cpu);
/* That CPU's block, if it has one, is `owner`'s from now on, with what is on it. Under rseq; with the shelf closed, and
 * after a fence. */
void km_owned_rename_cpu(struct km_pcs *pcs, unsigned cpu, uintptr_t owner);

/*
 * Draining: km_pcs_close, km_pcs_fence, for each CPU one of these, km_pcs_open. Objects (km_owned_capacity at
 * most) and owner of that CPU's block, which stays, empty and nobody's. 0 also where a soft discipline's lock can't be
 * had within milliseconds: what lies there then a later drain finds (km_pcs_count_cpu).
 */
size_t km_owned_take_cpu(struct km_pcs *pcs, unsigned cpu, void **out, uintptr_t *owner);
/* The empty block itself, as km_owned_prepare returned it, or NULL; from then on the CPU has none. */
void **km_owned_release_cpu(struct km_pcs *pcs, unsigned cpu);
/* After a fork km_pcs_fork_child does what is to be done in the child. */

#endif
