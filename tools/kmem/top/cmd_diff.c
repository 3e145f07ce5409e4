/*
 * cmd_diff.c: the command `kmem diff`, which compares the caches and groups of two snapshots. A snapshot is a record
 * of `kmem info --json` or `kmem run --stats=FILE`, or a running process. Records have no resident memory, so the
 * bytes are bytes of objects and slabs.
 *
 * Exit status: 0; 1 one of the snapshots could not be read; 2 wrong usage.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "info/info_print.h"
#include "command.h"
#include "top/top.h"

static const char usage_text[] =
	"usage: kmem diff [--all] [--bytes] BEFORE AFTER\n"
	"Print the growth of caches and groups between two records, largest first.\n"
	"  BEFORE, AFTER  a file of kmem info --json or kmem run --stats=FILE (for a\n"
	"                 name of digits: ./FILE), or the PID of a running program\n"
	"  --all          print rows without a change too\n"
	"  --bytes        figures in bytes\n"
	"Example:\n"
	"  kmem info --json 4711 >before; sleep 60; kmem diff before 4711\n";

/* Figures of one cache or group in both snapshots, or a sum. */
struct line {
	char name[TOP_NAME];
	int rank;			/* RANK_CACHE, RANK_REST, RANK_SUM or RANK_GROUP */
	unsigned long live[2], ready[2], slabs[2], objects[2];
	bool in[2];
};

struct lines {
	struct line *line;
	size_t count, room;
	size_t *places;			/* hash table from name to line number (from 1); 0: empty */
	size_t place_count;		/* power of two, at least twice the line count */
};

enum { RANK_CACHE, RANK_REST, RANK_SUM, RANK_GROUP };

/* Find the hash table entry of a line. Returns: the entry; 0 in the entry means no such line. */
static size_t *place_of(const struct lines *lines, const char *name, int rank)
{
	size_t at = (size_t)rank;

	for (const char *c = name; *c; c++)
		at = (at ^ (unsigned char)*c) * 0x100000001b3u;
	for (at ^= at >> 32;; at++) {
		size_t *place = &lines->places[at & (lines->place_count - 1)];
		if (!*place)
			return place;
		const struct line *line = &lines->line[*place - 1];

		if (line->rank == rank && !strcmp(line->name, name))
			return place;
	}
}

static void make_places(struct lines *lines)
{
	lines->place_count = lines->place_count ? lines->place_count * 2 : 256;
	free(lines->places);
	lines->places = kmem_need(calloc(lines->place_count, sizeof(*lines->places)));
	for (size_t i = 0; i < lines->count; i++)
		*place_of(lines, lines->line[i].name, lines->line[i].rank) = i + 1;
}

static struct line *find(struct lines *lines, const char *name, int rank)
{
	char printable[TOP_NAME];

	info_printable(printable, name, sizeof(printable));
	if (lines->count * 2 >= lines->place_count)
		make_places(lines);
	size_t *place = place_of(lines, printable, rank);
	if (*place)
		return &lines->line[*place - 1];
	lines->line = kmem_grow(lines->line, lines->count, &lines->room, sizeof(*lines->line));
	struct line *line = &lines->line[lines->count++];
	*place = lines->count;
	*line = (struct line){ .rank = rank };
	memcpy(line->name, printable, sizeof(line->name));
	return line;
}

static unsigned long times(unsigned long n, unsigned long bytes)
{
	unsigned long product;

	return n == INFO_UNKNOWN || bytes == INFO_UNKNOWN || bytes == (unsigned)INFO_UNKNOWN ||
	       __builtin_mul_overflow(n, bytes, &product) ? INFO_UNKNOWN : product;
}

/* Add to a sum; one unknown part makes the sum unknown. */
static void count(unsigned long *sum, unsigned long n)
{
	*sum = *sum == INFO_UNKNOWN || n == INFO_UNKNOWN ? INFO_UNKNOWN : *sum + n;
}

static void add(struct line *line, int which, unsigned long objects, unsigned long live, unsigned long ready,
		unsigned long slabs)
{
	line->in[which] = true;
	count(&line->objects[which], objects);
	count(&line->live[which], live);
	count(&line->ready[which], ready);
	count(&line->slabs[which], slabs);
}

static void add_caches(struct lines *lines, int which, const struct snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->count; i++) {
		const struct info_cache *cache = &snapshot->caches[i];
		const struct kmem_cache_stats *stats = &cache->stats;
		char name[TOP_NAME];

		snprintf(name, sizeof(name), cache->group ? "%s (group %u)" : "%s", stats->name, cache->group);
		add(find(lines, name, RANK_CACHE), which, stats->active_objects,
		    times(stats->active_objects, stats->size), times(stats->shelf_objects, stats->size),
		    info_in_shared_pages(cache) ? 0 :
		    times(stats->total_slabs, times(stats->pages_per_slab, KMEM_PAGE_BYTES)));
	}
}

/* Add the tree of groups, each group under the path of its ancestors' names. */
static void add_groups(struct lines *lines, int which, const struct snapshot *snapshot)
{
	size_t ends[MEMCG_DEPTH_MAX + 1] = { 0 };
	char path[TOP_NAME];

	for (size_t i = 0; i < snapshot->group_count; i++) {
		const struct km_group_stats *group = &snapshot->groups[i];
		size_t depth = !group->depth ? 1 : group->depth <= MEMCG_DEPTH_MAX ? group->depth : MEMCG_DEPTH_MAX;
		size_t at = ends[depth - 1];

		snprintf(path + at, sizeof(path) - at, at ? "/%s" : "%s", group->name);
		for (; depth <= MEMCG_DEPTH_MAX; depth++)
			ends[depth] = strlen(path);
		add(find(lines, path, RANK_GROUP), which, 0, group->current, 0, 0);
	}
}

static void add_rest(struct lines *lines, int which, const struct snapshot *snapshot)
{
	const struct kmem_stats *stats = &snapshot->stats;

	add(find(lines, "large blocks", RANK_REST), which, stats->large_blocks, stats->large_bytes, 0,
	    stats->large_bytes);
	add(find(lines, "free pages, not returned", RANK_REST), which, 0, 0, 0,
	    times(stats->pages_free_dirty, KMEM_PAGE_BYTES));
	if (stats->slob_pages && stats->slob_pages != INFO_UNKNOWN)
		add(find(lines, "shared by slob's caches", RANK_REST), which, 0, 0, 0,
		    times(stats->slob_pages, KMEM_PAGE_BYTES));
}

/* Requires: all other lines are present. */
static void add_sum(struct lines *lines)
{
	struct line sum = { .name = "all", .rank = RANK_SUM, .in = { true, true } };

	for (size_t i = 0; i < lines->count; i++)
		for (int which = 0; which < 2 && lines->line[i].rank < RANK_SUM; which++)
			add(&sum, which, lines->line[i].objects[which], lines->line[i].live[which],
			    lines->line[i].ready[which], lines->line[i].slabs[which]);
	*find(lines, "all", RANK_SUM) = sum;
}

/* ------------------------------------------------------------------ the table */

static bool is_known(const unsigned long *both)
{
	return both[0] != INFO_UNKNOWN && both[1] != INFO_UNKNOWN;
}

/* Returns: after minus before, or 0 if one figure is unknown. */
static double change(const unsigned long *both)
{
	return is_known(both) ? (double)both[1] - (double)both[0] : 0;
}

static double size_of_change(const struct line *line)
{
	double live = change(line->live), slabs = change(line->slabs);

	live = live < 0 ? -live : live;
	slabs = slabs < 0 ? -slabs : slabs;
	return live > slabs ? live : slabs;
}

static int by_change(const void *a, const void *b)
{
	const struct line *x = a, *y = b;
	double first = size_of_change(x), second = size_of_change(y);

	if (x->rank != y->rank)
		return x->rank - y->rank;
	return first != second ? (first < second) - (first > second) : strcmp(x->name, y->name);
}

static bool has_changed(const struct line *line)
{
	const unsigned long *const figures[] = { line->live, line->ready, line->slabs, line->objects };
	bool changed = line->in[0] != line->in[1];

	/* A figure known in only one snapshot counts as a change. */
	for (size_t i = 0; i < KMEM_COUNT(figures); i++)
		changed |= figures[i][0] != figures[i][1];
	return changed;
}

static struct top_size change_text(const unsigned long *both, bool exact)
{
	double n = change(both);
	struct top_size text = is_known(both) ? top_change(n) : top_size(INFO_UNKNOWN);

	if (exact && is_known(both))
		snprintf(text.text, sizeof(text.text), n > 0 ? "+%.0f" : "%.0f", n);
	return text;
}

static struct top_size objects_text(const unsigned long *both)
{
	struct top_size text = top_size(INFO_UNKNOWN);

	if (is_known(both))
		snprintf(text.text, sizeof(text.text), "%.0f", change(both));
	return text;
}

static struct top_size size_text(unsigned long bytes, bool exact)
{
	struct top_size text = top_size(bytes);

	if (exact && bytes != INFO_UNKNOWN)
		snprintf(text.text, sizeof(text.text), "%lu", bytes);
	return text;
}

static void print_line(const struct line *line, bool exact)
{
	int width = exact ? 16 : 9;
	char name[TOP_NAME * 2];

	top_pad(name, name + sizeof(name), line->name, exact ? 36 : 24);
	printf("%s%*s%*s%*s", name, width, size_text(line->live[0], exact).text, width,
	       size_text(line->live[1], exact).text, width, change_text(line->live, exact).text);
	if (line->rank == RANK_GROUP)
		printf("\n");
	else
		printf("%*s%*s%*s\n", width, change_text(line->ready, exact).text, width,
		       change_text(line->slabs, exact).text, exact ? width : 11, objects_text(line->objects).text);
}

static void print_lines(struct lines *lines, bool all, bool exact)
{
	int width = exact ? 16 : 9;
	bool groups = false;

	qsort(lines->line, lines->count, sizeof(*lines->line), by_change);
	printf("%-*s%*s%*s%*s%*s%*s%*s\n", exact ? 36 : 24, "", width, "BEFORE", width, "AFTER", width, "ALLOC", width,
	       "CACHED", width, "SLABS", exact ? width : 11, "OBJECTS");
	for (size_t i = 0; i < lines->count; i++) {
		const struct line *line = &lines->line[i];

		if (!all && line->rank != RANK_SUM && !has_changed(line))
			continue;
		if (line->rank == RANK_GROUP && !groups)
			printf("groups, charged:\n");
		groups |= line->rank == RANK_GROUP;
		print_line(line, exact);
	}
}

/* ------------------------------------------------------------------ the command */

/* Read a snapshot and add its lines. Returns: 0, or the exit status after one line with the reason. */
static int take(struct lines *lines, int which, char *name)
{
	struct snapshot snapshot = { 0 };
	int status = 0;

	name = info_process("diff", name, true);
	if (info_is_number(name)) {
		enum info_result result = info_of_process(atoi(name), &snapshot);

		result = result == INFO_OK && snapshot.groups_partly ? INFO_PARTLY : result;
		status = info_complain("diff", atoi(name), result, snapshot.version);
	} else if (!info_of_file(name, &snapshot)) {
		status = 1;
	}
	if (!status) {
		add_caches(lines, which, &snapshot);
		add_rest(lines, which, &snapshot);
		add_groups(lines, which, &snapshot);
	}
	snapshot_clear(&snapshot);
	return status;
}

int cmd_diff(int argc, char **argv)
{
	static const struct option known_options[] = {
		{ "all", no_argument, NULL, 'a' }, { "bytes", no_argument, NULL, 'b' },
		{ "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	struct lines lines = { 0 };
	bool all = false, exact = false;
	int code;

	while ((code = kmem_next_option("diff", usage_text, argc, argv, ":", known_options)) != -1)
		*(code == 'a' ? &all : &exact) = true;
	if (argc - optind != 2)
		kmem_usage("diff", "two records or processes are needed: BEFORE and AFTER");
	setlocale(LC_CTYPE, "C.UTF-8");
	int status = take(&lines, 0, argv[optind]) ?: take(&lines, 1, argv[optind + 1]);
	if (!status) {
		add_sum(&lines);
		print_lines(&lines, all, exact);
		if (fflush(stdout) || ferror(stdout))
			status = kmem_failed(1, "diff", "writing: %s", strerror(errno));
	}
	free(lines.line);
	free(lines.places);
	return status;
}
