/*
 * ahead.h: memory that is committed before it is asked for. A request that may not wait makes no system call, so it has
 * what others left committed, and no more: a request that may call the system tops that up.
 */
#ifndef KM_PAGE_AHEAD_H
#define KM_PAGE_AHEAD_H

#include "../port/cc.h"

/* A request that may not wait wants pages (0: our own memory); got: it has them. For arena.c and who is short. */
void km_ahead_note(size_t pages, bool got);
/* Is anything to be done? For a tick; then, where the system may be called and no lock is held: */
bool km_ahead_wanted(void);
void km_ahead_top_up(void);
/* So many pages more are to be free at all times, and are committed now. False: the system refused, and
 * nothing is changed. */
bool km_ahead_reserve(long pages);
/* The same for a cache, which had *reserved and has `pages` then, and all that were asked for so are made resident; and
 * so many bytes of our own memory, 0: nothing is. They are used before others, and stay resident where they are free
 * again. One thread at a time; others wait for it, and it holds no lock that is waited for elsewhere. */
bool km_ahead_fault_in(size_t *reserved, size_t pages, size_t meta_bytes, uint32_t live_shift);
/* A cache goes that had so many: they are no longer to be free. */
void km_ahead_give_up(size_t pages);
/* Pages that should be free. */
size_t km_ahead_level(void);
void km_ahead_fork(bool before, bool child);

#endif
