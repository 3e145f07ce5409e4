/*
 * sheaf_phases: a program allocates many objects and frees all of them, again and again. From the second turn on the
 * barn of engine sheaf keeps the objects, so no slab comes or goes. An unused barn gives the objects back; a barn
 * of a private group keeps none beyond the initial limit, because the group pays for the slabs. Nor does a barn of
 * sheaves with few objects each, or under a limit on memory, because sheaves have memory, too. While other caches
 * grow, a cache that is not used gives its objects back, so all caches together hold little more than one needs.
 * Disciplines: all.
 */
#include "kit/engine.h"

#include <kmem/memcg.h>

#include "cache/cache.h"
#include "page/arena.h"
#include "slab/sheaf.h"

enum { SIZE = 1024, MANY = 4000, CACHES = 40 };

static void *objects[MANY];
static void (*tick)(void);

static struct kmem_cache *fresh(void)
{
	return cache_of((struct kmem_cache_args){ .engine = "sheaf" }, SIZE, 0);
}

static unsigned long fresh_slabs(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return stats.alloc_slab;
}

/* Allocates and frees all objects. Returns: the number of new slabs. */
static unsigned long turn(struct kmem_cache *cache)
{
	unsigned long before = fresh_slabs(cache);

	for (unsigned i = 0; i < MANY; i++)
		CHECK((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (unsigned i = 0; i < MANY; i++)
		kmem_cache_free(cache, objects[i]);
	return fresh_slabs(cache) - before;
}

static void done(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	CHECK_EQUAL(kmem_cache_shrink(cache), 0);
	CHECK_EQUAL(sheaf_node(cache, 0)->barn.more, 0);
	kmem_cache_get_stats(cache, &stats);
	CHECK_EQUAL(stats.total_slabs, 0);
	kmem_cache_destroy(cache);
}

/* Nothing ages meanwhile. */
static void begin(void)
{
	tick = km_alloc_tick ?: tick;
	km_alloc_tick = NULL;
	kmem_shrink_all();
}

/* The second turn learns; kmem_shrink_all forgets. */
static void by_turns(void)
{
	struct kmem_cache *cache = fresh();

	begin();
	CHECK(turn(cache) > 0 && turn(cache) > 0);
	CHECK_EQUAL(turn(cache), 0);
	CHECK_EQUAL(turn(cache), 0);
	kmem_shrink_all();
	CHECK_EQUAL(sheaf_node(cache, 0)->barn.more, 0);
	CHECK(turn(cache) > 0);
	done(cache);
}

/* An explicit min_partial concerns slabs, not cached objects. */
static void as_told(void)
{
	struct kmem_cache *cache = fresh();

	begin();
	CHECK_EQUAL(kmem_cache_set_min_partial(cache, 5), 0);
	CHECK(turn(cache) > 0 && turn(cache) > 0);
	CHECK_EQUAL(turn(cache), 0);
	done(cache);
}

static void charged(void)
{
	struct kmem_cache *cache = cache_of((struct kmem_cache_args){ .engine = "sheaf" }, SIZE, SLAB_ACCOUNT);
	struct mem_cgroup *group = mem_cgroup_create(NULL, "phases", MEM_CGROUP_PRIVATE);

	begin();
	CHECK(group != NULL);
	if (group) {
		MEMCG_SCOPE(group);
		for (unsigned i = 0; i < 3; i++)
			turn(cache);
		CHECK(mem_cgroup_current(group) < MANY * SIZE / 4);
	}
	mem_cgroup_put(group);
	done(cache);
}

/* A barn keeps ten sheaves with two small objects each: a sheaf has the memory for the largest capacity. */
static void small_sheaves(void)
{
	struct kmem_cache *cache = cache_of((struct kmem_cache_args){ .engine = "sheaf" }, 64, 0);

	begin();
	CHECK_EQUAL(km_cache_set_capacity(cache, 2), 0);
	for (unsigned i = 0; i < 3; i++)
		turn(cache);
	CHECK_EQUAL(sheaf_node(cache, 0)->barn.more, 0);
	CHECK(sheaf_node(cache, 0)->barn.full_count <= MAX_FULL_SHEAVES);
	done(cache);
}

/* Under a limit on memory a barn does not grow, because the memory of sheaves stays committed. */
static void limited(void)
{
	struct kmem_cache *cache = fresh();

	begin();
	km_os_set_data_limit((size_t)1 << 40);
	for (unsigned i = 0; i < 3; i++)
		turn(cache);
	km_os_set_data_limit(SIZE_MAX);
	CHECK_EQUAL(sheaf_node(cache, 0)->barn.more, 0);
	done(cache);
}

/* Each cache has three turns, and the next cache follows. */
static void bounded(void)
{
	struct kmem_cache *cache[CACHES];
	size_t most = 0;

	begin();
	km_alloc_tick = tick;
	for (unsigned i = 0; i < CACHES; i++) {
		cache[i] = fresh();
		for (unsigned round = 0; round < 3; round++)
			turn(cache[i]);
		most = km_max(most, km_pages_there());
	}
	/* The cache in use, and the cache before, whose objects wait for the second sweep. */
	CHECK(most << KM_PAGE_SHIFT < 3 * (size_t)MANY * SIZE);
	km_alloc_tick = NULL;
	for (unsigned i = 0; i < CACHES; i++)
		done(cache[i]);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "by turns", by_turns }, { "as told", as_told }, { "charged", charged },
		{ "small sheaves", small_sheaves }, { "limited", limited }, { "bounded", bounded },
	};

	return run_in_turn(cases, km_array_count(cases), 20);
}
