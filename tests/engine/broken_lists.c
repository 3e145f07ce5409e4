/*
 * broken_lists.c: a circular list is a damage found by a check. No check walks a circle forever, nor does a
 * statistic: the child of a handler's fork may have such a list, where another thread was changing the list. Slabs of
 * each engine, a barn's sheaves, free pages. Engines: all.
 */
#include "kit/engine.h"

#include "slab/sheaf.h"
#include "engines/slob/slob.h"
#include "page/zone.h"

enum { SIZE = 1000, MANY = 2000, EACH = 40, PATIENCE_S = 300 };

static void *objects[MANY];

/* Slabs with a few allocated objects each. */
static struct kmem_cache *thin(const char *engine)
{
	struct kmem_cache *cache = cache_of((struct kmem_cache_args){ .engine = engine }, SIZE, 0);

	for (unsigned i = 0; i < MANY; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (unsigned i = 0; i < MANY; i++)
		if (i % EACH) {
			kmem_cache_free(cache, objects[i]);
			objects[i] = NULL;
		}
	kmem_cache_shrink(cache);
	NEED(kmem_check_all() == 0);
	return cache;
}

static void done(struct kmem_cache *cache)
{
	NEED(kmem_check_all() == 0);
	for (unsigned i = 0; i < MANY; i++)
		if (objects[i])
			kmem_cache_free(cache, objects[i]);
	NEED(kmem_cache_shrink(cache) == 0);
	kmem_cache_destroy(cache);
}

/* The second entry's next is the entry itself. */
static void is_found(const struct km_list *list, struct kmem_cache *cache)
{
	struct km_list *entry = list->next->next, *next = entry->next;
	struct kmem_cache_stats stats;

	NEED(entry != list && entry != list->next);
	entry->next = entry;
	CHECK(kmem_check_all() == -EIO);
	kmem_cache_get_stats(cache, &stats);
	entry->next = next;
}

static void slabs(const char *engine)
{
	struct kmem_cache *cache = thin(engine);

	is_found(&((struct km_slabs *)cache->state.node[0])->partial, cache);
	done(cache);
}

static void in_sheaf(void)
{
	slabs("sheaf");
}

static void in_slub(void)
{
	slabs("slub");
}

static void in_slab(void)
{
	slabs("slab");
}

static void in_slob(void)
{
	struct kmem_cache *cache = thin("slob");
	const struct km_list *longest = NULL;

	for (unsigned i = 0; i < KM_SLOB_LISTS; i++)
		if (km_slob.list[i].next->next != &km_slob.list[i])
			longest = &km_slob.list[i];
	NEED(longest);
	is_found(longest, cache);
	done(cache);
}

static void in_a_barn(void)
{
	struct kmem_cache *cache = thin("sheaf");
	struct barn *barn = &sheaf_node(cache, 0)->barn;

	for (unsigned i = 0; i < MANY; i++)
		if (!objects[i])
			NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (unsigned i = 0; i < MANY; i++)
		if (i % EACH) {
			kmem_cache_free(cache, objects[i]);
			objects[i] = NULL;
		}
	NEED(barn->full_count > 1);
	uint64_t *header = km_sheaf_header(&cache->fast.pcs, barn->full), next = *header;
	*header = (uint64_t)(uintptr_t)barn->full;
	CHECK(kmem_check_all() == -EIO);
	*header = next;
	done(cache);
}

static void in_free_pages(void)
{
	struct kmem_cache *cache = thin("sheaf");
	struct km_zone *zone = &km_arena.zone[0];
	struct km_list *list = NULL;

	for (unsigned kind = 0; kind < 2; kind++) {
		unsigned bin = km_run_bin_above(zone, kind, 0);

		if (bin < KM_RUN_BINS)
			list = &zone->bin[kind][bin];
	}
	NEED(list);
	struct km_list *entry = list->next, *next = entry->next;
	entry->next = entry;
	CHECK(kmem_check_all() == -EIO);
	entry->next = next;
	done(cache);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "in sheaf", in_sheaf }, { "in slub", in_slub }, { "in slab", in_slab }, { "in slob", in_slob },
		{ "in a barn", in_a_barn }, { "in free pages", in_free_pages },
	};

	/* No memory goes back by age; and an endless walk ends by a signal. */
	km_alloc_tick = NULL;
	alarm(PATIENCE_S);
	return run_in_turn(cases, km_array_count(cases), 1);
}
