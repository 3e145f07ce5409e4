/*
 * nodump.h: slabs that are left out of core dumps: pages of blocks that have no other.
 */
#ifndef KM_PAGE_NODUMP_H
#define KM_PAGE_NODUMP_H

#include "arena.h"

/* As km_pages_alloc and km_pages_free; the content of a page that was freed is in no core dump either. */
struct km_page *km_nodump_alloc(unsigned order, int node, bool may_wait);
void km_nodump_free(struct km_page *page, unsigned order);
/* Blocks that nobody uses become memory like any other. Outside of all locks but that of reclaim. */
void km_nodump_release(void);
void km_nodump_fork(bool before, bool child);

#endif
