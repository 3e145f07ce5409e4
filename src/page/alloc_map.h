/*
 * alloc_map.h: the allocation state map: a byte for each object, away from all objects. Each free is validated by
 * this byte (os/secret.h). The byte of an allocated object is its proof: the offset of the object within 128 bytes,
 * with bit 7 set. The byte of a free object is 0.
 *
 *	shift		log2 of the object's size, rounded down, and at most 7
 *	its byte	live[shift of its cache][(address - base of the range) >> shift]
 *
 * Objects of a cache are at least 2^shift bytes apart, so no two objects share a byte. Only the exact address of an
 * object matches its proof: another address with the same byte differs in the offset. So one load tells whether an
 * address in a page of the cache is an allocated object: not freed, not the inside of an object, and not an object
 * that was never allocated.
 *
 * Invariants: the byte of a free object is 0. The thread that holds the object sets the byte by a plain store. A free
 * clears the byte in one indivisible step. Two frees of one object may race, from two threads, or from a signal
 * handler that interrupted the other free: one of them finds 0.
 */
#ifndef KM_PAGE_ALLOC_MAP_H
#define KM_PAGE_ALLOC_MAP_H

#include "base/atomic.h"
#include "base/bits.h"
#include "os/secret.h"
#include "arena.h"

km_inline uint32_t km_alloc_map_shift(uint32_t size)
{
	return km_min((uint32_t)km_ilog2(size), KM_ALLOC_MAP_HIGH);
}

km_inline uint8_t km_alloc_map_proof(const void *object)
{
	return (uint8_t)(0x80 | ((uintptr_t)object & 0x7f));
}

/* Mark the object as allocated. Requires: only this thread holds the object. Returns: false if the object is already
 * allocated. */
km_inline bool km_alloc_map_mark(uint8_t *byte, const void *object)
{
	if (km_unlikely(km_load(byte)))
		return false;
	km_store(byte, km_alloc_map_proof(object));
	return true;
}

/* Mark the object as free. Returns: false if the object was not allocated. */
km_inline bool km_alloc_map_claim(uint8_t *byte, const void *object)
{
	return km_clear_byte(byte, km_alloc_map_proof(object));
}

/* Returns: a number to add to (address >> shift) of an address in the first range, to get the address of the byte; 0
 * if there is no map. */
uintptr_t km_alloc_map_place(uint32_t shift);
/* Returns: the byte of an address in any range, or NULL if the address is in no range. */
uint8_t *km_alloc_map_find(const void *object, uint32_t shift);
/* Clear the bytes of a new slab of 2^order pages. Returns: false if the slab lies beyond the first range. */
bool km_alloc_map_clear(const struct km_page *slab, unsigned order, uint32_t shift);

#endif
