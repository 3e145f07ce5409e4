/*
 * slub_calls: the engine slub as its callers see it: bulk and detached freelists, shrink, bad frees, checked caches,
 * computed constants, calls that may not wait, nested calls, statistics. Disciplines: all.
 * Not with hardened: objects pass from the engine's own functions to callers, unproved.
 */
#include "slub.h"

/* ------------------------------------------------------------------ bulk */

static int remember(void *object, void *arg)
{
	*(void **)arg = object;
	return 0;
}

static void case_bulk(void)
{
	struct kmem_cache *cache = fresh();
	unsigned n = n_objects, count = 3 * n;
	void **objects = malloc(count * sizeof(*objects));

	CHECK(kmem_cache_alloc_bulk(cache, GFP_KERNEL, count, objects));
	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 3, [KMEM_ALLOC_FASTPATH] = count - 3,
	       [KMEM_ALLOC_SLAB] = 3, [KMEM_DEACTIVATE_BYPASS] = 2);
	kmem_cache_free_bulk(cache, count, objects);
	EVENTS(cache, [KMEM_FREE_FASTPATH] = n, [KMEM_FREE_SLOWPATH] = 2,
	       [KMEM_CPU_PARTIAL_FREE] = 2);
	/* The CPU's slab first, then its partial ones. */
	CHECK(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 2 * n + 1, objects));
	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 2, [KMEM_ALLOC_FASTPATH] = 2 * n - 1,
	       [KMEM_CPU_PARTIAL_ALLOC] = 2, [KMEM_ALLOC_REFILL] = 2,
	       [KMEM_DEACTIVATE_BYPASS] = 2);
	objects[0] = objects[2 * n];
	kmem_cache_free_bulk(cache, 1, objects);
	EVENTS(cache, [KMEM_FREE_FASTPATH] = 1);
	kmem_cache_free_bulk(cache, 2 * n - 1, objects + 1);
	struct kmem_cache_stats stats;
	kmem_cache_get_stats(cache, &stats);
	CHECK_EQUAL(stats.active_objects, 1);
	/* The one that was overwritten: the first of the CPU's first slab. */
	kmem_cache_clear_events(cache);
	void *found = NULL;
	kmem_cache_walk(cache, remember, &found);
	CHECK(found);
	kmem_cache_free(cache, found);
	free(objects);
	done(cache);
}

/* The kernel's way with a mixed array, on slab numbers: one detached freelist; returns how many are in it. */
static unsigned look_back(unsigned *of, unsigned *left, unsigned lookahead)
{
	unsigned mine = of[--*left], strangers = 0, taken = 1;

	for (unsigned i = *left; i-- > 0;)
		if (of[i] == mine) {
			of[i] = of[--*left];
			taken++;
		} else if (++strangers == lookahead) {
			break;
		}
	return taken;
}

/* Kinds in a part of the array. */
static unsigned kinds_of(const unsigned *of, unsigned count)
{
	unsigned kinds = 0;

	for (unsigned i = 0; i < count; i++) {
		bool first = true;

		for (unsigned j = 0; j < i; j++)
			first &= of[j] != of[i];
		kinds += first;
	}
	return kinds;
}

enum way { LOOKAHEAD, GROUP, AUTO, KFREE };

/* How often a slab is met: by looking back, by grouping 64 at a time, or by the second where the first finds few. */
static unsigned batches_of(unsigned *of, unsigned left, enum way way, unsigned lookahead)
{
	unsigned batches = 0;

	while (left) {
		if (way != GROUP) {
			batches++;
			if (look_back(of, &left, lookahead) >= 4 || way == LOOKAHEAD)
				continue;
		}
		unsigned now = left < 64 ? left : 64;
		left -= now;
		/* kfree_bulk hands a part of the array on as if it were all. */
		batches += way == KFREE ? batches_of(of + left, now, AUTO, lookahead) :
					  kinds_of(of + left, now);
	}
	return batches;
}

static void mixed(unsigned kinds, unsigned each, enum way way, unsigned lookahead)
{
	struct kmem_cache *cache = fresh();
	void **objects = get_slabs(cache, kinds + 1), **array = malloc(kinds * each * sizeof(*array));
	unsigned *slab = malloc(kinds * each * sizeof(*slab)), count = 0;

	for (unsigned i = 0; i < each; i++)
		for (unsigned kind = 0; kind < kinds; kind++) {
			slab[count] = kind;
			array[count++] = objects[kind * n_objects + i];
			objects[kind * n_objects + i] = NULL;
		}
	unsigned batches = batches_of(slab, count, way, lookahead);
	km_layout_options.lookahead = lookahead;
	km_layout_options.bulk_free = way == LOOKAHEAD ? KM_BULK_FREE_LOOKAHEAD :
				      way == GROUP ? KM_BULK_FREE_GROUP : KM_BULK_FREE_AUTO;
	if (way == KFREE)
		kfree_bulk(count, array);
	else
		kmem_cache_free_bulk(cache, count, array);
	km_layout_options.lookahead = 3;
	km_layout_options.bulk_free = KM_BULK_FREE_AUTO;
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = batches, [KMEM_CPU_PARTIAL_FREE] = kinds,
	       [KMEM_FREE_FROZEN] = batches - kinds);
	put_all(cache, objects, (kinds + 1) * n_objects);
	free(array);
	free(slab);
	done(cache);
}

static void case_lookahead(void)
{
	CHECK_EQUAL(km_layout_options.lookahead, 3);
	for (unsigned kinds = 1; kinds <= 6; kinds++) {
		mixed(kinds, 4, LOOKAHEAD, 3);
		mixed(kinds, 4, LOOKAHEAD, 1);
		mixed(kinds, 4, LOOKAHEAD, 100);
	}
}

/* Addresses below the first slab's: NULL, rounded down to a slab. They are reported, not written to. */
static void case_group_wild(void)
{
	struct kmem_cache *cache = fresh();
	void *objects[] = { get(cache), (void *)(uintptr_t)SIZE, NULL, (void *)(uintptr_t)(2 * SIZE), get(cache) };

	km_layout_options.bulk_free = KM_BULK_FREE_GROUP;
	km_misuse_set(KM_MISUSE_WARN);
	kmem_cache_free_bulk(cache, km_array_count(objects), objects);
	km_misuse_set(KM_MISUSE_ABORT);
	km_layout_options.bulk_free = KM_BULK_FREE_AUTO;
	done(cache);
}

/* Each slab once a part of 64 objects, however they are mixed. */
static void case_group(void)
{
	for (unsigned kinds = 1; kinds <= 6; kinds++) {
		mixed(kinds, 2, GROUP, 3);
		mixed(kinds, 8, GROUP, 3);
		mixed(kinds, 15, GROUP, 3);
	}
}

static void case_auto(void)
{
	CHECK_EQUAL(km_layout_options.bulk_free, KM_BULK_FREE_AUTO);
	for (unsigned kinds = 1; kinds <= 6; kinds++)
		for (unsigned each = 1; each <= 15; each += 2) {
			mixed(kinds, each, AUTO, 3);
			mixed(kinds, each, KFREE, 3);
		}
}

/* NULL entries are skipped; nothing at all does nothing. */
static void case_bulk_odd(void)
{
	struct kmem_cache *cache = fresh();
	void **objects = get_slabs(cache, 1), *array[4] = { objects[0], NULL, objects[1], NULL };

	kmem_cache_free_bulk(cache, 0, array);
	CHECK(!kmem_cache_alloc_bulk(cache, GFP_KERNEL, 0, array));
	EVENTS(cache, 0);
	kmem_cache_free_bulk(cache, 4, array);
	EVENTS(cache, [KMEM_FREE_FASTPATH] = 2);
	objects[0] = objects[1] = NULL;
	put_all(cache, objects, n_objects);
	done(cache);
}

/* ------------------------------------------------------------------ shrink */

static void case_shrink(void)
{
	struct kmem_cache *cache = fresh();
	void **objects = get_slabs(cache, 4), *next;

	/* Slab 0 half free, 1 with two free, 2 all free, 3 with one free. */
	for (unsigned i = 0; i < n_objects / 2; i++)
		put(cache, &objects[i]);
	for (unsigned i = 0; i < 2; i++)
		put(cache, &objects[n_objects + i]);
	for (unsigned i = 0; i < n_objects; i++)
		put(cache, &objects[2 * n_objects + i]);
	put(cache, &objects[3 * n_objects]);
	drain(cache);
	CHECK_EQUAL(partial(cache), 4);
	kmem_cache_clear_events(cache);
	CHECK_EQUAL(kmem_cache_shrink(cache), 1);
	EVENTS(cache, [KMEM_FREE_SLAB] = 1);
	CHECK_EQUAL(partial(cache), 3);
	/* Fullest first: slab 3 has one free, then 1 has two. */
	next = get(cache);
	CHECK(((uintptr_t)next ^ (uintptr_t)objects[3 * n_objects + 1]) <
	      KM_PAGE_SIZE << cache->layout.order);
	objects[3 * n_objects] = next;
	next = get(cache);
	objects[n_objects] = next;
	drain(cache);
	put_all(cache, objects, 4 * n_objects);
	CHECK_EQUAL(kmem_cache_shrink(cache), 0);
	done(cache);
}

/* ------------------------------------------------------------------ mistakes */

/* The library says what is wrong, drops the object, and goes on. */
static void case_double_free(void)
{
	struct kmem_cache *cache = fresh();
	void **objects = get_slabs(cache, 2), *copy;

	km_misuse_set(KM_MISUSE_WARN);
	copy = objects[n_objects];
	put(cache, &objects[n_objects]);
	kmem_cache_free(cache, copy);
	EVENTS(cache, [KMEM_FREE_FASTPATH] = 1);
	copy = objects[0];
	put(cache, &objects[0]);
	kmem_cache_free(cache, copy);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_CPU_PARTIAL_FREE), 1);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_FREE_FROZEN), 0);
	/* In one array, side by side, and of another cache, and inside of an object. */
	struct kmem_cache *stranger = fresh();
	void *other = get(stranger), *array[] = { objects[1], objects[1], other,
						  (char *)objects[2] + 8, objects[3] };
	kmem_cache_free_bulk(cache, 5, array);
	objects[1] = objects[3] = NULL;
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	put(stranger, &other);
	km_misuse_set(KM_MISUSE_ABORT);
	put_all(cache, objects, 2 * n_objects);
	done(stranger);
	done(cache);
}

/* With SLAB_CONSISTENCY_CHECKS nothing is fast, and any double free is found. */
static void case_checked(void)
{
	struct kmem_cache *cache = fresh_with(SIZE, SLAB_CONSISTENCY_CHECKS, NULL);
	void *a = get(cache), *b, *c;

	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1, [KMEM_ALLOC_SLAB] = 1);
	b = get(cache);
	c = get(cache);
	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 2, [KMEM_ALLOC_FROM_PARTIAL] = 2);
	kmem_cache_free(cache, a);
	kmem_cache_free(cache, b);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 2);
	km_misuse_set(KM_MISUSE_WARN);
	kmem_cache_free(cache, a);
	km_thread.busy = true;
	cache->layout.engine->free(cache, a);
	km_thread.busy = false;
	km_misuse_set(KM_MISUSE_ABORT);
	kmem_cache_clear_events(cache);
	/* The last object of the slab: it goes where the node has enough. */
	kmem_cache_set_min_partial(cache, 0);
	kmem_cache_free(cache, c);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 1, [KMEM_FREE_REMOVE_PARTIAL] = 1,
	       [KMEM_FREE_SLAB] = 1);
	/* A full slab comes back to the list with its first free object. */
	void **objects = get_slabs(cache, 1);
	CHECK_EQUAL(partial(cache), 0);
	put(cache, &objects[0]);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 1, [KMEM_FREE_ADD_PARTIAL] = 1);
	CHECK_EQUAL(partial(cache), 1);
	put_all(cache, objects, n_objects);
	done(cache);
}

/* ------------------------------------------------------------------ constants */

static unsigned order_for(unsigned size, unsigned cpus)
{
	return km_layout_order(size, 4 * (km_ilog2(cpus) + 2), 3);
}

static void case_constants(void)
{
	static const struct row {
		unsigned size, order2, objects2, order8, objects8, order96, objects96;
		unsigned by_size, half, cpu_partial, slabs8;
	} rows[] = {
		{ 8, 0, 512, 0, 512, 0, 512, 5, 5, 120, 1 },
		{ 16, 0, 256, 0, 256, 0, 256, 5, 5, 120, 1 },
		{ 32, 0, 128, 0, 128, 0, 128, 5, 5, 120, 2 },
		{ 64, 0, 64, 0, 64, 0, 64, 6, 5, 120, 4 },
		{ 96, 0, 42, 0, 42, 0, 42, 6, 5, 120, 6 },
		{ 128, 0, 32, 0, 32, 0, 32, 7, 5, 120, 8 },
		{ 192, 0, 21, 0, 21, 1, 42, 7, 5, 120, 12 },
		{ 256, 0, 16, 1, 32, 1, 32, 8, 5, 52, 4 },
		{ 512, 1, 16, 2, 32, 2, 32, 9, 5, 52, 4 },
		{ 1024, 2, 16, 3, 32, 3, 32, 10, 5, 24, 2 },
		{ 2048, 3, 16, 3, 16, 3, 16, 10, 5, 24, 3 },
		{ 4096, 3, 8, 3, 8, 3, 8, 10, 6, 6, 2 },
		{ 8192, 3, 4, 3, 4, 3, 4, 10, 6, 6, 3 },
	};

	for (size_t i = 0; i < km_array_count(rows); i++) {
		const struct row *row = &rows[i];

		CHECK_EQUAL(order_for(row->size, 2), row->order2);
		CHECK_EQUAL((KM_PAGE_SIZE << row->order2) / row->size, row->objects2);
		CHECK_EQUAL(order_for(row->size, 8), row->order8);
		CHECK_EQUAL((KM_PAGE_SIZE << row->order8) / row->size, row->objects8);
		CHECK_EQUAL(order_for(row->size, 96), row->order96);
		CHECK_EQUAL((KM_PAGE_SIZE << row->order96) / row->size, row->objects96);
		CHECK_EQUAL(km_min_partial_of(row->size, KM_MIN_PARTIAL_SIZE), row->by_size);
		CHECK_EQUAL(km_min_partial_of(row->size, KM_MIN_PARTIAL_HALF), row->half);
		CHECK_EQUAL(km_min_partial_of(row->size, KM_MIN_PARTIAL_STATIC), 5);
		struct kmem_cache *cache = fresh_with(row->size, 0, NULL);
		CHECK_EQUAL(cache->layout.order, order_for(row->size, km_percpu.cpus));
		CHECK_EQUAL(slub_node(cache, 0)->cpu_partial, row->cpu_partial);
		CHECK_EQUAL((row->cpu_partial * 2 + row->objects8 - 1) / row->objects8, row->slabs8);
		CHECK_EQUAL(n_slabs, (row->cpu_partial * 2 + n_objects - 1) / n_objects);
		CHECK_EQUAL(kmem_cache_min_partial(cache), row->half);
		done(cache);
	}
}

/* ------------------------------------------------------------------ where there is no CPU, no lock, no process */

/* Locks that others hold are not waited for, and no system call is made. */
static void case_nowait(void)
{
	struct kmem_cache *cache = fresh();
	struct slub_node *n = slub_node(cache, 0);
	void **objects = on_list(cache, 2);

	km_os_fault = no_more;
	km_lock(&n->slabs.lock);
	/* The list can't be had: a new slab, where pages are at hand. */
	void *object = kmem_cache_alloc(cache, GFP_NOWAIT);
	km_unlock(&n->slabs.lock);
	km_os_fault = NULL;
	if (object)
		EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1, [KMEM_ALLOC_SLAB] = 1);
	else
		EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1);
	CHECK_EQUAL(partial(cache), 2);
	if (object)
		put(cache, &object);
	put_all(cache, objects, 2 * n_objects);
	done(cache);
}

/* No slow path while this thread is in one: NULL, and a free that is finished later. */
static void case_nested(void)
{
	struct kmem_cache *cache = fresh();
	void **objects = get_slabs(cache, 2), *object = objects[0];

	km_thread.busy = true;
	CHECK(!kmem_cache_alloc(cache, GFP_NOWAIT));
	kmem_cache_free(cache, object);
	km_thread.busy = false;
	EVENTS(cache, 0);
	objects[0] = NULL;
	CHECK(cache->state.deferred == object);
	put(cache, &objects[1]);
	CHECK(!cache->state.deferred);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 2, [KMEM_CPU_PARTIAL_FREE] = 1,
	       [KMEM_FREE_FROZEN] = 1);
	put_all(cache, objects, 2 * n_objects);
	done(cache);
}

/* A chain that is closed, as in a drain or without a CPU: everything goes by the node's list. */
static void case_closed(void)
{
	struct kmem_cache *cache = fresh();
	uint32_t open = cache->fast.chain.open;
	void *a, *b;

	km_store(&cache->fast.chain.open, 0u);
	a = get(cache);
	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1, [KMEM_ALLOC_SLAB] = 1,
	       [KMEM_DEACTIVATE_TO_HEAD] = 1);
	b = get(cache);
	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1, [KMEM_ALLOC_FROM_PARTIAL] = 1,
	       [KMEM_DEACTIVATE_TO_HEAD] = 1);
	put(cache, &a);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 1);
	put(cache, &b);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 1);
	km_store(&cache->fast.chain.open, open);
	done(cache);
}

static void case_counts(void)
{
	struct kmem_cache *cache = fresh();
	void **objects = get_slabs(cache, n_slabs + 3);
	unsigned count = (n_slabs + 3) * n_objects, live = count;
	struct kmem_cache_stats stats;

	for (unsigned i = 0; i < count; i += 3, live--)
		put(cache, &objects[i]);
	kmem_cache_get_stats(cache, &stats);
	CHECK_EQUAL(stats.active_objects, live);
	CHECK_EQUAL(stats.total_objects, count);
	CHECK_EQUAL(stats.total_slabs, n_slabs + 3);
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	for (unsigned i = 0; i < count; i++) {
		struct km_page *slab = i % 3 ? km_page_head(km_page_of(objects[i])) : NULL;

		if (slab)
			CHECK(cache->layout.engine->is_taken(cache, slab,
				(unsigned)km_object_index(cache, slab, km_page_address(slab),
							  objects[i])));
	}
	put_all(cache, objects, count);
	done(cache);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "bulk", case_bulk },
		{ "bulk of nothing, and with holes", case_bulk_odd },
		{ "detached freelists look ahead", case_lookahead },
		{ "a mixed array is grouped", case_group },
		{ "... with bad addresses", case_group_wild },
		{ "a mixed array, looked at first", case_auto },
		{ "shrink", case_shrink },
		{ "bad frees", case_double_free },
		{ "SLAB_CONSISTENCY_CHECKS", case_checked },
		{ "computed constants", case_constants },
		{ "GFP_NOWAIT", case_nowait },
		{ "nested calls", case_nested },
		{ "a closed chain", case_closed },
		{ "statistics", case_counts },
	};

	return counted_run(cases, km_array_count(cases), 20);
}
