/*
 * tick: a program that asks for nothing any more, but for its ticks, gives back what it does not use: shelves and barns
 * of caches, free pages; and pages of engine sheaf's slabs in which nothing is live. What it uses in between stays
 * ready. From within a visit of all caches, and in a handler that struck inside of the allocator, it ends.
 * Disciplines: all.
 * With hardened: own_addresses:0, for with them pages go to the system with their slab, and are never free ones.
 */
#include <errno.h>

#include "kit/api.h"
#include "kit/clock.h"
#include "kit/rollup.h"

#define MANY	4000u
#define SIZE	2000u
#define PAGES	8u	/* of so many, as many as a slab of sheaf has, one has what stays */
#define STEP_MS	100
#define STEPS	600	/* a minute: engine slab gives back a fifth at a time */

static void *object[MANY];

static void fill(struct kmem_cache *cache)
{
	for (unsigned i = 0; i < MANY; i++) {
		NEED((object[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		memset(object[i], (int)i, SIZE);
	}
}

static void time_goes_by(void)
{
	for (unsigned i = 0; i < STEPS; i++) {
		ahead_ms += STEP_MS;
		errno = EBADF;
		kmem_tick();
		NEED(errno == EBADF);
	}
}

static void goes_back(void)
{
	struct kmem_cache *cache = make("due", SIZE);
	struct kmem_cache_stats stats;
	struct kmem_stats all_stats;

	fill(cache);
	for (unsigned i = 0; i < MANY; i++)
		kmem_cache_free(cache, object[i]);
	time_goes_by();
	kmem_cache_get_stats(cache, &stats);
	NEED(!stats.shelf_objects && !stats.total_slabs);
	kmem_get_stats(&all_stats);
	NEED(!all_stats.pages_free_dirty);
	gone(cache);
}

static bool stays(const void *p)
{
	return (uintptr_t)p / 4096 % PAGES == 3;
}

/* 8 MB, of which less than a fifth is live, in each slab. */
static void holes_go_back(void)
{
	struct kmem_cache *cache = make("holes", SIZE);
	struct kmem_cache_stats stats;
	unsigned live = 0;

	fill(cache);
	size_t full_kb = rollup_kb("Rss");
	for (unsigned i = 0; i < MANY; i++)
		if (stays(object[i]))
			live++;
		else
			kmem_cache_free(cache, object[i]);
	time_goes_by();
	kmem_cache_get_stats(cache, &stats);
	size_t left_kb = rollup_kb("Rss");
	NEED(stats.active_objects == live && !stats.shelf_objects);
	if (!strcmp(stats.engine, "sheaf"))
		CHECK(left_kb + (size_t)MANY * SIZE / 1024 / 2 <= full_kb, "%zu KiB of %zu", left_kb, full_kb);
	for (unsigned i = 0; i < MANY; i++) {
		if (!stays(object[i]))
			continue;
		NEED(all(object[i], (int)(i & 0xff), SIZE));
		kmem_cache_free(cache, object[i]);
	}
	gone(cache);
}

static int visit(struct kmem_cache *cache, void *arg)
{
	ahead_ms += STEP_MS;
	kmem_tick();
	return 0;
}

static void within_a_visit(void)
{
	NEED(kmem_for_each_cache(visit, NULL) == 0);
	NEED(kmem_check_all() == 0);
}

static const struct test_case cases[] = {
	{ "goes back", goes_back }, { "holes go back", holes_go_back }, { "within a visit", within_a_visit },
};
API_MAIN(cases)
