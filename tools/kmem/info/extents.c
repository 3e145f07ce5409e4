/*
 * extents.c: list libkmem's address space in a running process as extents: pages (with a bitmap of the free pages),
 * huge blocks, cached huge blocks, and records. The kernel, not this list, tells how much of an extent is resident
 * (info/resident.c). Invariant: the walk never reads the memory of blocks. If the process's build does not describe
 * a kind of extent, the snapshot has no extents of this kind, or not all, and marks the kind in extents_lack.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "info/info.h"
#include "command.h"

#define MAX_SLOTS	((size_t)1 << 26)	/* of the table of huge blocks: more than the address space has */
#define MAX_CACHED_HUGE	4096u
#define MAX_SPANS	4096u
#define AT_ONCE		4096u			/* descriptors, or table slots, in one read */

static void add_extent(struct snapshot *snapshot, enum info_kind kind, const void *start, const void *end,
		       uint64_t *free)
{
	snapshot->extents = kmem_grow(snapshot->extents, snapshot->extent_count, &snapshot->extent_room,
				      sizeof(*snapshot->extents));
	snapshot->extents[snapshot->extent_count++] =
		(struct info_extent){ (uintptr_t)start, (uintptr_t)end, kind, free, NULL };
}

void snapshot_clear_extents(struct snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->extent_count; i++) {
		free(snapshot->extents[i].free);
		free(snapshot->extents[i].owner);
	}
	free(snapshot->extents);
}

static void set_bits(uint64_t *bits, size_t from, size_t count, size_t all)
{
	for (size_t i = from; i < all && i - from < count; i++)
		bits[i / 64] |= (uint64_t)1 << i % 64;
}

/* Set the bits of all free pages, also of pages that were never touched. The descriptor of a free run's first page
 * has the number of pages; the run's other descriptors may be stale. */
static bool add_runs(struct target *target, const struct layout *layout, const struct rec_range *range, uint64_t *bits)
{
	struct rec_page *pages = kmem_need(calloc(AT_ONCE, sizeof(*pages)));
	bool ok = true;

	for (size_t at = 0, behind = 0; ok && at < range->ready; at += AT_ONCE) {
		size_t now = range->ready - at < AT_ONCE ? range->ready - at : AT_ONCE;
		const char *from = range->page + at * layout_bytes(layout, INFO_PAGE);

		ok = target_structs(target, layout, INFO_PAGE, pages, from, now);
		for (size_t i = 0; ok && i < now; i++)
			if (at + i >= behind && pages[i].type == KMEM_RECORD_PAGE_FREE) {
				set_bits(bits, at + i, pages[i].run, range->ready);
				behind = at + i + pages[i].run;
			}
	}
	free(pages);
	return ok;
}

/* Add the pages of a range, with the free pages' bits: dirty pages, and if memory is locked, all free pages. */
static bool add_pages(struct target *target, const struct layout *layout, const struct rec_range *range, bool locked,
		      struct snapshot *snapshot)
{
	size_t words = range->ready / 64;
	uint64_t *bits = target_keep(target, words, sizeof(*bits));

	if (!bits || !target_read(target, bits, range->dirty, words * sizeof(*bits)) ||
	    (locked && layout_has(layout, "page.type page.run") && !add_runs(target, layout, range, bits))) {
		free(bits);
		return false;
	}
	add_extent(snapshot, INFO_PAGES, range->base, range->base + (words * 64 << KMEM_PAGE_SHIFT), bits);
	return true;
}

/* Add each range's pages and its four arrays, as separate extents. Under a limit on the address space, the memory
 * between the used parts of the arrays may belong to other mappings. */
static bool add_ranges(struct target *target, const struct info_root *root, struct snapshot *snapshot)
{
	const struct layout *layout = &root->layout;
	/* Locked memory is all resident, also pages that were never touched. */
	bool locked = info_is_locked(target->pid);
	struct rec_range ranges[INFO_MAX_RANGES];
	unsigned count;

	if (!layout_has(layout, "root.arena.ranges root.arena.range range.pages range.ready range.base range.map "
			"range.page range.owner range.dirty")) {
		snapshot->extents_lack |= 1u << INFO_PAGES | 1u << INFO_RECORDS;
		return true;
	}
	if (!root_ranges(target, root, ranges, &count))
		return false;
	for (unsigned i = 0; i < count; i++) {
		const struct rec_range *range = &ranges[i];
		const char *page = range->page;

		if (range->ready && range->base && !add_pages(target, layout, range, locked, snapshot))
			return false;
		add_extent(snapshot, INFO_RECORDS, range->map, range->map + range->pages, NULL);
		add_extent(snapshot, INFO_RECORDS, page,
				    page + range->pages * layout_bytes(layout, INFO_PAGE), NULL);
		add_extent(snapshot, INFO_RECORDS, range->owner, range->owner + range->pages, NULL);
		add_extent(snapshot, INFO_RECORDS, range->dirty, range->dirty + range->pages / 64, NULL);
	}
	return true;
}

/* Read the address and the number of slots of the table of huge blocks. The process may replace the table meanwhile.
 * Returns: false with the target marked torn, if slots are there without a table. */
static bool read_table(struct target *target, const struct rec_root *record, const void **table, size_t *slots)
{
	if (!target_read(target, slots, record->mapped_slots, sizeof(*slots)) ||
	    !target_read(target, table, record->mapped_table, sizeof(*table)))
		return false;
	if (*slots > MAX_SLOTS)
		return target_too_much(target);
	return *table || !*slots || target_torn(target);
}

static bool add_blocks(struct target *target, const struct info_root *root, struct snapshot *snapshot)
{
	size_t each = layout_bytes(&root->layout, INFO_BIG), slots, after_slots;
	const void *table, *after;

	if (!layout_has(&root->layout, "root.mapped_table root.mapped_slots big.start big.bytes")) {
		snapshot->extents_lack |= 1u << INFO_BLOCK;
		return true;
	}
	if (!read_table(target, &root->record, &table, &slots))
		return false;
	/* A large table is a mapping of its own; a small table lies inside an extent that is listed anyway. */
	if (slots)
		add_extent(snapshot, INFO_RECORDS, table, (const char *)table + slots * each, NULL);
	struct rec_big *entries = kmem_need(calloc(AT_ONCE, sizeof(*entries)));
	bool ok = true;
	for (size_t at = 0; ok && at < slots; at += AT_ONCE) {
		size_t now = slots - at < AT_ONCE ? slots - at : AT_ONCE;

		ok = target_structs(target, &root->layout, INFO_BIG, entries, (const char *)table + at * each, now);
		for (size_t i = 0; ok && i < now; i++)
			if (entries[i].start >= KMEM_PAGE_BYTES)
				add_extent(snapshot, INFO_BLOCK, (const void *)entries[i].start,
						    (const char *)entries[i].start + entries[i].bytes, NULL);
		target_charge(target, now * sizeof(*snapshot->extents));
	}
	free(entries);
	return ok && read_table(target, &root->record, &after, &after_slots) &&
	       ((after == table && after_slots == slots) || target_torn(target));
}

static bool add_cached_huge(struct target *target, const struct info_root *root, struct snapshot *snapshot)
{
	struct rec_parked *parked;
	unsigned count;

	if (!layout_has(&root->layout, "root.parked root.parked_count parked.p parked.bytes")) {
		snapshot->extents_lack |= 1u << INFO_CACHED_HUGE;
		return true;
	}
	if (!target_read(target, &count, root->record.parked_count, sizeof(count)))
		return false;
	if (count > MAX_CACHED_HUGE)
		return target_too_much(target);
	parked = kmem_need(calloc(count + 1, sizeof(*parked)));
	bool ok = target_structs(target, &root->layout, INFO_CACHED_ENTRY, parked, root->record.parked, count);
	for (unsigned i = 0; ok && i < count; i++)
		add_extent(snapshot, INFO_CACHED_HUGE, parked[i].p, (char *)parked[i].p + parked[i].bytes, NULL);
	free(parked);
	return ok;
}

static bool add_records(struct target *target, const struct info_root *root, const struct rec_percpu *percpu,
			struct snapshot *snapshot)
{
	unsigned shift = layout_offset(&root->layout, "const.area_shift") & 63;
	struct rec_span *spans;
	unsigned count;

	add_extent(snapshot, INFO_RECORDS, percpu->base, percpu->base + ((size_t)percpu->cpus << shift),
			    NULL);
	if (!layout_has(&root->layout, "root.spans root.span_count span.start span.end")) {
		snapshot->extents_lack |= 1u << INFO_RECORDS;
		return true;
	}
	if (!target_read(target, &count, root->record.span_count, sizeof(count)))
		return false;
	if (count > MAX_SPANS)
		return target_too_much(target);
	spans = kmem_need(calloc(count + 1, sizeof(*spans)));
	bool ok = target_structs(target, &root->layout, INFO_SPAN, spans, root->record.spans, count);
	for (unsigned i = 0; ok && i < count; i++)
		add_extent(snapshot, INFO_RECORDS, spans[i].start, spans[i].end, NULL);
	free(spans);
	return ok;
}

/* Sum the pages of the runs that CPUs keep for growing blocks (kmalloc/realloc_run.h). */
static bool read_runs(struct target *target, const struct info_root *root, const struct rec_percpu *percpu,
		      unsigned long *runs)
{
	uint32_t at = 0, *pages;

	if (layout_has(&root->layout, "root.growth_at") &&
	    !target_read(target, &at, root->record.growth_at, sizeof(at)))
		return false;
	if (!at)
		return true;
	pages = target_room(target, percpu->cpus, sizeof(*pages));
	bool ok = pages && target_per_cpu(target, root, percpu, at, pages, sizeof(*pages));
	for (unsigned cpu = 0; ok && cpu < percpu->cpus; cpu++)
		*runs += pages[cpu];
	free(pages);
	return ok;
}

static void take(unsigned long *sum, unsigned long n)
{
	if (*sum != INFO_UNKNOWN)
		*sum -= n < *sum ? n : *sum;
}

static void add(unsigned long *sum, unsigned long n)
{
	if (*sum != INFO_UNKNOWN)
		*sum += n;
}

bool walk_kept(struct target *target, const struct info_root *root, const struct rec_percpu *percpu,
	       struct kmem_stats *stats)
{
	size_t own = 0;
	unsigned long runs = 0;

	if ((layout_has(&root->layout, "root.own_pages") &&
	     !target_read(target, &own, root->record.own_pages, sizeof(own))) ||
	    !read_runs(target, root, percpu, &runs))
		return false;
	/* The counters are read at different moments, so a difference must not go below 0. */
	take(&stats->pages_used, own + runs);
	take(&stats->large_bytes, runs << KMEM_PAGE_SHIFT);
	add(&stats->pages_free_clean, own);
	add(&stats->pages_free_dirty, runs);
	return true;
}

bool walk_extents(struct target *target, const struct info_root *root, const struct rec_percpu *percpu,
		  struct snapshot *snapshot)
{
	if (!add_ranges(target, root, snapshot) || !add_blocks(target, root, snapshot) ||
	    !add_cached_huge(target, root, snapshot) || !add_records(target, root, percpu, snapshot))
		return false;
	for (size_t i = 0; i < snapshot->extent_count; i++)
		if (!target_has_space(target, snapshot->extents[i].end - snapshot->extents[i].start))
			return false;
	return true;
}
