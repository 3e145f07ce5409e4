/*
 * The tables and plots as one self-contained HTML page: no scripts, nothing fetched from anywhere.
 * Plots are inline SVG (bench_plot.c, bench_runs.c), and files of their own beside the page. Minimum
 * and maximum stand in each cell beneath the median.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define PAGE_COLUMNS 120

static const char style[] =
	"body{font:14px sans-serif;margin:2em;color:#222}table{border-collapse:collapse}"
	"td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #ddd}"
	"td:first-child,th:first-child{text-align:left;white-space:pre;font-family:monospace}"
	"small{color:#888;display:block}tr.ours{background:#eef6ee}tr.published{color:#666}"
	"svg{margin:1em 0;display:block}svg text{font:11px sans-serif}pre{white-space:pre-wrap}";

static void put_text(FILE *out, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '&':
			fputs("&amp;", out);
			break;
		default:
			fputc(*text, out);
		}
}

static const char *class_of(const struct row *row)
{
	static const char *const classes[] = { "ours", "peer", "nothing", "published", "ours" };

	return classes[row->kind];
}

static void put_environment(FILE *out)
{
	const struct environment *e = &bench.environment;

	fputs("<table><tr><th>CPU</th><td>", out);
	put_text(out, e->cpu);
	fprintf(out, ", %ld cores</td></tr>\n<tr><th>System</th><td>", e->cores);
	put_text(out, e->kernel);
	fputs("; ", out);
	put_text(out, e->libc);
	fputs("</td></tr>\n<tr><th>Build</th><td>", out);
	put_text(out, e->commit);
	fputs("; ", out);
	put_text(out, e->compiler);
	fputc(' ', out);
	put_text(out, e->flags);
	fputs("; library ", out);
	put_text(out, e->library_flags);
	fprintf(out, "</td></tr>\n<tr><th>Discipline</th><td>%s</td></tr>\n", e->discipline);
	fprintf(out, "<tr><th>Clock</th><td>%.3f GHz; a dependent multiplication takes %.3f cycles before, "
		     "%.3f after%s</td></tr>\n",
		e->tsc_ghz, e->clock_before, e->clock_after,
		e->noisy ? ": <b>the machine was noisy</b>" : "");
	fprintf(out, "<tr><th>Rounds</th><td>%u, %s%s</td></tr>\n", e->rounds, e->date,
		bench.options.quick ? "; <b>quick: a tenth of the work</b>" : "");
	for (size_t t = 0; t < bench.table_count; t++)
		if (bench_incomplete(&bench.tables[t])) {
			fprintf(out, "<tr><th>Incomplete</th><td><b>%s: ", bench.tables[t].bench);
			put_text(out, bench_extent(&bench.tables[t]));
			fputs("</b></td></tr>\n", out);
		}
	for (size_t i = 0; i < bench.without_count; i++) {
		fputs("<tr><th>Without</th><td>", out);
		put_text(out, bench.without[i]);
		fputs("</td></tr>\n", out);
	}
	for (const struct variant *peer = NULL; (peer = bench_next_peer(peer));) {
		fprintf(out, "<tr><th>%s</th><td>", peer->subject);
		put_text(out, peer->version);
		fputs("</td></tr>\n", out);
	}
	fputs("</table>\n", out);
}

static void put_line(FILE *out, const struct view *view, const struct view_line *line)
{
	fprintf(out, "<tr class=\"%s\"><td>", class_of(line->any));
	put_text(out, line->label);
	fputs("</td>", out);
	for (size_t c = 0; c < view->column_count; c++) {
		const struct row *row = line->cells[c];
		int decimals = view->decimals;

		if (!row) {
			fputs("<td></td>", out);
			continue;
		}
		if (isnan(bench_cell(view, row, c))) {
			fputs("<td>&ndash;</td>", out);
			continue;
		}
		fprintf(out, "<td>%.*f", decimals, bench_cell(view, row, c) / view->scale);
		if (!view->figures)
			fprintf(out, "<small>%.*f&ndash;%.*f</small>", decimals,
				row->min / view->scale, decimals, row->max / view->scale);
		fputs("</td>", out);
	}
	fputs("</tr>\n", out);
}

/* One plot, to be looked at without the page. */
static void write_svg(const struct view *view, const char *from, const char *end)
{
	static unsigned int number;
	size_t stem = strlen(bench.options.html);
	const char *start = strchr(from, '>') + 1, *file;
	FILE *out;

	if (stem > 5 && !strcmp(bench.options.html + stem - 5, ".html"))
		stem -= 5;
	file = bench_format("%.*s-%s-%u.svg", (int)stem, bench.options.html, view->table->bench,
			    ++number);
	out = fopen(file, "w");
	if (!out)
		bench_fatal("%s: %s", file, strerror(errno));
	fprintf(out, "%.*s\n<title>", (int)(start - from), from);
	put_text(out, bench_format("%s: %s (%s)", view->table->bench, view->title, view->unit_text));
	fprintf(out, "</title><style>text{font:11px sans-serif}</style>"
		     "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>%.*s\n",
		(int)(end - start), start);
	if (fclose(out))
		bench_fatal("%s: %s", file, strerror(errno));
}

/* The plots of a view, into the page, and each as a file of its own beside it. */
static void put_plots(FILE *out, const struct view *view)
{
	static const char tail[] = "</svg>";
	char *text = NULL, *from, *end;
	size_t bytes;
	FILE *plots = kmem_need(open_memstream(&text, &bytes));

	bench_plot(plots, view);
	if (fclose(plots))
		kmem_need(NULL);
	fputs(text, out);
	for (from = text; (from = strstr(from, "<svg ")) && (end = strstr(from, tail)); from = end) {
		end += sizeof(tail) - 1;
		write_svg(view, from, end);
	}
	free(text);
}

static void put_view(FILE *out, const struct view *view)
{
	fputs("<h2>", out);
	put_text(out, view->table->bench);
	fputs(": ", out);
	put_text(out, view->title);
	fputs("</h2>\n", out);
	put_plots(out, view);
	fputs("<table><tr><th>", out);
	put_text(out, view->unit_text);
	fputs("</th>", out);
	for (size_t c = 0; c < view->column_count; c++)
		fprintf(out, "<th>%s</th>", view->columns[c]);
	fputs("</tr>\n", out);
	for (size_t l = 0; l < view->line_count; l++)
		put_line(out, view, &view->lines[l]);
	fputs("</table>\n", out);
	if (view->left_out)
		fprintf(out, "<p>%zu rows more than fit: --csv and --json have them.</p>\n", view->left_out);
}

void bench_print_html(FILE *out)
{
	static struct view view;

	fprintf(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
		     "<title>kmem bench</title><style>%s</style></head><body>\n"
		     "<h1>kmem bench</h1>\n<pre>",
		style);
	for (size_t t = 0; t < bench.table_count; t++)
		bench_print_verdict(out, &bench.tables[t], PAGE_COLUMNS);
	fputs("</pre>\n", out);
	put_environment(out);
	for (size_t t = 0; t < bench.table_count; t++)
		for (unsigned int i = 0; bench_view(&bench.tables[t], i, &view); i++)
			if (view.line_count)
				put_view(out, &view);
	fputs("<pre>", out);
	for (size_t t = 0; t < bench.table_count; t++)
		bench_print_memcg(out, &bench.tables[t], PAGE_COLUMNS);
	fputs("</pre>\n", out);
	fputs("<p>Medians, with minimum and maximum over the rounds beneath. Rows marked published "
	      "are another machine's: beside ours, not against.</p>\n"
	      "</body></html>\n",
	      out);
}
