/*
 * decay.c: free memory goes back by age without a call for this purpose. Of many more caches than one tick drains,
 * each with one object cached on a CPU, no slab is left in the end. Disciplines: all. With hardened: own_addresses:0,
 * because with address reuse pages go to the system with their slab, and are never free pages.
 */
#include "kit/api.h"

#define CACHES	300
#define VISITS	64	/* without cached objects, one call in so many runs a tick */
#define FEW_PAGES	16	/* pages that the visitor's slabs may have used a moment ago */

static unsigned with_slabs(struct kmem_cache **caches)
{
	unsigned left = 0;

	for (int i = 0; i < CACHES; i++) {
		struct kmem_cache_stats stats;

		kmem_cache_get_stats(caches[i], &stats);
		left += stats.total_slabs != 0;
	}
	return left;
}

/*
 * Runs ticks by misses: frees of this cache are checked, so the cache has no cached objects. The visitor takes almost
 * no pages, because pages in constant use keep the free pages beside them young.
 */
static void visit(struct kmem_cache *visitor)
{
	usleep(1000);
	for (int i = 0; i < VISITS; i++)
		kmem_cache_free(visitor, kmem_cache_alloc(visitor, GFP_KERNEL));
}

static void many(void)
{
	static struct kmem_cache *caches[CACHES];
	struct kmem_cache *visitor = kmem_cache_create("visitor", 64, NULL, SLAB_CONSISTENCY_CHECKS);
	struct kmem_cache_stats of_one;
	unsigned had_slabs = 0;
	char name[32];

	NEED(visitor);
	for (int i = 0; i < CACHES; i++) {
		snprintf(name, sizeof(name), "decay-%d", i);
		caches[i] = make(name, 500);
		void *p = kmem_cache_alloc(caches[i], GFP_KERNEL);
		NEED(p);
		kmem_cache_get_stats(caches[i], &of_one);
		had_slabs += of_one.total_slabs != 0;
		kmem_cache_free(caches[i], p);
	}
	/* Pages of slob are no cache's. */
	NEED(slob || had_slabs == CACHES);
	/* Ticks need a miss now and then, for any time. */
	for (int i = 0; with_slabs(caches); i++) {
		NEED(i < 30000);
		visit(visitor);
	}
	struct kmem_stats stats;
	for (int i = 0; kmem_get_stats(&stats), stats.pages_free_dirty > FEW_PAGES; i++) {
		NEED(i < 30000);
		visit(visitor);
	}
	NEED((slob || stats.purged_pages > 0) && kmem_check_all() == 0);
}

static const struct test_case cases[] = {
	{ "many idle caches", many },
};

API_MAIN_OPTIONS(cases, ",decay:20")
