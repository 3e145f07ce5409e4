/*
 * handed_over_sheaves.c: before another CPU gets a sheaf of free objects, this CPU writes to the objects' cache
 * lines, without a change of contents. Disciplines: all. The test sees writes by a read-only page of one object: a
 * write raises a signal. Exempt are: sheaves that stay on their CPU, memory that other threads may write while free
 * (SLAB_TYPESAFE_BY_RCU), and foreign pointers. Not with hardened: objects pass from the engine's own functions to
 * callers, unproved. Not with nodes: a block that crosses goes by the node of its objects.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <kmem/kmem.h>

#include "kit/cpus.h"
#include "kit/check.h"
#include "slab/sheaf.h"
#include "os/die.h"
#include "kit/inside.h"

TEST_IS_INSIDE

#define PAGE 4096u
#define OBJECTS 300u

static unsigned cpus;
static volatile unsigned writes;

/* Counts the write, and permits the write. */
static void on_write(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	writes++;
	mprotect((void *)((uintptr_t)info->si_addr & -(uintptr_t)PAGE), PAGE, PROT_READ | PROT_WRITE);
}

/* The CPU for per-CPU operations from now on: the first or second CPU of the process. */
static void on_cpu(unsigned which)
{
	cpus = (unsigned)CPU_COUNT(all_cpus());
	go_to_cpu(cpu_at((int)which));
	/* As the slow path does before a call of an engine. */
	km_cpu_begin();
}

/* A full sheaf of the cache: `stranger` and otherwise objects of the cache. */
static void **full_block(struct kmem_cache *cache, void *stranger)
{
	void **block = km_engine_sheaf.array.spill(cache, NULL);
	unsigned capacity = km_mask_capacity(km_alloc_mask(cache));

	if (stranger)
		*--block = stranger;
	while (km_sheaf_objects(&cache->fast.pcs, block) < capacity)
		*--block = kmem_cache_alloc(cache, GFP_KERNEL);
	return block;
}

static void *get_block(struct kmem_cache *cache)
{
	struct km_request request = km_request_of(GFP_KERNEL, NUMA_NO_NODE);

	return km_engine_sheaf.array.refill(cache, &request, NULL);
}

/* Objects are written, one at least, when a block is spilled. */
static bool writes_at_spill(struct kmem_cache *cache)
{
	void **block = full_block(cache, NULL), *page = (void *)((uintptr_t)*block & -(uintptr_t)PAGE);

	writes = 0;
	mprotect(page, PAGE, PROT_READ);
	void **empty = km_engine_sheaf.array.spill(cache, block);
	mprotect(page, PAGE, PROT_READ | PROT_WRITE);
	km_engine_sheaf.array.retire(cache, empty);
	return writes;
}

/* Blocks go from the first CPU to CPU `to`: are they written, there and then? */
static bool written_for(struct kmem_cache *cache, unsigned to)
{
	on_cpu(0);
	km_engine_sheaf.array.retire(cache, km_engine_sheaf.array.spill(cache, full_block(cache, NULL)));
	on_cpu(to);
	km_engine_sheaf.array.retire(cache, get_block(cache));
	on_cpu(0);
	return writes_at_spill(cache);
}

static void test_when(const char *name, slab_flags_t flags, bool expected)
{
	struct kmem_cache_args args = { .engine = "sheaf" };
	struct kmem_cache *cache = kmem_cache_create(name, 256, &args, flags);

	CHECK(!writes_at_spill(cache));
	if (cpus > 1)
		CHECK(written_for(cache, 1) == expected);
	CHECK(!written_for(cache, 0));
}

static void fill(void *object)
{
	memset(object, 0x5a, 256);
}

static void test_content(void)
{
	struct kmem_cache_args args = { .engine = "sheaf", .ctor = fill };
	struct kmem_cache *cache = kmem_cache_create("content", 256, &args, 0);
	static unsigned char as_made[256];
	void *objects[OBJECTS];
	unsigned changed = 0;

	fill(as_made);
	for (unsigned round = 0; round < 8; round++) {
		on_cpu(0);
		for (unsigned i = 0; i < OBJECTS; i++) {
			objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
			changed += memcmp(objects[i], as_made, sizeof(as_made)) != 0;
		}
		on_cpu(cpus > 1);
		for (unsigned i = 0; i < OBJECTS; i++)
			kmem_cache_free(cache, objects[i]);
		sheaf_node(cache, 0)->barn.crosses = true;
	}
	CHECK(!changed);
	kmem_cache_destroy(cache);
}

/* The validation finds the pointer, not a write to it. */
static void test_stranger(void)
{
	struct kmem_cache_args args = { .engine = "sheaf" };
	struct kmem_cache *cache = kmem_cache_create("stranger", 256, &args, 0);
	void *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	writes = 0;
	void **block = full_block(cache, page);
	sheaf_node(cache, 0)->barn.crosses = true;
	km_engine_sheaf.array.retire(cache, km_engine_sheaf.array.spill(cache, block));
	CHECK(!writes);
	km_misuse_set(KM_MISUSE_WARN);
	kmem_cache_shrink(cache);
	km_misuse_set(KM_MISUSE_ABORT);
	munmap(page, PAGE);
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = on_write, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &action, NULL);
	on_cpu(0);
	test_when("ordinary", 0, true);
	test_when("by RCU", SLAB_TYPESAFE_BY_RCU, false);
	test_content();
	test_stranger();
	if (cpus == 1)
		printf("one CPU: that blocks cross was not tried\n");
	return failures != 0;
}
