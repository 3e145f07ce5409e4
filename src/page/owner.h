/*
 * owner.h: who pays for an object: a word for each page of a range, beside the page map, that counts at the first page
 * of a slab or of a large block.
 *
 *	0		no object of it was ever out; sometimes: nobody pays
 *	2		nobody pays for those that are out
 *	owner		every object of it that somebody pays for is this one's
 *	vector | 1	a word for each object: p's is vector[(p & (bytes of the slab - 1)) * reciprocal >> 32]
 *
 * An object that lies free, or on a plain shelf, is nobody's whatever its word says: who takes it out sets it. Where
 * not all objects of a cache are paid for (sometimes), 0 must be said as well, so there it is a vector from the first
 * on, and who frees an object clears its word. Invariant: of a charged object the word names the owner; a word is
 * written by whoever holds the object, a slab's as a whole by compare-and-swap.
 *
 * Kernel: a vector for each slab that has a charged object (slab->obj_exts). Here most slabs are one group's, and say
 * so in one word: bulk frees look at that.
 */
#ifndef KM_PAGE_OWNER_H
#define KM_PAGE_OWNER_H

#include "arena.h"
#include "../port/atomic.h"
#include "../port/pcpu.h"

#define KM_OWNER_VECTOR 1ull
#define KM_OWNER_NOBODY 2ull

/* The word of the block that begins with this page. */
uint64_t *km_owner_of_page(const struct km_page *head);

/* Bytes of a vector for a slab of 2^order pages. */
km_inline size_t km_owner_vector_bytes(unsigned order, uint32_t reciprocal)
{
	return ((((KM_PAGE_SIZE << order) - 1) * (uint64_t)reciprocal >> 32) + 1) * sizeof(uint64_t);
}

km_inline uint64_t *km_owner_in_vector(uint64_t word, size_t offset, uint32_t reciprocal)
{
	uint64_t *vector = (uint64_t *)(uintptr_t)(word - KM_OWNER_VECTOR);

	return &vector[offset * reciprocal >> 32];
}

/*
 * `owner`, or 0, pays for the object at `offset` in a slab of 2^order pages from now on. False: no memory for a vector.
 * sometimes: not all of this cache's objects are paid for. May be called with no lock but those below KM_RANK_META.
 */
bool km_owner_set(uint64_t *word, uint64_t owner, size_t offset, unsigned order, uint32_t reciprocal,
		  bool sometimes, bool may_wait);
/*
 * The owners of `count` objects of a slab, the first at `offset`, `size` bytes each, while others set them, or the slab
 * goes: then all are 0. What they name may be gone when this returns: compare it, never follow it. For who holds the
 * slab's page.
 */
void km_owner_read(const uint64_t *word, size_t offset, uint32_t size, uint32_t reciprocal, uint64_t *owners,
		   unsigned count);
/* The slab goes. */
void km_owner_clear(uint64_t *word, unsigned order, uint32_t reciprocal);

#endif
