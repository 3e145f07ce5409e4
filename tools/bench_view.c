/*
 * Views: a table's rows as people read them, one line for each subject, interface and linkage, one
 * column for each size, batch or work. Terminal and HTML print the same views. Also the comparison
 * with the best peer, which is always of the same linkage.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum view_columns { BY_SIZE, BY_BATCH, BY_MATCH, BY_WORK, BY_FUNCTION, BY_FIGURE,
		    BY_GROUPS, BY_TRANSFER, BY_FORM };

static const enum bench_figure spread[] = { FIGURE_MIN, FIGURE_MAX, FIGURE_AVG, FIGURE_SD,
					    FIGURE_MEDIAN, FIGURE_END };
static const enum bench_figure distribution[] = {
	FIGURE_MIN, FIGURE_TENTH, FIGURE_QUARTER, FIGURE_MEDIAN, FIGURE_AVG, FIGURE_THREE_QUARTERS,
	FIGURE_NINE_TENTHS, FIGURE_MAX, FIGURE_END
};
static const char *const figure_names[] = { "min", "10 %", "25 %", "median", "mean", "75 %",
					    "90 %", "max", "sd" };

static const struct view_kind {
	const char *bench, *title, *unit, *measure, *unit_text;	/* measure NULL: none */
	double scale;		/* figures are divided by it; 0: they are not */
	int decimals;
	bool higher_is_better;
	enum bench_plot plot;	/* bars, where nothing is said */
	enum view_columns columns;	/* by size, where nothing is said */
	const char *work;	/* only this one, or these: "pair loop"; NULL: all */
	const char *time;	/* the same */
	const enum bench_figure *figures;
	const char *api;	/* only this one; NULL: all */
	const char *touch;	/* the same */
} kinds[] = {
	{ .bench = "fastpath", .title = "One object allocated and freed, not touched, by bytes",
	  .unit = "cycles/object", .unit_text = "time-stamp cycles per alloc+free", .decimals = 1,
	  .plot = PLOT_CURVES },
	{ .bench = "bulk", .title = "Batches of objects of 256 bytes, not touched, by batch",
	  .unit = "cycles/object", .unit_text = "time-stamp cycles per object, alloc+free",
	  .decimals = 1, .plot = PLOT_CURVES, .columns = BY_BATCH },
	{ .bench = "bulk", .title = "Machine code: the function, and what only bulk functions call",
	  .unit = "bytes", .measure = "code", .unit_text = "bytes in libkmem.so", .plot = PLOT_NONE,
	  .columns = BY_FUNCTION },
	{ .bench = "worst",
	  .title = "Mixed arrays: batches of 64 of 4096 objects of 256 bytes, every Nth of the first's "
		"slab", .unit = "cycles/object",
	  .unit_text = "time-stamp cycles per object, free+alloc, with the filing (row nothing)",
	  .decimals = 1, .plot = PLOT_CURVES, .columns = BY_MATCH },
	{ .bench = "slab-fastpath",
	  .title = "One object by discipline, not touched, by bytes; alloc and free apart in windows "
		"of 16 and of 10000", .unit = "cycles/object", .unit_text = "time-stamp cycles",
	  .decimals = 1, .plot = PLOT_CURVES },
	{ .bench = "slab-fastpath", .title = "The same beside what was published (size not stated)",
	  .unit = "ns/object", .unit_text = "ns", .decimals = 1, .plot = PLOT_NONE },
	{ .bench = "bulk-latency",
	  .title = "One bulk allocation against a loop, each in a fresh process; published: size and "
		"count are not known", .unit = "cycles", .unit_text = "clocks for all objects together",
	  .plot = PLOT_RUNS, .columns = BY_FIGURE, .figures = distribution },
	{ .bench = "netio", .title = "Real time", .unit = "s", .unit_text = "s", .decimals = 3,
	  .columns = BY_FIGURE, .time = "real", .figures = spread },
	{ .bench = "netio", .title = "System time", .unit = "s", .unit_text = "s", .decimals = 3,
	  .columns = BY_FIGURE, .time = "sys", .figures = spread },
	{ .bench = "netio", .title = "User time", .unit = "s", .unit_text = "s", .decimals = 3,
	  .columns = BY_FIGURE, .time = "user", .figures = spread },
	{ .bench = "netio", .title = "Slabs to and from the page allocator", .unit = "slabs",
	  .unit_text = "slabs", .columns = BY_FIGURE, .figures = spread },
	{ .bench = "memcg",
	  .title = "One object of 256 bytes allocated and freed in a group's name, not touched",
	  .unit = "cycles/object", .unit_text = "time-stamp cycles per alloc+free", .decimals = 1,
	  .work = "pair" },
	{ .bench = "memcg", .title = "The same in batches, by batch", .unit = "cycles/object",
	  .unit_text = "time-stamp cycles per object, alloc+free", .decimals = 1, .plot = PLOT_CURVES,
	  .columns = BY_BATCH, .work = "loop", .api = "kmem_cache" },
	{ .bench = "memcg", .title = "Bulk calls, by batch", .unit = "cycles/object",
	  .unit_text = "time-stamp cycles per object, alloc+free", .decimals = 1, .plot = PLOT_CURVES,
	  .columns = BY_BATCH, .work = "bulk" },
	{ .bench = "memcg", .title = "kmalloc, then kfree, one thread, not touched, by bytes/batch",
	  .unit = "ns/object", .unit_text = "ns per alloc+free", .decimals = 1, .columns = BY_BATCH,
	  .work = "loop", .api = "kmalloc" },
	{ .bench = "memcg", .title = "4 KiB kmalloc+kfree by threads in one group, first word written",
	  .unit = "ops/s", .unit_text = "kilo-ops a second, all threads", .scale = 1e3,
	  .higher_is_better = true, .columns = BY_WORK, .work = "threads-4k" },
	{ .bench = "memcg",
	  .title = "The published threads simulated: the library's charging code on CPUs that are not "
		"there; by what it takes to get a line from another", .unit = "ops/s",
	  .unit_text = "kilo-ops a second", .scale = 1e3, .higher_is_better = true, .plot = PLOT_NONE,
	  .columns = BY_TRANSFER, .work = "simulation" },
	{ .bench = "memcg", .title = "Lines that another CPU had, simulated", .unit = "transfers/op",
	  .unit_text = "per alloc+free", .decimals = 4, .plot = PLOT_NONE, .columns = BY_TRANSFER,
	  .work = "simulation" },
	{ .bench = "memcg", .title = "Atomic operations on lines that CPUs share", .unit = "atomics/op",
	  .unit_text = "per alloc+free", .decimals = 4, .plot = PLOT_NONE, .columns = BY_WORK,
	  .api = "kmalloc" },
	{ .bench = "memcg", .title = "Groups used in turn on one CPU, an object of 256 bytes each time",
	  .unit = "cycles/object", .unit_text = "time-stamp cycles per change of group, alloc and free",
	  .decimals = 1, .plot = PLOT_NONE, .columns = BY_GROUPS, .work = "groups" },
	{ .bench = "memcg", .title = "A group is made, allocates and frees 4 objects, and goes",
	  .unit = "cycles", .unit_text = "time-stamp cycles for all of it", .plot = PLOT_NONE,
	  .columns = BY_WORK, .work = "churn" },
	{ .bench = "peers",
	  .title = "Cost of one object: pair by bytes, loop by batch (256 bytes), not touched",
	  .unit = "cycles/object", .unit_text = "time-stamp cycles per alloc+free", .decimals = 1,
	  .columns = BY_WORK, .work = "pair loop" },
	{ .bench = "peers",
	  .title = "Objects of 256 bytes that are zero, or aligned to 64 bytes; x2: two threads at once",
	  .unit = "cycles/object", .unit_text = "time-stamp cycles per alloc+free", .decimals = 1,
	  .columns = BY_WORK, .work = "zero aligned" },
	{ .bench = "peers", .title = "Blocks, not touched; x2: two threads at once", .unit = "cycles/object",
	  .unit_text = "time-stamp cycles per alloc+free", .columns = BY_WORK, .work = "blocks", .touch = "none" },
	{ .bench = "peers", .title = "Blocks, the first word of each page written", .unit = "cycles/object",
	  .unit_text = "time-stamp cycles per alloc+free", .columns = BY_WORK, .work = "blocks", .touch = "pages" },
	{ .bench = "peers", .title = "realloc from 24 bytes in steps of a half, a word written in each page",
	  .unit = "cycles/object", .unit_text = "thousand time-stamp cycles for the whole chain and its free",
	  .scale = 1e3, .decimals = 2, .columns = BY_WORK, .work = "realloc" },
	{ .bench = "peers", .title = "120 MB of blocks held, 10 KB to 1 MB, written whole: resident over live",
	  .unit = "rss/live", .unit_text = "ratio", .decimals = 3, .columns = BY_WORK, .work = "held" },
	{ .bench = "peers", .title = "Throughput", .unit = "ops/s",
	  .unit_text = "million operations a second", .scale = 1e6, .decimals = 2,
	  .higher_is_better = true, .columns = BY_WORK },
	{ .bench = "peers", .title = "Live set: one replacement", .unit = "ns/object",
	  .unit_text = "ns per replacement", .decimals = 1, .columns = BY_WORK, .work = "live-set" },
	{ .bench = "peers", .title = "Resident memory (Rss)", .unit = "bytes", .measure = "rss",
	  .unit_text = "MiB", .scale = 1048576, .decimals = 1, .columns = BY_WORK },
	{ .bench = "peers", .title = "Proportional memory (Pss)", .unit = "bytes", .measure = "pss",
	  .unit_text = "MiB", .scale = 1048576, .decimals = 1, .columns = BY_WORK },
	{ .bench = "forwarding",
	  .title = "A word that is loaded, added to and stored again and again, as hits do, by its address: by one "
		"register, (r), one that is computed anew each time, by two, (r,i), or load and store each by its own",
	  .unit = "cycles/step", .unit_text = "time-stamp cycles", .decimals = 2, .plot = PLOT_NONE,
	  .columns = BY_FORM },
};

static double quantile(const struct row *row, double part)
{
	double *sorted, value;

	if (row->settled)
		return NAN;
	sorted = kmem_need(malloc(row->count * sizeof(*sorted)));
	memcpy(sorted, row->values, row->count * sizeof(*sorted));
	qsort(sorted, row->count, sizeof(*sorted), bench_compare);
	value = sorted[(size_t)(part * (double)(row->count - 1) + 0.5)];
	free(sorted);
	return value;
}

double bench_cell(const struct view *view, const struct row *row, size_t column)
{
	/* Published for latency: median and mean. For netio: all but the median. */
	const bool latency = !strcmp(row->work, "latency");

	switch (view->figures ? view->figures[column] : FIGURE_MEDIAN) {
	case FIGURE_MIN:
		return row->settled && latency ? NAN : row->min;
	case FIGURE_MAX:
		return row->settled && latency ? NAN : row->max;
	case FIGURE_AVG:
		return row->avg;
	case FIGURE_SD:
		return row->sd;
	case FIGURE_TENTH:
		return quantile(row, 0.10);
	case FIGURE_QUARTER:
		return quantile(row, 0.25);
	case FIGURE_THREE_QUARTERS:
		return quantile(row, 0.75);
	case FIGURE_NINE_TENTHS:
		return quantile(row, 0.90);
	default:
		return row->settled && !latency ? NAN : row->median;
	}
}

/* "4000 B", "40 KB" or "4 MB". */
static const char *bytes_text(unsigned long bytes)
{
	return bytes < 10000 || bytes % 1000 ? bench_format("%lu B", bytes) :
	       bytes < 1000000 || bytes % 1000000 ? bench_format("%lu KB", bytes / 1000) :
						    bench_format("%lu MB", bytes / 1000000);
}

/* Works whose rows differ in their threads as well. */
static const char *together_column(const struct row *row, const char *work)
{
	const char *threads = row->threads > 1 ? bench_format(" x%lu", row->threads) : "";

	if (!strcmp(work, "blocks") || !strcmp(work, "realloc"))
		return bench_format("%s%s", bytes_text(row->size), threads);
	if (!strcmp(work, "zero") || !strcmp(work, "aligned"))
		return row->size == 256 ? bench_format("%s%s", work, threads) :
					  bench_format("%s %lu%s", work, row->size, threads);
	return !strcmp(work, "held") ? bench_format("held%s", threads) : NULL;
}

static const char *work_column(const struct row *row)
{
	const char *work = row->kind == SUBJECT_NOTHING ? row->of : row->work;
	const char *together = together_column(row, work);

	if (together)
		return together;
	if (!strcmp(work, "pair"))
		return bench_format("pair %lu", row->size);
	if (!strcmp(work, "loop"))
		return row->size == 256 ? bench_format("loop %lu", row->batch) :
					  bench_format("%luB/%lu", row->size, row->batch);
	if (!strcmp(work, "producer-consumer"))
		return "prod-cons";
	if (!strcmp(work, "threads-4k"))
		return bench_format("4k, %lu thr", row->threads);
	if (!strcmp(work, "larson"))
		return bench_format("larson %lu", row->threads);
	if (!strcmp(work, "idle-threads"))
		return "idle";
	if (!strcmp(work, "adrift"))
		return work;
	if (!strcmp(work, "simulation"))
		return bench_format("model %lu", row->threads);
	if (!strcmp(work, "churn"))
		return work;
	return row->at ? bench_format("live %s", row->at) : "live-set";
}

static const char *column_of(const struct view_kind *kind, const struct row *row)
{
	switch (kind->columns) {
	case BY_SIZE:
		return row->size ? bench_format("%lu", row->size) : "?";
	case BY_BATCH:
		return row->size == 256 || !row->size ? bench_format("%lu", row->batch) :
					  bench_format("%luB/%lu", row->size, row->batch);
	case BY_MATCH:
		return bench_format("N=%lu", row->match);
	case BY_GROUPS:
		return bench_format("%lu group%s", row->groups, row->groups == 1 ? "" : "s");
	case BY_TRANSFER:
		return row->transfer ? bench_format("%lu ns", row->transfer) : "published";
	case BY_FORM:
		return row->at;
	case BY_FUNCTION:	/* kmem_cache_alloc_bulk is too long for a column */
		return strncmp(row->at, "kmem_cache_", 11) ? row->at : row->at + 11;
	default:
		return work_column(row);
	}
}

/* Who: the engine, and the discipline or rule where it is not the one by default. */
static const char *name_of(const struct row *row)
{
	const char *percpu = row->variant ? row->variant->percpu : NULL;
	const char *rule = row->min_partial;

	if (row->label)
		return bench_format("%s, published", row->label);
	if (row->kind == SUBJECT_PUBLISHED)
		return bench_format("%s%s%s, published%s", row->of, rule ? " " : "",
				    rule ? rule : "", bench_same(row->memcg, "on") ? ", memcg" : "");
	return bench_format("%s%s%s%s%s", row->subject, percpu ? " " : "", percpu ? percpu : "",
			    rule ? " " : "", rule ? rule : "");
}

/* Who, who pays, and whether another's object lies among the cache's. Published and simulated share a line. */
static const char *label_of_memcg(const struct view_kind *kind, const struct row *row, const char *api)
{
	const char *accounting = row->accounting ? row->accounting :
				 row->kind == SUBJECT_NOTHING || row->memcg ? "" : "off";

	if (kind->columns == BY_TRANSFER)
		return bench_format("%lu CPUs, %s", row->threads, accounting);
	return bench_format("%-22s %-8s %-10s %-6s %s", name_of(row), accounting, api, row->linkage,
			    bench_same(row->payers, "several") ? "others" : "");
}

static const char *label_of(const struct view_kind *kind, const struct row *row)
{
	const char *work = row->kind == SUBJECT_NOTHING ? row->of : row->work;
	const char *api = row->kind == SUBJECT_NOTHING ? "-" : row->api, *name = name_of(row);

	if (!strcmp(kind->bench, "bulk-latency"))
		return row->state ? bench_format("%-22s %-10s %-7s %-5s %3lu", name, api,
						 row->linkage, row->state, row->batch) :
				    bench_format("%-22s %-10s", name, api);
	if (!strcmp(kind->bench, "memcg"))
		return label_of_memcg(kind, row, api);
	if (!strcmp(kind->bench, "netio"))
		return bench_format("%-22s %-12s %s", name, api,
				    row->kind == SUBJECT_PUBLISHED ? "fio in the kernel" :
				    !strcmp(api, "malloc") ? "fio" : "workload");
	if (row->label)
		return name;
	if (kind->columns == BY_FUNCTION)
		return name;
	if (kind->columns == BY_FORM)
		return row->measure;
	if (!strcmp(kind->bench, "slab-fastpath"))
		return bench_format("%-13s %-10s %-7s %s", name, api, row->linkage, row->batch < 2 ?
				    work : bench_format("%s of %lu", work, row->batch));
	if (strcmp(kind->bench, "bulk") && strcmp(kind->bench, "worst"))
		work = "";
	return bench_format("%-22s %-12s %-7s %-5s", name, api, row->linkage, work);
}

/* The column of this name, a new one if need be; VIEW_COLUMNS: there is no room. */
static size_t find_column(struct view *view, const char *name)
{
	size_t c = 0;

	while (c < view->column_count && strcmp(view->columns[c], name))
		c++;
	if (c == view->column_count && c < VIEW_COLUMNS)
		view->columns[view->column_count++] = name;
	return c;
}

static void place(struct view *view, const struct view_kind *kind, const struct row *row)
{
	const char *label = label_of(kind, row);
	size_t c = kind->figures ? 0 : find_column(view, column_of(kind, row)), l = 0;

	/* What is true of all rows the title says. */
	if (row->planned && row->count < view->table->complete)
		label = bench_format("%s (%zu of %u)", label, row->count, row->planned);
	while (l < view->line_count && strcmp(view->lines[l].label, label))
		l++;
	if (c == VIEW_COLUMNS || l == VIEW_LINES) {
		view->left_out++;
		return;
	}
	if (l == view->line_count) {
		memset(&view->lines[l], 0, sizeof(view->lines[l]));
		view->lines[l].label = label;
		view->lines[l].any = row;
		view->line_count++;
	}
	view->lines[l].cells[c] = row;
	for (c = 1; kind->figures && c < view->column_count; c++)
		view->lines[l].cells[c] = row;
}

static bool belongs(const struct view_kind *kind, const struct row *row)
{
	const char *work = row->kind == SUBJECT_NOTHING ? row->of : row->work;

	if (!bench_same(row->unit, kind->unit) ||
	    (kind->columns != BY_FORM && !bench_same(row->measure, kind->measure)))
		return false;
	/* What was published stands beside the model of it. */
	if (kind->columns == BY_TRANSFER && row->kind == SUBJECT_PUBLISHED)
		return !strcmp(row->work, "threads-4k");
	return (!kind->work || bench_has_word(kind->work, kind->time ? row->work : work)) &&
	       (!kind->touch || !strcmp(row->touch, kind->touch)) &&
	       (!kind->time || bench_same(row->time, kind->time)) &&
	       (!kind->api || !strcmp(row->api, kind->api) ||
		(row->kind == SUBJECT_NOTHING && !strcmp(kind->api, "kmem_cache")));
}

bool bench_view(const struct table *table, unsigned int index, struct view *view)
{
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		const struct view_kind *kind = &kinds[k];

		if (strcmp(kind->bench, table->bench) || index--)
			continue;
		memset(view, 0, sizeof(*view));
		view->table = table;
		view->title = kind->figures || bench_incomplete(table) ?
				      bench_format("%s (%s)", kind->title, bench_extent(table)) :
				      kind->title;
		view->unit_text = kind->unit_text;
		view->scale = kind->scale > 0 ? kind->scale : 1;
		view->decimals = kind->decimals;
		view->higher_is_better = kind->higher_is_better;
		view->plot = kind->plot;
		view->figures = kind->figures;
		for (size_t f = 0; kind->figures && kind->figures[f] != FIGURE_END; f++)
			view->columns[view->column_count++] = figure_names[kind->figures[f]];
		for (size_t i = 0; i < table->row_count; i++) {
			const struct row *row = &table->rows[i];

			if (belongs(kind, row))
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
