/*
 * numa: memory nodes, simulated: two and four nodes, with the CPUs dealt out in turn. For each engine: the node of an
 * object's memory, permitted requests to other nodes, the place of frees, and sums of all numbers. Disciplines: all.
 * Skipped on a machine without two CPUs in different nodes. Not with hardened: objects wait there, and the next one
 * is not the next address.
 */
#define _GNU_SOURCE
#include "kit/numa.h"
#include "page/zone.h"

#define MANY 4000u

/* ------------------------------------------------------------------ the node of an object */

/* Without a wish the object is from the CPU's node, one by one and in bulk. */
static void local(void)
{
	for (unsigned node = 0; node < 2; node++) {
		struct kmem_cache *cache = make("local", 200);
		void *bulk[300];

		go_to(node);
		void **objects = get_many(cache, GFP_KERNEL, NUMA_NO_NODE, MANY);
		NEED(how_many_on(node, objects, MANY) == MANY);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 300, bulk));
		NEED(how_many_on(node, bulk, 300) == 300);
		NEED(counts(cache, !node)->slabs == 0 && counts(cache, node)->slabs > 0);
		kmem_cache_free_bulk(cache, 300, bulk);
		put_many(cache, objects, MANY);
		gone(cache);
	}
}

/* A named node, this CPU's or another, with or without CPUs; with and without __GFP_THISNODE. */
static void named(void)
{
	static const gfp_t gfps[] = { GFP_KERNEL, GFP_KERNEL | __GFP_THISNODE };

	for (unsigned i = 0; i < 2; i++)
		for (unsigned node = 0; node < km_node_count; node++) {
			struct kmem_cache *cache = make("named", 328);

			go_to(i);
			void **objects = get_many(cache, gfps[i], (int)node, MANY);
			NEED(how_many_on(node, objects, MANY) == MANY);
			NEED(counts(cache, node)->objects >= MANY);
			put_many(cache, objects, MANY);
			gone(cache);
		}
}

/* A CPU's sheaf holds another node's objects, and the request must get none of these. */
static void not_from_the_pcs(void)
{
	static const gfp_t gfps[] = { GFP_KERNEL | __GFP_THISNODE, GFP_KERNEL };
	struct kmem_cache *cache = make("sheaf", 200);

	go_to(0);
	for (unsigned i = 0; i < 2; i++) {
		void **strangers = get_many(cache, GFP_KERNEL, 1, 20), *object;

		put_many(cache, strangers, 20);
		object = get(cache, gfps[i], i ? 0 : NUMA_NO_NODE);
		NEED(km_page_node(object) == 0);
		kmem_cache_free(cache, object);
		object = get(cache, GFP_KERNEL | __GFP_ZERO | __GFP_THISNODE, 0);
		NEED(km_page_node(object) == 0 && all(object, 0, 200));
		kmem_cache_free(cache, object);
	}
	gone(cache);
}

/* Hits ignore nodes: docs/decisions/0018. */
static void hits_do_not_look(void)
{
	struct kmem_cache *cache = make("hits", 200);
	void *object;

	if (is_sheaf(cache)) {
		go_to(0);
		object = get(cache, GFP_KERNEL, 1);
		kmem_cache_free(cache, object);
		NEED(kmem_cache_alloc(cache, GFP_KERNEL) == object);
		kmem_cache_free(cache, object);
	}
	gone(cache);
}

static void no_such_node(void)
{
	const int wrong[] = { (int)km_node_count, 7, 1023, 1024, 100000, -2, -100 };
	gfp_t quiet = GFP_KERNEL | __GFP_NOWARN;
	struct kmem_cache *cache = make("wrong", 64);

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		void *object = kmem_cache_alloc_node(cache, quiet, wrong[i]);

		NEED(!object == (wrong[i] < 0));
		if (object)
			kmem_cache_free(cache, object);
		errno = 0;
		NEED(!kmem_cache_alloc_node(cache, quiet | __GFP_THISNODE, wrong[i]));
		NEED(errno == ENOMEM);
		errno = 0;
		NEED(!kmalloc_node(100000, quiet | __GFP_THISNODE, wrong[i]) && errno == ENOMEM);
	}
	gone(cache);
}

static void sizes(void)
{
	for (unsigned node = 0; node < km_node_count; node++) {
		char *small = kmalloc_node(100, GFP_KERNEL, (int)node);
		char *zero = kzalloc_node(3000, GFP_KERNEL | __GFP_THISNODE, (int)node);
		char *pages = kzalloc_node(200000, GFP_KERNEL | __GFP_THISNODE, (int)node);
		char *exact = kvmalloc_node(1 << 20, GFP_KERNEL | __GFP_THISNODE, (int)node);
		char *mapping = kvmalloc_node(6 << 20, GFP_KERNEL, (int)node);

		NEED(small && zero && pages && exact && mapping);
		NEED(km_page_node(small) == node && km_page_node(zero) == node);
		NEED(km_page_node(pages) == node && km_page_node(exact) == node);
		NEED(km_page_of(pages)->node == node);
		NEED(all(zero, 0, 3000) && all(pages, 0, 200000));
		memset(mapping, 1, 6 << 20);
		kfree(small);
		kfree(zero);
		kfree(pages);
		kvfree(exact);
		kvfree(mapping);
	}
	NEED(kmem_check_all() == 0);
}

/* ------------------------------------------------------------------ other nodes' partial slabs */

struct give_case {
	unsigned ratio;
	unsigned long min_partial;
	gfp_t gfp;
	bool from_other;
};

/* One allocation on node 0, without memory; node 1 has six partial slabs. */
static void try_give(const struct give_case *c)
{
	struct kmem_cache *cache = make("defrag", 256);
	unsigned slabs = 6, count = slabs * cache->layout.objects;

	go_to(0);
	NEED(kmem_cache_set_remote_node_defrag_ratio(cache, c->ratio) == 0);
	NEED(kmem_cache_set_min_partial(cache, c->min_partial) == 0);
	void **kept = partial_slabs(cache, 1, slabs);
	void *object = get(cache, c->gfp, NUMA_NO_NODE);
	NEED(km_page_node(object) == c->from_other);
	NEED(c->from_other || counts(cache, 0)->new_slabs >= 1);
	/* Node 1 kept its minimum; without permission node 1 kept all. */
	size_t left = counts(cache, 1)->partial;
	NEED(c->from_other ? left >= c->min_partial && left < slabs : left == slabs);
	kmem_cache_free(cache, object);
	put_many(cache, kept, count);
	gone(cache);
}

static void ratio_and_guard(void)
{
	static const struct give_case cases[] = {
		{ 100, 0, GFP_KERNEL, true },
		{ 100, 5, GFP_KERNEL, true },
		{ 100, 6, GFP_KERNEL, false },	/* node 1 has just its minimum */
		{ 100, 40, GFP_KERNEL, false },
		{ 0, 0, GFP_KERNEL, false },
		{ 100, 0, GFP_KERNEL | __GFP_THISNODE, false },
		{ 100, 2, GFP_NOWAIT, true },
	};

	if (is_slab())
		return;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		try_give(&cases[i]);
}

/* A cache with validated frees has no cached objects on CPUs, and follows the same rules. */
static void checked_cache(void)
{
	struct kmem_cache *cache = kmem_cache_create("checked", 256, NULL, SLAB_CONSISTENCY_CHECKS);

	if (is_slab())
		return;
	go_to(0);
	for (unsigned node = 0; node < km_node_count; node++) {
		void **objects = get_many(cache, GFP_KERNEL, (int)node, 500);

		NEED(how_many_on(node, objects, 500) == 500);
		put_many(cache, objects, 500);
	}
	kmem_cache_set_min_partial(cache, 3);
	void **kept = partial_slabs(cache, 1, 6);
	unsigned count = 6 * cache->layout.objects, free = count - 6;
	void **objects = get_many(cache, GFP_KERNEL, NUMA_NO_NODE, free);
	NEED(how_many_on(1, objects, free) == free / 2 && counts(cache, 1)->partial == 3);
	put_many(cache, objects, free);
	put_many(cache, kept, count);
	gone(cache);
}

/* 1000 of 1024 times, as the kernel's 100; the share is exact. */
static void share(void)
{
	struct km_request request = km_request_of(GFP_KERNEL, NUMA_NO_NODE);
	struct kmem_cache *cache = make("share", 64);
	static const unsigned percents[] = { 100, 0, 50, 1, 99 };

	NEED(kmem_cache_remote_node_defrag_ratio(cache) == 100);
	for (unsigned i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
		unsigned looks = 0;

		NEED(kmem_cache_set_remote_node_defrag_ratio(cache, percents[i]) == 0);
		NEED(kmem_cache_remote_node_defrag_ratio(cache) == percents[i]);
		for (unsigned j = 0; j < 1024; j++)
			looks += km_may_look_elsewhere(cache, &request);
		NEED(looks == percents[i] * 10);
	}
	NEED(kmem_cache_set_remote_node_defrag_ratio(cache, 101) == -EINVAL);
	NEED(kmem_cache_remote_node_defrag_ratio(cache) == 99);
	request.gfp |= __GFP_THISNODE;
	NEED(!km_may_look_elsewhere(cache, &request));
	gone(cache);
}

/* ------------------------------------------------------------------ frees of other nodes' objects */

/*
 * All objects of one node: whole sheaves go to the node's barn, with one lock each, and come back
 * from the barn.
 */
static void blocks_return_to_nodes(void)
{
	struct kmem_cache *cache = make("home", 256);

	if (is_slab())
		return;
	go_to(1);
	void **objects = get_many(cache, GFP_KERNEL, NUMA_NO_NODE, MANY);
	kmem_cache_clear_events(cache);
	free_on(0, cache, objects, MANY);
	if (is_sheaf(cache)) {
		NEED(in_barn(cache, 0) == 0);
		NEED(in_barn(cache, 1) >= cache->fast.capacity);
		NEED(kmem_cache_event(cache, KMEM_BARN_PUT) >= 1);
	}
	size_t new_slabs = counts(cache, 1)->new_slabs;
	objects = get_many(cache, GFP_KERNEL, NUMA_NO_NODE, 60);
	NEED(how_many_on(1, objects, 60) == 60);
	NEED(counts(cache, 1)->new_slabs == new_slabs);
	put_many(cache, objects, 60);
	gone(cache);
}

/* Objects of every node in turn: objects of the majority go to a barn, the others to their slabs. */
static void mixed_blocks_are_sorted(void)
{
	for (unsigned stride = 1; stride <= 5; stride += 2) {
		struct kmem_cache *cache = make("mixed", 128);
		void **objects = calloc(MANY, sizeof(*objects));

		go_to(0);
		for (unsigned i = 0; i < MANY; i++)
			objects[i] = get(cache, GFP_KERNEL, (int)(i / stride % km_node_count));
		free_on(0, cache, objects, MANY);
		for (unsigned node = 0; is_sheaf(cache) && node < km_node_count; node++) {
			unsigned long on_pcs = 2ul * km_mask_capacity(km_alloc_mask(cache));

			/*
			 * Objects that the slabs count as taken are in the barn, on the one CPU's sheaves, or with
			 * node 0.
			 */
			NEED(counts(cache, node)->taken <=
			     in_barn(cache, node) + on_pcs + have_of_others(cache, 0));
		}
		gone(cache);
	}
}

/* In bulk, with the array in any order. */
static void bulk_frees_are_sorted(void)
{
	struct kmem_cache *cache = make("bulk", 96);
	unsigned seed = 1;
	void *objects[250];

	for (unsigned round = 0; round < 100; round++) {
		for (unsigned i = 0; i < 250; i++) {
			seed = seed * 1103515245 + 12345;
			objects[i] = get(cache, GFP_KERNEL, (int)((seed >> 16) % km_node_count));
		}
		go_to(round & 1);
		if (round % 3)
			kmem_cache_free_bulk(cache, 250, objects);
		else
			kfree_bulk(250, objects);
		NEED(cache->layout.engine->check(cache) == 0);
	}
	gone(cache);
}

/* Allocated on one node and freed on the other for long: nothing grows. */
static void producer_and_consumer(void)
{
	struct kmem_cache *cache = make("stream", 200);
	size_t most = 0;

	for (unsigned round = 0; round < 300; round++) {
		void *objects[100];

		go_to(0);
		for (unsigned i = 0; i < 100; i++)
			NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		NEED(round > 0 || how_many_on(0, objects, 100) == 100);
		go_to(1);
		for (unsigned i = 0; i < 100; i++)
			kmem_cache_free(cache, objects[i]);
		size_t slabs = counts(cache, 0)->slabs + counts(cache, 1)->slabs;
		if (round == 100)
			most = slabs;
		NEED(round <= 100 || slabs <= most + 4);
	}
	gone(cache);
}

/* ------------------------------------------------------------------ slub: the node of a CPU's slab */

static void cpu_slab_of_another_node(void)
{
	struct kmem_cache *cache = make("mismatch", 256);

	if (!is_sheaf(cache)) {
		go_to(0);
		void *a = get(cache, GFP_KERNEL, NUMA_NO_NODE);
		unsigned long before = kmem_cache_event(cache, KMEM_ALLOC_NODE_MISMATCH);
		void *b = get(cache, GFP_KERNEL | __GFP_THISNODE, 1);
		NEED(km_page_node(b) == 1);
		NEED(kmem_cache_event(cache, KMEM_ALLOC_NODE_MISMATCH) == before + 1);
		/* The CPU's former slab is on the list of its own node now. */
		NEED(counts(cache, 0)->partial == 1 && counts(cache, 1)->partial == 0);
		/*
		 * The CPU has node 1's slab: the slab serves requests for this node, and goes back
		 * to node 1.
		 */
		void *c = get(cache, GFP_KERNEL, 1);
		NEED((char *)c - (char *)b == (long)cache->layout.size);
		NEED(kmem_cache_event(cache, KMEM_ALLOC_NODE_MISMATCH) == before + 1);
		NEED(kmem_cache_shrink(cache) == 1);
		NEED(counts(cache, 0)->partial == 1 && counts(cache, 1)->partial == 1);
		kmem_cache_free(cache, a);
		kmem_cache_free(cache, b);
		kmem_cache_free(cache, c);
	}
	gone(cache);
}

/* ------------------------------------------------------------------ pages */

static void blocks_of_pages(void)
{
	static const unsigned orders[] = { 0, 3, KM_MAX_ORDER, KM_MAX_ORDER, 5 };
	struct km_page *page[KM_MAX_NODES][5];
	size_t before[KM_MAX_NODES];

	for (unsigned node = 0; node < km_node_count; node++) {
		before[node] = km_arena.zone[node].pages.used_pages;
		for (unsigned i = 0; i < 5; i++) {
			page[node][i] = km_pages_alloc(orders[i], (int)node | KM_NODE_ONLY, true, NULL);
			NEED(page[node][i] && page[node][i]->node == node);
			char *p = km_page_address(page[node][i]);
			for (size_t at = 0; at < KM_PAGE_SIZE << orders[i]; at += KM_PAGE_SIZE)
				NEED(km_page_node(p + at) == node);
			memset(p, 1, KM_PAGE_SIZE << orders[i]);
		}
		NEED(km_arena.zone[node].pages.used_pages == before[node] + 1 + 8 + 2048 + 32);
	}
	NEED(km_arena_check() == 0);
	for (unsigned node = 0; node < km_node_count; node++)
		for (unsigned i = 0; i < 5; i++)
			km_pages_free(page[node][i], orders[i]);
	NEED(km_arena_check() == 0);
	kmem_shrink_all();
	for (unsigned node = 0; node < km_node_count; node++) {
		NEED(km_arena.zone[node].pages.used_pages == before[node]);
		NEED(km_arena.zone[node].pages.dirty_pages == 0);
		NEED(km_arena.zone[node].pages.purged_pages >= 2048);
	}
}

/* Bounded dirty memory is bounded over all nodes. */
static void trimmed(void)
{
	void *blocks[KM_MAX_NODES][3];

	for (unsigned node = 0; node < km_node_count; node++)
		for (unsigned i = 0; i < 3; i++) {
			blocks[node][i] = kmalloc_node(4 << 20, GFP_KERNEL, (int)node);
			NEED(blocks[node][i] && km_page_node(blocks[node][i]) == node);
		}
	for (unsigned node = 0; node < km_node_count; node++)
		for (unsigned i = 0; i < 3; i++)
			kfree(blocks[node][i]);
	NEED(!km_pages_too_dirty());
	NEED(km_arena_check() == 0);
}

/* A node has no more pages: the nearest node with pages serves, unless the request insists. */
static void node_runs_out(void)
{
	gfp_t quiet = GFP_KERNEL | __GFP_NOWARN;
	struct kmem_cache *cache = make("out", 512);
	unsigned got = 0;

	go_to(0);
	refused_call = "commit on node 1";
	km_os_fault = refuse;
	void **objects = calloc(20000, sizeof(*objects));
	while ((objects[got] = kmem_cache_alloc_node(cache, quiet | __GFP_THISNODE, 1)))
		NEED(km_page_node(objects[got++]) == 1 && got < 15000);
	NEED(errno == ENOMEM);
	NEED(!kmalloc_node(1 << 20, quiet | __GFP_THISNODE, 1) && errno == ENOMEM);
	unsigned exact = got;
	for (; got < exact + 2000; got++)
		NEED(km_page_node(objects[got] = get(cache, quiet, 1)) != 1);
	char *pages = kmalloc_node(1 << 20, quiet, 1);
	NEED(pages && km_page_node(pages) != 1);
	kfree(pages);
	/* Also on a CPU of this node. */
	go_to(1);
	for (; got < exact + 4000; got++)
		objects[got] = get(cache, quiet, NUMA_NO_NODE);
	NEED(how_many_on(1, objects, got) == exact);
	NEED(cache->layout.engine->check(cache) == 0);
	km_os_fault = NULL;
	objects[got++] = get(cache, GFP_KERNEL | __GFP_THISNODE, 1);
	NEED(km_page_node(objects[got - 1]) == 1);
	put_many(cache, objects, got);
	gone(cache);
}

/* ------------------------------------------------------------------ the whole */

static void numbers_add_up(void)
{
	struct kmem_cache *cache = make("sums", 300);
	struct kmem_cache_stats stats;
	struct kmem_stats process;
	unsigned long slabs = 0, objects = 0, partial = 0;

	go_to(1);
	void **some = get_many(cache, GFP_KERNEL, NUMA_NO_NODE, 1000);
	void **others = get_many(cache, GFP_KERNEL, (int)km_node_count - 1, 500);
	void **first = get_many(cache, GFP_KERNEL, 0, 200);
	free_on(0, cache, some, 1000);
	for (unsigned node = 0; node < km_node_count; node++) {
		slabs += counts(cache, node)->slabs;
		objects += counts(cache, node)->objects;
		partial += counts(cache, node)->partial;
	}
	kmem_cache_get_stats(cache, &stats);
	NEED(stats.total_slabs == slabs && stats.total_objects == objects);
	NEED(stats.partial_slabs == partial && stats.active_objects == 700);
	NEED(stats.alloc_slab - stats.free_slab == slabs);
	kmem_get_stats(&process);
	NEED(process.nodes == km_node_count && process.bind_failures == 0);
	put_many(cache, others, 500);
	put_many(cache, first, 200);
	gone(cache);
}

static int visited(void *object, void *arg)
{
	++*(unsigned *)arg;
	return object == NULL;
}

static void walk_and_fork(void)
{
	struct kmem_cache *cache = make("walk", 80);
	unsigned seen = 0;
	int status;

	go_to(0);
	void **objects = calloc(1200, sizeof(*objects));
	for (unsigned i = 0; i < 1200; i++)
		objects[i] = get(cache, GFP_KERNEL, (int)(i % km_node_count));
	NEED(kmem_cache_walk(cache, visited, &seen) == 0 && seen == 1200);
	pid_t child = fork();
	if (!child) {
		for (unsigned i = 0; i < km_node_count; i++)
			NEED(km_page_node(get(cache, GFP_KERNEL | __GFP_THISNODE, (int)i)) == i);
		NEED(kmem_check_all() == 0);
		_exit(0);
	}
	NEED(waitpid(child, &status, 0) == child && status == 0);
	put_many(cache, objects, 1200);
	gone(cache);
}

static const struct test_case cases[] = {
	{ "local", local },
	{ "a named node", named },
	{ "not from the sheaves", not_from_the_pcs },
	{ "hits do not look", hits_do_not_look },
	{ "no such node", no_such_node },
	{ "sizes", sizes },
	{ "ratio and guard", ratio_and_guard },
	{ "checked cache", checked_cache },
	{ "share", share },
	{ "blocks return to their nodes", blocks_return_to_nodes },
	{ "mixed blocks are sorted", mixed_blocks_are_sorted },
	{ "bulk frees are sorted", bulk_frees_are_sorted },
	{ "producer and consumer", producer_and_consumer },
	{ "a CPU's slab of another node", cpu_slab_of_another_node },
	{ "blocks of pages", blocks_of_pages },
	{ "trimmed", trimmed },
	{ "a node runs out", node_runs_out },
	{ "numbers add up", numbers_add_up },
	{ "walk and fork", walk_and_fork },
};

int main(int argc, char **argv)
{
	return run_numa(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
