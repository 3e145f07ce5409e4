/*
 * id_table.h: tables that a free looks up by cache id. The page map holds the cache id of an object's page.
 * Invariants: the tables lie at a fixed distance in front of the map, so that one register finds all three; id 0 is
 * no cache, and its entries stay 0.
 *
 *	map - KM_ID_TABLES  [ masks by id | factors by id ][ id of each page ]
 *
 * Masks and factors are arrays of 8-byte members, so that an id is an index without scaling. Neither array begins
 * at a multiple of 4 KiB, as areas do, because a load waits for the store of a pcs word with the same low 12 bits.
 * The map does not begin there either. Each free of an object outside of the range loads the map's first entry, and
 * the first line of a page shares its place in the processor's cache with the first lines of all other pages.
 */
#ifndef KM_PERCPU_ID_TABLE_H
#define KM_PERCPU_ID_TABLE_H

#include "os/die.h"
#include "pcpu.h"

#define KM_IDS		((size_t)1 << 16)
#define KM_ID_TABLES	0x120000	/* bytes of the tables in front of the page map: a multiple of the largest
					 * system page */
#define KM_MAP_SKEW	0xfc0	/* offset of the map's start from a multiple of 4 KiB: a page's last line */
#define KM_ID_SKEW	0xd00	/* maximum number of bytes in front of id 0, in both tables */
#define KM_ID_MASKS	(-KM_ID_TABLES + 0x8c0)
#define KM_ID_FACTORS	(-KM_ID_TABLES / 2 + KM_ID_SKEW)
/* Number of low bits of a product for the remainder. The bits above are 0 for the start of an object. */
#define KM_ID_SHIFT	40

struct km_masks {
	uint32_t sheaf;		/* mask of the sheaf that a free pushes to: bytes minus one; 0: closed */
	uint32_t slab;		/* mask of the cache's slabs: bytes minus one */
};

_Static_assert(KM_ID_MASKS + (long)(KM_IDS * sizeof(struct km_masks)) <= -KM_ID_TABLES / 2 &&
	       KM_ID_FACTORS + (long)(KM_IDS * sizeof(uint64_t)) <= 0, "the tables have room");

km_inline struct km_masks *km_id_masks(uintptr_t id)
{
	return (struct km_masks *)((uintptr_t)km_hot.map + KM_ID_MASKS) + id;
}

km_inline uint64_t *km_id_factor(uintptr_t id)
{
	return (uint64_t *)((uintptr_t)km_hot.map + KM_ID_FACTORS) + id;
}

/* Returns: the page map's entry of the object's page; 0 outside of the first range, whose first pages are never
 * allocated. */
km_inline uintptr_t km_id_of(const void *object)
{
	uintptr_t index = km_page_index(object);

	return km_hot.map[index & -(uintptr_t)(index < km_load(&km_hot.pages))];
}

/* Returns: true if p is the start of an object, in a slab of the cache with this id. Requires: km_hot.caches has a
 * cache for the id. The factor is 2^64 / size, rounded up and somewhat above. So the k-th multiple of size, times
 * factor, is k * e modulo 2^64, where e is the excess of the factor, times size. The product is below 2^KM_ID_SHIFT for
 * objects only. For the multiple behind the last object, and for all other addresses, the product is not below.
 * km_id_find_factor shows the sums. */
km_inline bool km_id_valid(uintptr_t id, const void *p)
{
	return !(((uint32_t)(uintptr_t)p & km_id_masks(id)->slab) * *km_id_factor(id) >> KM_ID_SHIFT);
}

/* Returns: the factor for `objects` of `size` bytes at the start of a slab; 0: there is none. With e as above, the
 * product for k sizes and a remainder r is r * factor + k * e. The product is at least factor, and below 2^64 if (k +
 * 1) * e is less than factor. */
km_inline uint64_t km_id_find_factor(uint64_t size, uint64_t objects, uint64_t slab_bytes)
{
	km_debug(size && objects && (objects == 1 || objects * size <= slab_bytes), "the objects lie in their slab");
	const uint64_t limit = (uint64_t)1 << KM_ID_SHIFT;
	uint64_t factor = UINT64_MAX / size + 1, e = factor * size;

	/* size is a power of two, without a rest: add one, so that e is not 0. */
	if (!e) {
		factor++;
		e = size;
	}
	if (objects * size < slab_bytes && objects * e < limit) {
		uint64_t more = ((limit + objects - 1) / objects - e + size - 1) / size;

		factor += more;
		e += more * size;
	}
	return (objects - 1) * e < limit && (slab_bytes / size + 1) * e < factor && factor >= limit ? factor : 0;
}

#endif
