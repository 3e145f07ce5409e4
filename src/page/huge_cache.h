/* huge_cache.h: the cache of freed huge blocks (above 4 MiB) that keep their memory for reuse. All functions require
 * the lock of huge.c, except km_huge_cache_too_many(). huge.c alone makes the system calls. */
#ifndef KM_PAGE_HUGE_CACHE_H
#define KM_PAGE_HUGE_CACHE_H

#include "base/cc.h"

struct km_huge_cached {
	void *p;
	size_t bytes;
	uint32_t ms;			/* time of the free in ms */
	uint32_t region;		/* number of the region; 0: a mapping of its own */
};

#define KM_HUGE_CACHED_MOST	64u
extern km_hidden struct km_huge_cache {
	struct km_huge_cached at[KM_HUGE_CACHED_MOST];	/* cached blocks, the oldest first */
	unsigned count;
	size_t pages;			/* pages of all cached blocks; read without the lock */
} km_huge_cache;

/* Add a freed block. used: bytes in use without the block. Returns: false if the cache is full. */
bool km_huge_cache_put(void *p, size_t bytes, uint32_t region, size_t used);
/* Take the block of the nearest size, at most half of `bytes` larger or smaller. Returns: false if there is none. */
bool km_huge_cache_take(size_t bytes, size_t align, struct km_huge_cached *got);
/* Note a miss: `bytes` bytes come from the system. used: bytes in use with these bytes. */
void km_huge_cache_miss(size_t bytes, size_t used);
/* Returns: true if the cached blocks exceed their bound. Context: no lock; the result may be stale. */
bool km_huge_cache_too_many(size_t used);
/* Take the oldest block if the cached blocks exceed their bound; the caller must unmap the block. Returns: false if
 * all blocks may stay. */
bool km_huge_cache_beyond(size_t used, struct km_huge_cached *gone);
/* Take the oldest block if it was freed at least decay_ms ago; the caller must unmap the block. */
bool km_huge_cache_old(unsigned decay_ms, struct km_huge_cached *gone);
/* Reduce the swing (bytes trimmed and soon mapped again) by a quarter, or (whole) to 0. */
void km_huge_cache_fade(size_t used, bool whole);

#endif
