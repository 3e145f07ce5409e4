/*
 * alloc_map.h: which objects are out, where each free is looked at (os/secret.h): a byte for each, away from all
 * objects. Of an object that its user has, the byte is its proof, which says where within 128 bytes it begins; else 0.
 *
 *	shift		log2 of the object's size, rounded down, and at most 7
 *	its byte	live[shift of its cache][(address - base of the range) >> shift]
 *
 * No two objects of a cache have the same byte, for they are 2^shift bytes apart at least. And no address but an
 * object's own finds its proof: one that leads to the same byte differs in the bits that the proof has. So one load
 * says of an address in a page of the cache whether it is an object that its user has: neither freed, nor inside of
 * one, nor one that was never handed out. Invariants: the byte of an object that lies free is 0. It is set by whoever
 * has the object in hand, by a plain store. It is cleared by the object's free, in one step that nothing divides: of
 * two frees of one object, by two threads or by a handler in the middle of the other, one finds 0.
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

/* The object is about to be its user's, by the only thread that has it. False: it is somebody's. */
km_inline bool km_alloc_map_mark(uint8_t *byte, const void *object)
{
	if (km_unlikely(km_load(byte)))
		return false;
	km_store(byte, km_alloc_map_proof(object));
	return true;
}

/* The object is its user's no more. False: it was not. */
km_inline bool km_alloc_map_claim(uint8_t *byte, const void *object)
{
	return km_clear_byte(byte, km_alloc_map_proof(object));
}

/* The number that a cache with this shift adds to an address of the first range, shifted, to find its byte; 0: there is
 * none. */
uintptr_t km_alloc_map_place(uint32_t shift);
/* The byte of an address in any range; NULL: it is in none. */
uint8_t *km_alloc_map_find(const void *object, uint32_t shift);
/* A slab of 2^order pages is new: none of its objects is out. False: it lies beyond the first range. */
bool km_alloc_map_clear(const struct km_page *slab, unsigned order, uint32_t shift);

#endif
