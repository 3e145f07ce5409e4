/* commit_ahead.h: memory committed ahead of requests. A request that may not wait makes no system call, and can
 * use only committed memory. Requests that may call the system commit more for later (top-up). */
#ifndef KM_PAGE_COMMIT_AHEAD_H
#define KM_PAGE_COMMIT_AHEAD_H

#include "base/cc.h"

struct km_page;
struct kmem_cache;

/* Note a request of `pages` pages that may not wait (0: metadata). got: the request succeeded. For arena.c and
 * metadata.c. */
void km_ahead_note(size_t pages, bool got);
/* Returns: true if a top-up has work to do. For a tick. km_ahead_top_up(): commit memory ahead. Context: no lock is
 * held, and system calls are allowed. */
bool km_ahead_wanted(void);
void km_ahead_top_up(void);
/* Reserve `pages` more free pages at all times, and commit the pages now (negative: give up). Returns: false if
 * the system refuses; nothing is changed then. */
bool km_ahead_reserve(long pages);
/* Reserve `want->pages` pages for a cache instead of *reserved, and make all reserved pages resident, with the state
 * that slabs of `order` need. Also make metadata_bytes of metadata resident (0: nothing is made resident). The resident
 * pages are allocated before other pages, and stay resident when they are free again. rest(cache) makes the cache's own
 * slabs resident, as the last step. If rest() fails nothing is changed, except that a reduction holds. Context: one
 * thread at a time, so no thread undoes the work of another. Other threads wait; the function holds no lock that other
 * code waits for. */
struct km_ahead_want {
	size_t pages, metadata_bytes;
	unsigned order;
	uint32_t live_shift;
	struct kmem_cache *cache;
	bool (*rest)(struct kmem_cache *cache);
};
bool km_ahead_fault_in(size_t *reserved, const struct km_ahead_want *want);
/* For rest(): make each slab of the cache with wanted(slab) resident. wanted() is called with the lock of the slab's
 * node held. Slabs may be allocated and freed meanwhile. Returns: false if the system refuses. */
bool km_ahead_fault_in_slabs(const struct kmem_cache *cache, uint32_t live_shift,
			     bool (*wanted)(const struct kmem_cache *cache, const struct km_page *slab));
/* Gives up the pages reserved for a destroyed cache. */
void km_ahead_give_up(size_t pages);
/* Returns: the level: the number of free committed pages that a top-up aims at. */
size_t km_ahead_level(void);
void km_ahead_fork(bool before, bool child);

#endif
