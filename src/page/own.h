/*
 * own.h: pages whose addresses stay with a name: a page that was a slab of a cache is never one of a cache of
 * another name, nor anything else, as long as no request would be refused for it. So a pointer to an object that was
 * freed leads to an object of the same kind, or to nothing. Kernel: SLAB_VIRTUAL, which was proposed.
 */
#ifndef KM_PAGE_OWN_H
#define KM_PAGE_OWN_H

#include "arena.h"

/* As km_pages_alloc and km_pages_free. The memory of a page that was freed goes back to the system, where it may be
 * called; its address does not. */
struct km_page *km_own_alloc(const char *name, unsigned order, int node, bool may_wait);
void km_own_free(const char *name, struct km_page *page, unsigned order);
/* A request is about to be refused for want of pages or address space: so many pages, or all that are kept, are
 * anybody's from now on. Returns pages. */
size_t km_own_release(size_t pages);
void km_own_fork(bool before, bool child);

#endif
