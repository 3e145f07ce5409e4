/*
 * in_turn.c: one object of each of some hundred caches in turn, allocated and freed: after a while no slab is made or
 * freed any more, with ticks meanwhile. Invariant: none of these caches is ever unused for longer than a turn.
 * Disciplines: all.
 */
#include <stdio.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"

#define CACHES	200u
#define STEADY	40000u		/* turns without a change of slabs */
#define MOST	4000000u		/* turns until then */
#define PART	100u		/* between two looks */

static struct kmem_cache *caches[CACHES];

static void turn(void)
{
	for (unsigned i = 0; i < CACHES; i++) {
		void *object = kmem_cache_alloc(caches[i], GFP_KERNEL);

		NEED(object);
		*(volatile char *)object = 1;
		kmem_cache_free(caches[i], object);
	}
	/* As a clock that moves: ticks compare ages. */
	kmem_tick();
}

static unsigned long taken(void)
{
	unsigned long slabs = 0;

	for (unsigned i = 0; i < CACHES; i++) {
		struct kmem_cache_stats stats;

		kmem_cache_get_stats(caches[i], &stats);
		slabs += stats.alloc_slab;
	}
	return slabs;
}

int main(void)
{
	char name[32];
	unsigned steady = 0, turns = 0;

	for (unsigned i = 0; i < CACHES; i++) {
		snprintf(name, sizeof(name), "turn-%u", i);
		NEED((caches[i] = kmem_cache_create(name, (i + 1) * 16, NULL, 0)));
	}
	for (; steady < STEADY && turns < MOST; turns += PART) {
		unsigned long before = taken();

		for (unsigned i = 0; i < PART; i++)
			turn();
		steady = taken() == before ? steady + PART : 0;
	}
	NEED(steady == STEADY, "(slabs came to the end of %u turns)", turns);
	printf("steady after %u turns\n", turns - steady);
	return 0;
}
