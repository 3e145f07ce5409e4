/*
 * resident.c: count the resident bytes of libkmem's address space in a running process (info/extents.c) from
 * /proc/PID/pagemap, and the locked bytes from the mappings' flags in /proc/PID/smaps. Invariant: the counts follow
 * smaps' Rss. A page that was read but never written maps the system's zero page, and is not counted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "info/info.h"
#include "info/info_print.h"
#include "command.h"

#define SPANS	512u		/* resident pieces, or pagemap entries, in one request */
#define ATTEMPTS	8u	/* reads of a process that executes another program during each read */
/* info_elsewhere reports memory outside libkmem from this size on, in bytes, and from this multiple of libkmem's used
 * bytes on. */
#define LEAST_ELSEWHERE	(1ul << 20)
#define TIMES_OURS	64u

struct span {
	uint64_t start, end, kind;	/* the kernel's struct page_region */
};

/* kernel: Documentation/admin-guide/mm/pagemap.rst; Linux 6.7. */
struct scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t inverted, mask, anyof_mask, return_mask;
};
#define SCAN		_IOWR('f', 16, struct scan)
#define IS_PRESENT	(1u << 3)
#define IS_ZERO_PAGE	(1u << 5)

/* Bits of a word of the file pagemap; the file has one word for each system page. */
#define ENTRY_PRESENT	(1ull << 63)
#define ENTRY_EXCLUSIVE	(1ull << 56)

/* Locked address space (mlock, mlockall) in ascending order. The system never reclaims locked pages. */
struct locked {
	struct piece {
		uint64_t start, end;
	} *at;
	size_t count, room;
};

struct pages {
	struct target target;
	int pagemap;
	bool cannot_scan;
	struct locked locked;
};

/* ------------------------------------------------------------------ what is locked */

bool info_is_locked(pid_t pid)
{
	FILE *status = target_proc(pid, "status");
	unsigned long kb = 0;
	char line[256];

	while (status && fgets(line, sizeof(line), status) && sscanf(line, "VmLck: %lu", &kb) != 1)
		;
	if (status)
		fclose(status);
	return kb != 0;
}

static void read_locked(pid_t pid, struct locked *locked)
{
	struct piece piece = { 0, 0 };
	FILE *file = info_is_locked(pid) ? target_proc(pid, "smaps") : NULL;
	unsigned long start, end;
	char *line = NULL;
	size_t room = 0;

	/* Read whole lines: the rest of a long file name could look like another line. */
	while (file && getline(&line, &room, file) > 0) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
			piece = (struct piece){ start, end };
		} else if (!strncmp(line, "VmFlags:", 8) && strstr(line, " lo ")) {
			locked->at = kmem_grow(locked->at, locked->count, &locked->room, sizeof(*locked->at));
			locked->at[locked->count++] = piece;
		}
	}
	free(line);
	if (file)
		fclose(file);
}

/* Returns: the index of the first locked piece with an end above the address. */
static size_t first_behind(const struct locked *locked, uint64_t address)
{
	return KMEM_FIRST_BEHIND(locked->at, locked->count, address);
}

/* ------------------------------------------------------------------ what is resident */

/* Returns: true if all bytes of the page are 0; false also for a page that can't be read. */
static bool reads_as_zeros(struct pages *pages, uint64_t page, uint64_t bytes)
{
	uint64_t words[512];

	for (uint64_t at = 0; at < bytes; at += sizeof(words)) {
		/* Read 64 bytes first: in most pages, the first words are not all 0. */
		for (uint64_t some = 64; some <= sizeof(words); some *= sizeof(words) / 64) {
			if (!target_read(&pages->target, words, (const void *)(uintptr_t)(page + at), some))
				return false;
			for (uint64_t i = 0; i < some / 8; i++)
				if (words[i])
					return false;
		}
	}
	return true;
}

/* Find resident pages from pagemap entries, before Linux 6.7. A page counts as the system's zero page if the page
 * is not exclusive to the process and reads as zeros. A page of written zeros that a fork shares is mistaken for
 * the zero page. Returns: the number of pages, or -1. */
static int read_entries(struct pages *pages, uint64_t *start, uint64_t end, struct span *spans)
{
	uint64_t entries[SPANS], unit = (uint64_t)sysconf(_SC_PAGESIZE), at = *start;
	int count = 0;

	ssize_t got = pread(pages->pagemap, entries, sizeof(entries), (off_t)(at / unit * 8));
	if (got <= 0)
		return -1;
	for (ssize_t i = 0; i < got / 8 && at < end; i++, at += unit)
		if (entries[i] & ENTRY_PRESENT &&
		    (entries[i] & ENTRY_EXCLUSIVE || !reads_as_zeros(pages, at, unit)))
			spans[count++] = (struct span){ at, at + unit, 0 };
	*start = at;
	return count;
}

/* Find resident pieces of [*start, end), and move *start to the end of the scanned part.
 * Returns: the number of pieces, or a negative number if the kernel does not tell. */
static int find_spans(struct pages *pages, uint64_t *start, uint64_t end, struct span *spans)
{
	struct scan scan = {
		.size = sizeof(scan), .start = *start, .end = end, .vec = (uintptr_t)spans, .vec_len = SPANS,
		.inverted = IS_ZERO_PAGE, .mask = IS_PRESENT | IS_ZERO_PAGE, .return_mask = IS_PRESENT,
	};

	if (!target_may_read(&pages->target, sizeof(scan)))
		return -1;
	if (!pages->cannot_scan) {
		int count = ioctl(pages->pagemap, SCAN, &scan);

		if (count >= 0 && scan.walk_end > *start) {
			*start = scan.walk_end;
			return count;
		}
		pages->cannot_scan = true;
	}
	return read_entries(pages, start, end, spans);
}

/* Returns: the number of free pages in a resident piece of the extent. */
static unsigned long count_free(const struct info_extent *extent, const struct span *span)
{
	size_t page = (span->start - extent->start) / KMEM_PAGE_BYTES;
	const size_t end = (span->end - extent->start) / KMEM_PAGE_BYTES;
	unsigned long count = 0;

	for (; page < end; page++)
		count += extent->free[page / 64] >> page % 64 & 1;
	return count;
}

/* Add the pages of a resident piece of the extent to their owners' bytes, without free pages. */
static void count_owners(const struct snapshot *snapshot, const struct info_extent *extent, const struct span *span,
			 struct info_resident *resident)
{
	size_t page = (span->start - extent->start) / KMEM_PAGE_BYTES;
	const size_t end = (span->end - extent->start) / KMEM_PAGE_BYTES;

	for (; page < end; page++) {
		size_t owner = extent->owner[page];

		if (extent->free[page / 64] >> page % 64 & 1)
			continue;
		if (owner >= INFO_OWNER_CACHE && owner - INFO_OWNER_CACHE < snapshot->count)
			resident->by_cache[owner - INFO_OWNER_CACHE] += KMEM_PAGE_BYTES;
		else
			*(owner == INFO_OWNER_LARGE ? &resident->large : owner == INFO_OWNER_SHARED ?
			  &resident->shared : &resident->kept) += KMEM_PAGE_BYTES;
	}
}

/* Add the locked pages of a resident piece of the extent: free pages, and each cache's pages. */
static void count_locked(const struct pages *pages, const struct snapshot *snapshot, const struct info_extent *extent,
			 const struct span *span, struct info_resident *resident)
{
	const struct locked *locked = &pages->locked;
	struct info_resident of_these = { .by_cache = resident->by_cache_locked };

	for (size_t i = first_behind(locked, span->start); i < locked->count && locked->at[i].start < span->end; i++) {
		const struct piece *piece = &locked->at[i];
		const struct span both = { piece->start > span->start ? piece->start : span->start,
					   piece->end < span->end ? piece->end : span->end, 0 };

		resident->free_locked += count_free(extent, &both) * KMEM_PAGE_BYTES;
		if (extent->owner)
			count_owners(snapshot, extent, &both, &of_these);
	}
}

/* Count the resident bytes of [from, to): the part of the extent that no earlier extent has covered. */
static bool count_extent(struct pages *pages, const struct snapshot *snapshot, const struct info_extent *extent,
			 uint64_t from, uint64_t to, struct info_resident *resident)
{
	unsigned long bytes = 0, free = 0;
	struct span spans[SPANS];

	while (from < to) {
		int count = find_spans(pages, &from, to, spans);

		if (count < 0)
			return false;
		for (int i = 0; i < count; i++) {
			bytes += spans[i].end - spans[i].start;
			if (extent->free)
				free += count_free(extent, &spans[i]) * KMEM_PAGE_BYTES;
			if (extent->owner && resident->by_cache)
				count_owners(snapshot, extent, &spans[i], resident);
			if (extent->free)
				count_locked(pages, snapshot, extent, &spans[i], resident);
		}
	}
	if (extent->kind == INFO_CACHED_HUGE)
		free = bytes;
	if (extent->kind == INFO_BLOCK)
		resident->large += bytes;
	resident->free += free;
	*(extent->kind == INFO_RECORDS ? &resident->records : &resident->used) += bytes - free;
	return true;
}

static int by_start(const void *a, const void *b)
{
	const struct info_extent *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return (x->end < y->end) - (x->end > y->end);
}

/* Returns: the process's address space in bytes, from the kernel: the process's own records can't be trusted. */
static uint64_t address_space(unsigned thread)
{
	FILE *file = target_proc((pid_t)thread, "statm");
	unsigned long pages = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%lu", &pages) != 1)
		pages = 0;
	fclose(file);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool info_resident(const struct snapshot *snapshot, struct info_resident *resident)
{
	const unsigned lack = snapshot->extents_lack;
	uint64_t unit = (uint64_t)sysconf(_SC_PAGESIZE), done = 0, left = address_space(snapshot->thread);
	bool ok = true;

	*resident = (struct info_resident){ .by_cache = resident->by_cache,
					    .by_cache_locked = resident->by_cache_locked };
	struct pages pages = {
		.target = { .pid = (pid_t)snapshot->thread },
		.pagemap = snapshot->extent_count ? target_proc_fd((pid_t)snapshot->thread, "pagemap") : -1,
	};
	if (pages.pagemap < 0)
		return false;
	if (resident->by_cache_locked)
		read_locked((pid_t)snapshot->thread, &pages.locked);
	qsort(snapshot->extents, snapshot->extent_count, sizeof(*snapshot->extents), by_start);
	for (size_t i = 0; ok && i < snapshot->extent_count; i++) {
		const struct info_extent *extent = &snapshot->extents[i];
		uint64_t from = extent->start & -unit, to = (extent->end + unit - 1) & -unit;

		/* An extent may lie inside another extent, and two extents may share one system page. */
		from = from > done ? from : done;
		ok = from >= to || (to - from <= left && (!extent->free || extent->start % unit == 0));
		if (ok && from < to) {
			left -= to - from;
			ok = count_extent(&pages, snapshot, extent, from, to, resident);
			done = to;
		}
	}
	close(pages.pagemap);
	free(pages.locked.at);
	if (lack & (1u << INFO_PAGES | 1u << INFO_BLOCK))
		resident->used = INFO_UNKNOWN;
	if (lack & (1u << INFO_PAGES | 1u << INFO_CACHED_HUGE))
		resident->free = INFO_UNKNOWN;
	if (lack & 1u << INFO_RECORDS)
		resident->records = INFO_UNKNOWN;
	return ok;
}

struct info_rollup info_rollup(unsigned pid)
{
	struct info_rollup rollup = { 0 };
	const struct { const char *key; unsigned long *bytes; } fields[] = {
		{ "Rss:", &rollup.rss }, { "Pss:", &rollup.pss }, { "Anonymous:", &rollup.anonymous },
	};
	FILE *file = target_proc((pid_t)pid, "smaps_rollup");
	unsigned long kb;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
			if (!strncmp(line, fields[i].key, strlen(fields[i].key)) &&
			    sscanf(line + strlen(fields[i].key), "%lu", &kb) == 1)
				*fields[i].bytes = kb * 1024;
	if (file)
		fclose(file);
	return rollup;
}

void info_memory_clear(struct info_memory *memory)
{
	free(memory->resident.by_cache);
	free(memory->resident.by_cache_locked);
	*memory = (struct info_memory){ .told = false };
}

/* Fill in the memory of a snapshot's process. A snapshot for an observer has no thread, and only the name is read. */
static void look(const struct snapshot *snapshot, struct info_memory *memory)
{
	info_memory_clear(memory);
	info_process_name(snapshot->pid, memory->name);
	if (!snapshot->thread)
		return;
	if (snapshot->by_page) {
		memory->resident.by_cache = kmem_need(calloc(snapshot->count + 1, sizeof(unsigned long)));
		memory->resident.by_cache_locked = kmem_need(calloc(snapshot->count + 1, sizeof(unsigned long)));
	}
	memory->told = info_resident(snapshot, &memory->resident);
	memory->rollup = info_rollup(snapshot->thread);
}

enum info_result info_of_process_and_memory(pid_t pid, struct snapshot *snapshot, struct info_memory *memory)
{
	enum info_result result;

	snapshot->by_one = true;
	for (unsigned i = 0; i < ATTEMPTS; i++) {
		result = info_of_process(pid, snapshot);
		if (result != INFO_OK && result != INFO_PARTLY)
			return result;
		look(snapshot, memory);
		if (info_source_is_same(snapshot))
			return result;
	}
	return INFO_TORN;
}

unsigned long info_elsewhere(pid_t pid, unsigned long *ours)
{
	struct snapshot snapshot = { 0 };
	struct info_memory memory = { .told = false };
	enum info_result result = info_of_process_and_memory(pid, &snapshot, &memory);
	const struct info_resident resident = memory.resident;
	unsigned long own = memory.rollup.anonymous;
	bool told = (result == INFO_OK || result == INFO_PARTLY) && memory.told &&
		    resident.used != INFO_UNKNOWN && resident.free != INFO_UNKNOWN && resident.records != INFO_UNKNOWN;

	snapshot_clear(&snapshot);
	info_memory_clear(&memory);
	*ours = told ? resident.used : 0;
	const unsigned long all = *ours + resident.free + resident.records;
	own = told && own > all ? own - all : 0;
	return own >= LEAST_ELSEWHERE && own / TIMES_OURS >= *ours ? own : 0;
}
