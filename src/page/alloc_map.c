/* alloc_map.c: the allocation state map: the lookup in all ranges (slow path), and the reset for fresh slabs.
 * Invariant: where frees are validated, the map covers each committed page. */
#include "alloc_map.h"

#include "os/die.h"
#include "zone.h"

uintptr_t km_alloc_map_place(uint32_t shift)
{
	const struct km_range *range = km_arena_range(0);

	km_debug(shift >= KM_ALLOC_MAP_LOW && shift <= KM_ALLOC_MAP_HIGH, "a shift is within the range of shifts");
	return range && range->live[0] ?
		       (uintptr_t)range->live[shift - KM_ALLOC_MAP_LOW] - ((uintptr_t)range->base >> shift) : 0;
}

uint8_t *km_alloc_map_find(const void *object, uint32_t shift)
{
	size_t index, inside = (uintptr_t)object & (KM_PAGE_SIZE - 1);
	const struct km_range *range = km_range_of(object, &index);

	if (!range || !range->live[0])
		return NULL;
	return &range->live[shift - KM_ALLOC_MAP_LOW][(index << KM_PAGE_SHIFT | inside) >> shift];
}

bool km_alloc_map_clear(const struct km_page *slab, unsigned order, uint32_t shift)
{
	uint8_t *bytes = km_alloc_map_find(km_page_address(slab), shift);

	km_debug(bytes, "a slab's pages are committed");
	if (bytes)
		__builtin_memset(bytes, 0, (KM_PAGE_SIZE << order) >> shift);
	return km_page_index(km_page_address(slab)) < km_load(&km_hot.pages);
}
