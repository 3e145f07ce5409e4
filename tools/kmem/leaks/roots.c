/*
 * roots.c: find memory outside of objects with possible pointers, and read the process's memory. Invariant: pages
 * neither in memory nor in swap are never read, so a scan never makes the kernel allocate a new page there.
 */
#define _GNU_SOURCE

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "leaks/core_dump.h"
#include "leaks/scan.h"

#define RED_ZONE	128u			/* bytes in use below a stack pointer */
#define MOST_USED	((uintptr_t)64 << 20)	/* limit of the bytes read of one stack */
#define MOST_UNUSED	((uintptr_t)8 << 20)	/* limit of the unused bytes below a stack pointer */
#define RECORD_BYTES	2304u			/* glibc's record of a thread, on x86-64; musl's is smaller */
#define MAX_BLOCKS	65536u		/* limit of the RCU blocks of objects waiting for a grace period */
#define ENTRIES		512u
#define ENTRY_PRESENT	(1ull << 63)
#define ENTRY_SWAPPED	(1ull << 62)
#define ENTRY_FILE	(1ull << 61)
#define ENTRY_EXCLUSIVE	(1ull << 56)
#define ENTRY_GUARD	(1ull << 58)		/* Linux 6.15: a page without access inside of a mapping */

static void add_span(struct span_list *list, uintptr_t start, uintptr_t end)
{
	if (start >= end)
		return;
	list->at = kmem_grow(list->at, list->count, &list->room, sizeof(*list->at));
	list->at[list->count++] = (struct scan_span){ start, end };
}

static int by_start(const void *a, const void *b)
{
	const struct scan_span *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

/* ------------------------------------------------------------------ libkmem's memory */

/* Add the pool of guarded objects and the pool's slots: the extents do not include these. */
static bool add_pool(struct scan *scan, const struct info_root *root, struct span_list *ours)
{
	struct rec_pool pool;

	if (!layout_has(&root->layout, "root.guarded pool.start pool.bytes pool.objects pool.slot"))
		return true;
	if (!target_struct(scan->heap.target, &root->layout, INFO_POOL, &pool, root->record.guarded))
		return false;
	if (pool.bytes > UINTPTR_MAX - pool.start)
		return true;
	add_span(ours, pool.start, pool.start + pool.bytes);
	if (pool.slot && pool.objects <= 65536)
		add_span(ours, (uintptr_t)pool.slot,
			 (uintptr_t)pool.slot + pool.objects * layout_bytes(&root->layout, INFO_SLOT));
	return true;
}

void roots_fold(struct span_list *list)
{
	size_t kept = 0;

	qsort(list->at, list->count, sizeof(*list->at), by_start);
	for (size_t i = 0; i < list->count; i++) {
		struct scan_span *last = kept ? &list->at[kept - 1] : NULL;

		if (last && list->at[i].start <= last->end)
			last->end = list->at[i].end > last->end ? list->at[i].end : last->end;
		else
			list->at[kept++] = list->at[i];
	}
	list->count = kept;
}

static bool find_ours(struct scan *scan, struct span_list *ours)
{
	for (size_t i = 0; i < scan->heap.root_count; i++) {
		const struct info_root *root = &scan->heap.roots[i];
		struct snapshot snapshot = { .extent_count = 0 };
		struct rec_percpu percpu;

		if (!target_struct(scan->heap.target, &root->layout, INFO_PERCPU, &percpu, root->record.percpu) ||
		    percpu.cpus > INFO_MAX_CPUS || !walk_extents(scan->heap.target, root, &percpu, &snapshot) ||
		    !add_pool(scan, root, ours))
			return false;
		for (size_t e = 0; e < snapshot.extent_count; e++)
			add_span(ours, snapshot.extents[e].start, snapshot.extents[e].end);
		snapshot_clear_extents(&snapshot);
	}
	roots_fold(ours);
	return true;
}

/* ------------------------------------------------------------------ objects waiting for a grace period */

struct waits {
	struct scan *scan;
	const struct layout *layout;
	unsigned left;		/* blocks still allowed of MAX_BLOCKS */
};

/* Add the object pointers of RCU blocks as roots. The blocks are libkmem's memory. The waiting objects, and all
 * objects reached from them, are held because RCU readers may still read these. */
static void add_blocks(struct waits *waits, const struct rec_rcublock *at)
{
	const uint64_t first = layout_offset(waits->layout, "rcublock.object");
	struct rec_rcublock block;

	for (; at && waits->left; at = block.next, waits->left--) {
		if (!target_struct(waits->scan->heap.target, waits->layout, INFO_RCU_BLOCK, &block, at))
			return;
		if (block.count > sizeof(block.object) / sizeof(*block.object))
			return;
		add_span(&waits->scan->roots, (uintptr_t)at + first,
			 (uintptr_t)at + first + block.count * sizeof(*block.object));
	}
}

static void add_waiting(struct waits *waits, const struct info_root *root, uint32_t slot)
{
	const unsigned shift = layout_offset(waits->layout, "const.area_shift") & 63;
	struct rec_waiting waiting;
	struct rec_percpu percpu;

	if (!target_struct(waits->scan->heap.target, waits->layout, INFO_PERCPU, &percpu, root->record.percpu))
		return;
	for (uintptr_t cpu = 0; slot && cpu < percpu.cpus && cpu < INFO_MAX_CPUS; cpu++)
		if (target_struct(waits->scan->heap.target, waits->layout, INFO_WAITING, &waiting,
				  (void *)((uintptr_t)percpu.base + (cpu << shift) + slot)))
			add_blocks(waits, waiting.blocks);
}

/* Add the objects waiting for a grace period. Unreadable blocks are skipped; their objects may be reported as
 * lost. */
static void find_waiting(struct scan *scan, const struct info_root *root)
{
	struct waits waits = { .scan = scan, .layout = &root->layout, .left = MAX_BLOCKS };
	struct target *target = scan->heap.target;
	struct rec_rcublock *pile = NULL;
	struct rec_grace grace;
	uintptr_t at = 0;
	uint32_t slot = 0;

	if (!layout_has(&root->layout, "root.grace grace.slot grace.pile waiting.blocks rcublock.object") ||
	    !target_read(target, &at, root->record.grace, sizeof(at)) || !at ||
	    !target_struct(target, &root->layout, INFO_GRACE, &grace, (void *)at))
		return;
	if (target_read(target, &slot, grace.slot, sizeof(slot)))
		add_waiting(&waits, root, slot);
	if (target_read(target, &pile, grace.pile, sizeof(pile)))
		add_blocks(&waits, pile);
}

/* ------------------------------------------------------------------ other memory */

static bool is_data_of(const struct map *map, const char *name)
{
	return map->write && map->name && !strcmp(map->name, name);
}

/* Check for constants relocated by the dynamic linker: a mapping beside writable data of the same file. */
static bool is_relocated(const struct maps *maps, size_t i)
{
	const struct map *map = &maps->at[i];

	if (!map->file || !map->name)
		return false;
	return (i && is_data_of(map - 1, map->name)) || (i + 1 < maps->count && is_data_of(map + 1, map->name));
}

/* Add the parts of a mapping outside of `others` as roots. Mappings and `others` come in address order: *next is the
 * first of `others` with an end behind the start of the mapping. */
static void add_rest(struct scan *scan, uintptr_t start, uintptr_t end, const struct span_list *others, size_t *next)
{
	while (*next < others->count && others->at[*next].end <= start)
		++*next;
	for (size_t i = *next; i < others->count && others->at[i].start < end && start < end; i++) {
		add_span(&scan->roots, start, others->at[i].start);
		start = others->at[i].end;
	}
	add_span(&scan->roots, start, end);
}

/* ------------------------------------------------------------------ stacks */

/*
 * Stacks may be neighbours in one mapping: glibc 2.43 makes guards of pages inside of a mapping. Linux shows guards
 * since 6.15. Returns: the start of the first guard in [from, end), or with `last` of the last guard; without a
 * guard `end`, or with `last` `from`.
 */
static uintptr_t next_guard(const struct scan *scan, uintptr_t from, uintptr_t end, bool last)
{
	const size_t unit = (size_t)sysconf(_SC_PAGESIZE);
	uint64_t entries[ENTRIES];
	uintptr_t found = last ? from : end;
	bool guard = false, before;

	for (uintptr_t at = from / unit; scan->pagemap >= 0 && at < end / unit && (last || found == end);) {
		const size_t left = end / unit - at, wanted = left < ENTRIES ? left : ENTRIES;
		ssize_t got = pread(scan->pagemap, entries, wanted * sizeof(*entries), (off_t)(at * sizeof(*entries)));

		if (got < (ssize_t)sizeof(*entries))
			break;
		for (size_t i = 0; i < (size_t)got / sizeof(*entries); i++, at++) {
			before = guard;
			guard = entries[i] & ENTRY_GUARD;
			if (guard && !before && (last || found == end))
				found = at * unit;
		}
	}
	return found;
}

/* A stack reaches from the stack pointer to libc's record of the thread, to the next guard, or to the end of the
 * mapping. If the stack has grown since the mappings were read, the stack pointer lies below the mapping. */
void roots_add_stack(const struct scan *scan, const struct stop_stack *stack, struct span_list *list)
{
	const struct maps *maps = &scan->subject->maps;
	const uintptr_t pointer = stack->pointer, unit = (uintptr_t)sysconf(_SC_PAGESIZE);
	const size_t i = maps_behind(maps, pointer);

	if (pointer <= RED_ZONE || i == maps->count)
		return;
	const struct map *map = &maps->at[i];
	if (map->start > pointer && map->start - pointer > MOST_USED)
		return;
	uintptr_t end = map->end - pointer > MOST_USED ? pointer + MOST_USED : map->end;
	if (stack->record >= pointer && stack->record < end) {
		const uintptr_t behind = (stack->record + RECORD_BYTES + unit - 1) / unit * unit;

		end = behind < end ? behind : end;
	} else if (!map->name) {
		end = next_guard(scan, pointer, end, false);
	}
	add_span(list, (pointer - RED_ZONE) & ~(uintptr_t)7, end);
}

static int by_pointer(const void *a, const void *b)
{
	const struct stop_stack *x = a, *y = b;

	return (x->pointer > y->pointer) - (x->pointer < y->pointer);
}

/* Exclude stacks from the roots: stacks are read later, while the threads stand still. Memory below a stack pointer
 * is unused, down to a guard, to the stack below, or to the mapping's start. A guard can't be read. */
static void add_stacks(struct scan *scan, struct stop_stack *stacks, size_t count, struct span_list *list)
{
	const struct maps *maps = &scan->subject->maps;
	uintptr_t before = 0;

	qsort(stacks, count, sizeof(*stacks), by_pointer);
	for (size_t i = 0; i < count; i++) {
		const uintptr_t pointer = stacks[i].pointer;
		const struct map *map = maps_find(maps, pointer);
		const size_t known = list->count;

		if (!map)
			continue;
		uintptr_t low = pointer - map->start > MOST_UNUSED ? pointer - MOST_UNUSED : map->start;
		low = before > low && before <= pointer ? before : low;
		add_span(list, next_guard(scan, low, pointer, true), pointer);
		roots_add_stack(scan, &stacks[i], list);
		before = list->count > known ? list->at[list->count - 1].end : before;
	}
}

bool roots_find(struct scan *scan, struct stop_stack *stacks, size_t count)
{
	const struct maps *maps = &scan->subject->maps;
	struct span_list others = { .at = NULL };
	bool ok = find_ours(scan, &scan->ours);
	size_t next = 0;

	for (size_t i = 0; i < scan->ours.count; i++)
		add_span(&others, scan->ours.at[i].start, scan->ours.at[i].end);
	add_stacks(scan, stacks, count, &others);
	roots_fold(&others);
	for (size_t i = 0; ok && i < maps->count; i++) {
		const struct map *map = &maps->at[i];

		bool kernels = map->name && !strncmp(map->name, "[v", 2);

		if (!kernels && map->read && (map->write || is_relocated(maps, i)))
			add_rest(scan, map->start, map->end, &others, &next);
	}
	free(others.at);
	for (size_t i = 0; ok && i < scan->heap.root_count; i++)
		find_waiting(scan, &scan->heap.roots[i]);
	return ok;
}

/* ------------------------------------------------------------------ reading */

/* State of a page: OUT: not in memory or swap; IN: in memory or swap; FORKED: in memory and possibly shared with a
 * fork. */
enum place { OUT, IN, FORKED };

static enum place place_of(uint64_t entry)
{
	if (!(entry & (ENTRY_PRESENT | ENTRY_SWAPPED)))
		return OUT;
	return entry & ENTRY_PRESENT && !(entry & (ENTRY_FILE | ENTRY_EXCLUSIVE)) ? FORKED : IN;
}

/* Count the pages from `at` on with the same state. *in: the state. Without a readable pagemap all pages count as
 * IN. */
static size_t run_of(const struct scan *scan, uintptr_t at, uintptr_t end, size_t unit, enum place *in)
{
	uint64_t entries[ENTRIES];
	size_t wanted = (end - at + unit - 1) / unit, i = 1;

	wanted = wanted < ENTRIES ? wanted : ENTRIES;
	ssize_t got = pread(scan->pagemap, entries, wanted * sizeof(*entries), (off_t)(at / unit * sizeof(*entries)));
	if (got < (ssize_t)sizeof(*entries)) {
		*in = IN;
		return wanted;
	}
	*in = place_of(entries[0]);
	while (i < (size_t)got / sizeof(*entries) && *in == place_of(entries[i]))
		i++;
	return i;
}

/* Read bytes by one call. If the call fails, read page by page, with zeros for unreadable pages. */
static void read_all(struct scan *scan, uintptr_t from, size_t bytes, char *to)
{
	struct target *target = scan->heap.target;

	scan->bytes += bytes;
	if (target_read(target, to, (const void *)from, bytes))
		return;
	for (size_t done = 0, now; done < bytes; done += now) {
		const bool over = target->result == INFO_GONE || target->result == INFO_INVALID;

		now = KMEM_PAGE_BYTES - ((from + done) & (KMEM_PAGE_BYTES - 1));
		now = over || now > bytes - done ? bytes - done : now;
		if (!over && target_read(target, to + done, (const void *)(from + done), now))
			continue;
		memset(to + done, 0, now);
		scan->unread += now;
		scan->bytes -= now;
	}
}

/* Returns: the end of the run of pages with the same state from `at` on, at most `end`. *in: the state. */
static uintptr_t behind(const struct scan *scan, uintptr_t at, uintptr_t end, enum place *in)
{
	size_t unit = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t page = at & -(uintptr_t)unit, next;

	*in = IN;
	if (scan->pagemap < 0)
		return end;
	next = page + run_of(scan, page, end, unit, in) * unit;
	return next < end ? next : end;
}

bool roots_read(struct scan *scan, uintptr_t from, size_t bytes, void *to)
{
	uintptr_t end = from + bytes, at = from, next = from;
	enum place in = OUT;

	while (next < end && !in && target_may_read(scan->heap.target, 0)) {
		at = next;
		next = behind(scan, at, end, &in);
	}
	if (!in) {
		scan->unread += end - next;
		return false;
	}
	memset(to, 0, at - from);
	while (at < end) {
		char *here = (char *)to + (at - from);

		scan->heap.target->shares = in == FORKED;
		if (in)
			read_all(scan, at, next - at, here);
		else
			memset(here, 0, next - at);
		at = next;
		next = at < end ? behind(scan, at, end, &in) : end;
	}
	scan->heap.target->shares = false;
	return true;
}

/* ------------------------------------------------------------------ many pieces */

void roots_flush(struct roots_batch *batch)
{
	struct scan *scan = batch->scan;
	char *to = batch->to;

	scan->heap.target->shares = batch->shares;
	/* If the call for all pieces fails, read piece by piece. */
	if (target_pieces(scan->heap.target, to, batch->piece, batch->count))
		scan->bytes += batch->bytes;
	else
		for (size_t i = 0; i < batch->count; to += batch->piece[i++].iov_len)
			read_all(scan, (uintptr_t)batch->piece[i].iov_base, batch->piece[i].iov_len, to);
	batch->to += batch->bytes;
	batch->count = batch->bytes = 0;
	scan->heap.target->shares = batch->shares = false;
}

void roots_add(struct roots_batch *batch, uintptr_t from, size_t bytes)
{
	const uintptr_t end = from + bytes;
	enum place in;

	for (uintptr_t at = from, next; at < end; at = next) {
		next = behind(batch->scan, at, end, &in);
		if (!in)
			continue;
		batch->piece[batch->count++] = (struct iovec){ (void *)at, next - at };
		batch->bytes += next - at;
		batch->shares |= in == FORKED;
		if (batch->count == ROOTS_PIECES)
			roots_flush(batch);
	}
}
