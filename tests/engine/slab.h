/*
 * slab.h: what the tests of the engine slab share: caches of their own, and ways to bring arrays and slabs
 * into a state. Hits are counted, so that public shelves are closed and each call passes the verbs of the discipline.
 */
#ifndef TESTS_ENGINE_SLAB_H
#define TESTS_ENGINE_SLAB_H

#include "kit/engine.h"

#include "engines/slab/slab.h"
#include "base/bits.h"
#include "os/die.h"

#define SIZE 256u		/* 16 in a slab of a page, nothing left over */

static unsigned n_objects;	/* in a slab */
static unsigned n_limit, n_batch, n_shared;

static struct kmem_cache *fresh_with(unsigned size, slab_flags_t flags, void (*ctor)(void *))
{
	struct kmem_cache *cache = cache_of((struct kmem_cache_args){ .engine = "slab", .ctor = ctor }, size, flags);

	n_objects = cache->layout.objects;
	n_limit = cache->fast.capacity;
	n_batch = cache->tune.batchcount;
	n_shared = cache->tune.shared * n_batch;
	return cache;
}

static struct kmem_cache *fresh(void)
{
	return fresh_with(SIZE, 0, NULL);
}

/* The same with a small array: 10 objects, 4 at once, `shared` batches in the shared array. */
static struct kmem_cache *small(unsigned shared)
{
	struct kmem_cache *cache = fresh();

	CHECK_EQUAL(kmem_cache_tune(cache, 10, 4, shared), 0);
	n_limit = 10;
	n_batch = 4;
	n_shared = 4 * shared;
	kmem_cache_clear_events(cache);
	return cache;
}

static struct slab_node *node_of(struct kmem_cache *cache)
{
	return slab_node(cache, 0);
}

static void enter(void)
{
	km_thread.busy = true;
}

static void leave(void)
{
	km_thread.busy = false;
}

/* Nothing is damaged, nothing is lost, nothing stays. */
static void done(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	kmem_cache_get_stats(cache, &stats);
	CHECK_EQUAL(stats.active_objects, 0);
	if (!(cache->layout.flags & SLAB_TYPESAFE_BY_RCU))
		CHECK_EQUAL(kmem_cache_shrink(cache), 0);
	kmem_cache_get_stats(cache, &stats);
	CHECK_EQUAL(stats.shelf_objects, 0);
	kmem_cache_destroy(cache);
}

static void *get(struct kmem_cache *cache)
{
	void *object = kmem_cache_alloc(cache, GFP_KERNEL);

	CHECK(object);
	return object;
}

static void put(struct kmem_cache *cache, void *object)
{
	kmem_cache_free(cache, object);
}

/* Straight out of the node, and back into the slabs. */
static void take(struct kmem_cache *cache, void **objects, unsigned count)
{
	struct km_request request = km_request_of(GFP_KERNEL, NUMA_NO_NODE);

	enter();
	CHECK_EQUAL(cache->layout.engine->take(cache, &request, objects, count), count);
	leave();
}

static void give(struct kmem_cache *cache, void **objects, unsigned count)
{
	void *copy[1024];

	memcpy(copy, objects, count * sizeof(*copy));
	enter();
	cache->layout.engine->give(cache, copy, count);
	leave();
}

/* What lies on CPUs goes to the slabs; what is in the shared array stays there. */
static void drain(struct kmem_cache *cache)
{
	enter();
	km_alloc_drain(cache);
	leave();
}

/* Two seconds have gone by: `times` looks, the clock in milliseconds. */
static uint64_t clock_ms = 1000000;

static void look(struct kmem_cache *cache, unsigned times)
{
	enter();
	while (times--) {
		clock_ms += 2000;
		if (cache->layout.engine->array.look(cache, clock_ms))
			km_alloc_trim_all(&cache, 1);
	}
	leave();
}

static struct km_page *slab_of(const void *object)
{
	return km_page_head(km_page_of(object));
}

static unsigned index_of(const struct kmem_cache *cache, const void *object)
{
	return (unsigned)((const char *)object - km_slab_first(cache, slab_of(object))) / cache->layout.size;
}

#endif
