/*
 * malloc_defragment.c: a program with many sizes frees nine of ten blocks at random, and moves the other blocks
 * with kmem_slab_usage, kmem_malloc_fullest and kmem_free_to_slab. In the end the resident memory is about the size
 * of the blocks. Blocks of whole pages and mappings are recognized, and stay.
 */
#include <kmem/kmem.h>
#include <kmem/stats.h>

#include <malloc.h>
#include <unistd.h>

#include "kit/malloc.h"
#include "kit/options.h"
#include "kit/random.h"
#include "kit/rollup.h"

#define MANY	60000
#define ROUNDS	40

static char *block[MANY];
static size_t bytes_of[MANY], live;

static void fragment(void)
{
	for (unsigned i = 0; i < MANY; i++) {
		bytes_of[i] = i % 1000 ? 16 + random_below(600) : 100000;
		block[i] = malloc(bytes_of[i]);
		NEED(block[i]);
		fill(block[i], bytes_of[i], i);
	}
	for (unsigned i = 0; i < MANY; i++)
		if (random_below(10)) {
			free(block[i]);
			block[i] = NULL;
		} else {
			live += malloc_usable_size(block[i]);
		}
}

static int move(unsigned i)
{
	struct kmem_slab_usage usage;
	const void *p = block[i];

	NEED(kmem_slab_usage(&p, 1, &usage) == (i % 1000 != 0));
	if (!kmem_usage_is_sparse(&usage))
		return 0;
	char *moved = kmem_malloc_fullest(malloc_usable_size(block[i]));
	NEED(moved && moved != block[i] && !((uintptr_t)moved & 15));
	/* By size an engine may give fewer bytes than the old block's, never fewer than requested. */
	NEED(malloc_usable_size(moved) >= bytes_of[i]);
	memcpy(moved, block[i], bytes_of[i]);
	kmem_free_to_slab(block[i]);
	block[i] = moved;
	return 1;
}

int main(int argc, char **argv)
{
	int moved = 1, all = 0;

	if (argc < 2) {
		/* Freed pages go back at once. */
		set_options("decay:0");
		execl("/proc/self/exe", argv[0], "again", NULL);
	}
	check_ours();
	size_t first = rollup_kb("Rss");
	fragment();
	size_t before = rollup_kb("Rss");
	for (unsigned round = 0; moved && round < ROUNDS; round++) {
		moved = 0;
		for (unsigned i = 0; i < MANY; i++)
			moved += block[i] && move(i);
		all += moved;
	}
	size_t after = rollup_kb("Rss");
	printf("%zu KiB live, %zu before, %zu after %d were moved\n", live >> 10, before - first, after - first, all);
	/* A few slabs of each size with cached objects; the arrays of this program. */
	NEED(before - first > 3 * (live >> 10));
	NEED(after - first <= (live >> 10) * 5 / 4 + 5 * 1024);
	for (unsigned i = 0; i < MANY; i++)
		if (block[i]) {
			NEED(is_filled(block[i], bytes_of[i], i));
			free(block[i]);
		}
	char *p = kmem_malloc_fullest(0), *large = kmem_malloc_fullest(1 << 20);
	NEED(p && large && p != large);
	free(p);
	free(large);
	NEED(kmem_malloc_fullest(SIZE_MAX / 4) == NULL);
	NEED(kmem_check_all() == 0);
	return failures != 0;
}
