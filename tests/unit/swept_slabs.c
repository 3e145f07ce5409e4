/*
 * swept_slabs.c: free objects in slabs are bounded as free pages are, independent of the clock: where objects of
 * caches without demand are freed, and each slab keeps a few, the pages between these go back at once, and cached
 * objects on CPUs go to their slabs. A cache with repeated demand keeps its pages. The remaining objects are
 * unchanged, and the free objects can be allocated. Disciplines: all With hardened: quarantine:0,own_addresses:0,
 * because freed objects must be in slabs.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "kit/rollup.h"
#include "page/arena.h"
#include "os/os.h"

#define CACHES	16u
#define OBJECTS	1024u
#define BYTES	2912u
#define KEPT	16u		/* each object with such an index stays */

static struct kmem_cache *caches[CACHES];
static unsigned char *objects[CACHES][OBJECTS];
static unsigned calls;

static bool count(const char *call)
{
	calls += !strcmp(call, "purge");
	return false;
}

static void fill(unsigned which)
{
	for (unsigned i = 0; i < OBJECTS; i++) {
		if (objects[which][i])
			continue;
		NEED((objects[which][i] = kmem_cache_alloc(caches[which], GFP_KERNEL)));
		memset(objects[which][i], (int)(which + i % 100), BYTES);
	}
}

static void empty(unsigned which, bool all)
{
	for (unsigned i = 0; i < OBJECTS; i++) {
		if (!all && i % KEPT == 0)
			continue;
		kmem_cache_free(caches[which], objects[which][i]);
		objects[which][i] = NULL;
	}
}

static unsigned long ready(unsigned which)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(caches[which], &stats);
	return stats.shelf_objects;
}

static void check_left(void)
{
	for (unsigned which = 0; which < CACHES; which++)
		for (unsigned i = 0; i < OBJECTS; i += KEPT)
			for (unsigned byte = 0; byte < BYTES; byte += 97)
				NEED(objects[which][i][byte] == which + i % 100);
}

int main(void)
{
	NEED(slab_is_available());
	km_arena_set(false, 3600000);
	for (unsigned which = 0; which < CACHES; which++) {
		char name[32];

		snprintf(name, sizeof(name), "swept_%u", which);
		NEED((caches[which] = kmem_cache_create(name, BYTES, 0, 0, NULL)));
		fill(which);
	}
	unsigned long full = rollup_kb("Rss");
	if (!full) {
		printf("no smaps_rollup here\n");
		return 77;
	}
	km_os_fault = count;
	for (unsigned which = 0; which < CACHES; which++)
		empty(which, false);
	unsigned long left = rollup_kb("Rss"), lies = 0, objects_kb = CACHES * OBJECTS * BYTES / 1024;
	for (unsigned which = 0; which + 1 < CACHES; which++)
		lies += ready(which) != 0;
	printf("%lu KiB, %lu when 15 of 16 objects were freed, %u calls, %lu caches have some ready\n", full, left,
	       calls, lies);
	/* An object across two pages keeps 8 KiB, a sixth. */
	CHECK(full - left > objects_kb / 2);
	CHECK(lies < CACHES / 2);
	check_left();
	CHECK_EQUAL(kmem_check_all(), 0);
	for (unsigned which = 0; which < CACHES; which++)
		fill(which);
	check_left();
	/* Objects allocated and freed all the time: one fall does not pay for releasing memory wanted next. */
	for (unsigned round = 0; round < 40; round++) {
		if (round == 8)
			calls = 0;
		empty(0, false);
		fill(0);
	}
	printf("%u calls while a cache's objects came and went\n", calls);
	CHECK(calls < 40);
	for (unsigned which = 0; which < CACHES; which++)
		empty(which, true);
	CHECK_EQUAL(kmem_check_all(), 0);
	return failures != 0;
}
