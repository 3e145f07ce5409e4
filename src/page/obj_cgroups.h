/*
 * obj_cgroups.h: who pays for an object: a word for each page of a range, beside the page map, that counts for the
 * objects that begin in that page; of a large block the first one.
 *
 *	0		no object of it was ever out; sometimes: nobody pays
 *	2		nobody pays for those that are out
 *	owner		every object of it that somebody pays for is this one's
 *	vector | 1	a word for each object: p's is vector[(p & (bytes of a page - 1)) >> shift]
 *
 * By the page, not by the slab: so who has an object's address need not know its slab to find the word. 2^shift is the
 * size of an object or less: objects that begin in one page differ by that at least, so no two have the same place in
 * its vector. It takes no more memory than one without gaps, of which the size is rounded to a power of two as well.
 *
 * An object that lies free, or on a plain shelf, is nobody's whatever its word says: who takes it out sets it. Where
 * not all objects of a cache are paid for (sometimes), 0 must be said as well, so there it is a vector from the first
 * on, and who frees an object clears its word. Invariant: of a charged object the word names the owner; a word is
 * written by whoever holds the object, a page's as a whole by compare-and-swap.
 *
 * Kernel: a vector for each slab that has a charged object (slab->obj_exts). Here most pages are one group's, and say
 * so in one word: bulk frees look at that.
 */
#ifndef KM_PAGE_OBJ_CGROUPS_H
#define KM_PAGE_OBJ_CGROUPS_H

#include "arena.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "os/die.h"
#include "percpu/pcpu.h"

#define KM_OWNER_VECTOR 1ull
#define KM_OWNER_NOBODY 2ull

/* The page's word. */
uint64_t *km_owner_of_page(const struct km_page *page);

/* Of a cache, by the bytes from one object to the next. */
km_inline uint32_t km_owner_shift(size_t size)
{
	return km_min((uint32_t)km_ilog2(size), (uint32_t)KM_PAGE_SHIFT);
}

/* Bytes of a page's vector. */
km_inline size_t km_owner_vector_bytes(uint32_t shift)
{
	return (KM_PAGE_SIZE >> shift) * sizeof(uint64_t);
}

/* offset: of the object in its page. */
km_inline uint64_t *km_owner_in_vector(uint64_t word, size_t offset, uint32_t shift)
{
	uint64_t *vector = (uint64_t *)(uintptr_t)(word - KM_OWNER_VECTOR);

	km_debug(word & KM_OWNER_VECTOR && offset < KM_PAGE_SIZE, "a page's word leads to its vector");

	return &vector[offset >> shift];
}

/* The payer of the object that alone begins in the page; 0: nobody. */
km_inline uint64_t km_owner_of_one(const uint64_t *word)
{
	/* Acquire pairs with make_vector: it is filled in. */
	uint64_t seen = km_load_acquire(word);

	if (km_unlikely(seen & KM_OWNER_VECTOR))
		seen = km_load(km_owner_in_vector(seen, 0, KM_PAGE_SHIFT));
	return seen & ~KM_OWNER_NOBODY;
}

/*
 * `owner`, or 0, pays for the object at `offset` in the page of this word from now on. False: no memory for a vector.
 * sometimes: not all of this cache's objects are paid for. May be called with no lock but those below KM_RANK_META.
 */
bool km_owner_set(uint64_t *word, uint64_t owner, size_t offset, uint32_t shift, bool sometimes, bool may_wait);
/* Was an object of the slab of 2^order pages ever out, who sees it sees all that came before. */
bool km_owner_any(const uint64_t *word, unsigned order);
/*
 * The owners of `count` objects of a slab, the first at `offset`, `size` bytes each, while others set them, or the slab
 * goes: then all are 0. The owners that they name may be gone when this returns: compare them, never follow them. For
 * who holds the slab's page. word: of the slab's first page, as below.
 */
void km_owner_read(const uint64_t *word, size_t offset, uint32_t size, uint32_t shift, uint64_t *owners,
		   unsigned count);
/* The slab goes. */
void km_owner_clear(uint64_t *word, unsigned order, uint32_t shift);

#endif
