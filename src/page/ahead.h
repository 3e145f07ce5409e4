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
/* So many pages more (or fewer) are to be free at all times; more are committed now. False: the system refused, and
 * nothing is changed. */
bool km_ahead_reserve(long pages);
/* The same, and all that were asked for so are made resident; and so many bytes of our own memory, 0: nothing is. They
 * are used before others, and stay resident where they are free again. */
bool km_ahead_fault_in(long more, size_t meta_bytes, uint32_t live_shift);
/* Pages that should be free. */
size_t km_ahead_level(void);
void km_ahead_fork_child(void);

#endif
