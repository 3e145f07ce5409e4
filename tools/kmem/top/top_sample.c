/*
 * top_sample.c: takes a sample: resident memory of each process (info/resident.c), by owner (info/page_owners.c),
 * laid out as rows. Invariant: live and ready bytes never exceed the resident bytes of their cache. Object counts and
 * residence are read at different moments, and parts of objects may be untouched. A larger count of bytes is
 * therefore scaled down to the resident bytes, live and ready in proportion.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "info/info_print.h"
#include "command.h"
#include "top/top.h"

#define UNKNOWN INFO_UNKNOWN

/* Row of a group, by the group's number within its process. */
struct placed {
	unsigned group;
	size_t row;			/* row number, from 1 */
};

/* State of laying out one process as rows. */
struct laying {
	struct top_sample *sample;
	const struct snapshot *snapshot;
	const struct info_resident *resident;
	bool by_page;			/* the snapshot has the owner of every page */
	bool merged;			/* rows are shared with other processes */
	size_t top, shared;		/* row numbers, from 1: of the process, and of pages shared by caches */
	struct placed *placed;		/* all groups, sorted by number; NULL: no groups */
	struct top_figures sum;
};

static unsigned long times(unsigned long n, unsigned long bytes)
{
	unsigned long product;

	return n == UNKNOWN || bytes == UNKNOWN || bytes == (unsigned)UNKNOWN ||
	       __builtin_mul_overflow(n, bytes, &product) ? UNKNOWN : product;
}

static unsigned long least(unsigned long a, unsigned long b)
{
	return a < b ? a : b;
}

/* Divide resident bytes into live, ready and free bytes. */
static struct top_figures divide(unsigned long resident, unsigned long live, unsigned long ready)
{
	struct top_figures figures = { resident, live, ready, UNKNOWN, UNKNOWN, 0 };

	/* The figures are parts of the resident bytes: without the sum the parts are unknown. */
	if (resident == UNKNOWN) {
		figures.live = figures.ready = UNKNOWN;
		return figures;
	}
	/* With one figure unknown, limit the known figure to the resident bytes. */
	if (live == UNKNOWN || ready == UNKNOWN) {
		figures.live = live == UNKNOWN ? UNKNOWN : least(live, resident);
		figures.ready = ready == UNKNOWN ? UNKNOWN : least(ready, resident);
		return figures;
	}
	double all = (double)live + (double)ready;
	if (all > (double)resident) {
		figures.live = least((unsigned long)((double)resident * ((double)live / all)), resident);
		figures.ready = resident - figures.live;
	}
	figures.free = resident - figures.live - figures.ready;
	figures.purgeable = 0;
	return figures;
}

static struct top_figures cache_figures(const struct laying *laying, const struct info_cache *cache, size_t place)
{
	const struct kmem_cache_stats *stats = &cache->stats;
	unsigned long live = times(stats->active_objects, stats->size);
	unsigned long ready = times(stats->shelf_objects, stats->size);
	unsigned long slabs = times(stats->total_slabs, times(stats->pages_per_slab, KMEM_PAGE_BYTES));
	struct top_figures figures;

	if (!laying->by_page) {
		figures = divide(slabs, live, ready);
		figures.purgeable = figures.pinned = UNKNOWN;
		return figures;
	}
	figures = divide(laying->resident->by_cache[place], live, ready);
	if (figures.free != UNKNOWN)
		figures.purgeable = least(cache->empty, figures.free);
	/* Cached large blocks are whole pages outside slabs, so all ready bytes are purgeable. */
	if (!strcmp(cache->engine, "ready") && figures.purgeable != UNKNOWN)
		figures.purgeable += figures.ready;
	/* Locked pages (mlock) stay resident when freed. */
	if (figures.purgeable != UNKNOWN)
		figures.purgeable = least(figures.purgeable,
					  figures.resident - laying->resident->by_cache_locked[place]);
	figures.pinned = least(cache->pinned, figures.resident);
	return figures;
}

/* ------------------------------------------------------------------ rows */

static const struct top_figures unknown = { UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN };

static size_t number_of(const struct top_sample *sample, const struct top_row *row)
{
	return (size_t)(row - sample->rows) + 1;
}

/* Add figures to a row and to the process's sum. Requires: the memory is in no other row. */
static void add_part(struct laying *laying, struct top_row *row, struct top_figures figures)
{
	top_add(&row->figures, &figures);
	top_add(&laying->sum, &figures);
}

static struct top_row *system_row(struct laying *laying, const char *name)
{
	return top_row(laying->sample, laying->top, TOP_SYSTEM, name, 0);
}

static int by_group(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;

	return (x->group > y->group) - (x->group < y->group);
}

/* Add the rows of groups. A group has only charged bytes; the memory itself is counted in the rows of caches. */
static void add_groups(struct laying *laying)
{
	const struct snapshot *snapshot = laying->snapshot;
	struct top_sample *sample = laying->sample;
	size_t above[MEMCG_DEPTH_MAX + 1];

	if (!snapshot->group_count)
		return;
	laying->placed = kmem_need(calloc(snapshot->group_count, sizeof(*laying->placed)));
	for (size_t i = 0; i <= MEMCG_DEPTH_MAX; i++)
		above[i] = number_of(sample, top_row(sample, laying->top, TOP_GROUPS, "groups, charged:", 0));
	for (size_t i = 0; i < snapshot->group_count; i++) {
		const struct km_group_stats *group = &snapshot->groups[i];
		size_t depth = !group->depth ? 1 : least(group->depth, MEMCG_DEPTH_MAX);
		struct top_figures charged = unknown;
		struct top_row *row = top_row(sample, above[depth - 1], TOP_GROUP, group->name,
					      laying->merged ? 0 : group->number);

		charged.live = group->current;
		top_add(&row->figures, &charged);
		laying->placed[i] = (struct placed){ group->number, number_of(sample, row) };
		for (; depth <= MEMCG_DEPTH_MAX; depth++)
			above[depth] = number_of(sample, row);
	}
	qsort(laying->placed, snapshot->group_count, sizeof(*laying->placed), by_group);
}

/* Find the parent row of a cache: the row of its private group, else of the process. */
static size_t place_of(const struct laying *laying, const struct info_cache *cache)
{
	const struct placed key = { .group = cache->group }, *at = NULL;

	if (cache->group && laying->placed)
		at = bsearch(&key, laying->placed, laying->snapshot->group_count, sizeof(key), by_group);
	return at ? at->row : laying->top;
}

static void add_cache(struct laying *laying, const struct info_cache *cache, size_t place)
{
	struct top_sample *sample = laying->sample;
	struct top_figures in_shared = unknown;

	if (!laying->shared || !info_in_shared_pages(cache)) {
		struct top_row *row = top_row(sample, place_of(laying, cache), TOP_CACHE, cache->stats.name,
					      laying->merged ? 0 : cache->group);

		add_part(laying, row, cache_figures(laying, cache, place));
		return;
	}
	in_shared.live = times(cache->stats.active_objects, cache->stats.size);
	top_add(&top_row(sample, laying->shared, TOP_CACHE, cache->stats.name, 0)->figures, &in_shared);
}

static void add_caches(struct laying *laying)
{
	const struct snapshot *snapshot = laying->snapshot;
	unsigned long pages = times(snapshot->stats.slob_pages, KMEM_PAGE_BYTES);
	unsigned long shared = laying->by_page ? laying->resident->shared : pages;

	if (shared && shared != UNKNOWN) {
		struct top_row *row = system_row(laying, "shared by slob's caches");

		laying->shared = number_of(laying->sample, row);
		add_part(laying, row, divide(shared, snapshot->stats.slob_bytes, 0));
	}
	for (size_t i = 0; i < snapshot->count; i++)
		add_cache(laying, &snapshot->caches[i], i);
}

/* Add the rows of memory outside caches. */
static void add_rest(struct laying *laying)
{
	const struct info_resident *resident = laying->resident;
	unsigned long large = laying->by_page ? resident->large : laying->snapshot->stats.large_bytes;
	struct top_figures free = divide(resident->free, 0, 0), records = divide(resident->records, 0, 0);

	free.purgeable = resident->free == UNKNOWN ? UNKNOWN : resident->free - resident->free_locked;
	records.free = 0;
	add_part(laying, system_row(laying, "large blocks"), divide(large, large, 0));
	if (resident->kept)
		add_part(laying, system_row(laying, "cached large blocks"),
			 divide(resident->kept, 0, resident->kept));
	add_part(laying, system_row(laying, "free pages"), free);
	add_part(laying, system_row(laying, "metadata"), records);
}

/* ------------------------------------------------------------------ a process */

static unsigned long known(unsigned long bytes)
{
	return bytes == UNKNOWN ? 0 : bytes;
}

static void add_equation(struct top_equation *sum, const struct laying *laying, struct info_rollup rollup)
{
	const struct info_resident *resident = laying->resident;
	const struct top_figures *figures = &laying->sum;
	unsigned long told = known(figures->live) + known(figures->ready) + known(figures->free) +
			     known(resident->records);
	unsigned long ours = known(figures->resident) > told ? figures->resident : told;
	const bool all_told = resident->used != UNKNOWN && resident->free != UNKNOWN && resident->records != UNKNOWN;
	/* RSS was read at another moment: a process may have released memory since. */
	unsigned long rest = rollup.rss > ours ? rollup.rss - ours : 0;
	unsigned long files = rollup.rss > rollup.anonymous ? rollup.rss - rollup.anonymous : 0;

	sum->live += known(figures->live);
	sum->ready += known(figures->ready);
	sum->holes += known(figures->free);
	sum->records += known(resident->records);
	sum->rss += ours + rest;
	sum->other += all_told ? rest : 0;
	sum->files += all_told ? least(files, rest) : 0;
	sum->unknown += ours - told + (all_told ? 0 : rest);
}

static bool has_owners(const struct snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->extent_count; i++)
		if (snapshot->extents[i].free && !snapshot->extents[i].owner)
			return false;
	return true;
}

/* Add the rows of one process. merged: all processes share one row. */
static void add_process(struct top_sample *sample, const struct snapshot *snapshot, const struct info_memory *memory,
			bool merged)
{
	struct laying laying = { .sample = sample, .snapshot = snapshot, .resident = &memory->resident,
				 .merged = merged, .by_page = has_owners(snapshot), .sum = unknown };
	char title[TOP_NAME];

	snprintf(title, sizeof(title), "%u %s", snapshot->pid, memory->name);
	laying.top = number_of(sample, top_row(sample, 0, TOP_PROCESS, merged ? "all processes" : title, 0));
	add_groups(&laying);
	add_caches(&laying);
	add_rest(&laying);
	top_add(&sample->rows[laying.top - 1].figures, &laying.sum);
	add_equation(&sample->sum, &laying, memory->rollup);
	sample->processes++;
	sample->caches += snapshot->count;
	sample->groups += snapshot->group_count;
	free(laying.placed);
}

void top_clear(struct top_sample *sample)
{
	free(sample->rows);
	free(sample->places);
	free(sample->order);
	*sample = (struct top_sample){ 0 };
}

bool top_take(const struct top_targets *targets, const struct top_view *view, struct top_sample *sample)
{
	struct snapshot snapshot = { .by_page = true };
	struct info_memory memory = { .told = false };
	struct timespec now;
	pid_t *pids;
	size_t count;

	top_clear(sample);
	if (!top_pids(targets, &pids, &count))
		return false;
	clock_gettime(CLOCK_MONOTONIC, &now);
	sample->seconds = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
	for (size_t i = 0; i < count; i++) {
		enum info_result result = targets->pids ? info_of_process_and_memory(pids[i], &snapshot, &memory) :
					  info_apart(pids[i], &snapshot, &memory);
		bool read = result == INFO_OK || result == INFO_PARTLY;

		/* Without the kernel's sum (rollup) the row would have no measured figures. */
		if (read && memory.told && memory.rollup.rss) {
			add_process(sample, &snapshot, &memory, view->merged && count > 1);
		} else if (read) {
			result = target_has_ended(pids[i]) ? INFO_GONE : INFO_DENIED;
			read = false;
		}
		if (snapshot.groups_partly && result == INFO_OK)
			result = INFO_PARTLY;
		/* Failures of processes that the user did not name are ignored, unless partly read or invalid. */
		if (result != INFO_OK && (targets->pids || read || info_is_invalid(result))) {
			sample->result = result;
			sample->unread = pids[i];
			sample->why = info_invalid_why;
			memcpy(sample->version, snapshot.version, sizeof(sample->version));
		}
	}
	free(pids);
	snapshot_clear(&snapshot);
	info_memory_clear(&memory);
	return sample->processes != 0;
}
