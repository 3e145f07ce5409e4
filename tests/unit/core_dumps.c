/*
 * core_dumps.c: what is only reserved is left out of core dumps (`dd` in the VmFlags of /proc/self/smaps), and what is
 * committed is in them: at the start, when more was committed, and when all of that was given back to the system.
 * Disciplines: all.
 */
#define _GNU_SOURCE
#include "named.h"

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "page/arena.h"
#include "os/secret.h"
#include "percpu/pcpu.h"

enum { BLOCKS = 64 };

/* Bytes of a range, or of several. */
struct bytes {
	size_t dumped, reserved, zeros;
};

/* One mapping of the system's; false: there are no more. */
struct area {
	uintptr_t start, end;
	char access[8];
	bool left_out;
};

static bool next_area(FILE *smaps, struct area *area)
{
	char line[512];
	unsigned long from, to;
	bool found = false;

	while (fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%lx-%lx %7s ", &from, &to, area->access) == 3) {
			area->start = from;
			area->end = to;
			found = true;
		} else if (strncmp(line, "VmFlags:", 8) == 0) {
			NEED(found);
			area->left_out = strstr(line, " dd") != NULL;
			return true;
		}
	}
	return false;
}

/* Kinds of the mappings in [start, end); each is dumped iff writable. */
static struct bytes look(uintptr_t start, uintptr_t end)
{
	FILE *smaps = fopen("/proc/self/smaps", "r");
	struct bytes bytes = { 0 };
	struct area area;

	NEED(smaps);
	while (next_area(smaps, &area)) {
		size_t part = (area.end < end ? area.end : end) - (area.start > start ? area.start : start);

		if (area.end <= start || area.start >= end)
			continue;
		if (area.left_out == (area.access[1] == 'w'))
			printf("%lx-%lx %s is %s\n", area.start, area.end, area.access,
			       area.left_out ? "left out" : "dumped");
		NEED(area.left_out != (area.access[1] == 'w'));
		*(area.access[1] == 'w' ? &bytes.dumped :
		  area.access[0] == 'r' ? &bytes.zeros : &bytes.reserved) += part;
	}
	fclose(smaps);
	return bytes;
}

/* shrunk: the marks for released metadata have a mapping of their own. */
static void all_named(bool shrunk)
{
	const bool rseq = strcmp(kmem_percpu_discipline(), "rseq") == 0;

	const unsigned marks = 6u + km_hardening.live;

	NEED(named_count == marks + shrunk);
	for (unsigned i = 0; i < named_count; i++) {
		struct bytes bytes = look(named[i].start, named[i].end);
		bool areas = strcmp(named[i].name, "libkmem: per-CPU areas") == 0;

		NEED(bytes.dumped + bytes.reserved + bytes.zeros == named[i].end - named[i].start);
		NEED(bytes.dumped && !bytes.zeros == !areas);
		/*
		 * Areas of CPUs unknown to the system exist for sequences only; some of them with libc's
		 * mlockall.
		 */
		NEED((bytes.reserved == 0) ==
		     (areas ? rseq && km_own_mlockall :
			      strcmp(named[i].name, "libkmem: large block") == 0 || i == marks));
	}
}

/* The arena: exactly the committed memory. Returns: its bytes. */
static size_t arena(void)
{
	const struct km_range *range = km_arena_range(0);
	uintptr_t base = (uintptr_t)range->base, ready = base + range->ready * 4096;

	NEED(look(base, ready).dumped == range->ready * 4096);
	NEED(look(ready, base + range->pages * 4096).reserved == (range->pages - range->ready) * 4096);
	return ready - base;
}

int main(void)
{
	static void *block[BLOCKS];
	struct kmem_stats before, after;

	NEED(kvmalloc(8 << 20, GFP_KERNEL));
	all_named(false);
	size_t at_first = arena();
	for (unsigned i = 0; i < BLOCKS; i++) {
		block[i] = kmalloc(1 << 20, GFP_KERNEL);
		NEED(block[i]);
		memset(block[i], 1, 1 << 20);
	}
	size_t grown = arena();
	NEED(grown >= at_first + ((BLOCKS - 8) << 20));
	all_named(false);
	/* Before the frees: on a busy machine free memory goes back by age. */
	kmem_get_stats(&before);
	for (unsigned i = 0; i < BLOCKS; i++)
		kfree(block[i]);
	kmem_shrink_all();
	kmem_get_stats(&after);
	NEED(after.purged_pages > before.purged_pages);
	NEED(arena() == grown);
	all_named(true);
	printf("%s: %zu MiB of the arena are dumped, first %zu\n", kmem_percpu_discipline(), grown >> 20,
	       at_first >> 20);
	return 0;
}
