/*
 * huge.h: huge blocks, above 4 MiB, in a hash table by address. The first forty are mappings of their own, and grow
 * by remapping; more blocks share regions. A freed block goes back to the system at once, or is cached for reuse
 * (huge_cache.h).
 */
#ifndef KM_PAGE_HUGE_H
#define KM_PAGE_HUGE_H

#include "base/cc.h"

/* Entry of the hash table. */
struct km_huge_entry {
	uintptr_t start;	/* address of the block; 0: empty, 1: deleted */
	size_t bytes;
	uint64_t owner;		/* objcg charged for the block; 0: uncharged */
	uint32_t region;	/* number of the region; 0: a mapping of its own */
	uint32_t found;		/* number of the last search that returned the block */
};

/* The blocks, and ranges that munmap refused. Changed under the lock; read without, also from outside the process. */
extern km_hidden struct km_huge {
	struct km_huge_entry *table;	/* replaced at times */
	size_t slots;			/* of the table: a power of two */
	size_t blocks, bytes;
	size_t kept_bytes;
} km_huge;

/* Allocate a block, aligned to max(align, a page). Requires: bytes > 0; align is a power of two. Returns: NULL if
 * there is no memory. *zero: the block reads as zeros. */
void *km_huge_alloc(size_t bytes, size_t align, bool *zero);
/* Returns: bytes of the block that starts at p; 0 if p starts no huge block. */
size_t km_huge_bytes(const void *p);
/* Returns: the same, for signal handlers that may have interrupted the holder of the lock; SIZE_MAX: unknown. */
size_t km_huge_try_bytes(const void *p);
/* Free the block. Returns: false if p starts no huge block. */
bool km_huge_free(const void *p);
/* Resize the block and keep the content; the address may change. Returns: NULL if the block is unchanged. */
void *km_huge_resize(void *p, size_t bytes);
/* Get or set the objcg of the block (page/obj_cgroups.h); 0: uncharged, or no huge block. A resize keeps the objcg. */
uint64_t km_huge_owner(const void *p);
void km_huge_set_owner(const void *p, uint64_t owner);
/* Begin a search for blocks (km_huge_next). Returns: the number of the search. */
uint32_t km_huge_search(void);
/* Find the next block charged to `owner` that this search has not returned yet. *from: where to go on, 0 at first. The
 * table may be replaced between two calls. Returns: NULL if there is no more. */
void *km_huge_next(uint64_t owner, uint32_t search, size_t *from);
/* Returns: true if p lies in a huge block. Context: takes no lock. */
bool km_huge_inside(const void *p);
size_t km_huge_pages(void);		/* Returns: pages of allocated huge blocks. */
/* Give cached blocks beyond their bound back to the system. */
void km_huge_trim(void);
/* Unmap blocks cached for at least decay_ms (0: all), and reduce the swing of cached blocks. Returns: bytes. */
size_t km_huge_purge(unsigned decay_ms);
/* Offer the kept ranges, once refused by munmap, to the system again. */
void km_huge_offer(void);
/* Call mlockall(2), except that free memory and the spare room of blocks are neither filled in nor locked. */
long km_huge_mlockall(int flags);
/* Returns: bytes of address space kept for huge blocks, without memory. */
size_t km_huge_spare(void);
/* Returns: km_huge_spare() plus the bytes of cached blocks. */
size_t km_huge_idle(void);
void km_huge_fork(bool before, bool child);

#endif
