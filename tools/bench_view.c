/*
 * Views: a table's rows as people read them, one line for each subject, interface and linkage, one
 * column for each size, batch or work. Terminal and HTML print the same views. Also the comparison
 * with the best peer, which is always of the same linkage.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum view_columns { BY_SIZE, BY_BATCH, BY_MATCH, BY_WORK };

static const struct view_kind {
	const char *bench, *title, *unit, *measure, *unit_text;	/* measure NULL: none */
	double scale;
	int decimals;
	bool higher_is_better, lines_plot;
	enum view_columns columns;
	const char *work;	/* only this one; NULL: all */
} kinds[] = {
	{ "fastpath", "One object allocated and freed, not touched, by bytes", "cycles/object",
	  NULL, "time-stamp cycles per alloc+free", 1, 1, false, true, BY_SIZE, NULL },
	{ "bulk", "Batches of objects of 256 bytes, not touched, by batch", "cycles/object", NULL,
	  "time-stamp cycles per object, alloc+free", 1, 1, false, true, BY_BATCH, NULL },
	{ "worst",
	  "Mixed arrays: batches of 64 of 4096 objects of 256 bytes, every Nth of the first's slab",
	  "cycles/object", NULL,
	  "time-stamp cycles per object, free+alloc, with the filing (row nothing)", 1, 1, false,
	  true, BY_MATCH, NULL },
	{ "peers", "Cost of one object: pair by bytes, loop by batch (256 bytes), not touched",
	  "cycles/object", NULL, "time-stamp cycles per alloc+free", 1, 1, false, false, BY_WORK,
	  NULL },
	{ "peers", "Throughput", "ops/s", NULL, "million operations a second", 1e6, 2, true, false,
	  BY_WORK, NULL },
	{ "peers", "Live set: one replacement", "ns/object", NULL, "ns per replacement", 1, 1,
	  false, false, BY_WORK, "live-set" },
	{ "peers", "Resident memory (Rss)", "bytes", "rss", "MiB", 1048576, 1, false, false,
	  BY_WORK, NULL },
	{ "peers", "Proportional memory (Pss)", "bytes", "pss", "MiB", 1048576, 1, false, false,
	  BY_WORK, NULL },
};

static const char *work_column(const struct row *row)
{
	const char *work = row->kind == SUBJECT_NOTHING ? row->of : row->work;

	if (!strcmp(work, "pair"))
		return bench_format("pair %lu", row->size);
	if (!strcmp(work, "loop"))
		return bench_format("loop %lu", row->batch);
	if (!strcmp(work, "producer-consumer"))
		return "prod-cons";
	if (!strcmp(work, "threads-4k"))
		return bench_format("4k, %lu thr", row->threads);
	if (!strcmp(work, "larson"))
		return bench_format("larson %lu", row->threads);
	if (!strcmp(work, "idle-threads"))
		return "idle";
	return row->at ? bench_format("live %s", row->at) : "live-set";
}

static const char *column_of(const struct view_kind *kind, const struct row *row)
{
	switch (kind->columns) {
	case BY_SIZE:
		return bench_format("%lu", row->size);
	case BY_BATCH:
		return row->size == 256 ? bench_format("%lu", row->batch) :
					  bench_format("%luB/%lu", row->size, row->batch);
	case BY_MATCH:
		return bench_format("N=%lu", row->match);
	default:
		return work_column(row);
	}
}

static const char *label_of(const struct view_kind *kind, const struct row *row)
{
	const char *work = row->kind == SUBJECT_NOTHING ? row->of : row->work;
	const char *name = row->subject, *api = row->api;

	if (row->kind == SUBJECT_PUBLISHED)
		name = bench_format("%s, published%s", row->of,
				    strcmp(row->memcg, "on") ? "" : ", memcg");
	if (row->kind == SUBJECT_NOTHING)
		api = "-";
	if (strcmp(kind->bench, "bulk") && strcmp(kind->bench, "worst"))
		work = "";
	return bench_format("%-22s %-12s %-7s %-5s", name, api, row->linkage, work);
}

static size_t find_text(const char *const *texts, size_t count, const char *text)
{
	size_t i = 0;

	while (i < count && strcmp(texts[i], text))
		i++;
	return i;
}

static void place(struct view *view, const struct view_kind *kind, const struct row *row)
{
	const char *column = column_of(kind, row), *label = label_of(kind, row);
	size_t c = find_text(view->columns, view->column_count, column), l = 0;

	if (c == VIEW_COLUMNS)
		return;
	if (c == view->column_count)
		view->columns[view->column_count++] = column;
	while (l < view->line_count && strcmp(view->lines[l].label, label))
		l++;
	if (l == VIEW_LINES)
		return;
	if (l == view->line_count) {
		memset(&view->lines[l], 0, sizeof(view->lines[l]));
		view->lines[l].label = label;
		view->lines[l].any = row;
		view->line_count++;
	}
	view->lines[l].cells[c] = row;
}

bool bench_view(const struct table *table, unsigned int index, struct view *view)
{
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		const struct view_kind *kind = &kinds[k];

		if (strcmp(kind->bench, table->bench) || index--)
			continue;
		memset(view, 0, sizeof(*view));
		view->table = table;
		view->title = kind->title;
		view->unit_text = kind->unit_text;
		view->scale = kind->scale;
		view->decimals = kind->decimals;
		view->higher_is_better = kind->higher_is_better;
		view->lines_plot = kind->lines_plot;
		for (size_t i = 0; i < table->row_count; i++) {
			const struct row *row = &table->rows[i];

			if (!bench_same(row->unit, kind->unit) ||
			    !bench_same(row->measure, kind->measure) ||
			    (kind->work && strcmp(row->work, kind->work)))
				continue;
			place(view, kind, row);
		}
		return true;
	}
	return false;
}

const struct row *bench_best_peer(const struct view *view, const struct view_line *line,
				  size_t column, bool batch)
{
	const char *linkage = line->any->linkage;
	const struct row *best = NULL;

	/* A fast path in a header has no peer of its own kind: the best linked-in one stands in. */
	if (!strcmp(linkage, "inline"))
		linkage = "static";
	for (size_t i = 0; i < view->line_count; i++) {
		const struct row *row = view->lines[i].cells[column];

		if (!row || row->kind != SUBJECT_PEER || strcmp(row->linkage, linkage) ||
		    batch != !strcmp(row->api, "bulk") || (batch && strcmp(row->work, "bulk")))
			continue;
		if (!best || (view->higher_is_better ? row->median > best->median :
						       row->median < best->median))
			best = row;
	}
	return best;
}
