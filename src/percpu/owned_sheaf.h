/*
 * owned_sheaf.h: owned sheaves, for accounting: all objects of an owned sheaf belong to one owner. The objects are
 * charged to the owner (an objcg) already, so an object that comes or goes charges nothing. A CPU has one such
 * sheaf, without a spare. The second per-CPU word of the pcs names the owner:
 *
 *	area of a CPU + pcs	[ top | owner ]			owner 0: uncharged; the sheaf is then empty
 *				    |
 *	sheaf, as in pcpu.h	[ .. | obj | obj | obj | NULL | 0 ]	pad and header are 0
 *
 * The operations, in pseudo-code (each commits with its last store, or does nothing). An owner passed by a caller is
 * never 0. The owner word is 0 where the pcs is closed (words 0 and 1 of every area are always 0), and where the CPU
 * has no sheaf yet. After an interrupted install the owner word may be set without a sheaf: then the top is still 0,
 * and there is neither an object nor room. So one comparison covers all three cases. The comparison depends on no store
 * of a hit, and reads a cache line that the hit uses anyway. "block" is a sheaf; "born" means with a sheaf.
 *
 *	pop		if (owner is another) miss; object = *top; if (!object) miss; top += 8
 *	push		if (owner is another) miss; if (full) miss; *--top = object
 *	pop_n, push_n	the same, as many as there are, one commit; pop_n asks whether it is born
 *	adopt		if (not yet born, or *top) miss; owner = the caller's
 *	install		if (closed, or born) miss; owner = the caller's; top = block
 *
 * If several objcgs are charged, under rseq, the same words lead to sheaves of many owners. Then another struct
 * km_pcs with the operations of pcpu.h is in use, and this pcs is closed for ever. The word beside the top then
 * names no owner, and is not 0.
 *
 * Soft disciplines: the owner changes under the lock of the words only, and only while the sheaf is empty. A pop
 * under cmpxchg has no lock, and reads the owner between its look at the pair and its compare-and-swap. If the
 * owner changed meanwhile, another pop took the last object before, and moved the transaction id.
 */
#ifndef KM_PERCPU_OWNED_SHEAF_H
#define KM_PERCPU_OWNED_SHEAF_H

#include "pcpu.h"

/* Bytes of the per-CPU words, for km_percpu_alloc. Each cache has its own struct km_pcs: `slot` is the offset,
 * inner.mask and sheaf_mask are set, front.open is left closed. km_pcs_open(pcs, false) opens the pcs. Requires:
 * sheaf_mask + 1 is a power of two, at least 32. */
size_t km_owned_word_bytes(void);

/* Returns: the number of objects in a full sheaf, if inner.mask allows a full sheaf. */
km_inline size_t km_owned_capacity(const struct km_pcs *pcs)
{
	return km_mask_capacity(pcs->sheaf_mask);
}

/* Make an empty sheaf of sheaf_mask + 1 bytes. Requires: memory is aligned to as many bytes. Returns: the sheaf, for
 * km_owned_install. */
void **km_owned_prepare(const struct km_pcs *pcs, void *memory);

/* Pop and push of one object of `owner`. Requires: owner is not 0, except for a pop, where an uncharged pop is a miss.
 * The fast path of caches is inline: km_rseq_owned_pop and km_rseq_owned_push. */
void *km_owned_pop(struct km_pcs *pcs, uintptr_t owner);
bool km_owned_push(struct km_pcs *pcs, uintptr_t owner, void *object);
/* Pop or push up to `count` objects: into the end of out[0 .. count), from the end of in[0 .. count). */
size_t km_owned_pop_n(struct km_pcs *pcs, uintptr_t owner, void **out, size_t count);
size_t km_owned_push_n(struct km_pcs *pcs, uintptr_t owner, void *const *in, size_t count);
/* Make `owner` the owner of this CPU's empty sheaf. Returns: false if the sheaf has objects, or there is no sheaf. */
bool km_owned_adopt(struct km_pcs *pcs, uintptr_t owner);
/* Install `sheaf` on this CPU for `owner` (0: uncharged). Returns: false if the CPU has a sheaf. */
bool km_owned_install(struct km_pcs *pcs, void **sheaf, uintptr_t owner);
/* Returns: the owner of this CPU's sheaf; 0 if uncharged or without a sheaf. Racy. */
uintptr_t km_owned_owner(const struct km_pcs *pcs);

/* Returns: the owner word of `cpu`. Racy. */
uintptr_t km_owned_owner_cpu(const struct km_pcs *pcs, unsigned cpu);
/* Make `owner` the owner of the sheaf of `cpu`, if the CPU has an owned sheaf. Only the sheaf's owner word changes; the
 * objects' owner words do not. Requires: rseq, a closed pcs, and a fence since the close. */
void km_owned_rename_cpu(struct km_pcs *pcs, unsigned cpu, uintptr_t owner);

/* Take the objects of a CPU's sheaf, for a drain: km_pcs_close, km_pcs_fence, this function for each CPU, km_pcs_open.
 * The sheaf stays, empty and uncharged. *owner is the former owner. Returns: the number of objects, km_owned_capacity
 * at most. Also 0 if a soft discipline's lock stays taken for about a second: then a later drain finds the objects
 * (km_pcs_count_cpu). */
size_t km_owned_take_cpu(struct km_pcs *pcs, unsigned cpu, void **out, uintptr_t *owner);
/* Remove the empty sheaf of a CPU. Returns: the sheaf as km_owned_prepare returned it, or NULL. The CPU then has
 * none. */
void **km_owned_release_cpu(struct km_pcs *pcs, unsigned cpu);

#endif
