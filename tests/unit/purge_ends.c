/*
 * purge_ends.c: giving pages back ends while others go on to free: what was freed since a purge began is for the next
 * one, and a trim makes a few rounds. The others are the hook of the system call, late on the clock.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kmem/kmem.h>

#include "kit/check.h"
#include "page/arena.h"
#include "os/os.h"
#include "kit/inside.h"

TEST_IS_INSIDE

#define BLOCKS	48
#define LARGEST	KM_MAX_ORDER

static struct km_page *blocks[BLOCKS];
static unsigned left, calls;

static bool free_one(const char *call)
{
	if (strcmp(call, "purge"))
		return false;
	/* A run of pages, its descriptors, its part of the map, its owner words. */
	if (calls++ % 4)
		return false;
	/* Two ticks of the coarse clock and more. */
	usleep(20000);
	if (left)
		km_pages_free(blocks[--left], LARGEST);
	return false;
}

static void stock(unsigned freed)
{
	for (left = 0; left < BLOCKS; left++) {
		blocks[left] = km_pages_alloc(LARGEST, NUMA_NO_NODE, true, NULL);
		NEED(blocks[left]);
	}
	while (freed--)
		km_pages_free(blocks[--left], LARGEST);
	calls = 0;
}

static void empty(void)
{
	km_os_fault = NULL;
	while (left)
		km_pages_free(blocks[--left], LARGEST);
	km_pages_purge(0);
}

int main(void)
{
	struct km_arena_stats stats;

	NEED(slab_is_available());
	km_arena_set(false, 1000);
	km_pages_purge(0);

	stock(2);
	usleep(20000);
	km_os_fault = free_one;
	km_pages_purge(0);
	NEED(calls && left > BLOCKS / 2);
	empty();

	/* Beyond a quarter of the bound, again and again. */
	stock(4);
	usleep(20000);
	km_os_fault = free_one;
	km_pages_trim();
	NEED(calls && left);
	empty();

	km_arena_get_stats(&stats);
	NEED(!stats.pages.dirty_pages && !km_arena_check());
	return 0;
}
