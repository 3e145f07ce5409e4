/*
 * Text that fits: sentences are wrapped, and a grid of labels and cells that is too wide is printed in parts, each with
 * the labels and as many columns as there is room for. No line is wider than asked, unless one word is.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define PIPE_COLUMNS 100	/* where nobody knows who reads */
#define INDENT 4		/* of cells below their label */

int bench_width(FILE *out)
{
	int columns = bench_terminal(out);

	return columns ? columns : PIPE_COLUMNS;
}

void bench_wrap(FILE *out, int width, const char *text)
{
	int at = 0;

	while (*text) {
		int word = (int)strcspn(text, " ");

		if (at && at + 1 + word > width) {
			fputs("\n  ", out);
			at = 2;
		} else if (at) {
			fputc(' ', out);
			at++;
		}
		fprintf(out, "%.*s", word, text);
		at += word;
		text += word;
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

struct grid_line *bench_grid_line(struct grid *grid, const char *label, bool dim)
{
	struct grid_line *line;

	grid->lines = kmem_grow(grid->lines, grid->line_count, &grid->line_room, sizeof(*grid->lines));
	line = &grid->lines[grid->line_count++];
	memset(line, 0, sizeof(*line));
	line->label = bench_format("%s", label);
	line->dim = dim;
	return line;
}

static char at(const char *text, size_t position)
{
	return position < strlen(text) ? text[position] : ' ';
}

/* Labels are padded so that their fields stand below each other: of what is blank in all of them one blank stays. */
static void squeeze(struct grid *grid)
{
	size_t longest = 0, kept = 0;
	bool blank_before = true;

	for (size_t l = 0; l < grid->line_count; l++)
		if (strlen(grid->lines[l].label) > longest)
			longest = strlen(grid->lines[l].label);
	for (size_t l = 0; l < grid->line_count; l++)
		grid->lines[l].label = bench_format("%-*s", (int)longest, grid->lines[l].label);
	for (size_t position = 0; position < longest; position++) {
		bool blank = true;

		for (size_t l = 0; l < grid->line_count; l++)
			blank &= at(grid->lines[l].label, position) == ' ';
		if (blank && blank_before)
			continue;
		blank_before = blank;
		for (size_t l = 0; l < grid->line_count; l++)
			grid->lines[l].label[kept] = grid->lines[l].label[position];
		kept++;
	}
	grid->label_width = (int)(kept && blank_before ? kept - 1 : kept);
	for (size_t l = 0; l < grid->line_count; l++)
		grid->lines[l].label[grid->label_width] = '\0';
}

static int column_width(const struct grid *grid, size_t column)
{
	size_t width = grid->columns[column] ? strlen(grid->columns[column]) : 0;

	for (size_t l = 0; l < grid->line_count; l++) {
		const char *cell = grid->lines[l].cells[column];

		if (cell && strlen(cell) > width)
			width = strlen(cell);
	}
	return (int)width;
}

/* A label that is longer than its room has lines of its own. */
static void put_label(FILE *out, const char *label, int room, int width)
{
	int length = (int)strlen(label);

	while (length && label[length - 1] == ' ')
		length--;
	if (length <= room) {
		fprintf(out, "%-*.*s", room, length, label);
		return;
	}
	bench_wrap(out, width, bench_format("%.*s", length, label));
	fprintf(out, "%*s", room, "");
}

/* A line that has nothing in this part is none. */
static void put_part(FILE *out, const struct grid *grid, size_t from, size_t to, int room, int width)
{
	bool header = false;

	for (size_t c = from; c < to; c++)
		header |= grid->columns[c] != NULL;
	if (header) {
		fprintf(out, "%*s", room, "");
		for (size_t c = from; c < to; c++)
			fprintf(out, " %*s", column_width(grid, c), grid->columns[c] ? grid->columns[c] : "");
		fputc('\n', out);
	}
	for (size_t l = 0; l < grid->line_count; l++) {
		const struct grid_line *line = &grid->lines[l];
		size_t end = from;

		for (size_t c = from; c < to; c++)
			end = line->cells[c] ? c + 1 : end;
		if (end == from)
			continue;
		fputs(line->dim ? "\033[2m" : "", out);
		put_label(out, line->label, room, width);
		for (size_t c = from; c < end; c++)
			fprintf(out, " %*s", column_width(grid, c), line->cells[c] ? line->cells[c] : "");
		fprintf(out, "%s\n", line->dim ? "\033[0m" : "");
	}
}

/*
 * Columns that labels take. Where they would take most of the width and not all fits, each stands in a line of its own,
 * and the cells beneath it have all the room.
 */
static int label_room(const struct grid *grid, int width)
{
	int all = grid->label_width;

	for (size_t c = 0; c < grid->column_count; c++)
		all += 1 + column_width(grid, c);
	return all > width && grid->label_width > width / 2 ? INDENT : grid->label_width;
}

void bench_grid_print(FILE *out, struct grid *grid, int width)
{
	int room;

	squeeze(grid);
	while (grid->column_count && !column_width(grid, grid->column_count - 1))
		grid->column_count--;
	room = label_room(grid, width);
	for (size_t from = 0, to; from < grid->column_count; from = to) {
		int used = 0;

		for (to = from; to < grid->column_count && to < VIEW_COLUMNS; to++) {
			int next = used + 1 + column_width(grid, to);

			if (to > from && room + next > width)
				break;
			used = next;
		}
		if (from)
			fputc('\n', out);
		put_part(out, grid, from, to, room, width);
	}
	free(grid->lines);
	memset(grid, 0, sizeof(*grid));
}
