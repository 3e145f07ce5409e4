/*
 * page_runs.c: free pages are runs of any length. Blocks of any size are neighbours; after any order of allocations,
 * cuts, growth and frees each page is counted once, and is marked as resident exactly while free after a use; also
 * with reserved resident pages, and with blocks from the middle of a run. On one CPU, because with several nodes a
 * thread that moves gets pages of other nodes, and more of them than the test counts.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "kit/cpus.h"
#include "kit/inside.h"
#include "page/arena.h"

TEST_IS_INSIDE

#define BLOCKS	400u
#define STEPS	20000u

static struct km_arena_stats stats(void)
{
	struct km_arena_stats s;

	NEED(km_arena_check() == 0);
	km_arena_get_stats(&s);
	return s;
}

/* 60 blocks of 66 pages have 3960: room in four largest blocks, and one more for what was in use before. */
static void side_by_side(void)
{
	struct km_page *page[60];
	struct km_arena_stats before = stats();

	for (int i = 0; i < 60; i++)
		NEED((page[i] = km_pages_alloc_exact(66, 0, NUMA_NO_NODE, true, NULL)));
	struct km_arena_stats after = stats();
	NEED(after.pages.used_pages == before.pages.used_pages + 60 * 66);
	NEED(after.committed_bytes - before.committed_bytes <= 5ul << 22);
	for (int i = 0; i < 60; i++)
		km_pages_free_exact(page[i], 66);
	NEED(stats().pages.used_pages == before.pages.used_pages);
	NEED(km_pages_purge(0) == 60 * 66);
}

struct block {
	struct km_page *page;
	size_t pages;
	unsigned seed;
};

static bool holds(const struct block *block)
{
	const unsigned *first = km_page_address(block->page);
	const unsigned *last = (const void *)((const char *)first + ((block->pages - 1) << KM_PAGE_SHIFT));

	return *first == block->seed && *last == block->seed;
}

static void mark(struct block *block, unsigned seed)
{
	char *p = km_page_address(block->page);

	block->seed = seed;
	*(unsigned *)p = *(unsigned *)(p + ((block->pages - 1) << KM_PAGE_SHIFT)) = seed;
}

static bool zeros(const char *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += sizeof(long))
		if (*(const long *)(p + i))
			return false;
	return true;
}

static void take(struct block *block, unsigned seed)
{
	unsigned order = seed % 5 == 0 ? seed / 5 % (KM_MAX_ORDER + 1) : 0;
	bool zero = false;

	block->pages = 1 + (seed % 7 ? seed / 7 % 90 : seed / 7 % 1024);
	block->page = km_pages_alloc_exact(block->pages, order, NUMA_NO_NODE, true, &zero);
	NEED(block->page);
	char *p = km_page_address(block->page);
	NEED(!((uintptr_t)p & ((KM_PAGE_SIZE << order) - 1)));
	NEED(!zero || zeros(p, block->pages << KM_PAGE_SHIFT));
	mark(block, seed);
}

/* A block grows in place, or keeps its pages; or gives its tail back. */
static void resize(struct block *block, unsigned seed)
{
	size_t pages = 1 + seed % (2 * block->pages);

	NEED(holds(block));
	if (pages > block->pages ? km_pages_grow(block->page, block->pages, pages, NULL) : true) {
		if (pages < block->pages)
			km_pages_free_exact(block->page + pages, block->pages - pages);
		block->pages = pages;
	}
	mark(block, seed);
}

static void in_any_order(long reserved)
{
	static struct block blocks[BLOCKS];
	size_t before = stats().pages.used_pages, live = 0, purged = 0;
	unsigned random = 4711;

	km_pages_reserve(reserved);
	for (unsigned step = 0; step < STEPS; step++) {
		random = random * 1103515245 + 12345;
		struct block *block = &blocks[(random >> 8) % BLOCKS];

		live -= block->page ? block->pages : 0;
		if (!block->page) {
			take(block, random >> 4);
		} else if (random % 3) {
			NEED(holds(block));
			km_pages_free_exact(block->page, block->pages);
			block->page = NULL;
		} else {
			resize(block, random >> 4);
		}
		live += block->page ? block->pages : 0;
		if (step % 500 == 0)
			purged += km_pages_purge(0);
		if (step % 50 == 0)
			NEED(stats().pages.used_pages == before + live);
	}
	NEED(purged);
	for (unsigned i = 0; i < BLOCKS; i++)
		if (blocks[i].page) {
			NEED(holds(&blocks[i]));
			km_pages_free_exact(blocks[i].page, blocks[i].pages);
			blocks[i].page = NULL;
		}
	NEED(stats().pages.used_pages == before);
	km_pages_reserve(-reserved);
	km_pages_purge(0);
	NEED(stats().pages.dirty_pages == 0);
}

/* A block may grow into the free pages behind it, with its contents, and the pages are counted. */
static void grown_in_place(void)
{
	char *a = NULL, *b = NULL, *kept[64];
	unsigned tries = 0;
	struct kmem_stats before, after;

	for (; tries < 64; tries++) {
		kept[tries] = a;
		a = b;
		b = kvmalloc(40 * KM_PAGE_SIZE, GFP_KERNEL);
		NEED(b);
		if (a && b == a + 40 * KM_PAGE_SIZE)
			break;
	}
	NEED(tries < 64);
	memset(a, 7, 40 * KM_PAGE_SIZE);
	kvfree(b);
	kmem_get_stats(&before);
	NEED(kvrealloc(a, 60 * KM_PAGE_SIZE, GFP_KERNEL) == a && ksize(a) == 60 * KM_PAGE_SIZE);
	kmem_get_stats(&after);
	/* With more free pages behind the block, as many again may join the CPU's run for growing blocks. */
	NEED(after.large_bytes == before.large_bytes + 20 * KM_PAGE_SIZE);
	NEED(after.pages_used == before.pages_used + 20 || after.pages_used == before.pages_used + 80);
	for (size_t i = 0; i < 40 * KM_PAGE_SIZE; i++)
		NEED(a[i] == 7);
	kvfree(a);
	for (unsigned i = 0; i <= tries; i++)
		kvfree(kept[i]);
	NEED(kmem_check_all() == 0);
}

int main(void)
{
	stay_here();
	NEED(slab_is_available());
	km_arena_set(false, 3600000);
	side_by_side();
	in_any_order(0);
	grown_in_place();
	km_arena_set(true, 3600000);
	in_any_order(0);
	in_any_order(500);
	return 0;
}
