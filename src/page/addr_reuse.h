/*
 * addr_reuse.h: address reuse by cache name: the pages of a freed slab are kept, and become slabs of caches of the
 * same name only, until a request would be refused for want of pages. So a stale pointer to a freed object leads to
 * an object of a cache of this name, or to no object. Kernel: the proposed SLAB_VIRTUAL.
 */
#ifndef KM_PAGE_ADDR_REUSE_H
#define KM_PAGE_ADDR_REUSE_H

#include "arena.h"

/* As km_pages_alloc and km_pages_free, for slabs of caches of this name. km_addr_reuse_free purges the pages if this
 * thread may make system calls, and keeps their addresses for the name. */
struct km_page *km_addr_reuse_alloc(const char *name, unsigned order, int node, bool may_wait);
void km_addr_reuse_free(const char *name, struct km_page *page, unsigned order);
/* Free kept pages of any name, at least `pages` if so many are kept, for a request that would otherwise be refused.
 * Returns: the number of freed pages. */
size_t km_addr_reuse_release(size_t pages);
/* Number of freed pages kept for caches of a name, and of guard pages. The zone counts these pages as used; statistics
 * count them as free and clean. */
extern km_hidden size_t km_addr_reuse_pages;
extern km_hidden struct km_lock km_addr_reuse_lock;	/* for a fork */

#endif
