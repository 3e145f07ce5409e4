/* huge_region.h: regions: address space shared by many huge blocks, so that the number of mappings stays small.
 * Context: all functions require the lock of huge.c, except km_region_clean(). */
#ifndef KM_PAGE_HUGE_REGION_H
#define KM_PAGE_HUGE_REGION_H

#include "base/cc.h"

/* Allocate a zeroed block, aligned to max(align, a page). *region: the number of its region, never 0. scarce, in the
 * first call: the rounding to granules must waste little address space. Returns: NULL if there is no memory. */
void *km_region_alloc(size_t bytes, size_t align, bool scarce, uint32_t *region);
/* Reset a block to the state of a fresh mapping, and purge its memory. Returns: false if the system refuses the
 * purge. Context: no lock; no other thread may know the block. */
bool km_region_clean(void *p, size_t bytes);
/* As km_region_clean, for a part of any block. bytes: whole pages of the system. */
bool km_region_clean_part(void *p, size_t bytes);
/* Free the block that begins at p. clean: the result of km_region_clean(). */
void km_region_free(uint32_t region, void *p, bool clean);
/* Resize the block in place and keep the content; new bytes are zeros. Returns: false if there is no room; the block
 * is unchanged then. */
bool km_region_resize(uint32_t region, void *p, size_t old_bytes, size_t new_bytes);
/* Take or restore access to the spare room of a block, around a call that locks all accessible memory (mlockall). */
void km_region_hide_room(uint32_t region, void *p, size_t bytes, bool hidden);
/* As km_region_hide_room, for the free parts of all regions. *left: the number of parts that may still be hidden,
 * because each part may need a mapping. */
void km_region_hide_free(bool hidden, unsigned *left);
/* Try again to unmap regions without blocks that munmap refused before. */
void km_region_offer(void);
extern km_hidden size_t km_region_spare;	/* bytes in all regions outside of blocks; read without the lock */

#endif
