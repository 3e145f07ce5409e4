/*
 * fixture_large.h: cached blocks of whole pages on a CPU, under test, through kmalloc and malloc: none, one, as many
 * as fit, and one more, times each operation. The model: each allocated block has its own address as a tag; and after
 * all frees and a drain the class has no blocks.
 */
#ifndef TESTS_RSEQ_FIXTURE_LARGE_H
#define TESTS_RSEQ_FIXTURE_LARGE_H

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kmalloc/large_cache.h"
#include "fixture.h"

enum { LARGE_BYTES = 10 * 4096, LARGE_MOST = 256 };

static struct {
	struct kmem_cache *cache;
	uint64_t *live[LARGE_MOST];
	volatile unsigned count;
} blocks;

static void large_adopt(void *p)
{
	uint64_t *block = p;

	/* An adversary inside the allocator gets cached blocks only, and no pages. */
	if (!block && km_thread.busy)
		return;
	need(block && block[0] != (uintptr_t)block, "block %p given twice, or none", p);
	need(blocks.count < LARGE_MOST, "the model is full of blocks");
	block[0] = (uintptr_t)block;
	blocks.live[blocks.count] = block;
	blocks.count++;
}

static void large_kmalloc(void)
{
	large_adopt(kmalloc(LARGE_BYTES, GFP_KERNEL | __GFP_NOWARN));
}

static void large_malloc(void)
{
	large_adopt(malloc(LARGE_BYTES - 16));
}

static void large_zeroed(void)
{
	uint64_t *block = kzalloc(LARGE_BYTES, GFP_KERNEL);

	need(block && !block[0], "a zeroed block is not zero");
	large_adopt(block);
}

static void *large_part_with(void)
{
	need(blocks.count, "the model has no blocks left");
	blocks.count--;
	uint64_t *block = blocks.live[blocks.count];
	need(block[0] == (uintptr_t)block, "block %p was written to while it was ours", (void *)block);
	block[0] = 0;
	return block;
}

static void large_put(void)
{
	kfree(large_part_with());
}

static void large_get_put(void)
{
	unsigned before = blocks.count;

	large_kmalloc();
	if (blocks.count > before)
		large_put();
}

static void large_shrink(void)
{
	kmem_cache_shrink(blocks.cache);
}

static void large_shrink_elsewhere(void)
{
	elsewhere(large_shrink, true);
}

static void large_migrate_use(void)
{
	migrate();
	large_get_put();
}

static void large_nothing(void)
{
}

static const struct adversary large_adversaries[] = {
	{ "nothing", large_nothing },
	{ "get", large_kmalloc },
	{ "get, put", large_get_put },
	{ "put", large_put },
	{ "drain", large_shrink },
	{ "drain from another thread", large_shrink_elsewhere },
	{ "migrate", migrate },
	{ "migrate and use", large_migrate_use },
	{ "fork", fork_now },
};

static bool is_dear_large(const struct adversary *adversary)
{
	return adversary->act == fork_now || adversary->act == large_shrink_elsewhere;
}

enum { LARGE_STATES = 4, LARGE_OPERATIONS = 5 };
static const char *const large_operation_names[LARGE_OPERATIONS] = {
	"kmalloc", "malloc", "kzalloc", "kfree", "get, put",
};

static void operate_large(unsigned driver)
{
	switch (driver % LARGE_OPERATIONS) {
	case 0: large_kmalloc(); break;
	case 1: large_malloc(); break;
	case 2: large_zeroed(); break;
	case 3: large_put(); break;
	default: large_get_put();
	}
}

static void describe_large(unsigned driver, char *text, size_t bytes)
{
	snprintf(text, bytes, "%s, %u cached", large_operation_names[driver % LARGE_OPERATIONS],
		 driver / LARGE_OPERATIONS);
}

/* So many blocks are cached, and two are allocated. */
static bool prepare_large(unsigned driver)
{
	unsigned cached = driver / LARGE_OPERATIONS;

	for (unsigned i = 0; i < cached + 2; i++)
		large_kmalloc();
	while (cached--)
		large_put();
	return true;
}

static void verify_large(void)
{
	struct kmem_cache_stats stats;

	wait_for_helper();
	while (blocks.count)
		large_put();
	large_shrink();
	kmem_cache_get_stats(blocks.cache, &stats);
	need(!stats.total_objects && !stats.shelf_objects, "%lu blocks remain, %lu cached", stats.total_objects,
	     stats.shelf_objects);
}

static bool start_large(void)
{
	struct km_request request = km_request_of(GFP_KERNEL, NUMA_NO_NODE);

	for (int i = 0; i < 64 && !blocks.cache; i++)
		blocks.cache = km_large_cache_class(LARGE_BYTES, false, &request);
	return blocks.cache != NULL;
}

#define LARGE_FIXTURE                                                                              \
	{ "large", start_large, LARGE_STATES * LARGE_OPERATIONS, prepare_large, operate_large,     \
	  verify_large, describe_large, large_adversaries,                                         \
	  sizeof(large_adversaries) / sizeof(large_adversaries[0]), is_dear_large }

#endif
