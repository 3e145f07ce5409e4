/*
 * What came out, in a few lines: for each work our figure, the best peer's, and the ratio of the two, always of the
 * same linkage. A work with several sizes or batches is the geometric mean over those that both have; who lacks one of
 * them is no peer there. Wins and losses stand in it alike.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define LEAST_BYTES 4096.0	/* memory below a page, or none, is a page: a ratio needs something */

static const struct unit {
	const char *unit, *measure, *at, *works, *text;
	double scale;
	bool more;		/* is better */
} units[] = {
	{ "cycles/object", NULL, NULL, NULL, "cycles", 1, false },
	{ "ops/s", NULL, NULL, "producer-consumer larson threads-4k adrift", "M/s", 1e6, true },
	{ "ns/object", NULL, NULL, "live-set", "ns", 1, false },
	{ "bytes", "rss", "end", "idle-threads live-set adrift larson", "MiB", 1048576, false },
	{ "rss/live", NULL, NULL, "held", "ratio", 1, false },
};

/* As users meet them: the first one that a run has speaks for a work. */
static const char *const ways[][2] = {
	{ "malloc", "shared" },	    { "malloc", "static" },	{ "kmalloc", "shared" },   { "kmalloc", "static" },
	{ "kmem_cache", "shared" }, { "kmem_cache", "static" }, { "kmem_cache", "inline" },
	{ "bulk", "shared" },	    { "bulk", "static" },	{ "kfree_bulk", "static" },
	{ "kmalloc_bulk", "static" },
};
#define WAYS (sizeof(ways) / sizeof(*ways))

static const struct unit *unit_of(const struct row *row)
{
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
		if (!strcmp(units[i].unit, row->unit) && bench_same(units[i].measure, row->measure) &&
		    bench_same(units[i].at, row->at) && (!units[i].works || bench_has_word(units[i].works, row->work)))
			return &units[i];
	return NULL;
}

/* Cells of one work that are one line: they differ in size and batch at most; crowds are lines of their own. */
static bool same_line(const struct row *a, const struct row *b)
{
	return unit_of(a) == unit_of(b) && !strcmp(a->work, b->work) && bench_same(a->touch, b->touch) &&
	       a->threads == b->threads && a->match == b->match &&
	       (a->size == b->size || strcmp(a->work, "realloc"));
}

static bool same_cell(const struct row *a, const struct row *b)
{
	return same_line(a, b) && a->size == b->size && a->batch == b->batch && a->objects == b->objects;
}

static bool is_way(const struct row *row, size_t way)
{
	return !strcmp(row->api, ways[way][0]) && !strcmp(row->linkage, ways[way][1]);
}

static double figure_of(const struct row *row)
{
	double least = strcmp(row->unit, "bytes") ? 0 : LEAST_BYTES;

	return row->median > least ? row->median : least;
}

/* A header's fast path has no peer of its own kind: the best linked-in one stands in. */
static bool is_rival(const struct row *ours, const struct row *peer)
{
	const char *linkage = strcmp(ours->linkage, "inline") ? ours->linkage : "static";

	return peer->kind == SUBJECT_PEER && !strcmp(peer->linkage, linkage) &&
	       !strcmp(peer->api, !strcmp(ours->work, "bulk") ? "bulk" : "malloc");
}

static const struct row *find_cell(const struct table *table, const struct row *ours, const char *peer)
{
	for (size_t i = 0; i < table->row_count; i++) {
		const struct row *row = &table->rows[i];

		if (is_rival(ours, row) && !strcmp(row->subject, peer) && same_cell(ours, row))
			return row;
	}
	return NULL;
}

/* The mean over this line's cells, of the peer or, NULL, ours; 0: it lacks one. */
static double mean_of(const struct table *table, const struct row *first, const char *peer)
{
	double sum = 0;
	size_t count = 0;

	for (size_t i = 0; i < table->row_count; i++) {
		const struct row *row = &table->rows[i];

		if (row->variant != first->variant || strcmp(row->api, first->api) || !same_line(first, row))
			continue;
		if (peer && !(row = find_cell(table, row, peer)))
			return 0;
		sum += log(figure_of(row));
		count++;
	}
	return exp(sum / (double)count);
}

static const char *label_of(const struct row *row)
{
	const char *threads = row->threads > 1 ? bench_format(" x%lu", row->threads) : "";
	const char *size = strcmp(row->work, "realloc") ? "" : bench_format(" %lu", row->size);

	const char *written = !strcmp(row->work, "blocks") && bench_same(row->touch, "pages") ? " written" : "";

	return bench_format("%s%s%s%s, %s %s", row->work, size, written, threads, row->api, row->linkage);
}

static const char *figure(double value, const struct unit *unit)
{
	value /= unit->scale;
	return bench_format("%.*f", value < 2 ? 3 : value < 1000 ? 1 : 0, value);
}

static void add_line(struct grid *grid, const struct table *table, const struct row *row)
{
	const struct unit *unit = unit_of(row);
	double ours = mean_of(table, row, NULL), best = 0;
	const char *who = NULL;
	struct grid_line *line;

	for (size_t i = 0; i < table->row_count; i++) {
		const struct row *peer = &table->rows[i];
		double mean;

		if (!is_rival(row, peer) || !same_cell(row, peer))
			continue;
		mean = mean_of(table, row, peer->subject);
		if (mean <= 0)
			continue;
		if (!who || (unit->more ? mean > best : mean < best)) {
			best = mean;
			who = peer->subject;
		}
	}
	if (!who)
		return;
	line = bench_grid_line(grid, label_of(row), false);
	line->cells[0] = unit->text;
	line->cells[1] = figure(ours, unit);
	line->cells[2] = figure(best, unit);
	line->cells[3] = bench_format("%.11s", who);
	line->cells[4] = bench_format("%.2f%s", ours / best, unit->more ? "*" : " ");
}

/* The first cell of a line that the verdict has: all ways in a table of one work, else each work's first way. */
static bool opens_line(const struct table *table, const struct row *row, size_t way)
{
	bool all = !strcmp(table->bench, "fastpath");

	for (size_t i = 0; i < table->row_count; i++) {
		const struct row *other = &table->rows[i];

		if (other->kind != SUBJECT_OURS || strcmp(other->subject, row->subject) || !same_line(other, row))
			continue;
		if (other < row && is_way(other, way) && other->variant == row->variant)
			return false;
		for (size_t better = 0; !all && better < way; better++)
			if (is_way(other, better) && strcmp(other->work, "pair"))
				return false;
	}
	return all || strcmp(row->work, "pair") || strcmp(ways[way][0], "kmalloc");
}

/* The engine that speaks for ours: the first one. */
static const char *engine_of(const struct table *table)
{
	for (size_t i = 0; i < table->row_count; i++)
		if (table->rows[i].kind == SUBJECT_OURS)
			return table->rows[i].subject;
	return NULL;
}

void bench_print_verdict(FILE *out, const struct table *table, int width)
{
	struct grid grid = { .columns = { "", "ours", "best peer", "who", "ratio " }, .column_count = 5 };
	const char *engine = engine_of(table);

	for (size_t i = 0; engine && i < 2 * table->row_count; i++) {
		const struct row *row = &table->rows[i % table->row_count];

		/* Pairs come first. */
		if (row->kind != SUBJECT_OURS || strcmp(row->subject, engine) || !unit_of(row) ||
		    (i < table->row_count) != !strcmp(row->work, "pair"))
			continue;
		for (size_t way = 0; way < WAYS; way++)
			if (is_way(row, way) && opens_line(table, row, way))
				add_line(&grid, table, row);
	}
	if (!grid.line_count)
		return;
	bench_wrap(out, width, bench_format("%s: ours (%s), the best peer of the same linkage, and ours / best (less "
					    "is better; *: more is)%s", table->bench, engine, bench.environment.noisy ?
					    ". THE MACHINE WAS NOISY: trust the order only" : ""));
	bench_grid_print(out, &grid, width);
	fputc('\n', out);
}
