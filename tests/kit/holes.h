/*
 * holes.h: sheaf-engine caches with slabs that have pages without allocated objects. Makes such slabs, counts
 * their resident pages, and checks the contents of neighbouring objects.
 */
#ifndef TESTS_KIT_HOLES_H
#define TESTS_KIT_HOLES_H

#include <sys/mman.h>

#include "engine.h"
#include "slab/sheaf.h"

enum { SIZE = 2048, MANY = 320, PAGES = 32, TURNS = 400, THREADS = 2, CALLS = 20000, SHRINKS = 100 };

static unsigned char *objects[MANY];

static struct kmem_cache *fresh(unsigned size)
{
	return cache_of((struct kmem_cache_args){ .engine = "sheaf" }, size, 0);
}

static struct km_page *slab_of(const void *object)
{
	return km_page_head(km_page_of(object));
}

static unsigned resident(const struct km_page *slab)
{
	unsigned char is[PAGES];
	unsigned count = 0, pages = 1u << slab->order;

	NEED(pages <= PAGES && !mincore(km_page_address(slab), pages * KM_PAGE_SIZE, is));
	for (unsigned i = 0; i < pages; i++)
		count += is[i] & 1;
	return count;
}

static void write_to(unsigned i, unsigned size)
{
	memset(objects[i], (int)(i % 251 + 1), size);
}

static bool is_whole(unsigned i, unsigned size)
{
	for (unsigned at = 0; at < size; at++)
		if (objects[i][at] != i % 251 + 1)
			return false;
	return true;
}

static void fill(struct kmem_cache *cache, unsigned size)
{
	for (unsigned i = 0; i < MANY; i++)
		if (!objects[i]) {
			NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
			write_to(i, size);
		}
}

/* Moves all cached objects to their slabs. */
static void send_home(struct kmem_cache *cache)
{
	INSIDE(km_alloc_drain(cache));
	INSIDE(km_sheaf_flush_barn(cache, &sheaf_node(cache, 0)->barn));
}

/* Frees all objects but one of each slab. Returns: the number of slabs. */
static unsigned thin_out(struct kmem_cache *cache)
{
	struct km_page *seen[MANY];
	unsigned slabs = 0;

	for (unsigned i = 0; i < MANY; i++) {
		unsigned at = 0;

		while (at < slabs && seen[at] != slab_of(objects[i]))
			at++;
		if (at == slabs) {
			seen[slabs++] = slab_of(objects[i]);
			continue;
		}
		kmem_cache_free(cache, objects[i]);
		objects[i] = NULL;
	}
	send_home(cache);
	return slabs;
}

/*
 * Keeps the objects that begin before `page` of their slab; with `halves` only objects at the start of a page. Frees
 * the rest.
 */
static void keep_before(struct kmem_cache *cache, unsigned page, bool halves)
{
	for (unsigned i = 0; i < MANY; i++) {
		size_t at = (size_t)((char *)objects[i] - (char *)km_page_address(slab_of(objects[i])));

		if (at < page * KM_PAGE_SIZE && !(halves && at % KM_PAGE_SIZE))
			continue;
		kmem_cache_free(cache, objects[i]);
		objects[i] = NULL;
	}
	send_home(cache);
}

/* Returns: the resident pages of the slabs of all objects. */
static unsigned all_resident(void)
{
	unsigned pages = 0;

	for (unsigned i = 0; i < MANY; i++)
		pages += objects[i] ? resident(slab_of(objects[i])) : 0;
	return pages;
}

static void done(struct kmem_cache *cache, unsigned size)
{
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	for (unsigned i = 0; i < MANY; i++)
		if (objects[i]) {
			CHECK(is_whole(i, size));
			kmem_cache_free(cache, objects[i]);
			objects[i] = NULL;
		}
	/* Slabs of SLAB_TYPESAFE_BY_RCU may wait for a grace period. */
	CHECK(!kmem_cache_shrink(cache) || cache->layout.flags & SLAB_TYPESAFE_BY_RCU);
	kmem_cache_destroy(cache);
}

/* Stops the release of memory by age. */
static void begin(void)
{
	km_alloc_tick = NULL;
	kmem_shrink_all();
}

/* Creates a cache with one allocated object in each slab. Returns: the number of slabs. */
static unsigned thinned(struct kmem_cache **cache)
{
	begin();
	*cache = fresh(SIZE);
	fill(*cache, SIZE);
	return thin_out(*cache);
}

static size_t look(struct kmem_cache *cache)
{
	unsigned before = all_resident();

	INSIDE(cache->layout.engine->reap(cache));
	return before - all_resident();
}

#endif
