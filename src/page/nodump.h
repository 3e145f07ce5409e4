/* nodump.h: slabs excluded from core dumps (SLAB_NODUMP). These slabs have largest blocks of their own. */
#ifndef KM_PAGE_NODUMP_H
#define KM_PAGE_NODUMP_H

#include "arena.h"

/* As km_pages_alloc() and km_pages_free(). The content of a freed page never appears in a core dump either. */
struct km_page *km_nodump_alloc(unsigned order, int node, bool may_wait);
void km_nodump_free(struct km_page *page, unsigned order);
/* Give unused blocks back to the page runs, as pages of core dumps again. Context: no lock is held except the lock of
 * reclaim. */
void km_nodump_release(void);
extern km_hidden struct km_lock km_nodump_lock;	/* for a fork */

#endif
