/*
 * malloc_growing.c: realloc: a block stays in place for a size that fits and uses at least half of the block. Any
 * other block keeps its contents, for each pair of sizes. Chains of small and large steps, up and down; neighbouring
 * blocks are unchanged.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>

#include "kit/malloc.h"
#include "kmalloc/size_classes.h"

enum { NEIGHBOURS = 8 };

/* Edges of classes, of pages and of the largest class. */
static const size_t sizes[] = {
	1, 8, 15, 16, 17, 24, 32, 33, 48, 64, 65, 100, 127, 128, 129, 144, 145, 200, 256, 257, 500, 512, 513, 1000,
	1024, 1025, 2047, 2048, 2049, 4000, 4096, 4097, 8000, 8192, 8193, 16384, 16385, 32767, 32768, 32769, 40000,
	65536, 100000, 300000,
};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* The contents of the block, and of its neighbours. */
static void one_pair(size_t from, size_t to)
{
	unsigned char *about[NEIGHBOURS], *moved;
	size_t kept = from < to ? from : to;

	for (unsigned i = 0; i < NEIGHBOURS; i++) {
		about[i] = malloc(i % 2 ? to : from);
		NEED(about[i]);
		fill(about[i], i % 2 ? to : from, i);
	}
	size_t have = malloc_usable_size(about[2]);
	errno = 33;
	moved = realloc(about[2], to);
	NEED(moved && errno == 33 && (uintptr_t)moved % 16 == 0 && malloc_usable_size(moved) >= to);
	NEED(is_filled(moved, kept, 2), "(%zu to %zu)", from, to);
	/* Blocks of whole pages know better themselves. */
	NEED(have > KM_MALLOC_MAX_SMALL || (moved == about[2]) == (to <= have && to >= have / 2),
	     "(%zu, of %zu, to %zu)", from, have, to);
	about[2] = moved;
	memset(HELD(moved), 0xee, malloc_usable_size(moved));
	for (unsigned i = 0; i < NEIGHBOURS; i++) {
		NEED(i == 2 || is_filled(about[i], i % 2 ? to : from, i), "(%zu to %zu: neighbour %u)", from, to, i);
		free(about[i]);
	}
}

static void test_pairs(void)
{
	for (unsigned i = 0; i < SIZES; i++)
		for (unsigned j = 0; j < SIZES; j++)
			one_pair(sizes[i], sizes[j]);
}

/* Up by `percent` and a byte, and down again. */
static void one_chain(size_t percent, size_t top)
{
	size_t size = 24;
	unsigned char *p = malloc(size), *other = malloc(size);

	fill(p, size, 3);
	for (int up = 1; up || size > 30; up &= size < top) {
		size_t next = up ? size + size * percent / 100 + 1 : size * 100 / (100 + percent);
		unsigned char *moved = realloc(p, next);

		NEED(moved && is_filled(moved, size < next ? size : next, 3), "(%zu to %zu)", size, next);
		p = moved;
		size = next;
		fill(p, size, 3);
		/* A second block grows between, so that no free pages follow the first. */
		other = realloc(other, size);
		NEED(other);
		memset(other, 0xee, size);
	}
	free(p);
	free(other);
}

static void test_chains(void)
{
	one_chain(2, 3000);
	one_chain(10, 60000);
	one_chain(50, (size_t)8 << 20);
	one_chain(100, (size_t)8 << 20);
	one_chain(300, (size_t)8 << 20);
}

static void test_corners(void)
{
	volatile size_t huge = PTRDIFF_MAX;

	for (unsigned i = 0; i < SIZES; i++) {
		unsigned char *p = realloc(NULL, sizes[i]);

		NEED(p);
		fill(p, sizes[i], i);
		errno = 0;
		NEED(!realloc(p, huge + 1) && errno == ENOMEM && is_filled(p, sizes[i], i));
		NEED(!realloc(p, huge * 2 + 1) && is_filled(p, sizes[i], i));
		errno = 44;
		NEED(!realloc(p, 0) && errno == 44);
	}
}

int main(void)
{
	check_ours();
	test_pairs();
	test_chains();
	test_corners();
	return 0;
}
