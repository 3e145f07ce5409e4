/*
 * large_cache.h: large blocks cached on CPUs: the interface of large_cache.c for kmalloc, malloc and large.c.
 *
 * A class (size_classes.h) is a cache of its own engine, large-<bytes>, made after a few requests. An object of a
 * class is an ordinary large block, except that the page map has the id of the class at the first page. A free is
 * therefore the fast path of all frees.
 *
 * Charged blocks have classes of their own, large-cg-<bytes>, as in kmalloc: caches with SLAB_ACCOUNT. A charged
 * block stays charged from its allocation until it leaves the CPU's charged sheaf (memcg/charge_large.c).
 */
#ifndef KM_KMALLOC_LARGE_CACHE_H
#define KM_KMALLOC_LARGE_CACHE_H

#include "cache/cache.h"
#include "size_classes.h"

/* Id of the class by number of pages; 0 where no class exists yet, and at both ends. */
extern km_hidden uint16_t km_large_cache_id[KM_LARGE_CACHE_PAGES + 2];

/* Allow cached large blocks, unless an observer must see every block come and go. Context: called once, at the
 * start. */
void km_large_cache_start(void);

/* Allocate a charged large block of `size` bytes, aligned to `align`, for the objcg that `gfp` selects. Requires: the
 * block is to be charged, by `gfp` or otherwise, and no node is named. Returns: NULL if no block is cached. */
void *km_large_cache_hit_charged(size_t size, size_t align, gfp_t gfp);

/* Allocate a cached block of `size` bytes at the start of a page, charged if gfp or the thread says so. Requires:
 * `size` is above a page, and `gfp` has no other odd flags. Returns: NULL on a miss. */
km_inline void *km_large_cache_hit(size_t size, gfp_t gfp)
{
	size_t pages = (size + KM_PAGE_SIZE - 1) >> KM_PAGE_SHIFT;

	if (km_unlikely(km_load(&km_account_asks)) && (km_account_here || gfp & __GFP_ACCOUNT))
		return km_large_cache_hit_charged(size, 1, gfp);
	return km_alloc_id(km_large_cache_id, km_min(pages, (size_t)KM_LARGE_CACHE_PAGES + 1));
}

/* Returns: the class for `bytes`, made if requested often enough and the request may wait; NULL if no class serves
 * the size. charged: a class of charged blocks. */
struct kmem_cache *km_large_cache_class(size_t bytes, bool charged, const struct km_request *request);
/* Take one uncharged block cached on this CPU. Returns: NULL if none is cached, or the block taken is not aligned. */
void *km_large_cache_take(struct kmem_cache *class, size_t align);
/* Take any sufficiently large block cached on this CPU, for a request that may not wait. */
void *km_large_cache_take_larger(size_t bytes, size_t align);
/* join attaches an allocated block to a class with as many pages; leave detaches a block from its class (page->cache).
 * Both update the count and the page map. join returns false if the class can't take the block, or if the node's lock
 * is held and may not be waited for. After leave, the page's owner word has the objcg of a charged block. */
bool km_large_cache_join(struct kmem_cache *class, struct km_page *page, bool may_wait);
void km_large_cache_leave(struct km_page *page);
/* Tell the page layer how many pages may be cached on CPUs, after this number has changed. soon: pages about to be
 * cached. */
void km_large_cache_changed(size_t soon);
void km_large_cache_fork(bool before, bool child);

#endif
