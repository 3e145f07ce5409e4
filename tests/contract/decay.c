/*
 * decay.c: what is free goes back by age, with no call that asks for it: of many more caches than are drained at once,
 * each of which has one object ready on a CPU's shelf, no slab is left in the end. Disciplines: all
 */
#include "api.h"

#define CACHES	300
#define COMES_BY	(257 * 4096ul)	/* more than any CPU keeps ready: each free of it is a miss */

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

static void many(void)
{
	static struct kmem_cache *caches[CACHES];
	char name[32];

	for (int i = 0; i < CACHES; i++) {
		snprintf(name, sizeof(name), "decay-%d", i);
		caches[i] = make(name, 500);
		void *p = kmem_cache_alloc(caches[i], GFP_KERNEL);
		NEED(p);
		kmem_cache_free(caches[i], p);
	}
	/* Pages of slob are no cache's. */
	NEED(slob || with_slabs(caches) > 0);
	/* Somebody must come by now and then, however long it takes. */
	for (int i = 0; with_slabs(caches); i++) {
		NEED(i < 30000);
		usleep(1000);
		kfree(kmalloc(COMES_BY, GFP_KERNEL));
	}
	struct kmem_stats stats;
	/* Nothing but the block that we come by with. */
	for (int i = 0; kmem_get_stats(&stats), stats.pages_free_dirty > COMES_BY / 4096; i++) {
		NEED(i < 30000);
		usleep(1000);
		kfree(kmalloc(COMES_BY, GFP_KERNEL));
	}
	NEED((slob || stats.purged_pages > 0) && kmem_check_all() == 0);
}

static const struct api_case cases[] = {
	{ "many idle caches", many },
};

API_MAIN_OPTIONS(cases, ",decay:20")
