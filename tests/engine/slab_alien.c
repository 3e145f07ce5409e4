/*
 * slab_alien: what the engine slab does with objects of other nodes, four of which are pretended: alien arrays, where
 * they are emptied to and when, and what a node without memory gets from the others. Disciplines: all.
 * With nodes: nodes:4
 */
#include "slab.h"

#include "page/metadata.h"

enum { NODES = 4 };

static unsigned here, there;	/* this CPU's node, and the next */

static struct slab_node *at(struct kmem_cache *cache, unsigned node)
{
	return slab_node(cache, node);
}

/* Takes objects from this node. */
static void take_on(struct kmem_cache *cache, unsigned node, void **objects, unsigned count)
{
	struct km_request request = km_request_of(GFP_KERNEL, (int)node);

	enter();
	CHECK_EQUAL(cache->layout.engine->take(cache, &request, objects, count), count);
	leave();
	for (unsigned i = 0; i < count; i++)
		CHECK_EQUAL(slab_of(objects[i])->node, node);
}

/* Spill these objects, as many as a batch, and keep the block. */
static void spill(struct kmem_cache *cache, void **objects, unsigned count)
{
	enter();
	void **block = cache->layout.engine->array.spill(cache, NULL) - count;
	for (unsigned i = 0; i < count; i++)
		block[count - 1 - i] = objects[i];
	block = cache->layout.engine->array.spill(cache, block);
	cache->layout.engine->array.retire(cache, block);
	leave();
}

static void case_alien(void)
{
	struct kmem_cache *cache = small(4);
	struct slab_node *ours = at(cache, here), *theirs = at(cache, there);
	void *objects[64];

	take_on(cache, there, objects, 32);
	take_on(cache, here, objects + 32, 32);
	kmem_cache_clear_events(cache);
	/* Two objects of the other node, two of this node: the latter go to this node's shared array. */
	void *mixed[] = { objects[0], objects[40], objects[1], objects[41] };
	spill(cache, mixed, 4);
	EVENTS(cache, [KMEM_FREEMISS] = 1, [KMEM_NODE_FREES] = 2);
	CHECK_EQUAL(ours->slabs.counts.shared, 2);
	CHECK_EQUAL(ours->alien[there].avail, 2);
	CHECK_EQUAL(ours->ready, 4);
	CHECK_EQUAL(theirs->slabs.counts.shared, 0);
	/*
	 * Twelve fit; the thirteenth flushes them to their node: first to its shared array, the rest to slabs.
	 */
	spill(cache, objects + 2, 4);
	spill(cache, objects + 6, 4);
	spill(cache, objects + 10, 2);
	CHECK_EQUAL(ours->alien[there].avail, 12);
	kmem_cache_clear_events(cache);
	spill(cache, objects + 12, 1);
	EVENTS(cache, [KMEM_FREEMISS] = 1, [KMEM_NODE_FREES] = 1, [KMEM_OVERFLOWS] = 1);
	CHECK_EQUAL(ours->alien[there].avail, 1);
	CHECK_EQUAL(theirs->slabs.counts.shared, 12);
	CHECK_EQUAL(theirs->slabs.counts.taken, 32);
	for (unsigned i = 13; i < 29; i += 4)
		spill(cache, objects + i, 4);
	CHECK_EQUAL(ours->alien[there].avail, 5);
	CHECK_EQUAL(theirs->slabs.counts.shared, 16);
	CHECK_EQUAL(theirs->slabs.counts.taken, 24);
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	struct kmem_cache_stats stats;
	kmem_cache_get_stats(cache, &stats);
	CHECK_EQUAL(stats.active_objects, 64 - 31);
	give(cache, objects + 29, 11);
	give(cache, objects + 42, 22);
	done(cache);
}

/* A reap drains one alien array of each node; as many reaps as nodes drain all. */
static void case_in_turn(void)
{
	struct kmem_cache *cache = small(0);
	void *objects[NODES];

	for (unsigned node = 0; node < NODES; node++)
		take_on(cache, node, objects + node, 1);
	spill(cache, objects, NODES);
	for (unsigned looks = 0; looks <= NODES; looks++) {
		unsigned left = 0;

		for (unsigned node = 0; node < NODES; node++)
			left += at(cache, here)->alien[node].avail;
		CHECK_EQUAL(left, looks > here ? NODES - looks : NODES - 1 - looks);
		look(cache, 1);
	}
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	done(cache);
}

/* Objects of two nodes go back to the slabs in one call. */
static void case_give_both(void)
{
	struct kmem_cache *cache = small(0);
	void *objects[64], *mixed[64];

	take_on(cache, there, objects, 32);
	take_on(cache, here, objects + 32, 32);
	for (unsigned i = 0; i < 32; i++) {
		mixed[2 * i] = objects[i];
		mixed[2 * i + 1] = objects[32 + i];
	}
	give(cache, mixed, 64);
	CHECK_EQUAL(at(cache, there)->slabs.counts.taken, 0);
	CHECK_EQUAL(at(cache, here)->slabs.counts.taken, 0);
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	/* Nothing is got from elsewhere while there is memory. */
	take_on(cache, there, objects, 3);
	CHECK_EQUAL(at(cache, there)->slabs.counts.taken, 3);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_NODE_ALLOCS), 0);
	give(cache, objects, 3);
	done(cache);
}

/* No pages: what the nearest of the other nodes has, unless only this one will do. */
static void case_elsewhere(void)
{
	struct kmem_cache *cache = small(0);
	void *far[16], *near[16], *object;
	struct pages *all;

	/* Behind node 1 comes 2, and 0 last. */
	take_on(cache, 0, far, 16);
	take_on(cache, 2, near, 16);
	give(cache, far, 3);
	give(cache, near, 1);
	km_os_fault = no_more;
	all = take_all_pages();
	kmem_cache_clear_events(cache);
	struct km_request only = km_request_of(GFP_NOWAIT | __GFP_THISNODE, 1),
			  any = km_request_of(GFP_NOWAIT, 1);
	enter();
	CHECK_EQUAL(cache->layout.engine->take(cache, &only, &object, 1), 0);
	EVENTS(cache, [KMEM_ERRORS] = 1);
	CHECK_EQUAL(cache->layout.engine->take(cache, &any, &object, 1), 1);
	EVENTS(cache, [KMEM_ERRORS] = 1, [KMEM_NODE_ALLOCS] = 1, [KMEM_ALLOCS] = 1,
	       [KMEM_HIGH] = at(cache, 2)->slabs.counts.taken);
	CHECK(object == near[0]);
	CHECK_EQUAL(cache->layout.engine->take(cache, &any, &object, 1), 1);
	CHECK(object == far[2]);
	leave();
	km_os_fault = NULL;
	give_pages_back(all);
	give(cache, far + 2, 14);
	give(cache, near, 16);
	done(cache);
}

/* Takes all free metadata of this size without a system call, linked. */
static void *use_up(size_t bytes)
{
	void *pieces = NULL, *piece;

	while ((piece = km_metadata_alloc(bytes, false))) {
		*(void **)piece = pieces;
		pieces = piece;
	}
	return pieces;
}

static void give_up(void *pieces, size_t bytes)
{
	for (void *next; pieces; pieces = next) {
		next = *(void **)pieces;
		km_metadata_free(pieces, bytes);
	}
}

/* Without memory for alien and shared arrays, the objects go to their slabs. */
static void case_no_arrays(void)
{
	struct kmem_cache *cache = fresh();
	const size_t aliens = NODES * sizeof(struct slab_alien), shared = n_shared * sizeof(void *);
	struct slab_node *ours = at(cache, here), *theirs = at(cache, there);
	void *objects[8], *pieces[2];

	take_on(cache, there, objects, 4);
	take_on(cache, here, objects + 4, 4);
	enter();
	void **block = cache->layout.engine->array.spill(cache, NULL) - 4;
	for (unsigned i = 0; i < 4; i++)
		block[i] = objects[i + 2];
	pieces[0] = use_up(aliens);
	pieces[1] = use_up(shared);
	km_os_fault = no_more;
	kmem_cache_clear_events(cache);
	block = cache->layout.engine->array.spill(cache, block);
	km_os_fault = NULL;
	EVENTS(cache, [KMEM_FREEMISS] = 1, [KMEM_NODE_FREES] = 2);
	CHECK(!ours->alien && !ours->shared && !theirs->shared);
	CHECK_EQUAL(ours->slabs.counts.taken, 2);
	CHECK_EQUAL(theirs->slabs.counts.taken, 2);
	give_up(pieces[0], aliens);
	give_up(pieces[1], shared);
	cache->layout.engine->array.retire(cache, block);
	leave();
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	give(cache, objects, 2);
	give(cache, objects + 6, 2);
	done(cache);
}

/* A node keeps free objects for the CPUs of the node. */
static void case_free_limits(void)
{
	struct kmem_cache *cache = small(2);

	for (int tuned = 0; tuned < 2; tuned++) {
		for (unsigned node = 0; node < NODES; node++) {
			size_t cpus = 0;

			for (unsigned cpu = node; cpu < km_percpu.cpus; cpu += NODES)
				cpus++;
			CHECK_EQUAL(at(cache, node)->free_limit, (1 + cpus) * n_batch + n_objects);
		}
		CHECK_EQUAL(kmem_cache_tune(cache, 12, n_batch = 6, 2), 0);
	}
	done(cache);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "alien arrays", case_alien },
		{ "one array at a look", case_in_turn },
		{ "objects of two nodes", case_give_both },
		{ "another node helps out", case_elsewhere },
		{ "no memory for arrays", case_no_arrays },
		{ "free objects that stay", case_free_limits },
	};

	/* The options are read before main. */
	if (argc == 1) {
		set_options("nodes:4");
		execl("/proc/self/exe", argv[0], "with nodes", (char *)NULL);
		return 1;
	}
	go_to_cpu(cpu_at(0));
	here = km_node_here();
	there = (here + 1) % NODES;
	printf("%u nodes, this is %u\n", km_node_count, here);
	return counted_run(cases, km_array_count(cases), 20);
}
