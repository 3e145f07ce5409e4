/*
 * sheaf: the engine sheaf behaves as SLUB since Linux 7.0 with sheaves: every transition between a CPU's main and
 * spare sheaf, the barn, partial slabs and pages, observed by the kernel's counters and by the lists. Prefilled
 * sheaves: prefill.c; other nodes: promise/numa.c. Disciplines: all. With hardened: own_addresses:0,random_order:0,
 * because the test expects freed slabs and objects in the order of addresses.
 */
#include "kit/engine.h"

#include "slab/sheaf.h"

enum { SIZE = 256, BLOCK = 30, IN_SLAB = 16, BARN = 10, MOST = 14 * BLOCK };

static void *objects[MOST];

static struct kmem_cache *fresh_with(unsigned size, slab_flags_t flags)
{
	return cache_of((struct kmem_cache_args){ .engine = "sheaf" }, size, flags);
}

static struct kmem_cache *fresh(void)
{
	return fresh_with(SIZE, 0);
}

static struct sheaf_node *node_of(struct kmem_cache *cache)
{
	return sheaf_node(cache, 0);
}

/* objects[from, to). Misses do not make the sheaves grow. */
static void get(struct kmem_cache *cache, unsigned from, unsigned to)
{
	for (; from < to; from++) {
		objects[from] = kmem_cache_alloc(cache, GFP_KERNEL);
		CHECK(objects[from]);
		cache->state.misses = 0;
	}
}

static void put(struct kmem_cache *cache, unsigned from, unsigned to)
{
	for (; from < to; from++) {
		kmem_cache_free(cache, objects[from]);
		cache->state.misses = 0;
	}
}

static void done(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	kmem_cache_get_stats(cache, &stats);
	CHECK_EQUAL(stats.active_objects, 0);
	if (!stats.active_objects && !(cache->layout.flags & SLAB_TYPESAFE_BY_RCU))
		CHECK_EQUAL(kmem_cache_shrink(cache), 0);
	kmem_cache_destroy(cache);
}

static struct km_page *slab_of(const void *object)
{
	return km_page_head(km_page_of(object));
}

/* ------------------------------------------------------------------ sizes */

static void case_capacities(void)
{
	/* Kernel: 60, 28, 12, 4; here a NULL and a header fill a power of two with them. */
	static const struct { unsigned size, capacity; } rows[] = {
		{ 8, 62 },    { 248, 62 },  { 255, 30 }, { 256, 30 }, { 1016, 30 }, { 1023, 14 },
		{ 1024, 14 }, { 4088, 14 }, { 4096, 6 }, { 8192, 6 }, { 8200, 2 },
	};

	for (size_t i = 0; i < km_array_count(rows); i++) {
		struct kmem_cache *cache = fresh_with(rows[i].size, 0);

		CHECK_EQUAL(cache->fast.capacity, rows[i].capacity);
		done(cache);
	}
}

/* ------------------------------------------------------------------ out */

/* With an empty barn a whole block is filled: from partial slabs, lowest address first, then from new ones. */
static void case_refill(void)
{
	struct kmem_cache *cache = fresh();

	get(cache, 0, 1);
	EVENTS(cache, [KMEM_BARN_GET_FAIL] = 1, [KMEM_SHEAF_REFILL] = 1, [KMEM_ALLOC_SLAB] = 2);
	CHECK_EQUAL(node_of(cache)->slabs.counts.taken, BLOCK);
	CHECK_EQUAL(node_of(cache)->slabs.counts.partial, 1);
	get(cache, 1, BLOCK);
	EVENTS(cache, 0);
	/* 2 objects of the slab in use, 16 and 12 of new slabs. */
	get(cache, BLOCK, BLOCK + 1);
	EVENTS(cache, [KMEM_BARN_GET_FAIL] = 1, [KMEM_SHEAF_REFILL] = 1, [KMEM_ALLOC_SLAB] = 2);
	get(cache, BLOCK + 1, 2 * BLOCK);
	EVENTS(cache, 0);
	for (unsigned i = 1; i < 2 * BLOCK; i++)
		if (i % IN_SLAB)
			CHECK((char *)objects[i] == (char *)objects[i - 1] + SIZE);
	/* A slab with nothing free is on no list. */
	CHECK(!(slab_of(objects[0])->flags & KM_SLAB_PARTIAL));
	CHECK(slab_of(objects[2 * BLOCK - 1])->flags & KM_SLAB_PARTIAL);
	CHECK_EQUAL(node_of(cache)->slabs.counts.partial, 1);
	CHECK_EQUAL(node_of(cache)->slabs.counts.slabs, 4);
	put(cache, 0, 2 * BLOCK);
	EVENTS(cache, 0);
	done(cache);
}

/* ------------------------------------------------------------------ back, and out of the barn */

/* The CPU keeps two blocks; then full ones go to the barn, ten of them; then to their slabs. */
static void case_barn(void)
{
	struct kmem_cache *cache = fresh();
	struct barn *barn = &node_of(cache)->barn;

	/* No slab is to go. */
	kmem_cache_set_min_partial(cache, 100);
	get(cache, 0, MOST);
	kmem_cache_clear_events(cache);
	put(cache, 0, 2 * BLOCK);
	EVENTS(cache, 0);
	CHECK_EQUAL(km_alloc_pcs_objects(cache), 2 * BLOCK);
	for (unsigned i = 0; i < BARN; i++) {
		put(cache, (2 + i) * BLOCK, (3 + i) * BLOCK);
		EVENTS(cache, [KMEM_BARN_PUT] = 1);
		CHECK_EQUAL(barn->full_count, i + 1);
		CHECK_EQUAL(barn->objects, (i + 1) * BLOCK);
	}
	CHECK_EQUAL(node_of(cache)->slabs.counts.taken, MOST);
	put(cache, (2 + BARN) * BLOCK, MOST);
	EVENTS(cache, [KMEM_BARN_PUT_FAIL] = 2, [KMEM_SHEAF_FLUSH] = 2);
	CHECK_EQUAL(barn->full_count, BARN);
	CHECK_EQUAL(node_of(cache)->slabs.counts.taken, MOST - 2 * BLOCK);
	/*
	 * The same way back: to the CPU's sheaves, then to the barn, in exchange for an empty sheaf each; then to
	 * slabs.
	 */
	get(cache, 0, 2 * BLOCK);
	EVENTS(cache, 0);
	for (unsigned i = 0; i < BARN; i++) {
		get(cache, (2 + i) * BLOCK, (3 + i) * BLOCK);
		EVENTS(cache, [KMEM_BARN_GET] = 1);
		CHECK_EQUAL(barn->full_count, BARN - 1 - i);
		CHECK_EQUAL(barn->empty_count, i + 1);
	}
	CHECK_EQUAL(barn->objects, 0);
	get(cache, (2 + BARN) * BLOCK, (2 + BARN) * BLOCK + 1);
	EVENTS(cache, [KMEM_BARN_GET_FAIL] = 1, [KMEM_SHEAF_REFILL] = 1);
	CHECK_EQUAL(barn->empty_count, BARN);
	/* A full block is exchanged for one of the empty ones. The barn has learned of one more. */
	put(cache, 0, (2 + BARN) * BLOCK + 1);
	CHECK_EQUAL(barn->full_count + barn->empty_count, BARN + 1);
	done(cache);
}

/* No more than ten empty ones stay. */
static void case_empty_blocks(void)
{
	struct kmem_cache *cache = fresh();
	struct barn *barn = &node_of(cache)->barn;
	bool was = km_thread.busy;

	km_thread.busy = true;
	for (unsigned i = 0; i < BARN + 2; i++)
		objects[i] = cache->layout.engine->array.spill(cache, NULL);
	for (unsigned i = 0; i < BARN + 2; i++) {
		cache->layout.engine->array.retire(cache, objects[i]);
		CHECK_EQUAL(barn->empty_count, i < BARN ? i + 1 : BARN);
	}
	km_thread.busy = was;
	EVENTS(cache, 0);
	done(cache);
}

/* The second of two equal phases finds room for all objects; unused and idle, the barn returns to its first bound. */
static void case_grows(void)
{
	struct kmem_cache *cache = fresh();
	struct barn *barn = &node_of(cache)->barn;

	get(cache, 0, MOST);
	put(cache, 0, MOST);
	CHECK_EQUAL(barn->more, 0);
	CHECK_EQUAL(barn->missed, 2 * BLOCK);
	get(cache, 0, MOST);
	CHECK_EQUAL(barn->more, 2 * BLOCK);
	CHECK_EQUAL(barn->missed, 0);
	kmem_cache_clear_events(cache);
	put(cache, 0, MOST);
	EVENTS(cache, [KMEM_BARN_PUT] = BARN + 2);
	get(cache, 0, MOST);
	EVENTS(cache, [KMEM_BARN_GET] = BARN + 2);
	put(cache, 0, MOST);
	kmem_cache_clear_events(cache);

	/* A look marks all sheaves as unused. The two sheaves taken then stay at the next look, and one more. */
	cache->layout.engine->reap(cache);
	CHECK_EQUAL(barn->full_count, BARN + 2);
	get(cache, 0, 4 * BLOCK);
	put(cache, 0, 4 * BLOCK);
	EVENTS(cache, [KMEM_BARN_GET] = 2, [KMEM_BARN_PUT] = 2);
	cache->layout.engine->reap(cache);
	CHECK_EQUAL(barn->full_count, 3);
	CHECK_EQUAL(barn->objects, 3 * BLOCK);
	CHECK_EQUAL(barn->more, 0);
	cache->layout.engine->reap(cache);
	CHECK_EQUAL(barn->more + barn->missed + barn->full_count + barn->empty_count, 0);
	done(cache);
}

/* A flush of the barn keeps what the barn has learned; a shrink does not. */
static void case_flushed(void)
{
	struct kmem_cache *cache = fresh();
	struct barn *barn = &node_of(cache)->barn;

	get(cache, 0, MOST);
	put(cache, 0, MOST);
	cache->layout.engine->rest(cache);
	CHECK_EQUAL(barn->objects, 0);
	CHECK_EQUAL(barn->missed, 2 * BLOCK);
	get(cache, 0, MOST);
	CHECK_EQUAL(barn->more, 2 * BLOCK);
	put(cache, 0, MOST);
	cache->layout.engine->rest(cache);
	CHECK_EQUAL(barn->objects, 0);
	CHECK_EQUAL(barn->more, 2 * BLOCK);
	kmem_cache_shrink(cache);
	CHECK_EQUAL(barn->more + barn->missed + barn->full_count + barn->empty_count, 0);
	done(cache);
}

/* ------------------------------------------------------------------ slabs */

/* Slabs with no object out stay as long as there are no more partial ones than min_partial. */
static void case_min_partial(void)
{
	struct kmem_cache *cache = fresh_with(SIZE, SLAB_NO_SHEAVES);

	CHECK_EQUAL(kmem_cache_min_partial(cache), 5);
	get(cache, 0, 10 * IN_SLAB);
	EVENTS(cache, [KMEM_ALLOC_SLAB] = 10);
	put(cache, 0, 10 * IN_SLAB);
	EVENTS(cache, [KMEM_FREE_SLAB] = 5);
	CHECK_EQUAL(node_of(cache)->slabs.counts.partial, 5);
	kmem_cache_set_min_partial(cache, 2);
	get(cache, 0, 10 * IN_SLAB);
	EVENTS(cache, [KMEM_ALLOC_SLAB] = 5);
	put(cache, 0, 10 * IN_SLAB);
	EVENTS(cache, [KMEM_FREE_SLAB] = 8);
	done(cache);
}

/* Shrink drains all cached objects, frees all empty slabs, and sorts the other slabs, fullest first. */
static void case_shrink(void)
{
	static const unsigned frees[] = { 1, 9, 5, IN_SLAB, 0 };
	struct kmem_cache *cache = fresh();
	struct km_page *slabs[5];
	unsigned at = 0;

	get(cache, 0, 5 * IN_SLAB);
	for (unsigned i = 0; i < 5; i++) {
		slabs[i] = slab_of(objects[i * IN_SLAB]);
		put(cache, i * IN_SLAB, i * IN_SLAB + frees[i]);
	}
	kmem_cache_clear_events(cache);
	CHECK_EQUAL(kmem_cache_shrink(cache), 1);
	/* The CPU's sheaves; the slab with all objects free, and the last slab, never used. */
	EVENTS(cache, [KMEM_SHEAF_FLUSH] = 2, [KMEM_FREE_SLAB] = 2);
	CHECK_EQUAL(km_alloc_pcs_objects(cache), 0);
	km_list_for_each(entry, &node_of(cache)->slabs.partial) {
		static const unsigned order[] = { 0, 2, 1 };

		CHECK(at < 3 && km_container_of(entry, struct km_page, list) == slabs[order[at]]);
		at++;
	}
	CHECK_EQUAL(at, 3);
	/* So what is nearly full is filled first. */
	void *first = kmem_cache_alloc(cache, GFP_KERNEL);
	CHECK(first == objects[0]);
	EVENTS(cache, [KMEM_BARN_GET_FAIL] = 1, [KMEM_SHEAF_REFILL] = 1, [KMEM_ALLOC_SLAB] = 1);
	kmem_cache_free(cache, first);
	for (unsigned i = 0; i < 5; i++)
		put(cache, i * IN_SLAB + frees[i], (i + 1) * IN_SLAB);
	done(cache);
}

/* Typesafe: no slab is freed before the cache is destroyed. */
static void case_typesafe(void)
{
	struct kmem_cache *cache = fresh_with(SIZE, SLAB_TYPESAFE_BY_RCU);

	get(cache, 0, MOST);
	put(cache, 0, MOST);
	kmem_cache_clear_events(cache);
	/* The CPU's blocks: the barn has no room for them. */
	CHECK_EQUAL(kmem_cache_shrink(cache), 1);
	EVENTS(cache, [KMEM_SHEAF_FLUSH] = 2);
	CHECK_EQUAL(node_of(cache)->slabs.counts.partial, node_of(cache)->slabs.counts.slabs);
	done(cache);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "capacities", case_capacities },
		{ "a refill", case_refill },
		{ "the barn", case_barn },
		{ "empty blocks", case_empty_blocks },
		{ "a barn grows", case_grows },
		{ "min_partial", case_min_partial },
		{ "shrink", case_shrink },
		{ "SLAB_TYPESAFE_BY_RCU", case_typesafe },
	};

	kfree(kmalloc(8, GFP_KERNEL));
	/* The counts of this test exclude work by the clock. */
	km_alloc_tick = NULL;
	printf("discipline %s\n", km_discipline_name(km_percpu.discipline));
	return run_in_turn(cases, km_array_count(cases), 20);
}
