/*
 * commit_ahead.h: memory that is committed before it is asked for. A request that may not wait makes no system call,
 * so it has what others left committed, and no more: a request that may call the system tops that up.
 */
#ifndef KM_PAGE_COMMIT_AHEAD_H
#define KM_PAGE_COMMIT_AHEAD_H

#include "base/cc.h"

struct km_page;
struct kmem_cache;

/* A request that may not wait wants pages (0: our own memory); got: it has them. For arena.c and who is short. */
void km_ahead_note(size_t pages, bool got);
/* Is anything to be done? For a tick; then, where the system may be called and no lock is held: */
bool km_ahead_wanted(void);
void km_ahead_top_up(void);
/* So many pages more are to be free at all times, and are committed now. False: the system refused, and
 * nothing is changed. */
bool km_ahead_reserve(long pages);
/* The same for a cache, which had *reserved and has `pages` then, and all that were asked for so are made resident, as
 * slabs of that order will find them; and so many bytes of our own memory, 0: nothing is. They are used before others,
 * and stay resident where they are free again. `rest` makes resident what the cache has. It comes last; where it fails
 * nothing is changed, but that fewer pages than before are granted all the same. One thread at a time: none undoes
 * another's. Others wait for it, and it holds no lock that is waited for elsewhere. */
struct km_ahead_want {
	size_t pages, meta_bytes;
	unsigned order;
	uint32_t live_shift;
	struct kmem_cache *cache;
	bool (*rest)(struct kmem_cache *cache);
};
bool km_ahead_fault_in(size_t *reserved, const struct km_ahead_want *want);
/* For `rest`: slabs of the cache that are wanted are made resident whole; asked under the lock of the slab's node. They
 * are used meanwhile, and may go. False: the system refuses. */
bool km_ahead_fault_in_slabs(const struct kmem_cache *cache, uint32_t live_shift,
			     bool (*wanted)(const struct kmem_cache *cache, const struct km_page *slab));
/* A cache goes that had so many: they are no longer to be free. */
void km_ahead_give_up(size_t pages);
/* Pages that should be free. */
size_t km_ahead_level(void);
void km_ahead_fork(bool before, bool child);

#endif
