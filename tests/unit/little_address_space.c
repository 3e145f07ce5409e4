/*
 * little_address_space.c: with little address space, blocks of whole pages get nearly all of it. After their free
 * the space is available again, for larger blocks, for mappings of the program, and for other sizes; also a block in
 * the middle of used space finds neighbouring free pages. Not with hardened: the tables of what is out take a fifth
 * of the address space.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "kit/inside.h"
#include "page/arena.h"

#define LIMIT	(1ul << 30)
#define MOST	32768u
#define QUIET	(GFP_KERNEL | __GFP_NOWARN)

static char *block[MOST];

static unsigned fill(size_t bytes)
{
	unsigned count = 0;

	while (count < MOST && count * bytes < 2 * LIMIT && (block[count] = kvmalloc(bytes, QUIET))) {
		*(unsigned *)block[count] = count;
		*(unsigned *)(block[count] + bytes - sizeof(unsigned)) = count;
		count++;
	}
	return count;
}

static void empty(unsigned count, size_t bytes)
{
	for (unsigned i = 0; i < count; i++) {
		NEED(!block[i] || *(unsigned *)block[i] == i);
		NEED(!block[i] || *(unsigned *)(block[i] + bytes - sizeof(unsigned)) == i);
		kvfree(block[i]);
	}
}

static void again(size_t bytes)
{
	static const size_t larger[] = { 5000000, 16000000, 64000000, 200000000 };
	unsigned count = fill(bytes);

	/* Rounded to pages; the rest is reserved for metadata, and left over in the last range. */
	NEED(count * bytes > LIMIT / 100 * 84);
	NEED(kmem_check_all() == 0);
	empty(count, bytes);
	for (unsigned i = 0; i < 4; i++) {
		char *p = kvmalloc(larger[i], QUIET);

		NEED(p);
		p[0] = p[larger[i] - 1] = 1;
		kvfree(p);
	}
	NEED(kmem_check_all() == 0);
}

static int by_address(const void *a, const void *b)
{
	char *const *x = a, *const *y = b;

	return (*x > *y) - (*x < *y);
}

/* 40 neighbouring blocks of 1000000 bytes: their place serves one block of this length, zeroed on request. */
static void side_by_side(void)
{
	const size_t bytes = 245 * KM_PAGE_SIZE;
	unsigned count = fill(bytes), free = 0;

	qsort(block, count, sizeof(block[0]), by_address);
	for (unsigned i = 100; free < 40 && i < count; i++) {
		free = block[i] == block[i - 1] + bytes ? free + 1 : 1;
		if (free == 40)
			for (unsigned j = 0; j < 40; j++) {
				memset(block[i - j], 0xff, bytes);
				kvfree(block[i - j]);
				block[i - j] = NULL;
			}
	}
	NEED(free == 40);
	unsigned char *p = kvzalloc(39 * bytes, QUIET);
	NEED(p && ksize(p) == 39 * bytes);
	for (size_t i = 0; i < 39 * bytes; i++)
		NEED(!p[i]);
	memset(p, 1, 39 * bytes);
	NEED(kmem_check_all() == 0);
	/* The block shrinks in place, and the rest is free. */
	NEED(kvrealloc(p, 20 * bytes, QUIET) == p && ksize(p) == 20 * bytes);
	void *q = kvmalloc(18 * bytes, QUIET);
	NEED(q);
	kvfree(q);
	kvfree(p);
	for (unsigned i = 0; i < count; i++)
		kvfree(block[i]);
}

/* A program that frees and allocates in turns has the freed memory for its own mappings, too. */
static void swinging(void)
{
	for (unsigned i = 0; i < 5; i++) {
		void *p = kvmalloc(LIMIT / 2, QUIET), *own;

		NEED(p);
		kvfree(p);
		own = mmap(NULL, LIMIT / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		NEED(own != MAP_FAILED && munmap(own, LIMIT / 2) == 0);
	}
}

int main(int argc, char **argv)
{
	struct rlimit limit = { LIMIT, LIMIT };
	struct kmem_stats stats;

	/* The reservation at the start depends on the limit. */
	if (argc == 1) {
		NEED(setrlimit(RLIMIT_AS, &limit) == 0);
		execl("/proc/self/exe", argv[0], "limited", NULL);
		NEED(!"started again");
	}
	NEED(slab_is_available());
	again(40000);
	again(270000);
	again(1000000);
	again(3000000);
	/* The program's own mappings, and threads. */
	kmem_shrink_all();
	void *own = mmap(NULL, LIMIT / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(own != MAP_FAILED);
	kmem_get_stats(&stats);
	NEED(stats.arena_reserved_bytes <= LIMIT / 4);
	NEED(munmap(own, LIMIT / 2) == 0);
	swinging();
	/*
	 * When the program limits itself, the rest of each range is released, and of the freed ranges no part stays.
	 */
	void *kept = kvmalloc(3 << 20, QUIET);
	INSIDE(km_arena_fit(LIMIT / 8));
	NEED(kept && kmem_check_all() == 0);
	kvfree(kept);
	side_by_side();
	again(65536);
	return 0;
}
