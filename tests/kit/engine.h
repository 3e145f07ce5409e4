/*
 * engine.h: common code for tests of one engine: new caches, a system that refuses memory, all free pages allocated,
 * and a stopped clock, so that no memory is released by age. The tests read lists and counts of node 0. With
 * simulated nodes (TEST_OPTIONS) a test binds itself to a CPU of node 0.
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

/* CPUs belong to simulated nodes in turn. The last value of a repeated option applies. */
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

/* Creates a cache with a unique name and cleared events. */
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

/* For km_os_fault: the system refuses all memory. */
static bool no_more(const char *call)
{
	(void)call;
	return true;
}

/* All free pages available without the system, the largest blocks first. */
struct pages {
	struct km_page *block[65536];
	unsigned char order[65536];
	unsigned count;
};

/* Allocates all free pages. Requires: no_more is set. Afterwards no page is available. */
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

/* Runs the cases with hit counters on: public sheaves are closed, and each call uses the per-CPU operations. */
static int counted_run(const struct test_case *cases, size_t count, int tries)
{
	kfree(kmalloc(8, GFP_KERNEL));
	printf("discipline %s, %u CPUs\n", km_discipline_name(km_percpu.discipline), km_percpu.cpus);
	km_layout_options.count_events = true;
	return run_in_turn(cases, count, tries);
}

#endif
