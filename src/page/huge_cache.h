/*
 * huge_cache.h: blocks above 4 MiB that were freed and keep their memory for the next ones. All of it under the lock of
 * big blocks (huge.c), which alone makes the system calls.
 */
#ifndef KM_PAGE_HUGE_CACHE_H
#define KM_PAGE_HUGE_CACHE_H

#include "base/cc.h"

struct km_huge_cached {
	void *p;
	size_t bytes;
	uint32_t ms;			/* since when */
	uint32_t region;		/* that it lies in; 0: it is a mapping of its own */
};

/* Keep a block that was freed; used: bytes in use without it. False: there is no room. */
bool km_huge_cache_put(void *p, size_t bytes, uint32_t region, size_t used);
/* The one whose size is nearest, and off by half at most; it is the caller's. False: there is none. */
bool km_huge_cache_take(size_t bytes, size_t align, struct km_huge_cached *got);
/* So many bytes come from the system, used of all of them are in blocks then. */
void km_huge_cache_miss(size_t bytes, size_t used);
/* More lies here than may: a racy look. */
bool km_huge_cache_too_many(size_t used);
/* The oldest, where more lies here than may: it is the caller's, to unmap. False: all of it may stay. */
bool km_huge_cache_beyond(size_t used, struct km_huge_cached *gone);
/* The oldest, where it is decay_ms old. */
bool km_huge_cache_old(unsigned decay_ms, struct km_huge_cached *gone);
/* The learnt bound fades: by a quarter, or altogether. */
void km_huge_cache_fade(size_t used, bool whole);
/* Blocks that lie here. */
unsigned km_huge_cache_count(void);
/* ... and their pages. */
const size_t *km_huge_cache_pages(void);
/* Where they stand, for readers outside of the process. */
void km_huge_cache_expose(const struct km_huge_cached **at, const unsigned **count);

#endif
