/*
 * slub.h: what the tests of the engine slub share: caches of their own, and ways to bring slabs into a state.
 */
#ifndef TESTS_ENGINE_SLUB_H
#define TESTS_ENGINE_SLUB_H

#include "kit/engine.h"

#include "engines/slub/slub.h"
#include "base/bits.h"
#include "os/die.h"

#define SIZE 256u

static unsigned n_objects;	/* in a slab */
static unsigned n_slabs;	/* on a CPU's partial list */

static struct kmem_cache *fresh_with(unsigned size, slab_flags_t flags, void (*ctor)(void *))
{
	struct kmem_cache *cache = cache_of((struct kmem_cache_args){ .engine = "slub", .ctor = ctor }, size, flags);

	n_objects = cache->layout.objects;
	n_slabs = slub_node(cache, 0)->cpu_partial_slabs;
	return cache;
}

static struct kmem_cache *fresh(void)
{
	return fresh_with(SIZE, 0, NULL);
}

/* Nothing is damaged, nothing is lost, nothing stays. */
static void done(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	kmem_cache_get_stats(cache, &stats);
	CHECK_EQUAL(stats.active_objects, 0);
	if (stats.active_objects == 0 && !(cache->layout.flags & SLAB_TYPESAFE_BY_RCU))
		CHECK_EQUAL(kmem_cache_shrink(cache), 0);
	kmem_cache_destroy(cache);
}

static void *get(struct kmem_cache *cache)
{
	void *object = kmem_cache_alloc(cache, GFP_KERNEL);

	CHECK(object);
	return object;
}

/* `slabs` whole slabs, in order; the last one is the CPU's. */
static void **get_slabs(struct kmem_cache *cache, unsigned slabs)
{
	void **objects = malloc(slabs * n_objects * sizeof(*objects));

	for (unsigned i = 0; i < slabs * n_objects; i++)
		objects[i] = get(cache);
	kmem_cache_clear_events(cache);
	return objects;
}

static void put_all(struct kmem_cache *cache, void **objects, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (objects[i])
			kmem_cache_free(cache, objects[i]);
	free(objects);
}

static void put(struct kmem_cache *cache, void **object)
{
	kmem_cache_free(cache, *object);
	*object = NULL;
}

/* As if from another CPU: past the hit. */
static void put_slow(struct kmem_cache *cache, void **object)
{
	bool was = km_thread.busy;

	km_thread.busy = true;
	cache->layout.engine->free(cache, *object);
	km_thread.busy = was;
	*object = NULL;
}

static void drain(struct kmem_cache *cache)
{
	bool was = km_thread.busy;

	km_thread.busy = true;
	cache->layout.engine->chain.drain(cache, false);
	km_thread.busy = was;
}

static unsigned long partial(struct kmem_cache *cache)
{
	return slub_node(cache, 0)->slabs.counts.partial;
}

/* `slabs` slabs on the node's list, one object free in each, nothing on the CPU. */
static void **on_list(struct kmem_cache *cache, unsigned slabs)
{
	void **objects = get_slabs(cache, slabs);

	for (unsigned i = 0; i < slabs; i++)
		put(cache, &objects[i * n_objects]);
	drain(cache);
	CHECK_EQUAL(partial(cache), slabs);
	kmem_cache_clear_events(cache);
	return objects;
}

#endif
