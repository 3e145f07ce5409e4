/* deferred_free.h: deferred free of memory that a non-waiting call allocated and could not use. A free takes a
 * lock, so the call leaves the memory on a lock-free list, and a later caller that may wait frees the memory. */
#ifndef KM_PAGE_DEFERRED_FREE_H
#define KM_PAGE_DEFERRED_FREE_H

#include "arena.h"

/* Until km_deferred_end() this thread's frees of pages and metadata are put on the list, and take no lock. Returns: the
 * former state. */
km_inline bool km_deferred_begin(void)
{
	bool was = km_thread.late;

	km_thread.late = true;
	return was;
}

km_inline void km_deferred_end(bool was)
{
	km_thread.late = was;
}

/* Put pages with reset descriptors (km_deferred_metadata: a piece of metadata) on the list. */
void km_deferred_pages(struct km_page *page, unsigned order) km_cold;
void km_deferred_piece(void *p, size_t bytes) km_cold;
km_inline void km_deferred_or_free(struct km_page *page, unsigned order)
{
	if (km_unlikely(km_thread.late))
		km_deferred_pages(page, order);
	else
		km_pages_free(page, order);
}
/* Free all deferred memory. Context: the caller may wait, and holds no lock of the page layer. */
void km_deferred_finish(void);

#endif
