/*
 * numa.h: common code for tests with simulated memory nodes: CPUs of a node, the node of an object, and a program
 * restarted for each engine, with two nodes and with four. A machine without two CPUs in different nodes skips the
 * test.
 */
#ifndef TESTS_KIT_NUMA_H
#define TESTS_KIT_NUMA_H

#include <pthread.h>
#include <sched.h>

#include "api.h"

#include "slab/sheaf.h"
#include "alloc/fast_path.h"
#include "os/os.h"
#include "inside.h"

TEST_IS_INSIDE

static cpu_set_t allowed;

static inline int cpu_of_node(unsigned node)
{
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed) && (unsigned)cpu % km_node_count == node)
			return cpu;
	return -1;
}

static inline void go_to(unsigned node)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu_of_node(node), &one);
	NEED(sched_setaffinity(0, sizeof(one), &one) == 0);
	NEED(km_node_here() == node);
}

static inline struct km_node_counts *counts(struct kmem_cache *cache, unsigned node)
{
	return cache->state.node[node];
}

static inline bool is_sheaf(const struct kmem_cache *cache)
{
	return cache->layout.engine->front == KM_PERCPU_SHEAVES;
}

static inline void *get(struct kmem_cache *cache, gfp_t gfp, int node)
{
	void *object = kmem_cache_alloc_node(cache, gfp, node);

	NEED(object);
	NEED(kmem_cache_of(object) == cache);
	NEED(km_page_head(km_page_of(object))->node == km_page_node(object));
	return object;
}

static inline void **get_many(struct kmem_cache *cache, gfp_t gfp, int node, unsigned count)
{
	void **objects = calloc(count, sizeof(*objects));

	for (unsigned i = 0; i < count; i++)
		objects[i] = get(cache, gfp, node);
	return objects;
}

static inline void put_many(struct kmem_cache *cache, void **objects, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (objects[i])
			kmem_cache_free(cache, objects[i]);
	free(objects);
}

static inline unsigned how_many_on(unsigned node, void **objects, unsigned count)
{
	unsigned found = 0;

	for (unsigned i = 0; i < count; i++)
		found += objects[i] && km_page_node(objects[i]) == node;
	return found;
}

struct run_on {
	unsigned node;
	struct kmem_cache *cache;
	void **objects;
	unsigned count;
};

static inline void *free_there(void *arg)
{
	struct run_on *run = arg;

	go_to(run->node);
	for (unsigned i = 0; i < run->count; i++) {
		kmem_cache_free(run->cache, run->objects[i]);
		/* A barn must hold objects of the node of the barn only, at every step. */
		if (i % 500 == 0)
			NEED(run->cache->layout.engine->check(run->cache) == 0);
	}
	return NULL;
}

static inline void free_on(unsigned node, struct kmem_cache *cache, void **objects, unsigned count)
{
	struct run_on run = { node, cache, objects, count };
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, free_there, &run) == 0);
	NEED(pthread_join(thread, NULL) == 0);
	NEED(cache->layout.engine->check(cache) == 0);
	free(objects);
}

/* Kernel: SLAB has no ratio and no barns, and keeps freed objects in arrays for a while. */
static inline bool is_slab(void)
{
	const char *options = getenv("KMEM_OPTIONS");

	return options && strstr(options, "engine:slab");
}

/*
 * Makes `slabs` partial slabs of the node, with nothing cached on CPUs or in barns. Returns: the objects in the
 * slabs, one each.
 */
static inline void **partial_slabs(struct kmem_cache *cache, unsigned node, unsigned slabs)
{
	unsigned count = slabs * cache->layout.objects;
	void **objects = get_many(cache, GFP_KERNEL | __GFP_THISNODE, (int)node, count);

	/* Keeps the first object of each slab, by its address. */
	for (unsigned i = 0; i < count; i++)
		if ((uintptr_t)objects[i] & ((KM_PAGE_SIZE << cache->layout.order) - 1)) {
			kmem_cache_free(cache, objects[i]);
			objects[i] = NULL;
		}
	NEED(kmem_cache_shrink(cache) == 1);
	NEED(counts(cache, node)->partial == slabs && counts(cache, node)->slabs == slabs);
	return objects;
}

static inline size_t in_barn(struct kmem_cache *cache, unsigned node)
{
	return counts(cache, node)->ready[0] ? *counts(cache, node)->ready[0] : 0;
}

/* Returns: the number of objects of other nodes cached on the node's CPUs. */
static inline size_t have_of_others(struct kmem_cache *cache, unsigned node)
{
	return is_sheaf(cache) && counts(cache, node)->ready[1] ? *counts(cache, node)->ready[1] : 0;
}

static const char *refused_call;
static inline bool refuse(const char *call)
{
	return strcmp(call, refused_call) == 0;
}

static inline int start_with(const char *program, const char *engine, unsigned nodes)
{
	char options[64], name[64];
	int status;

	snprintf(options, sizeof(options), "engine:%s,nodes:%u,decay:3600000", engine, nodes);
	snprintf(name, sizeof(name), "%s, %u nodes", engine, nodes);
	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		set_options(options);
		execl("/proc/self/exe", program, name, (char *)NULL);
		_exit(127);
	}
	return child < 0 || waitpid(child, &status, 0) != child ? 1 : WEXITSTATUS(status);
}

static inline int run_numa(int argc, char **argv, const struct test_case *cases, unsigned count)
{
	static const char *const engines[] = { "sheaf", "slub", "slab" };
	int failed = 0;

	sched_getaffinity(0, sizeof(allowed), &allowed);
	if (argc > 1) {
		kmem_percpu_discipline();
		if (cpu_of_node(0) < 0 || cpu_of_node(1) < 0)
			return 77;
		return run_cases(cases, count, argv[1]);
	}
	for (unsigned i = 0; i < sizeof(engines) / sizeof(engines[0]); i++)
		for (unsigned nodes = 2; nodes <= 4; nodes += 2) {
			int status = start_with(argv[0], engines[i], nodes);

			if (status == 77) {
				printf("needs a CPU on each of two nodes\n");
				return 77;
			}
			failed |= status;
		}
	return failed;
}

#endif
