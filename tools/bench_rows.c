/*
 * Rows: where the rounds' figures are gathered and settled into median, minimum and maximum.
 * Keeps the contract's rule that no two rows of a run agree in all fields but the figures.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

struct row *bench_new_row(struct table *table)
{
	struct row *row;

	table->rows = kmem_grow(table->rows, table->row_count, &table->row_room,
				sizeof(*table->rows));
	row = &table->rows[table->row_count++];
	memset(row, 0, sizeof(*row));
	row->bench = table->bench;
	return row;
}

void bench_add_value(struct row *row, double value)
{
	row->values = kmem_grow(row->values, row->count, &row->room, sizeof(*row->values));
	row->values[row->count++] = value;
}

/* Of a figure in seconds the worker's `measure` says which time it is. */
static bool is_time(const char *unit)
{
	return !strcmp(unit, "s");
}

static struct row *find_row(struct table *table, const struct plan_cell *cell, const char *unit,
			    const char *measure, const char *at)
{
	for (size_t i = 0; i < table->row_count; i++) {
		struct row *row = &table->rows[i];

		if (row->cell == cell && bench_same(row->unit, unit) &&
		    bench_same(is_time(unit) ? row->time : row->measure, measure) &&
		    bench_same(row->at, at))
			return row;
	}
	return NULL;
}

static const char *keep(const char *text)
{
	return text ? bench_format("%s", text) : NULL;
}

void bench_add(struct table *table, const struct job *job, const struct plan_cell *cell,
	       const char *unit, const char *measure, const char *at, double value)
{
	const struct variant *variant = job->variant;
	struct row *row = find_row(table, cell, unit, measure, at);

	if (!row) {
		row = bench_new_row(table);
		row->variant = variant;
		row->job = job;
		row->cell = cell;
		row->kind = variant->kind;
		row->subject = variant->subject;
		row->version = variant->version;
		row->linkage = variant->linkage;
		row->discipline = variant->discipline;
		row->api = cell->row_api ? cell->row_api : variant->api;
		row->work = cell->row_work;
		if (variant->kind == SUBJECT_NOTHING) {
			row->work = "nothing";
			row->of = cell->row_work;
		}
		row->touch = cell->touch;
		row->size = cell->size;
		row->batch = cell->batch;
		row->threads = cell->threads;
		row->match = cell->match;
		row->objects = cell->objects;
		row->state = cell->state;
		row->min_partial = variant->min_partial;
		row->accounting = variant->accounting;
		row->payers = cell->payers;
		row->groups = cell->groups;
		row->transfer = cell->transfer;
		row->unit = keep(unit);
		if (is_time(unit))
			row->time = keep(measure);
		else
			row->measure = keep(measure);
		row->at = keep(at);
	}
	bench_add_value(row, value);
}

int bench_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static bool same_fields(const struct row *a, const struct row *b)
{
	return bench_same(a->bench, b->bench) && bench_same(a->work, b->work) &&
	       bench_same(a->subject, b->subject) && bench_same(a->of, b->of) &&
	       bench_same(a->version, b->version) && bench_same(a->api, b->api) &&
	       bench_same(a->linkage, b->linkage) && bench_same(a->discipline, b->discipline) &&
	       bench_same(a->memcg, b->memcg) && bench_same(a->touch, b->touch) &&
	       bench_same(a->unit, b->unit) && bench_same(a->measure, b->measure) &&
	       bench_same(a->at, b->at) && bench_same(a->time, b->time) &&
	       bench_same(a->min_partial, b->min_partial) && bench_same(a->state, b->state) &&
	       bench_same(a->label, b->label) && bench_same(a->accounting, b->accounting) &&
	       bench_same(a->payers, b->payers) && a->groups == b->groups &&
	       a->transfer == b->transfer && a->size == b->size && a->batch == b->batch &&
	       a->threads == b->threads && a->match == b->match && a->objects == b->objects;
}

/* Median, extremes, mean and standard deviation of the rounds' figures. */
static void settle(struct row *row)
{
	size_t half = row->count / 2;
	double *sorted = kmem_need(calloc(row->count, sizeof(*sorted))), sum = 0, squares = 0;

	memcpy(sorted, row->values, row->count * sizeof(*sorted));
	qsort(sorted, row->count, sizeof(*sorted), bench_compare);
	row->min = sorted[0];
	row->max = sorted[row->count - 1];
	row->median = row->count % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
	for (size_t i = 0; i < row->count; i++)
		sum += sorted[i];
	row->avg = sum / (double)row->count;
	for (size_t i = 0; i < row->count; i++)
		squares += (sorted[i] - row->avg) * (sorted[i] - row->avg);
	row->sd = row->count > 1 ? sqrt(squares / (double)(row->count - 1)) : 0;
	free(sorted);
}

void bench_settle(struct table *table)
{
	for (size_t i = 0; i < table->row_count; i++) {
		struct row *row = &table->rows[i];

		if (!row->settled)
			settle(row);
		for (size_t k = 0; k < i; k++)
			if (same_fields(row, &table->rows[k]))
				bench_fatal("two rows of %s are the same (%s %s %s)", row->bench,
					    row->subject, row->api, row->work);
	}
}
