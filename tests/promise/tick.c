/*
 * tick: a program without requests, only with ticks, gives back unused memory: sheaves and barns of caches, free
 * pages, and pages of engine sheaf's slabs without an allocated object. Memory used in between stays cached. Calls
 * that give back many pages at once leave no more resident pages than the bound. A tick ends when called from a visit
 * of all caches, and in a handler that interrupts the allocator. Disciplines: all. With hardened: own_addresses:0,
 * because with address reuse pages go to the system with their slab, and are never free pages.
 */
#include <errno.h>

#include <kmem/memcg.h>

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

/* Free pages that may be resident are within the bound after a call that gives many back at once. */
static void is_bounded(const char *after)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	printf("after %s: %lu pages in use, %lu free and resident\n", after, (unsigned long)stats.pages_used,
	       (unsigned long)stats.pages_free_dirty);
	NEED(stats.pages_free_dirty <= stats.pages_used / 4 + 256);
	/* Resets the demand: the bound is higher for a program with swinging demand. */
	kmem_shrink_all();
}

enum { CACHES = 16 };

/* Allocates and frees objects, so that the CPU caches them. */
static void use(struct kmem_cache *cache)
{
	for (unsigned i = 0; i < MANY / CACHES; i++)
		NEED((object[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (unsigned i = 0; i < MANY / CACHES; i++)
		kmem_cache_free(cache, object[i]);
}

static void caches_end_within_bound(void)
{
	struct kmem_cache *caches[CACHES];
	char name[16];

	for (unsigned i = 0; i < CACHES; i++) {
		snprintf(name, sizeof(name), "ready %u", i);
		caches[i] = make(name, SIZE);
		use(caches[i]);
	}
	for (unsigned i = 0; i < CACHES; i++)
		kmem_cache_shrink(caches[i]);
	is_bounded("kmem_cache_shrink");
	for (unsigned i = 0; i < CACHES; i++)
		use(caches[i]);
	for (unsigned i = 0; i < CACHES; i++)
		kmem_cache_destroy(caches[i]);
	is_bounded("kmem_cache_destroy");
}

/* Objects of engine slob are never charged. */
static void others_end_within_bound(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "destroyed", MEM_CGROUP_PRIVATE);
	struct kmem_cache *cache = make("bounded", SIZE);

	NEED(group);
	NEED(kmem_reserve(cache, MANY) == 0 && kmem_reserve(cache, 0) == 0);
	is_bounded("kmem_reserve");
	for (unsigned i = 0; i < MANY && !slob; i++)
		NEED((object[i] = kmem_cache_alloc_in(cache, group, GFP_KERNEL | __GFP_ACCOUNT)));
	NEED(mem_cgroup_destroy_all(group, NULL, NULL) == 0);
	is_bounded("mem_cgroup_destroy_all");
	mem_cgroup_put(group);
	gone(cache);
}

static bool stays(const void *p)
{
	return (uintptr_t)p / 4096 % PAGES == 3;
}

/* 8 MB, less than a fifth allocated, in each slab. */
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
	{ "caches end within the bound", caches_end_within_bound },
	{ "other calls end within it", others_end_within_bound },
};
API_MAIN(cases)
