/*
 * huge.h: blocks above 4 MiB, found by their address in a table. The first forty are mappings of their own, grown by
 * remapping; more share regions. A freed block goes back to the system at once, or lies ready for the next
 * (huge_cache.h).
 */
#ifndef KM_PAGE_HUGE_H
#define KM_PAGE_HUGE_H

#include "base/cc.h"

/* A block in the table. */
struct km_huge_entry {
	uintptr_t start;	/* 0: empty, 1: deleted */
	size_t bytes;
	uint64_t owner;		/* who pays; 0: nobody */
	uint32_t region;	/* 0: it is a mapping of its own */
	uint32_t found;		/* by the search of this number */
};

/* Aligned to max(align, a page); NULL: none. bytes > 0; align a power of two. *zero: it reads as zeros. */
void *km_huge_alloc(size_t bytes, size_t align, bool *zero);
/* Bytes of the mapping that starts at p; 0: no such mapping of ours. */
size_t km_huge_bytes(const void *p);
/* The same for a handler that may have interrupted whoever holds the lock: SIZE_MAX, can't tell. */
size_t km_huge_try_bytes(const void *p);
/* False: p is not the start of such a block. */
bool km_huge_free(const void *p);
/* Grow or shrink, content kept, perhaps at another address; NULL: unchanged. */
void *km_huge_resize(void *p, size_t bytes);
/* The payer of it (page/obj_cgroups.h); 0: nobody, or no such mapping. It stays so when it is resized. */
uint64_t km_huge_owner(const void *p);
void km_huge_set_owner(const void *p, uint64_t owner);
/* Begin a search; its number. */
uint32_t km_huge_search(void);
/* One that `owner` pays for and that this search has not found yet, at *from (0 at first) or behind it if there is one;
 * NULL: no more. The table may become another one between two calls. */
void *km_huge_next(uint64_t owner, uint32_t search, size_t *from);
/* Does p lie in a big block? Takes no lock. */
bool km_huge_inside(const void *p);
size_t km_huge_pages(void);		/* in use */
/* Give back what lies ready beyond its bound. */
void km_huge_trim(void);
/* Give back what has lain ready for so long, 0: all of it, and what was learnt of it fades. Bytes. */
size_t km_huge_purge(unsigned decay_ms);
/* Offer the system again what it would not take. */
void km_huge_offer(void);
/* The call, of all that is mapped: what is free, or room of blocks, is not filled in, nor locked. */
long km_huge_mlockall(int flags);
/* Address space that is kept for such blocks, and has no memory. */
size_t km_huge_spare(void);
/* The sum of km_huge_spare and of the memory of parked blocks. */
size_t km_huge_idle(void);
void km_huge_get_stats(size_t *blocks, size_t *bytes);
/* Where these are kept, the two that make km_huge_spare, and the pages that lie ready. */
void km_huge_expose(const size_t **blocks, const size_t **bytes, const size_t **kept, const size_t **spare,
		   const size_t **parked);
/* Where the blocks themselves are, and those that lie ready. */
struct km_huge_cached;
void km_huge_expose_blocks(const struct km_huge_entry *const **table, const size_t **slots,
			  const struct km_huge_cached **parked, const unsigned **parked_count);
void km_huge_fork(bool before, bool child);

#endif
