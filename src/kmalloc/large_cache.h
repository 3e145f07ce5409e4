/*
 * large_cache.h: blocks of whole pages that lie ready on CPUs: what kmalloc, malloc and kmalloc/large.c ask of
 * kmalloc/large_cache.c.
 *
 * Classes have each number of pages up to 16, then eight steps in each doubling up to 256 (1 MiB), so that less than an
 * eighth of a block is more than was asked for. A class is a cache of an engine of its own, large-<bytes>, made when it
 * has been asked for a few times. Its objects are large blocks like any other, but that the page map shows the class's
 * id at their first page: so a free is the hit that all frees are.
 *
 * A block that somebody pays for has classes of its own, large-cg-<bytes>, as kmalloc has: caches with SLAB_ACCOUNT,
 * whose blocks are paid for from when they are handed out until they leave the CPU's charged shelf
 * (memcg/charge_large.c).
 */
#ifndef KM_KMALLOC_LARGE_CACHE_H
#define KM_KMALLOC_LARGE_CACHE_H

#include "cache/cache.h"

#define KM_LARGE_CACHE_PAGES	256u	/* of the largest class */

/* By pages: the class's id; 0 where there is none yet, and at both ends. */
extern km_hidden uint16_t km_large_cache_id[KM_LARGE_CACHE_PAGES + 2];

/* Blocks lie ready in this process: nothing wants to see each of them come and go. Called once, at the start. */
void km_large_cache_start(void);

/*
 * One that is paid for, by who pays here for what gfp says; NULL: none. `size` bytes, aligned to `align`. Where
 * somebody is to pay, by gfp or otherwise, and no node is named.
 */
void *km_large_cache_hit_charged(size_t size, size_t align, gfp_t gfp);

/* A hit, or NULL: `size` bytes, that is more than a page, at the start of a page, as an ordinary gfp says. */
km_inline void *km_large_cache_hit_unpaid(size_t size)
{
	size_t pages = (size + KM_PAGE_SIZE - 1) >> KM_PAGE_SHIFT;

	return km_alloc_id(km_large_cache_id, km_min(pages, (size_t)KM_LARGE_CACHE_PAGES + 1));
}
km_inline void *km_large_cache_hit(size_t size, gfp_t gfp)
{
	if (km_unlikely(km_load(&km_account_asks)) && km_account_here)
		return km_large_cache_hit_charged(size, 1, gfp);
	return km_large_cache_hit_unpaid(size);
}

/* The class that serves so many bytes, made if it is worth it and the request may wait; NULL: none does. charged: of
 * blocks that somebody pays for. */
struct kmem_cache *km_large_cache_class(size_t bytes, bool charged, const struct km_request *request);
/* A block of the class that lies ready on this CPU, aligned to `align`; NULL: there is none. Nobody pays for it. */
void *km_large_cache_take(struct kmem_cache *class, size_t align);
/* Whatever is large enough and lies ready on this CPU, for who may not wait for more. */
void *km_large_cache_take_larger(size_t bytes, size_t align);
/* A live block becomes one of the class, which has as many pages, or is no longer one of its own (page->cache). Counts
 * it, and lets the page map say so. False: it can't be one, or its node's lock is held and may not be waited for. The
 * payer of one that leaves is in its page's word then. */
bool km_large_cache_join(struct kmem_cache *class, struct km_page *page, bool may_wait);
void km_large_cache_leave(struct km_page *page);
/* The bound of what may lie ready, in classes and for blocks that grow, has changed: the bound of what is free
 * follows. */
void km_large_cache_changed(void);
void km_large_cache_fork(bool before, bool child);

#endif
