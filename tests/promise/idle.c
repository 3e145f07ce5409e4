/*
 * idle: after kmem_idle no free object is cached: sheaves and barns are empty, each slab has an allocated object, and
 * no free page is resident; allocated objects are unchanged. Other threads go on meanwhile. kmem_idle ends when
 * called from a visit of all caches, and with very many caches. Disciplines: all.
 */
#include <pthread.h>

#include <kmem/stats.h>

#include "kit/api.h"

#define MANY	20000u

static void *object[MANY];

static void fill(struct kmem_cache *cache, unsigned keep_each)
{
	for (unsigned i = 0; i < MANY; i++)
		NEED((object[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (unsigned i = 0; i < MANY; i++) {
		memset(object[i], (int)i, 100);
		if (!keep_each || i % keep_each)
			kmem_cache_free(cache, object[i]);
	}
}

static void comes_back(void)
{
	struct kmem_cache *none = make("none stays", 100), *some = make("some stay", 100);
	struct kmem_cache_stats stats;
	struct kmem_stats all;

	fill(none, 0);
	fill(some, 1000);
	void *large = kvmalloc(10 << 20, GFP_KERNEL);
	memset(large, 1, 10 << 20);
	kvfree(large);
	kmem_idle();
	kmem_cache_get_stats(none, &stats);
	NEED(!stats.shelf_objects && !stats.total_slabs);
	kmem_cache_get_stats(some, &stats);
	NEED(!stats.shelf_objects && stats.active_objects == MANY / 1000 && stats.total_slabs <= MANY / 1000);
	kmem_get_stats(&all);
	NEED(!all.pages_free_dirty);
	for (unsigned i = 0; i < MANY; i += 1000) {
		for (unsigned at = 0; at < 100; at++)
			NEED(((unsigned char *)object[i])[at] == (unsigned char)i);
		kmem_cache_free(some, object[i]);
	}
	/* As often as one likes. */
	for (unsigned i = 0; i < 100; i++)
		kmem_idle();
	NEED(kmem_check_all() == 0);
}

static int stop;

static void *works(void *cache)
{
	void *some[100];

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		for (unsigned i = 0; i < 100; i++)
			NEED((some[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		for (unsigned i = 0; i < 100; i++)
			kmem_cache_free(cache, some[i]);
	}
	return NULL;
}

static void others_work(void)
{
	struct kmem_cache *cache = make("others", 64);
	struct kmem_cache_stats stats;
	pthread_t thread[3];

	for (unsigned i = 0; i < 3; i++)
		NEED(!pthread_create(&thread[i], NULL, works, cache));
	for (unsigned i = 0; i < 50; i++)
		kmem_idle();
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	kmem_idle();
	kmem_cache_get_stats(cache, &stats);
	NEED(!stats.active_objects && !stats.total_objects);
	NEED(kmem_check_all() == 0);
}

static void *falls_idle(void *arg)
{
	kmem_idle();
	kmem_idle();
	return arg;
}

static bool in_a_miss;

/* Reclaim runs in the middle of a miss: objects that the miss then puts on a sheaf still go at the next call. */
static void constructs(void *object)
{
	pthread_t thread;

	*(long *)object = 0;
	if (!in_a_miss)
		return;
	in_a_miss = false;
	NEED(!pthread_create(&thread, NULL, falls_idle, NULL) && !pthread_join(thread, NULL));
}

static void within_a_miss(void)
{
	struct kmem_cache_args args = { .align = 8, .ctor = constructs };
	struct kmem_cache *cache = kmem_cache_create("missing", 64, &args, 0);
	struct kmem_cache_stats stats;

	NEED(cache);
	kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
	kmem_idle();
	in_a_miss = true;
	void *object = kmem_cache_alloc(cache, GFP_KERNEL);
	NEED(object && !in_a_miss);
	kmem_cache_free(cache, object);
	kmem_idle();
	kmem_cache_get_stats(cache, &stats);
	NEED(!stats.shelf_objects && !stats.total_objects);
	NEED(kmem_check_all() == 0);
	kmem_cache_destroy(cache);
}

/* The program fell silent while a sheaf was out. */
static void a_sheaf_comes_back(void)
{
	struct kmem_cache *cache = make("sheaves", 64);
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 8);
	struct kmem_cache_stats stats;

	NEED(sheaf);
	kmem_idle();
	kmem_idle();
	kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
	kmem_idle();
	kmem_cache_get_stats(cache, &stats);
	NEED(!stats.shelf_objects && !stats.total_objects);
	kmem_cache_destroy(cache);
}

static int visit(struct kmem_cache *cache, void *arg)
{
	kmem_idle();
	return 0;
}

static void within_a_visit(void)
{
	NEED(kmem_for_each_cache(visit, NULL) == 0);
	NEED(kmem_check_all() == 0);
}

static const struct test_case cases[] = {
	{ "comes back", comes_back }, { "others work", others_work }, { "within a visit", within_a_visit },
	{ "within a miss", within_a_miss }, { "a sheaf comes back", a_sheaf_comes_back },
};
API_MAIN(cases)
