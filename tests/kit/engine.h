/*
 * engine.h: what the tests of one engine share: fresh caches of it, a system that gives nothing, all free pages in
 * hand, and a clock that stands still: nothing goes back by age between two steps. Lists and counts that such a test
 * looks at are those of node 0: where more are pretended (TEST_OPTIONS) it begins on a CPU of that one, and stays.
 */
#ifndef TESTS_KIT_ENGINE_H
#define TESTS_KIT_ENGINE_H

#include "events.h"
#include "clock.h"
#include "cpus.h"

#include "alloc/fast_path.h"
#include "page/arena.h"
#include "os/os.h"
#include "inside.h"

TEST_IS_INSIDE

/* Pretended nodes take turns by CPU. Of an option that stands there twice the last one holds. */
__attribute__((constructor)) static void go_to_node_0(void)
{
	int nodes = 1, cpu = 0;

	for (const char *at = getenv("KMEM_OPTIONS"); at && (at = strstr(at, "nodes:")); at++)
		nodes = atoi(at + strlen("nodes:"));
	if (nodes < 2)
		return;
	while (cpu < CPU_SETSIZE && !CPU_ISSET((size_t)cpu, all_cpus()))
		cpu += nodes;
	if (cpu >= CPU_SETSIZE || !go_to_cpu(cpu)) {
		printf("needs a CPU of node 0\n");
		exit(77);
	}
}

/* Each has a name of its own, and no events yet. */
static struct kmem_cache *cache_of(struct kmem_cache_args args, unsigned size, slab_flags_t flags)
{
	static unsigned serial;
	char name[32];

	snprintf(name, sizeof(name), "%s-%u", args.engine, ++serial);
	struct kmem_cache *cache = kmem_cache_create(name, size, &args, flags);
	if (!cache) {
		printf("no cache\n");
		exit(1);
	}
	kmem_cache_clear_events(cache);
	return cache;
}

/* For km_os_fault: the system gives nothing. */
static bool no_more(const char *call)
{
	(void)call;
	return true;
}

/* Every free page that is to be had without the system, the largest blocks first. */
struct pages {
	struct km_page *block[65536];
	unsigned char order[65536];
	unsigned count;
};

/* Under no_more: from here on there is not a page. */
static struct pages *take_all_pages(void)
{
	struct pages *all = calloc(1, sizeof(*all));
	struct km_page *block;

	for (unsigned order = KM_MAX_ORDER + 1; all && order-- > 0;)
		while (all->count < km_array_count(all->block) &&
		       (block = km_pages_alloc(order, NUMA_NO_NODE, false, NULL))) {
			all->order[all->count] = (unsigned char)order;
			all->block[all->count++] = block;
		}
	CHECK(all && all->count);
	return all;
}

static void give_pages_back(struct pages *all)
{
	for (unsigned i = 0; i < all->count; i++)
		km_pages_free(all->block[i], all->order[i]);
	free(all);
}

/* Hits are counted: public shelves are closed, and each call passes the verbs of the discipline. */
static int counted_run(const struct test_case *cases, size_t count, int tries)
{
	kfree(kmalloc(8, GFP_KERNEL));
	printf("discipline %s, %u CPUs\n", km_discipline_name(km_percpu.discipline), km_percpu.cpus);
	km_layout_options.count_events = true;
	return run_in_turn(cases, count, tries);
}

#endif
