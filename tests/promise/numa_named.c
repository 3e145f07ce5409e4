/*
 * numa_named: requests that name a node, or insist on the CPU's node, with simulated memory nodes (two and four): the
 * source of their objects, the objects left for the node's own CPUs, and the end of the cached objects for such
 * requests. Disciplines: all. Skipped on a machine without two CPUs in different nodes. Not with hardened: objects
 * wait there.
 */
#define _GNU_SOURCE
#include "kit/numa.h"

#define THIS (GFP_KERNEL | __GFP_THISNODE)

static struct sheaf_node *sheaf(struct kmem_cache *cache, unsigned node)
{
	return cache->state.node[node];
}

static bool has_barns(void)
{
	const char *options = getenv("KMEM_OPTIONS");

	return options && strstr(options, "engine:sheaf");
}

static unsigned long active(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	NEED(kmem_check_all() == 0);
	return stats.active_objects;
}

/* Puts full sheaves into node 1's barn; then the thread is on node 0. Returns: their number. */
static unsigned fill_barn(struct kmem_cache *cache)
{
	unsigned count = 6u * cache->fast.capacity;

	go_to(1);
	put_many(cache, get_many(cache, GFP_KERNEL, NUMA_NO_NODE, count), count);
	go_to(0);
	kmem_cache_clear_events(cache);
	NEED(sheaf(cache, 1)->barn.full_count >= 3);
	return sheaf(cache, 1)->barn.full_count;
}

/*
 * From the named node's barn, one sheaf for many requests; the last sheaf stays in the barn. After that from
 * the node's slabs.
 */
static void from_its_barn(void)
{
	struct kmem_cache *cache = make("away", 200);
	unsigned blocks, got = 0;
	void *objects[2000];

	if (!has_barns())
		return;
	blocks = fill_barn(cache);
	size_t taken = counts(cache, 1)->taken;
	while (have_of_others(cache, 0) || kmem_cache_event(cache, KMEM_BARN_GET) < blocks - 1) {
		objects[got] = get(cache, got % 2 ? THIS : GFP_KERNEL, 1);
		NEED(km_page_node(objects[got++]) == 1 && got < 1000);
	}
	NEED(got == (blocks - 1) * cache->fast.capacity && active(cache) == got);
	NEED(counts(cache, 1)->taken == taken && kmem_cache_event(cache, KMEM_SHEAF_REFILL) == 0);
	NEED(sheaf(cache, 1)->barn.full_count == 1);
	objects[got++] = get(cache, THIS, 1);
	NEED(sheaf(cache, 1)->barn.full_count == 1 && kmem_cache_event(cache, KMEM_SHEAF_REFILL) == 1);
	NEED(counts(cache, 1)->taken == taken + 1 + have_of_others(cache, 0));
	NEED(have_of_others(cache, 0) == cache->fast.capacity - 1u && active(cache) == got);
	/* The node's own CPU gets the sheaf at once. */
	go_to(1);
	while (sheaf(cache, 1)->barn.full_count)
		objects[got++] = get(cache, GFP_KERNEL, NUMA_NO_NODE);
	NEED(kmem_cache_event(cache, KMEM_SHEAF_REFILL) == 1);
	for (unsigned i = 0; i < got; i++)
		kmem_cache_free(cache, objects[i]);
	gone(cache);
}

/* Two nodes request objects of a third, and each node has a sheaf for the purpose. */
static void each_node_has_its_own(void)
{
	struct kmem_cache *cache = make("own", 100);

	if (!has_barns() || km_node_count < 3)
		return;
	for (unsigned node = 0; node < 2; node++) {
		go_to(node);
		kmem_cache_free(cache, get(cache, THIS, 2));
		kmem_cache_free(cache, get(cache, THIS, 3));
		NEED(have_of_others(cache, node) == 2u * (cache->fast.capacity - 1u));
	}
	NEED(have_of_others(cache, 2) == 0 && have_of_others(cache, 3) == 0 && active(cache) == 0);
	gone(cache);
}

/* The cached objects go by shrink, and after two ticks without a request. */
static void goes_back(void)
{
	struct kmem_cache *cache = make("back", 100);

	if (!has_barns())
		return;
	go_to(0);
	for (unsigned shrink = 0; shrink < 2; shrink++) {
		void *object = get(cache, GFP_KERNEL, 1);

		NEED(have_of_others(cache, 0) == cache->fast.capacity - 1u && active(cache) == 1);
		cache->layout.engine->reap(cache);
		NEED(have_of_others(cache, 0));
		if (shrink)
			kmem_cache_shrink(cache);
		else
			cache->layout.engine->reap(cache);
		NEED(!have_of_others(cache, 0) && active(cache) == 1);
		kmem_cache_free(cache, object);
	}
	gone(cache);
}

/* Another thread holds the lock, and a request that may not wait goes past. */
static void past_a_lock(void)
{
	struct kmem_cache *cache = make("past", 100);

	if (!has_barns())
		return;
	go_to(0);
	void *first = get(cache, THIS, 1);
	size_t have = have_of_others(cache, 0);
	sheaf(cache, 0)->remote->lock.state = 1;
	void *second = get(cache, GFP_NOWAIT | __GFP_THISNODE, 1);
	sheaf(cache, 0)->remote->lock.state = 0;
	NEED(km_page_node(second) == 1 && have_of_others(cache, 0) == have && active(cache) == 2);
	kmem_cache_free(cache, first);
	kmem_cache_free(cache, second);
	gone(cache);
}

/* No cached objects for the node without per-CPU sheaves: there each free is checked. */
static void not_without_pcs(void)
{
	struct kmem_cache *cache = kmem_cache_create("checked", 100, NULL, SLAB_CONSISTENCY_CHECKS);

	if (!has_barns())
		return;
	go_to(0);
	void *object = get(cache, THIS, 1);
	NEED(km_page_node(object) == 1 && have_of_others(cache, 0) == 0 && counts(cache, 1)->taken == 1);
	kmem_cache_free(cache, object);
	gone(cache);
}

/* ------------------------------------------------------------------ the order of memory */

/* A new slab of the named node comes before partial slabs of other nodes; these come before a failure. */
static void named_before_others(void)
{
	gfp_t quiet = GFP_KERNEL | __GFP_NOWARN;
	struct kmem_cache *cache = make("first", 512);
	void **objects = calloc(20000, sizeof(*objects));
	unsigned got = 0;

	if (is_slab())
		return;
	go_to(0);
	NEED(kmem_cache_set_min_partial(cache, 0) == 0);
	void **kept = partial_slabs(cache, 1, 6);
	objects[got++] = get(cache, GFP_KERNEL, 0);
	NEED(km_page_node(objects[0]) == 0 && counts(cache, 1)->partial == 6);
	refused_call = "commit on node 0";
	km_os_fault = refuse;
	while ((objects[got] = kmem_cache_alloc_node(cache, quiet | __GFP_THISNODE, 0)))
		NEED(km_page_node(objects[got++]) == 0 && got < 15000);
	NEED(counts(cache, 1)->partial == 6);
	size_t slabs = counts(cache, 1)->slabs;
	objects[got++] = get(cache, quiet, 0);
	NEED(km_page_node(objects[got - 1]) == 1 && counts(cache, 1)->slabs == slabs);
	km_os_fault = NULL;
	put_many(cache, objects, got);
	put_many(cache, kept, 6u * cache->layout.objects);
	gone(cache);
}

/* ------------------------------------------------------------------ in bulk */

static const unsigned bulk_counts[] = { 1, 2, 16, 62, 63, 124, 300, 1000, 5000 };
static void *bulk[5000];

/* `strangers` objects of node 1 in the sheaf of node 0's CPU, between some of node 0. */
static void mix_pcs(struct kmem_cache *cache, unsigned strangers)
{
	void **ours[2], **theirs = get_many(cache, GFP_KERNEL, 1, strangers);

	for (unsigned i = 0; i < 2; i++)
		ours[i] = get_many(cache, GFP_KERNEL, 0, 10);
	put_many(cache, ours[0], 10);
	put_many(cache, theirs, strangers);
	put_many(cache, ours[1], 10);
}

static void bulk_insists(void)
{
	for (unsigned i = 0; i < sizeof(bulk_counts) / sizeof(bulk_counts[0]); i++)
		for (unsigned strangers = 1; strangers < 128; strangers *= 3) {
			struct kmem_cache *cache = make("bulk", 200);
			unsigned n = bulk_counts[i];

			go_to(0);
			mix_pcs(cache, strangers);
			NEED(kmem_cache_alloc_bulk(cache, THIS, n, bulk));
			NEED(how_many_on(0, bulk, n) == n && active(cache) == n);
			kmem_cache_free_bulk(cache, n, bulk);
			gone(cache);
		}
}

/* The node has no more pages: all or nothing, and the sheaf's objects are not lost. */
static void bulk_refused(void)
{
	struct kmem_cache *cache = make("refused", 4096);

	go_to(0);
	mix_pcs(cache, 3);
	refused_call = "commit on node 0";
	km_os_fault = refuse;
	NEED(!kmem_cache_alloc_bulk(cache, THIS | __GFP_NOWARN, 5000, bulk) && errno == ENOMEM);
	NEED(active(cache) == 0);
	km_os_fault = NULL;
	NEED(kmem_cache_alloc_bulk(cache, THIS, 5000, bulk));
	NEED(how_many_on(0, bulk, 5000) == 5000);
	kmem_cache_free_bulk(cache, 5000, bulk);
	gone(cache);
}

/* As in a handler that interrupts the engine: no object of another node, and no object is lost. */
static void in_a_handler(void)
{
	gfp_t quiet = THIS | __GFP_NOWARN;
	struct kmem_cache *cache = make("handler", 200);

	go_to(0);
	mix_pcs(cache, 5);
	for (unsigned n = 1; n < 100; n++) {
		km_thread.busy = true;
		bool got = kmem_cache_alloc_bulk(cache, quiet, n, bulk);
		void *one = kmem_cache_alloc_node(cache, quiet, 0), *other = kmem_cache_alloc_node(cache, quiet, 1);
		km_thread.busy = false;
		NEED(!got || how_many_on(0, bulk, n) == n);
		NEED((!one || km_page_node(one) == 0) && (!other || km_page_node(other) == 1));
		if (got)
			kmem_cache_free_bulk(cache, n, bulk);
		if (one)
			kmem_cache_free(cache, one);
		if (other)
			kmem_cache_free(cache, other);
		NEED(active(cache) == 0);
	}
	gone(cache);
}

static const struct test_case cases[] = {
	{ "from its barn", from_its_barn },
	{ "each node has its own", each_node_has_its_own },
	{ "goes back", goes_back },
	{ "past a lock", past_a_lock },
	{ "not without sheaves", not_without_pcs },
	{ "named before others", named_before_others },
	{ "bulk insists", bulk_insists },
	{ "bulk refused", bulk_refused },
	{ "in a handler", in_a_handler },
};

int main(int argc, char **argv)
{
	return run_numa(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
