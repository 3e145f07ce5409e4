/*
 * Plots of a view as inline SVG: curves where the columns are a scale (sizes, batches), one
 * figure a linkage, and bars where they are different works. The cost axis is logarithmic,
 * because the subjects differ by more than tenfold.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define WIDTH 900
#define HEIGHT 460
#define LEFT 60
#define RIGHT 260	/* names of the curves stand there */
#define TOP 30
#define BOTTOM 40
#define BAR 16

/* Ours in greens and blues, the empty functions grey, peers around the warm half of the circle. */
static const char *colour(const struct row *row, size_t index)
{
	switch (row->kind) {
	case SUBJECT_OURS:
		return bench_format("hsl(%zu,80%%,35%%)", 100 + index * 47 % 130);
	case SUBJECT_PEER:
		return bench_format("hsl(%zu,55%%,60%%)", (270 + index * 67 % 170) % 360);
	default:
		return "#999";
	}
}

static const char *short_label(const struct view_line *line)
{
	const struct row *row = line->any;
	const char *work = row->kind == SUBJECT_NOTHING ? row->of : row->work;
	const char *percpu = row->variant ? row->variant->percpu : NULL;
	bool published = row->kind == SUBJECT_PUBLISHED;

	if (row->batch > 1 && (!strcmp(work, "alloc") || !strcmp(work, "free")))
		work = bench_format("%s of %lu", work, row->batch);
	return bench_format("%s%s%s%s%s%s%s %s%s%s", published ? row->of : row->subject,
			    percpu ? " " : "", percpu ? percpu : "",
			    row->min_partial ? " " : "", row->min_partial ? row->min_partial : "",
			    published ? " published" : "",
			    bench_same(row->memcg, "on") ? " memcg" : "",
			    row->kind == SUBJECT_NOTHING ? "" : row->api,
			    !strcmp(work, "pair") ? "" : " ", !strcmp(work, "pair") ? "" : work);
}

static void range(const struct view *view, const char *linkage, double *low, double *high)
{
	*low = DBL_MAX;
	*high = 0;
	for (size_t l = 0; l < view->line_count; l++)
		for (size_t c = 0; c < view->column_count; c++) {
			const struct row *row = view->lines[l].cells[c];

			if (!row || strcmp(row->linkage, linkage) || row->median <= 0)
				continue;
			*low = fmin(*low, row->median / view->scale);
			*high = fmax(*high, row->median / view->scale);
		}
	*low = fmax(*low, 0.1);
	*high = fmax(*high, *low * 2);
}

static double place_y(double value, double low, double high)
{
	double part = log2(fmax(value, low) / low) / log2(high / low);

	return TOP + (1 - part) * (HEIGHT - TOP - BOTTOM);
}

static double place_x(const struct view *view, size_t column)
{
	size_t last = view->column_count > 1 ? view->column_count - 1 : 1;

	return LEFT + (double)column * (WIDTH - LEFT - RIGHT) / (double)last;
}

static void put_axes(FILE *out, const struct view *view, double low, double high)
{
	for (double decade = 0.1; decade <= high; decade *= 10)
		for (unsigned int step = 1; step <= 5; step += step == 1 ? 1 : 3) {
			double value = decade * step, y = place_y(value, low, high);

			if (value < low || value > high)
				continue;
			fprintf(out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" "
				     "stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
				     "text-anchor=\"end\">%g</text>\n",
				LEFT, y, WIDTH - RIGHT, y, LEFT - 6, y + 4, value);
		}
	for (size_t c = 0; c < view->column_count; c++)
		fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
			place_x(view, c), HEIGHT - BOTTOM + 18, view->columns[c]);
}

/* One curve; returns where it ends, for its name. */
static double put_curve(FILE *out, const struct view *view, const struct view_line *line,
			const char *paint, double low, double high)
{
	double x = 0, y = 0;
	size_t points = 0;

	fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" points=\"", paint,
		line->any->kind == SUBJECT_OURS ? "2.5" : "1.2");
	for (size_t c = 0; c < view->column_count; c++) {
		if (!line->cells[c])
			continue;
		x = place_x(view, c);
		y = place_y(line->cells[c]->median / view->scale, low, high);
		fprintf(out, "%.1f,%.1f ", x, y);
		points++;
	}
	fprintf(out, "\"><title>%s</title></polyline>\n", short_label(line));
	if (points == 1)
		fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x, y,
			paint);
	return y;
}

struct name {
	double y;
	const char *text, *paint;
};

static int compare_names(const void *a, const void *b)
{
	double x = ((const struct name *)a)->y, y = ((const struct name *)b)->y;

	return (x > y) - (x < y);
}

/* Names beside the ends of their curves, pushed apart so that each can be read. */
static void put_names(FILE *out, struct name *names, size_t count)
{
	double space = count ? fmin(11.0, (HEIGHT - TOP) / (double)count) : 11;
	double last = TOP - space;

	qsort(names, count, sizeof(*names), compare_names);
	for (size_t i = 0; i < count; i++) {
		double latest = HEIGHT - (double)(count - i) * space;
		double y = fmin(fmax(names[i].y, last + space), fmax(latest, last + space));

		fprintf(out, "<text x=\"%d\" y=\"%.1f\" fill=\"%s\" style=\"font-size:%.0fpx\">%s"
			     "</text>\n",
			WIDTH - RIGHT + 10, y + 4, names[i].paint, space - 1, names[i].text);
		last = y;
	}
}

static void plot_curves(FILE *out, const struct view *view, const char *linkage)
{
	struct name names[VIEW_LINES];
	size_t count = 0;
	double low, high;

	range(view, linkage, &low, &high);
	for (size_t l = 0; l < view->line_count; l++)
		count += !strcmp(view->lines[l].any->linkage, linkage);
	if (!count)
		return;
	fprintf(out, "<h3>%s</h3>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
		     "height=\"%d\" viewBox=\"0 0 %d %d\">\n<text x=\"%d\" y=\"16\">%s</text>\n",
		linkage, WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, view->unit_text);
	put_axes(out, view, low, high);
	count = 0;
	for (size_t l = 0; l < view->line_count; l++) {
		const struct view_line *line = &view->lines[l];
		const char *paint = colour(line->any, count);

		if (strcmp(line->any->linkage, linkage))
			continue;
		names[count++] = (struct name){ put_curve(out, view, line, paint, low, high),
						short_label(line), paint };
	}
	put_names(out, names, count);
	fputs("</svg>\n", out);
}

static struct {
	const struct view *view;
	size_t column;
} bars;

static double bar_value(const struct view_line *line)
{
	return bench_cell(bars.view, line->cells[bars.column], bars.column) / bars.view->scale;
}

static int compare_lines(const void *a, const void *b)
{
	double p = bar_value(*(const struct view_line *const *)a);
	double q = bar_value(*(const struct view_line *const *)b);

	return (p > q) - (p < q);
}

static void plot_bars(FILE *out, const struct view *view, size_t column)
{
	const struct view_line *lines[VIEW_LINES];
	size_t count = 0;
	double high = 0;

	bars.view = view;
	bars.column = column;
	for (size_t l = 0; l < view->line_count; l++) {
		if (!view->lines[l].cells[column] || isnan(bar_value(&view->lines[l])))
			continue;
		lines[count++] = &view->lines[l];
		high = fmax(high, bar_value(&view->lines[l]));
	}
	if (!count || high <= 0)
		return;
	qsort(lines, count, sizeof(*lines), compare_lines);
	fprintf(out, "<h3>%s</h3>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
		     "height=\"%zu\" viewBox=\"0 0 %d %zu\">\n",
		view->columns[column], WIDTH, count * BAR + 8, WIDTH, count * BAR + 8);
	for (size_t i = 0; i < count; i++) {
		const struct row *row = lines[i]->cells[column];
		double value = bar_value(lines[i]);
		double width = fmax(value, 0) / high * (WIDTH - 330);

		fprintf(out, "<text x=\"230\" y=\"%zu\" text-anchor=\"end\">%s %s</text>"
			     "<rect x=\"240\" y=\"%zu\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>"
			     "<text x=\"%.1f\" y=\"%zu\">%.*f</text>\n",
			i * BAR + 12, short_label(lines[i]), row->linkage, i * BAR + 2, width,
			BAR - 4, colour(row, (size_t)(lines[i] - view->lines)), 246 + width,
			i * BAR + 12, view->decimals, value);
	}
	fputs("</svg>\n", out);
}

void bench_plot(FILE *out, const struct view *view)
{
	static const char *const linkages[] = { "shared", "static", "inline" };

	if (view->plot == PLOT_NONE)
		return;
	if (view->plot == PLOT_RUNS) {
		bench_plot_runs(out, view);
		return;
	}
	if (view->plot == PLOT_CURVES) {
		for (size_t i = 0; i < sizeof(linkages) / sizeof(*linkages); i++)
			plot_curves(out, view, linkages[i]);
		return;
	}
	for (size_t c = 0; c < view->column_count; c++)
		if (!view->figures || view->figures[c] == FIGURE_AVG)
			plot_bars(out, view, c);
}
