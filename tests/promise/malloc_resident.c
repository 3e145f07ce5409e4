/*
 * malloc_resident.c: blocks of any number of pages use the memory of their pages, and free resident memory is
 * counted. While all blocks are written, the kernel's resident memory of the process is the memory in use plus the
 * free resident memory counted by the library, within a hundredth. Before and after some frees; with huge pages,
 * committed ahead, and without.
 */
#include <malloc.h>
#include <string.h>

#include <kmem/stats.h>

#include "kit/malloc.h"
#include "kit/rollup.h"

#define MANY	450
#define BYTES	270000

static long resident_kb(void)
{
	return (long)rollup_kb("Rss");
}

static long counted_kb(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	NEED(kmem_check_all() == 0);
	return (long)(stats.pages_used + stats.pages_free_dirty) * 4;
}

static long first_kb, first_counted;	/* what is less afterwards went back by age */

/*
 * Free memory goes back by age, and any call of malloc may purge, also a call of the test's own measurement. So the
 * test counts before and after the measurement, and the kernel's number is between the two, within the slack.
 */
static void agrees(long slack)
{
	long before = counted_kb() - first_counted, resident = resident_kb() - first_kb;
	long after = counted_kb() - first_counted, most = before > after ? before : after;
	long least = before + after - most;

	NEED(resident <= most + most / 100 + slack);
	NEED(least <= resident + resident / 100 + slack);
}

int main(void)
{
	static char *block[MANY];

	first_kb = resident_kb();
	first_counted = counted_kb();

	/* Descriptors of 64 bytes for each page, and what the first blocks of each kind bring along. */
	long slack = 1024;
	for (int i = 0; i < MANY; i++) {
		block[i] = malloc(BYTES + i % 3 * 40000);
		NEED(block[i]);
		memset(HELD(block[i]), 1, malloc_usable_size(block[i]));
	}
	long live_kb = 0;
	for (int i = 0; i < MANY; i++)
		live_kb += (long)malloc_usable_size(block[i]) / 1024;
	agrees(slack + live_kb / 64);
	/* A huge page committed ahead, and the descriptors. */
	NEED(resident_kb() - first_kb <= live_kb + 2048 + slack + live_kb / 64);

	for (int i = 0; i < MANY; i += 3)
		free(block[i]);
	agrees(slack + live_kb / 64);
	/* Free and resident is bounded: a quarter of what is in use, and 1 MiB. */
	struct kmem_stats stats;
	kmem_get_stats(&stats);
	NEED(stats.pages_free_dirty <= stats.pages_used / 4 + 256);
	for (int i = 0; i < MANY; i++)
		if (i % 3)
			free(block[i]);
	agrees(slack + live_kb / 64);
	return 0;
}
