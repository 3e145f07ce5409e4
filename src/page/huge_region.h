/*
 * huge_region.h: address space that big blocks share, so that there are few mappings however many blocks come and go.
 * Every function is called with the lock of huge.c held, but one.
 */
#ifndef KM_PAGE_HUGE_REGION_H
#define KM_PAGE_HUGE_REGION_H

#include "base/cc.h"

/* Zeroed, aligned to max(align, a page), and in *region which region it is of, not 0; NULL: none. scarce, the first
 * time: what rounding costs counts. */
void *km_region_alloc(size_t bytes, size_t align, bool scarce, uint32_t *region);
/* Without the lock, while nobody else knows the block: as the system made it, and its memory goes back. False: the
 * system did not take that. */
bool km_region_clean(void *p, size_t bytes);
/* The same for so many bytes, of any block: whole pages of the system's. */
bool km_region_clean_part(void *p, size_t bytes);
/* The block that begins at p goes, and was cleaned, or not. */
void km_region_free(uint32_t region, void *p, bool clean);
/* Grow or shrink it where it is, content kept; what comes is zeroed. False: it can't, and is unchanged. */
bool km_region_resize(uint32_t region, void *p, size_t old_bytes, size_t new_bytes);
/* Around a call that fills in and locks all that is accessible: a block's room, and what is free (*left: of how many
 * parts at most, each of which may be a mapping meanwhile). */
void km_region_hide_room(uint32_t region, void *p, size_t bytes, bool hidden);
void km_region_hide_free(bool hidden, unsigned *left);
/* Regions without a block, which the system would not take, are offered again. */
void km_region_offer(void);
/* Address space of all regions that no block has. */
const size_t *km_region_spare(void);

#endif
