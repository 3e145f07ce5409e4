/*
 * cut_off_tails.c: blocks with a size other than a power of two: the tail cut off an untouched block is still
 * zeros, and counts as clean; pages freed later, or cut off a used block, count as dirty.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kmem/kmem.h>

#include "kit/check.h"
#include "page/arena.h"
#include "kit/inside.h"

TEST_IS_INSIDE

static struct km_arena_stats stats(void)
{
	struct km_arena_stats s;

	NEED(km_arena_check() == 0);
	km_arena_get_stats(&s);
	return s;
}

/* At first all free pages are clean. */
static void cut(size_t count)
{
	size_t block = 1;
	bool zero = false;

	while (block < count)
		block *= 2;
	km_pages_purge(0);
	size_t before = stats().pages.dirty_pages;
	struct km_page *page = km_pages_alloc_exact(count, 0, NUMA_NO_NODE, true, &zero);
	NEED(page && zero);
	NEED(stats().pages.dirty_pages == before);
	memset(km_page_address(page), 1, count << KM_PAGE_SHIFT);
	km_pages_free_exact(page, count);
	NEED(stats().pages.dirty_pages == before + count);

	/* The same pages again, from a block now dirty as a whole. */
	page = km_pages_alloc_exact(block, 0, NUMA_NO_NODE, true, NULL);
	NEED(page);
	km_pages_free_exact(page, block);
	page = km_pages_alloc_exact(count, 0, NUMA_NO_NODE, true, &zero);
	NEED(page && !zero);
	NEED(stats().pages.dirty_pages >= before + block - count);
	km_pages_free_exact(page, count);
}

int main(void)
{
	static const size_t counts[] = { 3, 5, 7, 9, 100, 129, 513, 1000, 1023 };

	NEED(slab_is_available());
	km_arena_set(false, 3600000);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		cut(counts[i]);
	return 0;
}
