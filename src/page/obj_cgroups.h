/*
 * obj_cgroups.h: the objcg of an object: a word for each page of a range, beside the page map. The word of a page
 * applies to the objects that begin in the page. A large block uses the word of its first page.
 *
 *	0		no object of the page was ever allocated; sometimes: uncharged
 *	2		all allocated objects of the page are uncharged
 *	owner		every charged object of the page is charged to this objcg
 *	vector | 1	a word for each object: p's is vector[(p & (bytes of a page - 1)) >> shift]
 *
 * Words belong to pages, not to slabs: an object's address is enough to find the word. 2^shift is at most the size of
 * an object. Objects that begin in one page are at least 2^shift bytes apart, so no two objects share an entry of the
 * vector. The vector takes no more memory than a vector without gaps, because the allocator rounds sizes to powers of
 * two.
 *
 * A cached object in a plain sheaf or a free object of a slab is uncharged, whatever its word contains: each allocation
 * must set the word. In a cache with charged and uncharged objects (sometimes) an allocation must set 0 as well, so the
 * first charge makes a vector, and each free clears the object's word. Invariant: the word of a charged object names
 * its objcg. An entry of a vector is written only by the thread that holds the object; a page's word only by
 * compare-and-swap.
 *
 * Kernel: a vector for each slab with a charged object (slab->obj_exts). Here most pages have objects of one group, and
 * one word is enough. Bulk frees look for this case.
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

/* Returns: the objcg word of the page. */
uint64_t *km_owner_of_page(const struct km_page *page);

/* Returns: the shift of a cache. size: bytes from one object to the next. */
km_inline uint32_t km_owner_shift(size_t size)
{
	return km_min((uint32_t)km_ilog2(size), (uint32_t)KM_PAGE_SHIFT);
}

/* Returns: bytes of a page's vector. */
km_inline size_t km_owner_vector_bytes(uint32_t shift)
{
	return (KM_PAGE_SIZE >> shift) * sizeof(uint64_t);
}

/* Returns: the entry of an object in the vector. offset: of the object in its page. */
km_inline uint64_t *km_owner_in_vector(uint64_t word, size_t offset, uint32_t shift)
{
	uint64_t *vector = (uint64_t *)(uintptr_t)(word - KM_OWNER_VECTOR);

	km_debug(word & KM_OWNER_VECTOR && offset < KM_PAGE_SIZE, "the owner word of a page points to the vector");

	return &vector[offset >> shift];
}

/* Returns: the objcg of an object that is alone in its page; 0 if uncharged. */
km_inline uint64_t km_owner_of_one(const uint64_t *word)
{
	/* Acquire pairs with make_vector: the vector is filled in. */
	uint64_t seen = km_load_acquire(word);

	if (km_unlikely(seen & KM_OWNER_VECTOR))
		seen = km_load(km_owner_in_vector(seen, 0, KM_PAGE_SHIFT));
	return seen & ~KM_OWNER_NOBODY;
}

/* Set the objcg of the object at `offset` in the page of this word (0: uncharged). sometimes: the cache has charged and
 * uncharged objects. Returns: false if there is no memory for a vector. Context: no lock of rank KM_RANK_METADATA or
 * above may be held. */
bool km_owner_set(uint64_t *word, uint64_t owner, size_t offset, uint32_t shift, bool sometimes, bool may_wait);
/* Returns: true if an object of the slab of 2^order pages was ever allocated. A caller that sees true also sees all
 * earlier writes of the allocating thread. */
bool km_owner_any(const uint64_t *word, unsigned order);
/* Read the objcgs of `count` objects of a slab, the first at `offset`, `size` bytes apart. word: of the slab's first
 * page. Other threads may set the words meanwhile, or free the slab; then all results are 0. A returned objcg may be
 * gone: compare the value, never dereference it. Requires: the slab's page is held. */
void km_owner_read(const uint64_t *word, size_t offset, uint32_t size, uint32_t shift, uint64_t *owners,
		   unsigned count);
/* Clear the words of a slab that is freed, and free their vectors. */
void km_owner_clear(uint64_t *word, unsigned order, uint32_t shift);

#endif
