/*
 * The plot of a distribution, as it was published: the runs from left to right, the bulk
 * allocation as bars, the loop as a line, cut at 5000 clocks. One figure for each batch and
 * state, with a panel for each engine.
 */
#include <string.h>

#include "bench.h"

#define WIDTH 900
#define LEFT 60
#define RIGHT 20
#define TITLE 24		/* the figure's own */
#define PANEL 150		/* a panel, with its title */
#define DEPTH 110		/* its axis */
#define CUT 5000.0

static double height_of(double clocks)
{
	return (clocks < CUT ? clocks : CUT) / CUT * DEPTH;
}

static double place(size_t run, size_t count)
{
	return LEFT + (double)(WIDTH - LEFT - RIGHT) * (double)run / (double)count;
}

static void put_axis(FILE *out, int bottom)
{
	for (int clocks = 0; clocks <= (int)CUT; clocks += 1000)
		fprintf(out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>"
			     "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d</text>\n",
			LEFT, bottom - height_of(clocks), WIDTH - RIGHT, bottom - height_of(clocks),
			LEFT - 6, bottom - height_of(clocks) + 4, clocks);
}

static void put_panel(FILE *out, const struct row *bulk, const struct row *loop, int top)
{
	const char *percpu = bulk->variant->percpu;
	int bottom = top + PANEL - 8;
	size_t cut = 0;

	for (size_t i = 0; i < bulk->count; i++)
		cut += (bulk->values[i] > CUT) + (i < loop->count && loop->values[i] > CUT);
	fprintf(out, "<text x=\"%d\" y=\"%d\">%s%s%s, %s: bulk median %.0f, mean %.0f; "
		     "loop median %.0f, mean %.0f; %zu above the cut</text>\n",
		LEFT, top + 16, bulk->subject, percpu ? " " : "", percpu ? percpu : "",
		bulk->linkage, bulk->median, bulk->avg, loop->median, loop->avg, cut);
	put_axis(out, bottom);
	for (size_t i = 0; i < bulk->count; i++) {
		double x = place(i, bulk->count), width = place(i + 1, bulk->count) - x;

		fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
			     "fill=\"hsl(200,60%%,60%%)\"/>\n",
			x, bottom - height_of(bulk->values[i]), width * 0.8,
			height_of(bulk->values[i]));
	}
	fputs("<polyline fill=\"none\" stroke=\"hsl(15,80%,45%)\" stroke-width=\"1.5\" points=\"",
	      out);
	for (size_t i = 0; i < loop->count; i++)
		fprintf(out, "%.1f,%.1f ", (place(i, loop->count) + place(i + 1, loop->count)) / 2,
			bottom - height_of(loop->values[i]));
	fputs("\"/>\n", out);
}

static bool is_bulk(const struct row *row)
{
	return row->kind == SUBJECT_OURS && !strcmp(row->api, "bulk");
}

/* The loop that a bulk row is compared with. */
static const struct row *loop_of(const struct view *view, const struct row *bulk)
{
	for (size_t l = 0; l < view->line_count; l++) {
		const struct row *row = view->lines[l].any;

		if (row->variant == bulk->variant && row->batch == bulk->batch &&
		    row->size == bulk->size && bench_same(row->state, bulk->state) && row != bulk)
			return row;
	}
	return NULL;
}

static bool same_figure(const struct row *a, const struct row *b)
{
	return is_bulk(b) && a->batch == b->batch && a->size == b->size &&
	       bench_same(a->state, b->state);
}

static void put_figure(FILE *out, const struct view *view, const struct row *first)
{
	size_t panels = 0;
	int top = TITLE, height;

	for (size_t l = 0; l < view->line_count; l++)
		panels += same_figure(first, view->lines[l].any);
	height = TITLE + (int)panels * PANEL + 8;
	fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		     "viewBox=\"0 0 %d %d\">\n<text x=\"%d\" y=\"16\">Clocks to allocate %lu "
		     "objects of %lu bytes once, cache %s: bulk as bars, loop as line, by run</text>\n",
		WIDTH, height, WIDTH, height, LEFT, first->batch, first->size, first->state);
	for (size_t l = 0; l < view->line_count; l++) {
		const struct row *bulk = view->lines[l].any, *loop;

		if (!same_figure(first, bulk) || !(loop = loop_of(view, bulk)))
			continue;
		put_panel(out, bulk, loop, top);
		top += PANEL;
	}
	fputs("</svg>\n", out);
}

/* A figure for each batch and state that a row before it does not have yet. */
void bench_plot_runs(FILE *out, const struct view *view)
{
	for (size_t l = 0; l < view->line_count; l++) {
		const struct row *row = view->lines[l].any;
		bool seen = !is_bulk(row);

		for (size_t k = 0; k < l; k++)
			seen |= same_figure(row, view->lines[k].any);
		if (!seen)
			put_figure(out, view, row);
	}
}
