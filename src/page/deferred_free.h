/*
 * deferred_free.h: memory that was got by a call which may wait for nothing, and could not be used after all: to give
 * it back takes a lock. It is left on a list that needs none, and whoever may wait gives it back.
 */
#ifndef KM_PAGE_DEFERRED_FREE_H
#define KM_PAGE_DEFERRED_FREE_H

#include "arena.h"

/* Until km_deferred_end this thread gives nothing back that takes a lock. */
extern km_hidden km_tls bool km_late;
km_inline bool km_deferred_begin(void)
{
	bool was = km_late;

	km_late = true;
	return was;
}

km_inline void km_deferred_end(bool was)
{
	km_late = was;
}

/* Pages whose descriptors say nothing any more; pieces of our own memory. */
void km_deferred_pages(struct km_page *page, unsigned order) km_cold;
void km_deferred_piece(void *p, size_t bytes) km_cold;
km_inline void km_deferred_or_free(struct km_page *page, unsigned order)
{
	if (km_unlikely(km_late))
		km_deferred_pages(page, order);
	else
		km_pages_free(page, order);
}
/* All that was left; the caller may wait, and holds no lock of this floor. */
void km_deferred_finish(void);

#endif
