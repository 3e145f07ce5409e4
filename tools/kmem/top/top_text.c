/*
 * top_text.c: formats a sample as lines. Invariant: a line never exceeds its number of columns. Names are cut first,
 * then the rightmost figures are left out.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#include "command.h"
#include "top/top.h"

#define SHORT_NAME	16	/* "  malloc-24576" and two blanks: 24 at 80 columns, with all figures */
#define LEAST_NAME	10
#define MOST_NAME	60
#define COLUMN		8
#define BYTES_COLUMN	16

const char *const top_sort_names[TOP_SORTS] = {
	[TOP_BY_RESIDENT] = "resident", [TOP_BY_LIVE] = "allocated",
	[TOP_BY_READY] = "cached", [TOP_BY_FREE] = "free",
	[TOP_BY_PURGEABLE] = "purgeable", [TOP_BY_PINNED] = "pinned", [TOP_BY_RATE] = "rate", [TOP_BY_NAME] = "name",
};

/* ------------------------------------------------------------------ figures */

static const char units[] = "BKMGTPE";

/* Format bytes with three digits, one of them after the point if there is room. */
struct top_size top_size(unsigned long bytes)
{
	struct top_size size = { "-" };
	double amount = (double)bytes;
	unsigned unit = 0;

	if (bytes == INFO_UNKNOWN)
		return size;
	for (; amount >= 999.5 && unit < sizeof(units) - 2; unit++)
		amount /= 1024;
	if (!unit)
		snprintf(size.text, sizeof(size.text), "%.0f", amount);
	else
		snprintf(size.text, sizeof(size.text), amount < 99.95 ? "%.1f%c" : "%.0f%c", amount, units[unit]);
	return size;
}

struct top_size top_change(double bytes)
{
	struct top_size change = { "0" };

	if (bytes >= 1 || bytes <= -1)
		snprintf(change.text, sizeof(change.text), "%c%.24s", bytes < 0 ? '-' : '+',
			 top_size((unsigned long)(bytes < 0 ? -bytes : bytes)).text);
	return change;
}

static struct top_size exactly(unsigned long bytes)
{
	struct top_size size = { "-" };

	if (bytes != INFO_UNKNOWN)
		snprintf(size.text, sizeof(size.text), "%lu", bytes);
	return size;
}

/* ------------------------------------------------------------------ columns */

/* Measure the first character. An invalid character counts as 1 byte, 1 column. Returns: bytes; sets *columns. */
static size_t character(const char *text, int *columns)
{
	wchar_t wide;
	mbstate_t state = { 0 };
	size_t bytes = mbrtowc(&wide, text, strlen(text), &state);

	*columns = 1;
	if (!bytes || bytes > strlen(text))
		return 1;
	*columns = wcwidth(wide) < 0 ? 1 : wcwidth(wide);
	return bytes;
}

char *top_pad(char *to, const char *end, const char *name, int columns)
{
	int left = columns, width;

	while (*name) {
		size_t bytes = character(name, &width);

		if (width > left || to + bytes >= end)
			break;
		memcpy(to, name, bytes);
		to += bytes;
		name += bytes;
		left -= width;
	}
	while (left-- > 0 && to + 1 < end)
		*to++ = ' ';
	*to = '\0';
	return to;
}

static struct top_text cut(const char *text, int columns)
{
	struct top_text line = { "" };

	top_pad(line.text, line.text + sizeof(line.text), text, columns && columns < 500 ? columns : 500);
	/* Strip trailing blanks. */
	for (size_t length = strlen(line.text); length && line.text[length - 1] == ' ';)
		line.text[--length] = '\0';
	return line;
}

/* Returns: the number of figures beside a full name; at least one if a cut name fits beside one figure. */
static int figures_in(int columns, int count)
{
	int room = (columns - SHORT_NAME) / COLUMN;

	if (room < 1)
		return columns >= LEAST_NAME + COLUMN;
	return room < count ? room : count;
}

/* Format a name and the figures that fit to its right. columns 0: all figures, in bytes. */
static struct top_text columns_of(const char *name, const struct top_size *cells, size_t count, int columns)
{
	int width = columns ? COLUMN : BYTES_COLUMN, figures = columns ? figures_in(columns, (int)count) : (int)count;
	int names = columns ? columns - figures * COLUMN : 40;
	struct top_text line;
	char *to = line.text, *end = to + sizeof(line.text);

	to = top_pad(to, end, name, names > MOST_NAME ? MOST_NAME : names);
	for (int i = 0; i < figures; i++)
		to += snprintf(to, (size_t)(end - to), "%*s", width, cells[i].text);
	return line;
}

/* ------------------------------------------------------------------ lines */

struct top_text top_title(const struct top_sample *sample, int columns)
{
	char text[512], processes[64];
	time_t now = time(NULL);
	struct tm *clock = localtime(&now);

	snprintf(processes, sizeof(processes), "%zu processes", sample->processes);
	snprintf(text, sizeof(text), "kmem top %02d:%02d:%02d  %.90s, %zu cache%s, %zu group%s", clock->tm_hour,
		 clock->tm_min, clock->tm_sec,
		 sample->processes == 1 && sample->count ? sample->rows[0].name : processes, sample->caches,
		 sample->caches == 1 ? "" : "s", sample->groups, sample->groups == 1 ? "" : "s");
	return cut(text, columns);
}

struct term {
	const char *name;
	unsigned long bytes;
};

/* Returns: the difference of two amounts, each rounded to tenths or wholes. Such parts add up to the sum. */
static double figure(double from, double to, double each, int columns)
{
	return (double)((long)(to / each + 0.5) - (long)(from / each + 0.5)) * (columns ? 0.1 : 1);
}

/* Format "sum = term + term ..." and round the terms to add up to the printed sum. from: bytes of a larger sum before
 * this sum, from where the rounding continues. */
static struct top_text equation(unsigned long from, struct term sum, const struct term *terms, size_t count,
				int columns)
{
	char text[512], *to = text, *end = text + sizeof(text);
	unsigned unit = 0;
	double each = columns ? 0.1 : 1, before = (double)from, all = (double)(from + sum.bytes);

	for (double amount = all; columns && amount >= 999.5 && unit < sizeof(units) - 2; unit++) {
		amount /= 1024;
		each *= 1024;
	}
	to += snprintf(to, (size_t)(end - to), columns ? "%s %.1f %c =" : "%s %.0f %c =", sum.name,
		       figure(before, all, each, columns), units[unit]);
	for (size_t i = 0; i < count; i++) {
		double upto = before + (double)terms[i].bytes;

		to += snprintf(to, (size_t)(end - to), columns ? "%s %s %.1f" : "%s %s %.0f", i ? " +" : "",
			       terms[i].name, figure(before, upto, each, columns));
		before = upto;
	}
	return cut(text, columns);
}

struct top_text top_equation_text(const struct top_sample *sample, int columns)
{
	const struct top_equation *sum = &sample->sum;
	const struct term terms[] = {
		{ "alloc", sum->live }, { "cached", sum->ready }, { "holes", sum->holes }, { "records", sum->records },
		{ sum->unknown ? "not known" : "other", sum->other + sum->unknown },
	};

	return equation(0, (struct term){ "RSS", sum->rss }, terms, sizeof(terms) / sizeof(*terms), columns);
}

struct top_text top_other_text(const struct top_sample *sample, int columns)
{
	const struct top_equation *sum = &sample->sum;
	const struct term terms[] = { { "files", sum->files }, { "anonymous", sum->other - sum->files } };

	if (sum->unknown || !sum->other)
		return (struct top_text){ "" };
	return equation(sum->rss - sum->other, (struct term){ "other (not libkmem's)", sum->other }, terms, 2, columns);
}

struct top_text top_heads(const struct top_view *view, int columns)
{
	static const char *const heads[] = { "RES", "ALLOC", "CACHED", "FREE", "PURGE", "PINNED", "RATE/s" };
	struct top_size cells[TOP_BY_NAME];

	/* Mark the column of the sort order. */
	for (size_t i = 0; i < TOP_BY_NAME; i++)
		snprintf(cells[i].text, sizeof(cells[i].text), "%s%s", heads[i],
			 i != view->sort ? "" : view->reverse ? "^" : "*");
	return columns_of(view->sort == TOP_BY_NAME ? "NAME*" : "NAME", cells, TOP_BY_NAME, columns);
}

struct top_text top_row_text(const struct top_sample *sample, const struct top_row *row, int columns)
{
	const struct top_figures *figures = &row->figures;
	const unsigned long bytes[] = { figures->resident, figures->live, figures->ready, figures->free,
					figures->purgeable, figures->pinned };
	const bool has_rate = sample->has_rates && !isnan(row->rate);
	struct top_size cells[TOP_BY_NAME] = { 0 };
	char name[TOP_NAME + 64];

	snprintf(name, sizeof(name), "%*s%s", row->depth > 8 ? 16 : (int)row->depth * 2, "", row->name);
	for (size_t i = 0; i < TOP_BY_RATE && row->kind != TOP_GROUPS; i++)
		cells[i] = columns ? top_size(bytes[i]) : exactly(bytes[i]);
	if (row->kind != TOP_GROUPS)
		cells[TOP_BY_RATE] = has_rate ? top_change(row->rate) : (struct top_size){ "-" };
	if (!columns && has_rate)
		snprintf(cells[TOP_BY_RATE].text, sizeof(cells[TOP_BY_RATE].text), "%.0f", row->rate);
	return columns_of(name, cells, TOP_BY_NAME, columns);
}
