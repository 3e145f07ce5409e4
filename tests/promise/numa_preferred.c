/*
 * numa_preferred: a named node is a preference only. Where the node has no memory and the call may not make system
 * calls, the request gets an object of another node; the call then takes a page or two, not all free pages. With
 * __GFP_THISNODE the request fails. For each engine, with two simulated nodes.
 */
#define _GNU_SOURCE
#include "kit/api.h"
#include "kit/cpus.h"

static size_t pages_used(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return stats.pages_used;
}

/* Of node 1's CPU, where the process began: so node 0 has no page yet. */
static void no_page_there(void)
{
	struct kmem_cache *cache = make("preferred", 100);
	void *objects[200];
	size_t before;

	kfree(kmalloc(100, GFP_KERNEL));
	before = pages_used();
	NEED(!kmem_cache_alloc_node(cache, GFP_NOWAIT | __GFP_THISNODE | __GFP_NOWARN, 0));
	for (unsigned i = 0; i < 200; i++) {
		NEED((objects[i] = kmem_cache_alloc_node(cache, GFP_NOWAIT, 0)), "object %u", i);
		memset(objects[i], 1, 100);
	}
	CHECK(pages_used() <= before + 64, "%zu pages, then %zu", before, pages_used());
	for (unsigned i = 0; i < 200; i++)
		kmem_cache_free(cache, objects[i]);
	gone(cache);
}

static const struct test_case cases[] = { { "no page there", no_page_there } };

int main(int argc, char **argv)
{
	for (int cpu = 1; cpu < CPU_SETSIZE; cpu += 2)
		if (CPU_ISSET(cpu, all_cpus())) {
			NEED(go_to_cpu(cpu));
			return api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), ",nodes:2");
		}
	printf("needs a CPU of node 1\n");
	return 77;
}
