/*
 * slub: the engine slub behaves as SLUB (Linux 2.6.22 to 6.19) with slabs: every transition between CPU, CPU partial
 * list, node and pages, observed by the kernel's counters in /sys/kernel/slab/CACHE. Disciplines: all. Not with
 * hardened: objects pass from the engine's own functions to callers, unproved.
 */
#include "slub.h"

/* ------------------------------------------------------------------ hits */

static void case_hits(void)
{
	struct kmem_cache *cache = fresh();
	void *a = get(cache);

	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1, [KMEM_ALLOC_SLAB] = 1);
	void *b = get(cache);
	EVENTS(cache, [KMEM_ALLOC_FASTPATH] = 1);
	CHECK_EQUAL((char *)b - (char *)a, cache->layout.size);
	put(cache, &b);
	EVENTS(cache, [KMEM_FREE_FASTPATH] = 1);
	put(cache, &a);
	EVENTS(cache, [KMEM_FREE_FASTPATH] = 1);
	a = get(cache);
	EVENTS(cache, [KMEM_ALLOC_FASTPATH] = 1);
	put(cache, &a);
	done(cache);
}

/* A slab runs out: the CPU lets go of the full slab, and gets a new one. */
static void case_next_slab(void)
{
	struct kmem_cache *cache = fresh();
	void **first = get_slabs(cache, 1), *next = get(cache);

	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1, [KMEM_DEACTIVATE_BYPASS] = 1,
	       [KMEM_ALLOC_SLAB] = 1);
	put(cache, &next);
	EVENTS(cache, [KMEM_FREE_FASTPATH] = 1);
	put_all(cache, first, n_objects);
	done(cache);
}

/* ------------------------------------------------------------------ the CPU's slab */

static void case_refill(void)
{
	struct kmem_cache *cache = fresh();
	void **objects = get_slabs(cache, 1), *again;

	put_slow(cache, &objects[0]);
	put_slow(cache, &objects[1]);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 2, [KMEM_FREE_FROZEN] = 2);
	again = get(cache);
	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1, [KMEM_ALLOC_REFILL] = 1);
	objects[0] = get(cache);
	EVENTS(cache, [KMEM_ALLOC_FASTPATH] = 1);
	put(cache, &again);
	EVENTS(cache, [KMEM_FREE_FASTPATH] = 1);
	put_all(cache, objects, n_objects);
	done(cache);
}

struct remote {
	struct kmem_cache *cache;
	void **objects;
	unsigned count;
};

static void *free_remotely(void *arg)
{
	struct remote *remote = arg;

	go_to_cpu(cpu_at(1));
	for (unsigned i = 0; i < remote->count; i++)
		put(remote->cache, &remote->objects[i]);
	return NULL;
}

static void other_cpu_frees(struct kmem_cache *cache, void **objects, unsigned count)
{
	struct remote remote = { cache, objects, count };
	pthread_t thread;

	pthread_create(&thread, NULL, free_remotely, &remote);
	pthread_join(thread, NULL);
}

/* From another CPU: to a frozen slab, and to a full one; the full slab becomes this other CPU's. */
static void case_remote(void)
{
	if (cpu_at(1) < 0)
		return;
	struct kmem_cache *cache = fresh();
	void **objects = get_slabs(cache, 2);

	other_cpu_frees(cache, objects + n_objects, 2);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 2, [KMEM_FREE_FROZEN] = 2);
	other_cpu_frees(cache, objects, 2);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 2, [KMEM_CPU_PARTIAL_FREE] = 1,
	       [KMEM_FREE_FROZEN] = 1);
	objects[n_objects] = get(cache);
	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1, [KMEM_ALLOC_REFILL] = 1);
	objects[n_objects + 1] = get(cache);
	/* The other CPU's partial slab is not available here: a new slab. */
	objects[0] = get(cache);
	EVENTS(cache, [KMEM_ALLOC_FASTPATH] = 1, [KMEM_ALLOC_SLOWPATH] = 1,
	       [KMEM_DEACTIVATE_BYPASS] = 1, [KMEM_ALLOC_SLAB] = 1);
	put_all(cache, objects, 2 * n_objects);
	done(cache);
}

/* ------------------------------------------------------------------ the CPU's partial slabs */

static void case_cpu_partial(void)
{
	struct kmem_cache *cache = fresh();
	void **objects = get_slabs(cache, 2), *a, *b, *c;

	put(cache, &objects[0]);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 1, [KMEM_CPU_PARTIAL_FREE] = 1);
	put(cache, &objects[1]);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 1, [KMEM_FREE_FROZEN] = 1);
	CHECK_EQUAL(partial(cache), 0);
	a = get(cache);
	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1, [KMEM_DEACTIVATE_BYPASS] = 1,
	       [KMEM_CPU_PARTIAL_ALLOC] = 1, [KMEM_ALLOC_REFILL] = 1);
	b = get(cache);
	EVENTS(cache, [KMEM_ALLOC_FASTPATH] = 1);
	c = get(cache);
	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1, [KMEM_DEACTIVATE_BYPASS] = 1,
	       [KMEM_ALLOC_SLAB] = 1);
	put(cache, &a);
	put(cache, &b);
	put(cache, &c);
	put_all(cache, objects, 2 * n_objects);
	done(cache);
}

/* One slab too many: the whole list goes to the node's tail. */
static void case_overflow(void)
{
	struct kmem_cache *cache = fresh();
	unsigned slabs = n_slabs + 1;
	void **objects = get_slabs(cache, slabs + 1);

	for (unsigned i = 0; i < n_slabs; i++)
		put(cache, &objects[i * n_objects]);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = n_slabs, [KMEM_CPU_PARTIAL_FREE] = n_slabs);
	put(cache, &objects[n_slabs * n_objects]);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 1, [KMEM_CPU_PARTIAL_FREE] = 1,
	       [KMEM_CPU_PARTIAL_DRAIN] = 1, [KMEM_FREE_ADD_PARTIAL] = n_slabs);
	CHECK_EQUAL(partial(cache), n_slabs);
	put_all(cache, objects, (slabs + 1) * n_objects);
	done(cache);
}

/* The same with slabs of free objects only: the node keeps min_partial of them. */
static void overflow_empty(unsigned long min_partial)
{
	struct kmem_cache *cache = fresh();
	unsigned slabs = n_slabs + 1;
	void **objects = get_slabs(cache, slabs + 1);
	unsigned long kept = km_min(min_partial, (unsigned long)n_slabs);

	CHECK_EQUAL(kmem_cache_set_min_partial(cache, min_partial), 0);
	CHECK_EQUAL(kmem_cache_min_partial(cache), min_partial);
	for (unsigned i = 0; i < n_slabs * n_objects; i++)
		put(cache, &objects[i]);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = n_slabs * n_objects,
	       [KMEM_CPU_PARTIAL_FREE] = n_slabs,
	       [KMEM_FREE_FROZEN] = n_slabs * (n_objects - 1));
	put(cache, &objects[n_slabs * n_objects]);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 1, [KMEM_CPU_PARTIAL_FREE] = 1,
	       [KMEM_CPU_PARTIAL_DRAIN] = 1, [KMEM_FREE_ADD_PARTIAL] = kept,
	       [KMEM_DEACTIVATE_EMPTY] = n_slabs - kept, [KMEM_FREE_SLAB] = n_slabs - kept);
	CHECK_EQUAL(partial(cache), kept);
	put_all(cache, objects, (slabs + 1) * n_objects);
	done(cache);
}

static void case_overflow_empty(void)
{
	overflow_empty(0);
	overflow_empty(2);
	overflow_empty(1000);
}

/* ------------------------------------------------------------------ the node's partial slabs */

static void case_from_partial(void)
{
	struct kmem_cache *cache = fresh();
	unsigned slabs = n_slabs / 2 + 3, half = n_slabs / 2;
	void **objects = on_list(cache, slabs);

	objects[0] = get(cache);
	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1, [KMEM_ALLOC_FROM_PARTIAL] = 1,
	       [KMEM_CPU_PARTIAL_NODE] = half);
	CHECK_EQUAL(partial(cache), slabs - half - 1);
	/* Then the objects of the slabs taken along. */
	for (unsigned i = 1; i <= half; i++) {
		objects[i * n_objects] = get(cache);
		EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1, [KMEM_DEACTIVATE_BYPASS] = 1,
		       [KMEM_CPU_PARTIAL_ALLOC] = 1, [KMEM_ALLOC_REFILL] = 1);
	}
	put_all(cache, objects, slabs * n_objects);
	done(cache);
}

/* The last object of a slab on the list: the slab goes where there are min_partial others. */
static void case_empty_on_list(void)
{
	struct kmem_cache *cache = fresh();
	void **objects = on_list(cache, 3);

	CHECK_EQUAL(kmem_cache_set_min_partial(cache, 3), 0);
	for (unsigned i = 1; i < n_objects - 1; i++)
		put(cache, &objects[i]);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = n_objects - 2);
	put(cache, &objects[n_objects - 1]);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 1, [KMEM_FREE_REMOVE_PARTIAL] = 1,
	       [KMEM_FREE_SLAB] = 1);
	CHECK_EQUAL(partial(cache), 2);
	/* Two are left: less than three. */
	for (unsigned i = n_objects + 1; i < 2 * n_objects; i++)
		put(cache, &objects[i]);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = n_objects - 1);
	CHECK_EQUAL(partial(cache), 2);
	put_all(cache, objects, 3 * n_objects);
	done(cache);
}

/* Without partial slabs on CPUs a full slab goes to the list at its first free. */
static void case_no_cpu_partial(void)
{
	struct kmem_cache *cache = fresh();
	void **objects = get_slabs(cache, 2);

	slub_node(cache, 0)->cpu_partial_slabs = 0;
	put(cache, &objects[0]);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 1, [KMEM_FREE_ADD_PARTIAL] = 1);
	CHECK_EQUAL(partial(cache), 1);
	put(cache, &objects[1]);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 1);
	objects[0] = get(cache);
	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1, [KMEM_DEACTIVATE_BYPASS] = 1,
	       [KMEM_ALLOC_FROM_PARTIAL] = 1);
	put_all(cache, objects, 2 * n_objects);
	done(cache);
}

/* ------------------------------------------------------------------ deactivation */

static void case_deactivate(void)
{
	struct kmem_cache *cache = fresh();
	void **objects = get_slabs(cache, 1);

	/* Without free objects: the slab is full and on no list. */
	drain(cache);
	EVENTS(cache, [KMEM_CPUSLAB_FLUSH] = 1, [KMEM_DEACTIVATE_FULL] = 1);
	CHECK_EQUAL(partial(cache), 0);
	/* The CPU's own frees: to the head. */
	void *other = get(cache);
	kmem_cache_clear_events(cache);
	drain(cache);
	EVENTS(cache, [KMEM_CPUSLAB_FLUSH] = 1, [KMEM_DEACTIVATE_TO_HEAD] = 1);
	CHECK_EQUAL(partial(cache), 1);
	/* After frees from other CPUs: to the tail. */
	void *same = get(cache);
	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1, [KMEM_ALLOC_FROM_PARTIAL] = 1);
	put_slow(cache, &same);
	kmem_cache_clear_events(cache);
	drain(cache);
	EVENTS(cache, [KMEM_CPUSLAB_FLUSH] = 1, [KMEM_DEACTIVATE_REMOTE_FREES] = 1,
	       [KMEM_DEACTIVATE_TO_TAIL] = 1);
	/* All objects free: the slab stays while the node has few slabs, and is freed otherwise. */
	same = get(cache);
	put(cache, &same);
	put(cache, &other);
	kmem_cache_clear_events(cache);
	drain(cache);
	EVENTS(cache, [KMEM_CPUSLAB_FLUSH] = 1, [KMEM_DEACTIVATE_TO_HEAD] = 1);
	same = get(cache);
	put(cache, &same);
	kmem_cache_set_min_partial(cache, 0);
	kmem_cache_clear_events(cache);
	drain(cache);
	EVENTS(cache, [KMEM_CPUSLAB_FLUSH] = 1, [KMEM_DEACTIVATE_EMPTY] = 1,
	       [KMEM_FREE_SLAB] = 1);
	/* The CPU's partial slabs go to the list, or are let go of, too. */
	put(cache, &objects[0]);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 1, [KMEM_CPU_PARTIAL_FREE] = 1);
	drain(cache);
	EVENTS(cache, [KMEM_FREE_ADD_PARTIAL] = 1);
	put_all(cache, objects, n_objects);
	done(cache);
}

/* Two slow paths on one CPU: the second flushes the other's slab. */
static void case_flush(void)
{
	struct kmem_cache *cache = fresh();
	void *a = get(cache), *b;
	struct km_chain_top mine, empty = { NULL, 0 }, old;

	CHECK(km_chain_swap(&cache->fast.chain, empty, &mine));
	b = get(cache);
	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 2, [KMEM_ALLOC_SLAB] = 2);
	CHECK(km_chain_swap(&cache->fast.chain, mine, &old));
	km_slub_deactivate(cache, slub_tagged(old.slab), old.freelist, true);
	EVENTS(cache, [KMEM_DEACTIVATE_TO_HEAD] = 1);
	put(cache, &a);
	EVENTS(cache, [KMEM_FREE_FASTPATH] = 1);
	put(cache, &b);
	EVENTS(cache, [KMEM_FREE_SLOWPATH] = 1);
	done(cache);
}

/* ------------------------------------------------------------------ pages */

/* No block of the usual order: one of the lowest order will do. */
static void case_order_fallback(void)
{
	struct kmem_cache *cache = fresh_with(1024, 0, NULL);
	struct pages *all;
	void *object;

	CHECK(cache->layout.order > 0);
	km_os_fault = no_more;
	all = take_all_pages();
	/* Every page is taken: give one back. */
	CHECK(!kmem_cache_alloc(cache, GFP_NOWAIT));
	kmem_cache_clear_events(cache);
	unsigned last = --all->count;
	km_pages_free(all->block[last] + ((1u << all->order[last]) - 1), 0);
	object = kmem_cache_alloc(cache, GFP_NOWAIT);
	CHECK(object);
	EVENTS(cache, [KMEM_ALLOC_SLOWPATH] = 1, [KMEM_ALLOC_SLAB] = 1,
	       [KMEM_ORDER_FALLBACK] = 1);
	km_os_fault = NULL;
	void *second = get(cache);
	CHECK_EQUAL((char *)second - (char *)object, cache->layout.size);
	put(cache, &second);
	put(cache, &object);
	EVENTS(cache, [KMEM_ALLOC_FASTPATH] = 1, [KMEM_FREE_FASTPATH] = 2);
	if (all->order[last])
		km_pages_free_exact(all->block[last], (1u << all->order[last]) - 1);
	give_pages_back(all);
	done(cache);
}

/* Slabs of typesafe objects stay until the cache's end, with any min_partial. */
static void case_typesafe(void)
{
	struct kmem_cache *cache = fresh_with(SIZE, SLAB_TYPESAFE_BY_RCU, NULL);
	void **objects = get_slabs(cache, n_slabs + 2);

	kmem_cache_set_min_partial(cache, 0);
	put_all(cache, objects, (n_slabs + 2) * n_objects);
	drain(cache);
	kmem_cache_shrink(cache);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_FREE_SLAB), 0);
	CHECK_EQUAL(partial(cache), n_slabs + 2);
	CHECK(cache->layout.freeptr >= cache->layout.object_size);
	done(cache);
}

static unsigned constructed;

static void construct(void *object)
{
	memset(object, 0x5c, SIZE);
	constructed++;
}

/* Constructed once a slab, and what the user left there is there again. */
static void case_ctor(void)
{
	constructed = 0;
	struct kmem_cache *cache = fresh_with(SIZE, 0, construct);
	unsigned char *object = get(cache), expected[SIZE];

	CHECK_EQUAL(constructed, n_objects);
	memset(expected, 0x5c, SIZE);
	CHECK(memcmp(object, expected, SIZE) == 0);
	kmem_cache_free(cache, object);
	CHECK(memcmp(object, expected, SIZE) == 0);
	unsigned char *again = get(cache);
	CHECK(again == object && memcmp(again, expected, SIZE) == 0);
	kmem_cache_free(cache, again);
	CHECK_EQUAL(constructed, n_objects);
	done(cache);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "hits", case_hits },
		{ "the next slab", case_next_slab },
		{ "the CPU slab is refilled", case_refill },
		{ "frees from another CPU", case_remote },
		{ "CPU partial slabs", case_cpu_partial },
		{ "CPU partial overflow", case_overflow },
		{ "CPU partial overflow of empty slabs", case_overflow_empty },
		{ "from the node's partial list", case_from_partial },
		{ "a slab on the list becomes empty", case_empty_on_list },
		{ "without CPU partial slabs", case_no_cpu_partial },
		{ "deactivation", case_deactivate },
		{ "a CPU slab is displaced", case_flush },
		{ "a lower order", case_order_fallback },
		{ "SLAB_TYPESAFE_BY_RCU", case_typesafe },
		{ "constructors", case_ctor },
	};

	return counted_run(cases, km_array_count(cases), 20);
}
