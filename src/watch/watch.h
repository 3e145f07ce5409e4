/*
 * watch.h: what the watchers share.
 */
#ifndef KM_WATCH_WATCH_H
#define KM_WATCH_WATCH_H

#include <kmem/stats.h>

/* The two head lines of slabinfo 2.1, and a row of it; returns its length. */
extern const char km_slabinfo_head[];
size_t km_slabinfo_row(char *text, size_t bytes, const struct kmem_cache_stats *stats);

#endif
