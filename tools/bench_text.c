/*
 * What was measured as text, as wide as the terminal: first the verdict in a few lines, then the environment, each
 * view, and our ratios to the best peer beneath it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define DIM_WIDTH 60	/* narrower ones have no room for minimum and maximum */

static void print_environment(FILE *out, int width)
{
	const struct environment *e = &bench.environment;
	const char *peers = NULL;

	bench_wrap(out, width, bench_format("%s, %ld cores; %s; %s", e->cpu, e->cores, e->kernel, e->libc));
	bench_wrap(out, width, bench_format("commit %s; %s %s; library %s", e->commit, e->compiler, e->flags,
					    e->library_flags));
	bench_wrap(out, width, bench_format("discipline %s; time-stamp counter %.3f GHz; a dependent multiplication "
					    "takes %.3f of its cycles before, %.3f after%s", e->discipline, e->tsc_ghz,
					    e->clock_before, e->clock_after,
					    e->noisy ? ": THE MACHINE WAS NOISY, trust the order only" : ""));
	bench_wrap(out, width, bench_format("medians over %u interleaved rounds, each subject in a fresh process%s",
					    e->rounds, bench.options.quick ? "; QUICK: a tenth of the work" : ""));
	for (size_t t = 0; t < bench.table_count; t++)
		if (bench_incomplete(&bench.tables[t]))
			bench_wrap(out, width, bench_format("%s: %s", bench.tables[t].bench,
							    bench_extent(&bench.tables[t])));
	for (size_t i = 0; i < bench.without_count; i++)
		bench_wrap(out, width, bench_format("without %s", bench.without[i]));
	for (const struct variant *peer = NULL; (peer = bench_next_peer(peer));)
		peers = bench_format("%s%s %s", peers ? bench_format("%s; ", peers) : "peers: ", peer->subject,
				     peer->version);
	bench_wrap(out, width, peers ? peers : "");
}

static const char *figure(const struct view *view, double value)
{
	return isnan(value) ? "-" : bench_format("%.*f", view->decimals, value / view->scale);
}

/* Medians on one line; minimum and maximum beneath, dimmed where that can be seen. */
static void add_line(struct grid *grid, const struct view *view, const struct view_line *line, bool ranges, bool dim)
{
	struct grid_line *added = bench_grid_line(grid, line->label, false);

	for (size_t c = 0; c < view->column_count; c++)
		added->cells[c] = line->cells[c] ? figure(view, bench_cell(view, line->cells[c], c)) : NULL;
	if (!ranges || line->any->kind == SUBJECT_PUBLISHED || line->any->count < 2 || view->figures)
		return;
	added = bench_grid_line(grid, "", dim);
	for (size_t c = 0; c < view->column_count; c++) {
		const struct row *row = line->cells[c];

		if (row)
			added->cells[c] = bench_format("%.*f-%.*f", view->decimals, row->min / view->scale,
						       view->decimals, row->max / view->scale);
	}
}

static void add_ratio(struct grid *grid, const struct view *view, const struct view_line *line, bool batch)
{
	const struct row *best[VIEW_COLUMNS];
	struct grid_line *added;
	bool any = false;

	for (size_t c = 0; c < view->column_count; c++) {
		best[c] = line->cells[c] ? bench_best_peer(view, line, c, batch) : NULL;
		any |= best[c] != NULL;
	}
	if (!any)
		return;
	added = bench_grid_line(grid, line->label, false);
	for (size_t c = 0; c < view->column_count; c++)
		if (best[c] && best[c]->median != 0)
			added->cells[c] = bench_format("%.2f", line->cells[c]->median / best[c]->median);
}

/* Who the best peer of a linkage is, column by column. */
static void add_best(struct grid *grid, const struct view *view, const char *linkage, bool batch)
{
	bool any = false;

	for (size_t l = 0; l < view->line_count && !any; l++) {
		const struct view_line *line = &view->lines[l];
		struct grid_line *added;

		if (line->any->kind != SUBJECT_OURS || strcmp(line->any->linkage, linkage))
			continue;
		for (size_t c = 0; c < view->column_count; c++)
			any |= bench_best_peer(view, line, c, batch) != NULL;
		if (!any)
			continue;
		added = bench_grid_line(grid, bench_format("best peer for %s%s", linkage, batch ? ", batches" : ""),
					false);
		for (size_t c = 0; c < view->column_count; c++) {
			const struct row *best = bench_best_peer(view, line, c, batch);

			added->cells[c] = best ? bench_format("%.11s", best->subject) : NULL;
		}
	}
}

static void print_ratios(FILE *out, const struct view *view, int width)
{
	static const char *const linkages[] = { "shared", "static", "inline" };
	struct grid grid = { .column_count = view->column_count };

	memcpy(grid.columns, view->columns, sizeof(grid.columns));
	for (unsigned int batch = 0; batch < 2; batch++)
		for (size_t k = 0; k < 3; k++) {
			add_best(&grid, view, linkages[k], batch);
			for (size_t l = 0; l < view->line_count; l++) {
				const struct view_line *line = &view->lines[l];

				if (line->any->kind != SUBJECT_OURS || strcmp(line->any->linkage, linkages[k]) ||
				    (batch && strcmp(line->any->work, "bulk")))
					continue;
				add_ratio(&grid, view, line, batch);
			}
		}
	if (!grid.line_count)
		return;
	fprintf(out, "\nours / best peer: %s is better\n", view->higher_is_better ? "more" : "less");
	bench_grid_print(out, &grid, width);
}

/* Says whether there was a published row. */
static bool print_view(FILE *out, const struct view *view, int width)
{
	struct grid grid = { .column_count = view->column_count };
	bool published = false;

	fputc('\n', out);
	bench_wrap(out, width, bench_format("%s: %s (%s)", view->table->bench, view->title, view->unit_text));
	memcpy(grid.columns, view->columns, sizeof(grid.columns));
	for (size_t l = 0; l < view->line_count; l++) {
		add_line(&grid, view, &view->lines[l], width >= DIM_WIDTH, bench_terminal(out));
		published |= view->lines[l].any->kind == SUBJECT_PUBLISHED;
	}
	bench_grid_print(out, &grid, width);
	if (view->left_out)
		fprintf(out, "(%zu rows more than fit: --csv and --json have them)\n", view->left_out);
	if (!view->figures)
		print_ratios(out, view, width);
	return published;
}

void bench_print_text(FILE *out)
{
	static struct view view;
	const int width = bench_width(out);
	bool published = false;

	for (size_t t = 0; t < bench.table_count; t++)
		bench_print_verdict(out, &bench.tables[t], width);
	print_environment(out, width);
	for (size_t t = 0; t < bench.table_count; t++)
		for (unsigned int i = 0; bench_view(&bench.tables[t], i, &view); i++)
			if (view.line_count)
				published |= print_view(out, &view, width);
	for (size_t t = 0; t < bench.table_count; t++)
		bench_print_memcg(out, &bench.tables[t], width);
	if (published)
		bench_wrap(out, width, "A published row is another machine's: beside ours, not against.");
}
