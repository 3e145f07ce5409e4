/*
 * slab_idle: memory released by engine slab itself, reap by reap: idle arrays of CPUs every 2 seconds, a share at a
 * time, shared arrays and free slabs every 4 seconds. Alien arrays: slab_alien. Disciplines: all. Not with hardened:
 * objects pass from the engine's own functions to callers, unproved. Not with nodes: limits and lists are those of
 * one node.
 */
#include "slab.h"

/* ------------------------------------------------------------------ arrays of CPUs */

/*
 * A touched array is left alone once; then a fifth of the limit goes, the oldest objects first; with fewer objects
 * left, half of them go.
 */
static void case_idle_array(void)
{
	struct kmem_cache *cache = fresh();
	void *objects[120];

	take(cache, objects, 120);
	for (unsigned i = 0; i < 120; i++)
		put(cache, objects[i]);
	look(cache, 1);
	CHECK_EQUAL(km_alloc_pcs_objects(cache), 120);
	look(cache, 1);
	CHECK_EQUAL(km_alloc_pcs_objects(cache), 96);
	for (unsigned i = 0; i < 120; i++)
		CHECK_EQUAL(slab_is_free(slab_of(objects[i]), index_of(cache, objects[i])), i < 24);
	/* A hit is detected, by the word of the CPU's array. */
	void *object = get(cache);
	CHECK(object == objects[119]);
	look(cache, 1);
	CHECK_EQUAL(km_alloc_pcs_objects(cache), 95);
	put(cache, object);
	look(cache, 1);
	CHECK_EQUAL(km_alloc_pcs_objects(cache), 96);
	static const unsigned left[] = { 72, 48, 24, 0, 0 };
	for (unsigned i = 0; i < km_array_count(left); i++) {
		look(cache, 1);
		CHECK_EQUAL(km_alloc_pcs_objects(cache), left[i]);
	}
	CHECK_EQUAL(node_of(cache)->slabs.counts.taken, 0);
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	/* The array is gone; the next one begins as untouched. */
	CHECK_EQUAL(km_pcs_top_cpu(&cache->fast.pcs, km_cpu()), 0);
	kmem_cache_clear_events(cache);
	put(cache, get(cache));
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_ALLOCS), SLAB_BATCH_UNTOUCHED);
	done(cache);
}

/* Less than a fifth: the half, rounded up. */
static void case_few_left(void)
{
	struct kmem_cache *cache = fresh();
	static const unsigned left[] = { 7, 3, 1, 0 };
	void *objects[7];

	take(cache, objects, 7);
	for (unsigned i = 0; i < 7; i++)
		put(cache, objects[i]);
	for (unsigned i = 0; i < km_array_count(left); i++) {
		look(cache, 1);
		CHECK_EQUAL(km_alloc_pcs_objects(cache), left[i]);
	}
	done(cache);
}

/* ------------------------------------------------------------------ the node */

/* A refill is large if the array was used since the last reap, by a miss or by hits, and small otherwise. */
static void case_touched(void)
{
	struct kmem_cache *cache = fresh_with(64, 0, NULL);
	void *objects[200];
	unsigned count = 0;

	objects[count++] = get(cache);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_ALLOCS), 16);
	look(cache, 1);
	/* 15 hits since the look. */
	while (count < 17)
		objects[count++] = get(cache);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_ALLOCS), 64);
	while (count < 64)
		objects[count++] = get(cache);
	/* Empty at the reap and at the request. */
	look(cache, 2);
	objects[count++] = get(cache);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_ALLOCS), 64 + 16);
	while (count < 81)
		objects[count++] = get(cache);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_ALLOCS), 64 + 64);
	while (count)
		put(cache, objects[--count]);
	done(cache);
}

static void case_idle_node(void)
{
	struct kmem_cache *cache = fresh();
	struct slab_node *n = node_of(cache);
	unsigned shared = n_shared ? 100 : 0, slabs;
	void *objects[320];

	take(cache, objects, 320);
	/* Half of the objects are free, in free slabs; some are in the shared array. */
	give(cache, objects, 160);
	if (shared) {
		enter();
		void **block = cache->layout.engine->array.spill(cache, NULL);
		memcpy(block - 60, objects + 160, 60 * sizeof(*block));
		cache->layout.engine->array.retire(cache, cache->layout.engine->array.spill(cache, block - 60));
		leave();
		shared = 60;
	}
	CHECK_EQUAL(n->slabs.counts.shared, shared);
	slabs = (unsigned)n->slabs.counts.free_slabs;
	CHECK_EQUAL(slabs, 10);
	/* The first reap sets the node's due time; each second reap reaches the time. */
	look(cache, 1);
	n->shared_touched = n->free_touched = true;
	look(cache, 2);
	CHECK_EQUAL(n->slabs.counts.shared, shared);
	CHECK_EQUAL(n->slabs.counts.free_slabs, slabs);
	CHECK(!n->shared_touched && !n->free_touched);
	look(cache, 1);
	CHECK_EQUAL(n->slabs.counts.free_slabs, slabs);
	kmem_cache_clear_events(cache);
	look(cache, 1);
	/* A fifth of 480 is more than there is: the half. */
	CHECK_EQUAL(n->slabs.counts.shared, shared / 2);
	unsigned long reaped = (n->free_limit + 5 * 16 - 1) / (5 * 16);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_REAPED), reaped);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_FREE_SLAB), reaped);
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	/* In time all objects go. */
	look(cache, 40);
	CHECK_EQUAL(n->slabs.counts.shared, 0);
	CHECK_EQUAL(n->slabs.counts.free_slabs, 0);
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	give(cache, objects + 160 + shared, 160 - shared);
	done(cache);
}

/* The test calls no reap here: misses of another cache run ticks. Idle memory goes a share at a time, not at once. */
static void case_by_itself(void)
{
	struct kmem_cache *cache = fresh();
	struct kmem_cache *other = kmem_cache_create("poked", 64, NULL, SLAB_NO_SHEAVES);
	void *objects[120];

	take(cache, objects, 120);
	for (unsigned i = 0; i < 120; i++)
		put(cache, objects[i]);
	for (unsigned i = 0; i < 3000 && km_alloc_pcs_objects(cache) == 120; i++) {
		put(other, get(other));
		ahead_ms += 10;
	}
	CHECK_EQUAL(km_alloc_pcs_objects(cache), 96);
	kmem_cache_destroy(other);
	done(cache);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "an idle array", case_idle_array },
		{ "few objects left", case_few_left },
		{ "a touched array gets more", case_touched },
		{ "an idle node", case_idle_node },
		{ "by itself", case_by_itself },
	};

	return counted_run(cases, km_array_count(cases), 20);
}
