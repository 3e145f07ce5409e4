/*
 * The tables as text: the environment once, each view, and our ratios to the best peer beneath it.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define LABEL 54
#define COLUMN 11

static void print_environment(FILE *out)
{
	const struct environment *e = &bench.environment;
	bool any = false;

	fprintf(out, "%s, %ld cores; %s; %s\n", e->cpu, e->cores, e->kernel, e->libc);
	fprintf(out, "commit %s; %s %s; library %s\n", e->commit, e->compiler, e->flags,
		e->library_flags);
	fprintf(out, "discipline %s; time-stamp counter %.3f GHz; a dependent multiplication takes %.3f "
		     "of its cycles before, %.3f after%s\n",
		e->discipline, e->tsc_ghz, e->clock_before, e->clock_after,
		e->noisy ? ": THE MACHINE WAS NOISY, trust the order only" : "");
	fprintf(out, "medians over %u interleaved rounds, each subject in a fresh process%s\n",
		e->rounds, bench.options.quick ? "; QUICK: a tenth of the work" : "");
	for (size_t t = 0; t < bench.table_count; t++)
		if (bench_incomplete(&bench.tables[t]))
			fprintf(out, "%s: %s\n", bench.tables[t].bench, bench_extent(&bench.tables[t]));
	for (size_t i = 0; i < bench.without_count; i++)
		fprintf(out, "without %s\n", bench.without[i]);
	for (const struct variant *peer = NULL; (peer = bench_next_peer(peer)); any = true)
		fprintf(out, "%s%s %s", any ? "; " : "peers: ", peer->subject, peer->version);
	fputc('\n', out);
}

static void print_figure(FILE *out, const struct view *view, double value)
{
	if (isnan(value))
		fprintf(out, " %*s", COLUMN, "-");
	else
		fprintf(out, " %*.*f", COLUMN, view->decimals, value / view->scale);
}

static void print_columns(FILE *out, const struct view *view)
{
	fprintf(out, "%-*s", LABEL, "");
	for (size_t c = 0; c < view->column_count; c++)
		fprintf(out, " %*s", COLUMN, view->columns[c]);
	fputc('\n', out);
}

/* Medians on one line; minimum and maximum beneath, dimmed where that can be seen. */
static void print_line(FILE *out, const struct view *view, const struct view_line *line, bool dim)
{
	char text[64];

	fprintf(out, "%-*s", LABEL, line->label);
	for (size_t c = 0; c < view->column_count; c++) {
		const struct row *row = line->cells[c];

		print_figure(out, view, row ? bench_cell(view, row, c) : NAN);
	}
	fputc('\n', out);
	if (line->any->kind == SUBJECT_PUBLISHED || line->any->count < 2 || view->figures)
		return;
	fprintf(out, "%s%-*s", dim ? "\033[2m" : "", LABEL, "");
	for (size_t c = 0; c < view->column_count; c++) {
		const struct row *row = line->cells[c];

		text[0] = '\0';
		if (row)
			snprintf(text, sizeof(text), "%.*f-%.*f", view->decimals,
				 row->min / view->scale, view->decimals, row->max / view->scale);
		fprintf(out, " %*s", COLUMN, text);
	}
	fprintf(out, "%s\n", dim ? "\033[0m" : "");
}

/* Says whether there was a peer to compare with. */
static bool print_ratio(FILE *out, const struct view *view, const struct view_line *line,
			bool batch)
{
	const struct row *best[VIEW_COLUMNS];
	bool any = false;

	for (size_t c = 0; c < view->column_count; c++) {
		best[c] = line->cells[c] ? bench_best_peer(view, line, c, batch) : NULL;
		any |= best[c] != NULL;
	}
	if (!any)
		return false;
	fprintf(out, "%-*s", LABEL, line->label);
	for (size_t c = 0; c < view->column_count; c++)
		if (best[c] && best[c]->median != 0)
			fprintf(out, " %*.2f", COLUMN, line->cells[c]->median / best[c]->median);
		else
			fprintf(out, " %*s", COLUMN, "-");
	fputc('\n', out);
	return true;
}

/* Who the best peer of a linkage is, column by column. */
static void print_best(FILE *out, const struct view *view, const char *linkage, bool batch)
{
	bool any = false;

	for (size_t l = 0; l < view->line_count && !any; l++) {
		const struct view_line *line = &view->lines[l];

		if (line->any->kind != SUBJECT_OURS || strcmp(line->any->linkage, linkage))
			continue;
		for (size_t c = 0; c < view->column_count; c++)
			any |= bench_best_peer(view, line, c, batch) != NULL;
		if (!any)
			continue;
		fprintf(out, "%-*s", LABEL,
			bench_format("best peer for %s%s", linkage, batch ? ", batches" : ""));
		for (size_t c = 0; c < view->column_count; c++) {
			const struct row *best = bench_best_peer(view, line, c, batch);

			fprintf(out, " %*.*s", COLUMN, COLUMN, best ? best->subject : "-");
		}
		fputc('\n', out);
	}
}

static void print_ratios(FILE *out, const struct view *view)
{
	static const char *const linkages[] = { "shared", "static", "inline" };
	bool title = false;

	if (view->figures)
		return;
	for (unsigned int batch = 0; batch < 2; batch++)
		for (size_t k = 0; k < 3; k++) {
			print_best(out, view, linkages[k], batch);
			for (size_t l = 0; l < view->line_count; l++) {
				const struct view_line *line = &view->lines[l];

				if (line->any->kind != SUBJECT_OURS ||
				    strcmp(line->any->linkage, linkages[k]) ||
				    (batch && strcmp(line->any->work, "bulk")))
					continue;
				title |= print_ratio(out, view, line, batch);
			}
		}
	if (title)
		fprintf(out, "(ours / best peer: %s is better)\n",
			view->higher_is_better ? "more" : "less");
}

/* Says whether there was a published row. */
static bool print_view(FILE *out, const struct view *view)
{
	bool dim = isatty(fileno(out)), published = false;

	fprintf(out, "\n%s: %s (%s)\n", view->table->bench, view->title, view->unit_text);
	print_columns(out, view);
	for (size_t l = 0; l < view->line_count; l++) {
		print_line(out, view, &view->lines[l], dim);
		published |= view->lines[l].any->kind == SUBJECT_PUBLISHED;
	}
	if (view->left_out)
		fprintf(out, "(%zu rows more than fit: --csv and --json have them)\n", view->left_out);
	fputc('\n', out);
	print_ratios(out, view);
	return published;
}

void bench_print_text(FILE *out)
{
	static struct view view;
	bool published = false;

	print_environment(out);
	for (size_t t = 0; t < bench.table_count; t++)
		for (unsigned int i = 0; bench_view(&bench.tables[t], i, &view); i++)
			if (view.line_count)
				published |= print_view(out, &view);
	for (size_t t = 0; t < bench.table_count; t++)
		bench_print_memcg(out, &bench.tables[t]);
	if (published)
		fputs("\nA published row is another machine's: beside ours, not against.\n", out);
}
