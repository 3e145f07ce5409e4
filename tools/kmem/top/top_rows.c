/* top_rows.c: rows of a sample: lookup by key, rates against an older sample, sorting. Invariant: keys are unique. */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "top/top.h"

/* FNV-1a. */
static uint64_t hash(uint64_t key, const void *bytes, size_t count)
{
	const unsigned char *at = bytes;

	for (size_t i = 0; i < count; i++)
		key = (key ^ at[i]) * 0x100000001b3u;
	return key;
}

static uint64_t key_of(const struct top_sample *sample, size_t above, enum top_kind kind, const char *name,
		       uint64_t salt)
{
	uint64_t key = 0xcbf29ce484222325u, outer = above ? sample->rows[above - 1].key : 0;

	key = hash(key, &outer, sizeof(outer));
	key = hash(key, &kind, sizeof(kind));
	key = hash(key, &salt, sizeof(salt));
	return hash(key, name, strlen(name));
}

/* Find the hash table entry of a key. Returns: the entry; 0 in the entry means no such row. */
static size_t *place_of(const struct top_sample *sample, uint64_t key)
{
	size_t at = (size_t)key & (sample->place_count - 1);

	while (sample->places[at] && sample->rows[sample->places[at] - 1].key != key)
		at = (at + 1) & (sample->place_count - 1);
	return &sample->places[at];
}

static void make_places(struct top_sample *sample)
{
	sample->place_count = sample->place_count ? sample->place_count * 2 : 256;
	free(sample->places);
	sample->places = kmem_need(calloc(sample->place_count, sizeof(*sample->places)));
	for (size_t i = 0; i < sample->count; i++)
		*place_of(sample, sample->rows[i].key) = i + 1;
}

/* Find or create the row of this name and kind below the row `above`. A new row has unknown figures.
 * Returns: the row, valid until the next call. */
struct top_row *top_row(struct top_sample *sample, size_t above, enum top_kind kind, const char *name, uint64_t salt)
{
	uint64_t key = key_of(sample, above, kind, name, salt);

	if (sample->count * 2 >= sample->place_count)
		make_places(sample);
	size_t *place = place_of(sample, key);
	if (*place)
		return &sample->rows[*place - 1];
	sample->rows = kmem_grow(sample->rows, sample->count, &sample->room, sizeof(*sample->rows));
	struct top_row *row = &sample->rows[sample->count++];
	*place = sample->count;
	*row = (struct top_row){
		.kind = kind, .above = above, .key = key,
		.figures = { INFO_UNKNOWN, INFO_UNKNOWN, INFO_UNKNOWN, INFO_UNKNOWN, INFO_UNKNOWN, INFO_UNKNOWN },
	};
	row->depth = above ? sample->rows[above - 1].depth + 1 : 0;
	info_printable(row->name, name, sizeof(row->name));
	return row;
}

static void add(unsigned long *sum, unsigned long more)
{
	if (*sum == INFO_UNKNOWN || more == INFO_UNKNOWN)
		*sum = *sum == INFO_UNKNOWN ? more : *sum;
	else
		*sum += more;
}

/* Add figures; an unknown figure leaves the known part of the sum. */
void top_add(struct top_figures *sum, const struct top_figures *more)
{
	add(&sum->resident, more->resident);
	add(&sum->live, more->live);
	add(&sum->ready, more->ready);
	add(&sum->free, more->free);
	add(&sum->purgeable, more->purgeable);
	add(&sum->pinned, more->pinned);
}

/* ------------------------------------------------------------------ rates */

static int by_key(const void *a, const void *b)
{
	const struct top_row *const *x = a, *const *y = b;

	return ((*x)->key > (*y)->key) - ((*x)->key < (*y)->key);
}

void top_rates(struct top_sample *sample, const struct top_sample *before)
{
	double seconds = sample->seconds - before->seconds;
	const struct top_row **old = kmem_need(calloc(before->count + 1, sizeof(*old)));

	for (size_t i = 0; i < before->count; i++)
		old[i] = &before->rows[i];
	qsort(old, before->count, sizeof(*old), by_key);
	for (size_t i = 0; i < sample->count; i++) {
		struct top_row *row = &sample->rows[i];
		const struct top_row *key = row, **was = bsearch(&key, old, before->count, sizeof(*old), by_key);
		unsigned long live = was ? (*was)->figures.live : 0;

		row->rate = seconds > 0 ? NAN : 0;
		if (seconds > 0 && row->figures.live != INFO_UNKNOWN && live != INFO_UNKNOWN)
			row->rate = ((double)row->figures.live - (double)live) / seconds;
	}
	free(old);
	sample->has_rates = true;
}

/* ------------------------------------------------------------------ order */

struct sorting {
	const struct top_sample *sample;
	const struct top_view *view;
};

static double figure_of(const struct top_row *row, enum top_sort sort)
{
	const unsigned long figures[] = {
		[TOP_BY_RESIDENT] = row->figures.resident, [TOP_BY_LIVE] = row->figures.live,
		[TOP_BY_READY] = row->figures.ready, [TOP_BY_FREE] = row->figures.free,
		[TOP_BY_PURGEABLE] = row->figures.purgeable, [TOP_BY_PINNED] = row->figures.pinned,
	};

	if (sort == TOP_BY_RATE)
		return isnan(row->rate) ? 0 : row->rate;
	/* A group has only one figure: charged bytes. */
	unsigned long bytes = row->kind == TOP_GROUP ? row->figures.live : figures[sort];
	return bytes == INFO_UNKNOWN ? -1 : (double)bytes;
}

/* Compare rows: by parent first, groups after caches, then by the figure, name and key. */
static int by_place(const void *a, const void *b, void *arg)
{
	const struct sorting *sorting = arg;
	const struct top_row *rows = sorting->sample->rows;
	const struct top_row *x = &rows[*(const size_t *)a], *y = &rows[*(const size_t *)b];
	int order = 0;

	if (x->above != y->above)
		return x->above < y->above ? -1 : 1;
	if ((x->kind == TOP_GROUPS) != (y->kind == TOP_GROUPS))
		return x->kind == TOP_GROUPS ? 1 : -1;
	if (sorting->view->sort != TOP_BY_NAME) {
		double first = figure_of(x, sorting->view->sort), second = figure_of(y, sorting->view->sort);

		order = (first < second) - (first > second);
	}
	order = order ?: strcmp(x->name, y->name);
	if (!order)
		return (x->key > y->key) - (x->key < y->key);
	return sorting->view->reverse ? -order : order;
}

static bool is_shown(const struct top_row *row, const struct top_view *view)
{
	const struct top_figures *figures = &row->figures;

	/* INFO_UNKNOWN counts as nonzero here. */
	return view->all || row->kind == TOP_PROCESS || row->kind == TOP_GROUPS || row->kind == TOP_GROUP ||
	       figures->resident || figures->live || figures->ready || (row->rate != 0 && !isnan(row->rate));
}

/* Index of the first child of each row in `sorted`. */
struct tree {
	struct top_sample *sample;
	const struct top_view *view;
	const size_t *sorted, *first;
};

static void put(struct tree *tree, size_t above)
{
	struct top_sample *sample = tree->sample;

	for (size_t i = tree->first[above]; i < sample->count && sample->rows[tree->sorted[i]].above == above; i++) {
		size_t row = tree->sorted[i];

		if (is_shown(&sample->rows[row], tree->view))
			sample->order[sample->shown++] = row;
		put(tree, row + 1);
	}
}

void top_sort(struct top_sample *sample, const struct top_view *view)
{
	struct sorting sorting = { sample, view };
	size_t *sorted = kmem_need(calloc(sample->count + 1, sizeof(*sorted)));
	size_t *first = kmem_need(calloc(sample->count + 1, sizeof(*first)));

	for (size_t i = 0; i < sample->count; i++)
		sorted[i] = i;
	qsort_r(sorted, sample->count, sizeof(*sorted), by_place, &sorting);
	for (size_t i = 0; i <= sample->count; i++)
		first[i] = sample->count;
	for (size_t i = sample->count; i--;)
		first[sample->rows[sorted[i]].above] = i;
	free(sample->order);
	sample->order = kmem_need(calloc(sample->count + 1, sizeof(*sample->order)));
	sample->shown = 0;
	put(&(struct tree){ sample, view, sorted, first }, 0);
	free(sorted);
	free(first);
}
