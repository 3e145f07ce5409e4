/*
 * free_page_records.c: page descriptors go back to the system with their pages: a program that spreads small blocks
 * over 16 GiB of addresses, and frees them, has no more memory than before, except for a few pages. The free pages
 * are then few long runs, and serve blocks of any size; blocks between them keep their descriptors.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "kit/rollup.h"
#include "page/arena.h"

#define BLOCKS	8192u
#define APART	((size_t)2 << 20)
#define MOST_KB	3000u

static void *aligned[BLOCKS], *small[BLOCKS];

static void take_all(void)
{
	for (unsigned i = 0; i < BLOCKS; i++) {
		NEED((aligned[i] = aligned_alloc(APART, 5000)) && (small[i] = malloc(64)));
		memset(aligned[i], 1, 5000);
		NEED(!((uintptr_t)aligned[i] & (APART - 1)));
	}
}

/* Every `step`-th from `first` on. */
static void free_some(unsigned first, unsigned step)
{
	for (unsigned i = first; i < BLOCKS; i += step) {
		free(aligned[i]);
		free(small[i]);
	}
}

int main(void)
{
	malloc_trim(0);
	free(malloc(64));
	unsigned long before = rollup_kb("Rss");
	if (!before) {
		printf("no smaps_rollup here\n");
		return 77;
	}
	for (unsigned round = 0; round < 2; round++) {
		take_all();
		unsigned long peak = rollup_kb("Rss");

		free_some(0, 2);
		malloc_trim(0);
		for (unsigned i = 1; i < BLOCKS; i += 2)
			CHECK(malloc_usable_size(aligned[i]) >= 5000 && *(char *)aligned[i] == 1);
		free_some(1, 2);
		malloc_trim(0);
		unsigned long after = rollup_kb("Rss");
		printf("%lu KiB before, %lu at the peak, %lu after\n", before, peak, after);
		CHECK(after < before + MOST_KB);
		CHECK_EQUAL(kmem_check_all(), 0);
	}
	/* Out of what was given back. */
	void *p = aligned_alloc(APART, APART);
	NEED(p);
	memset(p, 2, APART);
	free(p);
	return failures != 0;
}
