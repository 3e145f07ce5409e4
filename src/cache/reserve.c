/*
 * reserve.c: memory that is committed ahead for a cache. Invariant: what the caches and the option have asked for is
 * what page/ahead.c keeps free, and a cache that goes asks for nothing.
 */
#include <errno.h>

#include "../page/ahead.h"
#include "../port/die.h"
#include "cache.h"

/* Pages for so many objects. Where pages are shared, an object has a header, and a page is never quite full. */
static bool pages_for(const struct kmem_cache *cache, size_t n, size_t *pages)
{
	size_t each = cache->objects, slabs;

	if (cache->engine->shared_pages)
		each = KM_PAGE_SIZE / (cache->size + 2 * sizeof(void *)) ?: 1;
	slabs = n / each + (n % each != 0);
	return !__builtin_mul_overflow(slabs, (size_t)cache->slab_pages, pages) &&
	       *pages <= (SIZE_MAX >> 1) >> KM_PAGE_SHIFT;
}

int kmem_reserve(struct kmem_cache *cache, size_t n)
{
	size_t pages;

	if (km_unlikely(cache->dead)) {
		km_misuse(KM_MISUSE_DEAD_CACHE, "kmem_reserve", cache, cache->name);
		return -EINVAL;
	}
	if (!pages_for(cache, n, &pages))
		return -ENOMEM;
	/* In a handler that struck inside of the allocator the locks may be its own thread's. */
	if (km_front_busy)
		return -ENOMEM;
	km_registry_lock();
	bool done = km_ahead_reserve((long)pages - (long)cache->reserved_pages);
	if (done) {
		km_debug(km_ahead_level() >= pages, "what a cache has asked for is kept free");
		cache->reserved_pages = pages;
	}
	km_registry_unlock();
	return done ? 0 : -ENOMEM;
}
