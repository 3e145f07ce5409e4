/*
 * fixture_ready.h: blocks of whole pages that lie ready on a CPU, under torment, through kmalloc and malloc: none, one,
 * as many as fit, and one more, times what is done with them. The model: each block that is ours carries its own
 * address as a tag; and when all are freed and drained, the class has none.
 */
#ifndef TESTS_RSEQ_FIXTURE_READY_H
#define TESTS_RSEQ_FIXTURE_READY_H

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kmalloc/large_cache.h"
#include "fixture.h"

enum { READY_BYTES = 10 * 4096, READY_MOST = 256 };

static struct {
	struct kmem_cache *cache;
	uint64_t *live[READY_MOST];
	volatile unsigned count;
} blocks;

static void ready_adopt(void *p)
{
	uint64_t *block = p;

	/* What strikes inside of the allocator gets what lies ready, and no pages. */
	if (!block && km_thread.busy)
		return;
	need(block && block[0] != (uintptr_t)block, "block %p given twice, or none", p);
	need(blocks.count < READY_MOST, "the model is full of blocks");
	block[0] = (uintptr_t)block;
	blocks.live[blocks.count] = block;
	blocks.count++;
}

static void ready_kmalloc(void)
{
	ready_adopt(kmalloc(READY_BYTES, GFP_KERNEL | __GFP_NOWARN));
}

static void ready_malloc(void)
{
	ready_adopt(malloc(READY_BYTES - 16));
}

static void ready_zeroed(void)
{
	uint64_t *block = kzalloc(READY_BYTES, GFP_KERNEL);

	need(block && !block[0], "a zeroed block is not zero");
	ready_adopt(block);
}

static void *ready_part_with(void)
{
	need(blocks.count, "the model has no blocks left");
	blocks.count--;
	uint64_t *block = blocks.live[blocks.count];
	need(block[0] == (uintptr_t)block, "block %p was written to while it was ours", (void *)block);
	block[0] = 0;
	return block;
}

static void ready_put(void)
{
	kfree(ready_part_with());
}

static void ready_get_put(void)
{
	unsigned before = blocks.count;

	ready_kmalloc();
	if (blocks.count > before)
		ready_put();
}

static void ready_shrink(void)
{
	kmem_cache_shrink(blocks.cache);
}

static void ready_shrink_elsewhere(void)
{
	elsewhere(ready_shrink, true);
}

static void ready_migrate_use(void)
{
	migrate();
	ready_get_put();
}

static void ready_nothing(void)
{
}

static const struct adversary ready_adversaries[] = {
	{ "nothing", ready_nothing },
	{ "get", ready_kmalloc },
	{ "get, put", ready_get_put },
	{ "put", ready_put },
	{ "drain", ready_shrink },
	{ "drain from another thread", ready_shrink_elsewhere },
	{ "migrate", migrate },
	{ "migrate and use", ready_migrate_use },
	{ "fork", fork_now },
};

static bool is_dear_ready(const struct adversary *adversary)
{
	return adversary->act == fork_now || adversary->act == ready_shrink_elsewhere;
}

enum { READY_STATES = 4, READY_OPERATIONS = 5 };
static const char *const ready_operation_names[READY_OPERATIONS] = {
	"kmalloc", "malloc", "kzalloc", "kfree", "get, put",
};

static void operate_ready(unsigned driver)
{
	switch (driver % READY_OPERATIONS) {
	case 0: ready_kmalloc(); break;
	case 1: ready_malloc(); break;
	case 2: ready_zeroed(); break;
	case 3: ready_put(); break;
	default: ready_get_put();
	}
}

static void describe_ready(unsigned driver, char *text, size_t bytes)
{
	snprintf(text, bytes, "%s, %u ready", ready_operation_names[driver % READY_OPERATIONS],
		 driver / READY_OPERATIONS);
}

/* So many lie ready, and two are ours. */
static bool prepare_ready(unsigned driver)
{
	unsigned ready = driver / READY_OPERATIONS;

	for (unsigned i = 0; i < ready + 2; i++)
		ready_kmalloc();
	while (ready--)
		ready_put();
	return true;
}

static void verify_ready(void)
{
	struct kmem_cache_stats stats;

	wait_for_helper();
	while (blocks.count)
		ready_put();
	ready_shrink();
	kmem_cache_get_stats(blocks.cache, &stats);
	need(!stats.total_objects && !stats.shelf_objects, "%lu blocks remain, %lu ready", stats.total_objects,
	     stats.shelf_objects);
}

static bool start_ready(void)
{
	struct km_request request = km_request_of(GFP_KERNEL, NUMA_NO_NODE);

	for (int i = 0; i < 64 && !blocks.cache; i++)
		blocks.cache = km_large_cache_class(READY_BYTES, false, &request);
	return blocks.cache != NULL;
}

#define READY_FIXTURE                                                                              \
	{ "ready", start_ready, READY_STATES * READY_OPERATIONS, prepare_ready, operate_ready,     \
	  verify_ready, describe_ready, ready_adversaries,                                         \
	  sizeof(ready_adversaries) / sizeof(ready_adversaries[0]), is_dear_ready }

#endif
