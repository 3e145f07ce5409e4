/*
 * What of a running process's pages is resident, as the kernel says: /proc/PID/smaps for each mapping of ours, and
 * /proc/PID/pagemap for the pages that the library has as free and not given back. A page of a block that nobody has
 * touched is neither.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "info.h"
#include "kmem.h"

#define PRESENT		(1ull << 63)	/* kernel: Documentation/admin-guide/mm/pagemap.rst */
#define WORDS		512u		/* of the library's bits that are read at once */

static bool has_cache(const struct snapshot *snapshot, uintptr_t start, uintptr_t end)
{
	for (size_t i = 0; i < snapshot->count; i++) {
		uintptr_t at = (uintptr_t)snapshot->caches[i].address;

		if (at >= start && at < end)
			return true;
	}
	return false;
}

/* Add a mapping's resident bytes where they belong; a mapping of somebody else's belongs nowhere. */
static void add_mapping(const struct snapshot *snapshot, uintptr_t start, uintptr_t end, unsigned long bytes,
			struct info_resident *resident)
{
	for (size_t i = 0; i < snapshot->extent_count; i++) {
		const struct info_extent *extent = &snapshot->extents[i];

		/* Neighbours may have become one mapping, of which a part is ours. */
		if (start < extent->end && end > extent->start) {
			*(extent->dirty ? &resident->used : &resident->records) += bytes;
			return;
		}
	}
	if (has_cache(snapshot, start, end))
		resident->records += bytes;
}

static bool read_smaps(const struct snapshot *snapshot, struct info_resident *resident)
{
	char path[64], line[512];
	unsigned long start = 0, end = 0, kb;

	snprintf(path, sizeof(path), "/proc/%u/smaps", snapshot->thread);
	FILE *smaps = fopen(path, "re");
	if (!smaps)
		return false;
	while (fgets(line, sizeof(line), smaps))
		if (sscanf(line, "Rss: %lu", &kb) == 1)
			add_mapping(snapshot, start, end, kb * 1024, resident);
		else if (strchr(line, '-') && sscanf(line, "%lx-%lx ", &start, &end) != 2)
			continue;
	fclose(smaps);
	return true;
}

/* Of the 64 pages from `page` on whose bits are set: those that the kernel has in memory. */
static bool count_present(int pagemap, uintptr_t page, uint64_t bits, unsigned long *pages)
{
	uint64_t entries[64];
	/* The system's pages may be larger than ours. */
	size_t unit = (size_t)sysconf(_SC_PAGESIZE);

	if (unit > KM_PAGE_SIZE ||
	    pread(pagemap, entries, sizeof(entries), (off_t)(page / unit * 8)) != sizeof(entries))
		return false;
	for (unsigned i = 0; i < 64; i++)
		*pages += (bits >> i & 1) && entries[i] & PRESENT;
	return true;
}

static bool count_free(struct target *target, int pagemap, const struct info_extent *extent, unsigned long *pages)
{
	size_t words = (extent->end - extent->start) / KM_PAGE_SIZE / 64;
	uint64_t bits[WORDS];

	for (size_t at = 0; at < words; at += WORDS) {
		size_t now = words - at < WORDS ? words - at : WORDS;

		if (!target_read(target, bits, extent->dirty + at, now * sizeof(*bits)))
			return false;
		for (size_t i = 0; i < now; i++)
			if (bits[i] && !count_present(pagemap, extent->start + (at + i) * 64 * KM_PAGE_SIZE, bits[i],
						      pages))
				return false;
	}
	return true;
}

bool info_resident(const struct snapshot *snapshot, struct info_resident *resident)
{
	struct target target = { .pid = (pid_t)snapshot->thread };
	unsigned long free = 0;
	char path[64];

	*resident = (struct info_resident){ 0 };
	snprintf(path, sizeof(path), "/proc/%u/pagemap", snapshot->thread);
	int pagemap = snapshot->extent_count ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (pagemap < 0)
		return false;
	bool ok = true;
	for (size_t i = 0; ok && i < snapshot->extent_count; i++)
		if (snapshot->extents[i].dirty)
			ok = count_free(&target, pagemap, &snapshot->extents[i], &free);
	close(pagemap);
	if (!ok || !read_smaps(snapshot, resident))
		return false;
	resident->free = free * KM_PAGE_SIZE;
	resident->used -= resident->free < resident->used ? resident->free : resident->used;
	return true;
}
