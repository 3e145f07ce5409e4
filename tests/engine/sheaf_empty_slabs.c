/*
 * sheaf_empty_slabs: a cache of engine sheaf with slabs that come and go in turns keeps empty slabs beside
 * min_partial, until they are surplus or some request needs them. In all caches together the empty slabs are
 * at most a part of the memory in use. With an explicit min_partial no more slabs stay. Disciplines: all.
 */
#include "kit/engine.h"

#include <kmem/memcg.h>

#include "slab/sheaf.h"
#include "page/zone.h"

enum { SIZE = 1024, MANY = 1000, CACHES = 40, ROUNDS = 200 };

static void *objects[MANY];

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

/* Slabs made in the last of so many turns. */
static unsigned long turns(struct kmem_cache *cache)
{
	unsigned long made = 0;

	for (unsigned i = 0; i < ROUNDS; i++)
		made = turn(cache);
	return made;
}

static void done(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	CHECK_EQUAL(kmem_cache_shrink(cache), 0);
	CHECK_EQUAL(sheaf_node(cache, 0)->extra, 0);
	kmem_cache_get_stats(cache, &stats);
	CHECK_EQUAL(stats.total_slabs, 0);
	kmem_cache_destroy(cache);
}

/* Nothing ages meanwhile. */
static void begin(void)
{
	km_alloc_tick = NULL;
	kmem_shrink_all();
	CHECK_EQUAL(km_arena.empty_pages, 0);
}

/*
 * After one turn, or rare turns, no slab stays; after regular turns all needed slabs stay; and kmem_shrink_all
 * frees all of them.
 */
static void by_turns(void)
{
	struct kmem_cache *cache = fresh();

	begin();
	CHECK(turn(cache) > 0 && turn(cache) > 0);
	CHECK_EQUAL(sheaf_node(cache, 0)->extra, 0);
	CHECK_EQUAL(turns(cache), 0);
	CHECK(sheaf_node(cache, 0)->extra > 0);
	CHECK_EQUAL(km_arena.empty_pages, (size_t)sheaf_node(cache, 0)->extra << cache->layout.order);
	kmem_shrink_all();
	CHECK_EQUAL(km_arena.empty_pages, 0);
	done(cache);
}

static unsigned long empty_slabs(const struct sheaf_node *n)
{
	unsigned long count = 0;

	km_list_for_each(entry, &n->slabs.partial)
		count += !km_container_of(entry, struct km_page, list)->inuse;
	return count;
}

static void reap(struct kmem_cache *cache)
{
	INSIDE(cache->layout.engine->reap(cache));
}

/* Slabs empty from one reap to the next go, also of a cache in use; of an idle cache all go. */
static void surplus(void)
{
	struct kmem_cache *cache = fresh();
	struct sheaf_node *n = sheaf_node(cache, 0);

	begin();
	turns(cache);
	reap(cache);
	uint32_t needed = n->extra;
	CHECK(needed > 0);
	turn(cache);
	reap(cache);
	/* All but a few were needed. */
	CHECK(n->extra > needed / 2);
	for (int i = 0; i < 3; i++) {
		n->barn.touched = true;
		reap(cache);
	}
	/* None was. */
	CHECK_EQUAL(n->extra, 0);
	CHECK(empty_slabs(n) <= cache->tune.min_partial);
	turns(cache);
	CHECK(n->extra > 0);
	reap(cache);
	reap(cache);
	CHECK_EQUAL(n->extra, 0);
	CHECK_EQUAL(km_arena.empty_pages, 0);
	done(cache);
}

/* An explicit min_partial takes effect at once. */
static void as_told(void)
{
	struct kmem_cache *cache = fresh();

	begin();
	CHECK_EQUAL(turns(cache), 0);
	CHECK_EQUAL(kmem_cache_set_min_partial(cache, 5), 0);
	CHECK(turns(cache) > 0);
	reap(cache);
	CHECK_EQUAL(sheaf_node(cache, 0)->extra, 0);
	CHECK(turns(cache) > 0);
	CHECK_EQUAL(sheaf_node(cache, 0)->extra, 0);
	done(cache);
}

/* A private group is charged for its slabs, so no unused slab stays. */
static void charged(void)
{
	struct kmem_cache *cache = cache_of((struct kmem_cache_args){ .engine = "sheaf" }, SIZE, SLAB_ACCOUNT);
	struct mem_cgroup *group = mem_cgroup_create(NULL, "empty", MEM_CGROUP_PRIVATE);

	begin();
	CHECK(group != NULL);
	if (group) {
		MEMCG_SCOPE(group);
		turns(cache);
	}
	CHECK_EQUAL(km_arena.empty_pages, 0);
	mem_cgroup_put(group);
	done(cache);
}

/* All caches together keep at most a part of the memory in use; a destroyed cache leaves room. */
static void bounded(void)
{
	struct kmem_cache *cache[CACHES];
	size_t most = 0;

	begin();
	for (unsigned i = 0; i < CACHES; i++) {
		cache[i] = fresh();
		for (unsigned round = 0; round < ROUNDS; round++) {
			size_t before = km_arena.empty_pages;

			turn(cache[i]);
			/* As much is in use when the last object has come. */
			most = km_max(most, (km_pages_used() + (size_t)MANY) / 16 + 256);
			CHECK(km_arena.empty_pages == before || km_arena.empty_pages <= most);
		}
	}
	CHECK(km_arena.empty_pages > 0);
	for (unsigned i = 0; i < CACHES; i++)
		done(cache[i]);
	CHECK_EQUAL(km_arena.empty_pages, 0);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "by turns", by_turns }, { "surplus", surplus }, { "as told", as_told }, { "charged", charged },
		{ "bounded", bounded },
	};

	return run_in_turn(cases, km_array_count(cases), 20);
}
