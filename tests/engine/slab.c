/*
 * slab: the engine slab behaves as SLAB (up to Linux 6.7) with objects: every transition between a CPU's array, the
 * shared array, and partial, free and full slabs, observed by SLAB's own counters and by the lists. Disciplines: all.
 * Not with hardened: objects pass from the engine's own functions to callers, unproved. Not with nodes: limits and
 * lists are those of one node.
 */
#include "slab.h"

/* ------------------------------------------------------------------ sizes of arrays */

/*
 * Kernel facts: the limit depends on the size; batchcount is half of the limit, rounded up; a shared
 * array has eight batches.
 */
static void case_tunables(void)
{
	static const unsigned rows[][3] = {
		{ 16, 120, 60 }, { 256, 120, 60 }, { 264, 54, 27 }, { 1024, 54, 27 }, { 1032, 24, 12 },
		{ 4096, 24, 12 }, { 4104, 8, 4 }, { 131072, 8, 4 }, { 131080, 1, 1 },
	};

	for (size_t i = 0; i < km_array_count(rows); i++) {
		struct kmem_cache *cache = fresh_with(rows[i][0], 0, NULL);
		struct kmem_cache_stats stats;
		bool shares = rows[i][0] <= 4096 && km_percpu.cpus > 1;

		kmem_cache_get_stats(cache, &stats);
		CHECK_EQUAL(stats.limit, rows[i][1]);
		CHECK_EQUAL(stats.sheaf_capacity, rows[i][1]);
		CHECK_EQUAL(stats.batchcount, rows[i][2]);
		CHECK_EQUAL(stats.shared_factor, shares ? 8 : 0);
		CHECK_EQUAL(node_of(cache)->shared_limit, shares ? 8 * rows[i][2] : 0);
		CHECK_EQUAL(node_of(cache)->free_limit,
			    (1 + km_percpu.cpus) * rows[i][2] + cache->layout.objects);
		done(cache);
	}
}

/* ------------------------------------------------------------------ out */

/* A cold array gets 16, a touched one what a new slab has; then hits. */
static void case_first_miss(void)
{
	struct kmem_cache *cache = fresh_with(64, 0, NULL);
	void *objects[80];

	objects[0] = get(cache);
	EVENTS(cache, [KMEM_ALLOCMISS] = 1, [KMEM_GROWN] = 1, [KMEM_ALLOC_SLAB] = 1, [KMEM_ALLOCS] = 16,
	       [KMEM_HIGH] = 16);
	for (unsigned i = 1; i < 16; i++) {
		objects[i] = get(cache);
		/* A slab is handed out in the order of addresses. */
		CHECK_EQUAL((char *)objects[i] - (char *)objects[i - 1], 64);
	}
	EVENTS(cache, [KMEM_ALLOCHIT] = 15);
	CHECK_EQUAL(node_of(cache)->slabs.counts.partial, 1);
	/* The slab has 48 more: a batch of 60 takes these, and no new slab is made for the rest. */
	objects[16] = get(cache);
	EVENTS(cache, [KMEM_ALLOCMISS] = 1, [KMEM_ALLOCS] = 48, [KMEM_HIGH] = 64);
	CHECK_EQUAL(node_of(cache)->slabs.counts.partial, 0);
	CHECK(!km_list_empty(&node_of(cache)->full));
	for (unsigned i = 17; i < 64; i++)
		objects[i] = get(cache);
	EVENTS(cache, [KMEM_ALLOCHIT] = 47);
	objects[64] = get(cache);
	EVENTS(cache, [KMEM_ALLOCMISS] = 1, [KMEM_GROWN] = 1, [KMEM_ALLOC_SLAB] = 1, [KMEM_ALLOCS] = 60,
	       [KMEM_HIGH] = 124);
	for (unsigned i = 0; i < 65; i++)
		put(cache, objects[i]);
	EVENTS(cache, [KMEM_FREEHIT] = 64, [KMEM_FREEMISS] = 1);
	done(cache);
}

/*
 * Partial slabs before free slabs, and free slabs before new ones; a refill from the free list marks
 * the list as touched.
 */
static void case_order_of_refill(void)
{
	struct kmem_cache *cache = fresh();
	struct slab_node *n = node_of(cache);
	void *objects[48], *now[48];

	take(cache, objects, 48);
	give(cache, objects, 16);			/* slab 0: free */
	give(cache, objects + 16, 5);			/* slab 1: partial */
	CHECK_EQUAL(n->slabs.counts.free_slabs, 1);
	CHECK_EQUAL(n->slabs.counts.partial, 1);
	n->free_touched = false;
	take(cache, now, 5);
	for (unsigned i = 0; i < 5; i++)
		CHECK(slab_of(now[i]) == slab_of(objects[16]));
	CHECK(!n->free_touched && n->slabs.counts.free_slabs == 1 && !n->slabs.counts.partial);
	take(cache, now + 5, 3);
	CHECK(slab_of(now[5]) == slab_of(objects[0]));
	CHECK(n->free_touched && !n->slabs.counts.free_slabs && n->slabs.counts.partial == 1);
	kmem_cache_clear_events(cache);
	take(cache, now + 8, 14);
	EVENTS(cache, [KMEM_GROWN] = 1, [KMEM_ALLOC_SLAB] = 1, [KMEM_ALLOCS] = 14,
	       [KMEM_HIGH] = 49);
	give(cache, now, 22);
	give(cache, objects + 21, 27);
	done(cache);
}

/* ------------------------------------------------------------------ back */

/* A full array moves its oldest half to the shared array, and gets the objects back in the order of a stack. */
static void case_oldest_to_shared(void)
{
	struct kmem_cache *cache = fresh();
	struct slab_node *n = node_of(cache);
	void *objects[128];

	if (!n_shared)
		return;
	take(cache, objects, n_limit + 1);
	kmem_cache_clear_events(cache);
	for (unsigned i = 0; i < n_limit; i++)
		put(cache, objects[i]);
	CHECK_EQUAL(n->slabs.counts.shared, 0);
	CHECK_EQUAL(km_alloc_pcs_objects(cache), n_limit);
	kmem_cache_clear_events(cache);
	put(cache, objects[n_limit]);
	EVENTS(cache, [KMEM_FREEMISS] = 1);
	CHECK_EQUAL(n->slabs.counts.shared, n_batch);
	CHECK_EQUAL(km_alloc_pcs_objects(cache), n_limit + 1 - n_batch);
	for (unsigned i = 0; i < n_batch; i++)
		CHECK(n->shared[n->shared_limit - 1 - i] == objects[i]);
	for (unsigned i = n_limit + 1; i-- > n_batch;)
		CHECK(get(cache) == objects[i]);
	EVENTS(cache, [KMEM_ALLOCHIT] = n_limit + 1 - n_batch);
	/*
	 * An array not used since the last reap gets a small batch; this array was not used since its
	 * creation.
	 */
	n->shared_touched = false;
	CHECK(get(cache) == objects[n_batch - 1]);
	EVENTS(cache, [KMEM_ALLOCMISS] = 1);
	CHECK_EQUAL(n->slabs.counts.shared, n_batch - SLAB_BATCH_UNTOUCHED);
	CHECK(n->shared_touched);
	for (unsigned i = n_batch - 1; i-- > 0;)
		CHECK(get(cache) == objects[i]);
	EVENTS(cache, [KMEM_ALLOCMISS] = 1, [KMEM_ALLOCHIT] = n_batch - 2);
	give(cache, objects, n_limit + 1);
	done(cache);
}

/* As far as the shared array has room, and no further; without room to the slabs. */
static void case_shared_is_full(void)
{
	struct kmem_cache *cache = small(1);
	struct slab_node *n = node_of(cache);
	void *objects[32], *two[2];

	take(cache, objects, 32);
	for (unsigned i = 0; i < 11; i++)
		put(cache, objects[i]);
	CHECK_EQUAL(n->slabs.counts.shared, 4);
	CHECK_EQUAL(km_alloc_pcs_objects(cache), 7);
	take(cache, two, 2);
	CHECK_EQUAL(n->slabs.counts.shared, 2);
	CHECK(two[0] == objects[3] && two[1] == objects[2]);
	for (unsigned i = 11; i < 15; i++)
		put(cache, objects[i]);
	CHECK_EQUAL(n->slabs.counts.shared, 4);
	CHECK_EQUAL(km_alloc_pcs_objects(cache), 9);
	CHECK_EQUAL(n->slabs.counts.taken, 32);
	/* Four more: objects 6 to 9 are the oldest, and of slab 0. */
	put(cache, objects[15]);
	kmem_cache_clear_events(cache);
	put(cache, objects[16]);
	EVENTS(cache, [KMEM_FREEMISS] = 1);
	CHECK_EQUAL(n->slabs.counts.taken, 28);
	CHECK_EQUAL(slab_of(objects[0])->inuse, 12);
	for (unsigned i = 6; i < 10; i++)
		CHECK(slab_is_free(slab_of(objects[i]), index_of(cache, objects[i])));
	CHECK_EQUAL(km_alloc_pcs_objects(cache), 7);
	put(cache, two[0]);
	put(cache, two[1]);
	for (unsigned i = 17; i < 32; i++)
		put(cache, objects[i]);
	done(cache);
}

/* Without a shared array at once. */
static void case_no_shared(void)
{
	struct kmem_cache *cache = small(0);
	void *objects[16];

	take(cache, objects, 16);
	for (unsigned i = 0; i < 11; i++)
		put(cache, objects[i]);
	CHECK_EQUAL(node_of(cache)->slabs.counts.shared, 0);
	CHECK_EQUAL(node_of(cache)->slabs.counts.taken, 12);
	for (unsigned i = 11; i < 16; i++)
		put(cache, objects[i]);
	done(cache);
}

/* As in slabinfo: slabs with an allocated object. */
static unsigned long active_slabs(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	CHECK_EQUAL(stats.total_slabs, node_of(cache)->slabs.counts.slabs);
	return stats.active_slabs;
}

/* One object back: a full slab, and a partial one, becomes the last of the partial ones. */
static void case_to_the_tail(void)
{
	struct kmem_cache *cache = fresh();
	struct slab_node *n = node_of(cache);
	void *objects[48];

	take(cache, objects, 48);
	for (unsigned i = 0; i < 3; i++) {
		give(cache, objects + 16 * i, 1);
		CHECK(km_list_last(&n->slabs.partial, struct km_page, list) == slab_of(objects[16 * i]));
		CHECK_EQUAL(n->slabs.counts.partial, i + 1);
	}
	give(cache, objects + 17, 1);
	CHECK(km_list_last(&n->slabs.partial, struct km_page, list) == slab_of(objects[16]));
	CHECK(km_list_first(&n->slabs.partial, struct km_page, list) == slab_of(objects[0]));
	give(cache, objects + 18, 1);
	CHECK(km_list_last(&n->slabs.partial, struct km_page, list) == slab_of(objects[16]));
	CHECK_EQUAL(n->slabs.counts.partial, 3);
	give(cache, objects + 1, 15);
	CHECK_EQUAL(active_slabs(cache), n->slabs.counts.slabs - 1);
	give(cache, objects + 19, 13);
	give(cache, objects + 33, 15);
	CHECK_EQUAL(n->slabs.counts.partial, 0);
	CHECK_EQUAL(n->slabs.counts.free_slabs, 3);
	CHECK_EQUAL(active_slabs(cache), n->slabs.counts.slabs - 3);
	done(cache);
}

/* As many free objects as the node may keep: all stay. */
static void case_exactly_the_limit(void)
{
	struct kmem_cache *cache = fresh();
	struct slab_node *n = node_of(cache);
	void *objects[512];

	CHECK_EQUAL(kmem_cache_tune(cache, 16, 16, 0), 0);
	unsigned keeps = (unsigned)n->free_limit / 16;
	CHECK_EQUAL(n->free_limit % 16, 0);
	keeps = km_min(keeps, 20u);
	take(cache, objects, (keeps + 1) * 16);
	give(cache, objects, keeps * 16);
	CHECK_EQUAL(n->slabs.counts.free_slabs, keeps);
	/* One more free object in a slab that stays. */
	give(cache, objects + keeps * 16, 1);
	CHECK_EQUAL(n->slabs.counts.free_slabs, keeps - (keeps * 16 == n->free_limit));
	give(cache, objects + keeps * 16 + 1, 15);
	done(cache);
}

/* Free slabs stay until more objects are free than the node may keep; then the oldest goes. */
static void case_free_limit(void)
{
	struct kmem_cache *cache = small(0);
	struct slab_node *n = node_of(cache);
	unsigned keeps = (unsigned)(n->free_limit / 16), slabs = keeps + 3;
	void *objects[256];

	CHECK_EQUAL(n->free_limit, (1 + km_percpu.cpus) * 4 + 16);
	take(cache, objects, slabs * 16);
	kmem_cache_clear_events(cache);
	for (unsigned i = 0; i < keeps; i++)
		give(cache, objects + 16 * i, 16);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_FREE_SLAB), 0);
	CHECK_EQUAL(n->slabs.counts.free_slabs, keeps);
	struct km_page *oldest = slab_of(objects[0]);
	CHECK(km_list_last(&n->free, struct km_page, list) == oldest);
	give(cache, objects + 16 * keeps, 16);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_FREE_SLAB), 1);
	CHECK_EQUAL(n->slabs.counts.free_slabs, keeps);
	CHECK(oldest->type != KM_PAGE_SLAB);
	give(cache, objects + 16 * (keeps + 1), 32);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_FREE_SLAB), 3);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_MAX_FREEABLE), keeps + 2);
	done(cache);
}

/* ------------------------------------------------------------------ bulk, and a race */

static void case_bulk(void)
{
	struct kmem_cache *cache = fresh();
	void *objects[250];

	for (unsigned round = 0; round < 3; round++) {
		CHECK(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 250, objects));
		for (unsigned i = 0; i < 250; i++)
			*(void **)objects[i] = &objects[i];
		for (unsigned i = 0; i < 250; i++)
			CHECK(*(void **)objects[i] == &objects[i]);
		kmem_cache_free_bulk(cache, 250, objects);
		CHECK(km_alloc_pcs_objects(cache) <= n_limit);
		CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	}
	done(cache);
}

/* Two arrays on a CPU, a state left only by a race: one goes at the next reap. */
static void case_spare(void)
{
	struct kmem_cache *cache = fresh();
	void *object = get(cache), **block, **evicted;

	enter();
	block = cache->layout.engine->array.spill(cache, NULL);
	CHECK(block && km_pcs_install(&cache->fast.pcs, block, &evicted) && !evicted);
	leave();
	CHECK(km_pcs_has_spare_cpu(&cache->fast.pcs, km_cpu()));
	look(cache, 1);
	CHECK(!km_pcs_has_spare_cpu(&cache->fast.pcs, km_cpu()));
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	put(cache, object);
	done(cache);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "limits by size", case_tunables },
		{ "the first miss", case_first_miss },
		{ "where a refill looks", case_order_of_refill },
		{ "the oldest go to the shared array", case_oldest_to_shared },
		{ "the shared array is full", case_shared_is_full },
		{ "without a shared array", case_no_shared },
		{ "a slab moves to the tail", case_to_the_tail },
		{ "free slabs beyond the limit", case_free_limit },
		{ "exactly the limit", case_exactly_the_limit },
		{ "bulk", case_bulk },
		{ "two blocks on a CPU", case_spare },
	};

	return counted_run(cases, km_array_count(cases), 20);
}
