/*
 * reap: one reap walks a part of a long list of partial slabs, and the next reap goes on from there: surplus empty
 * slabs go from any place of the list, and no reap takes the time of the whole list. An idle cache is reaped in the
 * same way. Engines: sheaf, slub. Disciplines: all. With hardened: own_addresses:0,random_order:0, because the test
 * expects freed slabs and objects in the order of addresses.
 */
#include "kit/engine.h"

#include "slab/partial.h"

enum { SIZE = 256, SLABS = 6000, ROUNDS = 64 };

/* One object of each second slab stays: kept_objects[]. */
static void **objects, **kept_objects;

static struct kmem_cache *long_list(const char *engine, unsigned int *kept)
{
	struct kmem_cache *cache = cache_of((struct kmem_cache_args){ .engine = engine }, SIZE, 0);
	const unsigned int each = cache->layout.objects, many = SLABS * each;
	const struct km_page *last = NULL;
	unsigned int slabs = 0;

	*kept = 0;
	kmem_cache_set_min_partial(cache, 2 * SLABS);
	NEED((objects = calloc(many, sizeof(*objects))) && (kept_objects = calloc(SLABS, sizeof(*kept_objects))));
	for (unsigned int i = 0; i < many; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (unsigned int i = 0; i < many; i++) {
		const struct km_page *slab = km_page_head(km_page_of(objects[i]));

		if (slab != last && slabs++ % 2 && *kept < SLABS)
			kept_objects[(*kept)++] = objects[i];
		else
			kmem_cache_free(cache, objects[i]);
		last = slab;
	}
	INSIDE(km_alloc_drain(cache));
	return cache;
}

static unsigned long slabs_of(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats = { .name = "" };

	INSIDE(cache->layout.engine->stats(cache, &stats));
	return stats.total_slabs;
}

static void done(struct kmem_cache *cache, unsigned int kept)
{
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	for (unsigned int i = 0; i < kept; i++)
		kmem_cache_free(cache, kept_objects[i]);
	CHECK_EQUAL(kmem_cache_shrink(cache), 0);
	kmem_cache_destroy(cache);
	free(objects);
	free(kept_objects);
}

static void part_by_part(const char *engine)
{
	unsigned int kept, rounds = 0;
	unsigned long before, after;
	struct kmem_cache *cache = long_list(engine, &kept);

	/* Objects in an idle barn go back to their slabs. */
	INSIDE(cache->layout.engine->reap(cache));
	INSIDE(cache->layout.engine->reap(cache));
	before = slabs_of(cache);
	printf("%s: %lu slabs, %u objects are allocated\n", engine, before, kept);
	CHECK(kept > SLABS / 4 && before >= kept + SLABS / 4);
	kmem_cache_set_min_partial(cache, 0);
	INSIDE(cache->layout.engine->reap(cache));
	after = slabs_of(cache);
	printf("%s: %lu after a look\n", engine, after);
	CHECK(after < before && after > kept + (before - kept) / 2);
	for (before = after; after > kept && rounds < ROUNDS; rounds++) {
		INSIDE(cache->layout.engine->reap(cache));
		after = slabs_of(cache);
	}
	printf("%s: %lu after %u more\n", engine, after, rounds);
	CHECK_EQUAL(after, kept);
	done(cache, kept);
}

int main(void)
{
	/* On one CPU objects come in the order of addresses. No memory goes back by age. */
	stay_here();
	km_alloc_tick = NULL;
	part_by_part("sheaf");
	part_by_part("slub");
	return failures != 0;
}
