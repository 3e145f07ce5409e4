/*
 * meta.h: memory for ourselves. It never comes from a cache, so nothing recurses; it is never given back
 * and never changes its alignment, so a stale pointer into it may always be read.
 */
#ifndef KM_PAGE_META_H
#define KM_PAGE_META_H

#include "../port/cc.h"

/* Zeroed memory of at least `bytes`, aligned to the next power of two (at most a page); NULL: none left. */
void *km_meta_alloc(size_t bytes, bool may_wait);
void km_meta_free(void *p, size_t bytes);
size_t km_meta_committed_bytes(void);
void km_meta_fork(bool before, bool child);

#endif
