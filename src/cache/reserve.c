/*
 * reserve.c: memory committed and made resident ahead for a cache. Invariant: page/commit_ahead.c keeps free the sum
 * requested by caches and by the option; a destroyed cache requests nothing. A cache in use first returns its cached
 * objects to their slabs. Slabs with free objects are then made resident in place.
 */
#include <errno.h>

#include "page/commit_ahead.h"
#include "cache.h"

#define RECORDS_FLOOR	((size_t)64 << 10)
#define RECORDS_OF_SLAB	192u	/* bytes of metadata for a slab: slob's marks, slab's list of indices, and some room */

/* Compute the pages for n objects. In shared pages an object has a header, and a page is never quite full. */
static bool pages_for(const struct kmem_cache *cache, size_t n, size_t *pages)
{
	size_t each = cache->layout.objects, slabs;

	if (cache->layout.engine->shared_pages)
		each = KM_PAGE_SIZE / (cache->layout.size + 2 * sizeof(void *)) ?: 1;
	slabs = n / each + (n % each != 0);
	return !__builtin_mul_overflow(slabs, (size_t)cache->form.slab_pages, pages) &&
	       *pages <= (SIZE_MAX >> 1) >> KM_PAGE_SHIFT;
}

/* Returns: bytes of metadata: sheaves, and the data that engines and accounting keep for each slab. */
static size_t records_for(const struct kmem_cache *cache, size_t n, size_t pages)
{
	size_t vectors = km_is_charged(cache) || cache->layout.flags & SLAB_ACCOUNT ? n * 2 * sizeof(uint64_t) : 0;

	return RECORDS_FLOOR + pages / cache->form.slab_pages * RECORDS_OF_SLAB + vectors;
}

/* Fault in the cache's per-CPU words on the CPUs used by threads. */
static void fault_in_words(const struct kmem_cache *cache)
{
	/* Lock the registry: a new group may allocate more of these words. */
	km_registry_lock();
	const uint32_t words[] = { cache->fast.pcs.slot, cache->memcg.charged.slot, cache->memcg.mixed.slot,
				   cache->fast.chain.slot, cache->state.percpu_offset, cache->state.word };
	km_registry_unlock();
	km_for_each_cpu(cpu)
		for (unsigned i = 0; i < km_array_count(words); i++) {
			uintptr_t at = (uintptr_t)km_area(cpu) + words[i], unit = km_os_page_bytes();

			if (words[i])
				km_os_fault_in((void *)km_align_down(at, unit), unit);
		}
}

/* Returns: whether the slab has free objects; a slab of slob is one object. */
static bool has_free_objects(const struct kmem_cache *cache, const struct km_page *slab)
{
	struct km_fullness fullness;

	if (!cache->layout.engine->fullness)
		return !km_load(&slab->inuse);
	cache->layout.engine->fullness(cache, slab, &fullness);
	return fullness.inuse < fullness.objects;
}

/* Makes slabs resident, except those of SLAB_NODUMP, whose frees can't be blocked meanwhile. */
static bool fault_in_slabs(const struct kmem_cache *cache)
{
	return cache->layout.flags & SLAB_NODUMP ||
	       km_ahead_fault_in_slabs(cache, cache->layout.live_shift, has_free_objects);
}

/* Makes all pages of the cache's slabs resident: purged pages (no page is purged from now on), and pages never
 * touched. */
static bool fault_in_rest(struct kmem_cache *cache)
{
	if ((cache->layout.engine->fill && !cache->layout.engine->fill(cache)) || !fault_in_slabs(cache))
		return false;
	for (struct kmem_cache *at = km_alloc_shadows(cache); at; at = at->ext.next_shadow)
		if (!fault_in_slabs(at))
			return false;
	return true;
}

int kmem_reserve(struct kmem_cache *cache, size_t n)
{
	size_t pages;

	if (km_unlikely(cache->layout.dead)) {
		km_misuse(KM_MISUSE_DEAD_CACHE, "kmem_reserve", cache, cache->registry.name);
		return -EINVAL;
	}
	if (!pages_for(cache, n, &pages))
		return -ENOMEM;
	/* In a signal handler inside the allocator, this thread may hold the locks already. */
	if (km_thread.busy)
		return -ENOMEM;
	/* First return cached objects to their slabs and free empty slabs, so that only free pages are made
	 * resident. */
	if (pages)
		km_cache_send_home(cache);
	struct km_busy_was was = km_busy_begin();
	const struct km_ahead_want want = {
		.pages = pages, .metadata_bytes = pages ? records_for(cache, n, pages) : 0,
		.order = cache->layout.order, .live_shift = cache->layout.live_shift, .cache = cache,
		.rest = fault_in_rest,
	};
	bool done = km_ahead_fault_in(&cache->state.reserved_pages, &want);
	/* After the reserve's lock is free: a user's function under the registry's lock may wait for a thread that
	 * reserves. */
	if (done && pages)
		fault_in_words(cache);
	km_busy_end(was);
	kmem_tick();
	return done ? 0 : -ENOMEM;
}
