/*
 * The figures that the kernel's authors published, from bench/published/, as rows beside ours.
 * They belong to another machine (an i7-4790K at 4 GHz): to be set beside, never divided by.
 * Published with memory cgroups compiled in and switched on or off at run time: the field
 * `memcg`.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define FIELDS 9u

static struct row *new_published(struct table *table, const char *engine, const char *memcg,
				 const char *unit, const char *figure)
{
	struct row *row = bench_new_row(table);

	row->kind = SUBJECT_PUBLISHED;
	row->subject = "published";
	row->of = bench_format("%s", engine);
	row->memcg = bench_format("%s", memcg);
	row->linkage = "static";	/* a module calls the kernel directly */
	row->discipline = "none";
	row->touch = "none";
	row->unit = unit;
	row->size = 256;		/* struct sk_buff, as it was then */
	row->threads = 1;
	bench_add_value(row, strtod(figure, NULL));
	return row;
}

static void add_fastpath(struct table *table, char **field)
{
	static const char *const units[] = { "cycles/object", "ns/object" };

	for (size_t i = 0; i < 2; i++) {
		struct row *row = new_published(table, field[0], field[1], units[i], field[2 + i]);

		row->work = "pair";
		row->api = "kmem_cache";
		row->batch = 1;
	}
}

/* engine, memcg, batch, then cycles and ns of the loop, the cache's bulk and kfree_bulk. */
static void add_bulk(struct table *table, char **field)
{
	static const char *const units[] = { "cycles/object", "ns/object" };
	static const char *const apis[] = { "kmem_cache", "bulk", "kfree_bulk" };
	static const char *const works[] = { "loop", "bulk", "bulk" };

	for (size_t i = 0; i < 6; i++) {
		struct row *row = new_published(table, field[0], field[1], units[i % 2],
						field[3 + i]);

		row->work = works[i / 2];
		row->api = apis[i / 2];
		row->batch = strtoul(field[2], NULL, 10);
	}
}

static bool wanted_batch(const char *text)
{
	const struct numbers *batches = &bench.options.batches;

	for (size_t i = 0; i < batches->count; i++)
		if (batches->number[i] == strtoul(text, NULL, 10))
			return true;
	return !batches->count;
}

static void add_file(struct table *table, const char *file, size_t fields,
		     void (*add)(struct table *, char **))
{
	FILE *in = fopen(bench_path(file), "r");
	char line[256], *field[FIELDS], *next;

	if (!in) {
		bench_without("published", bench_format("cannot read %s", file));
		return;
	}
	while (fgets(line, sizeof(line), in)) {
		size_t n = 0;

		next = strtok(line, ",\n");
		for (; next && n < FIELDS; next = strtok(NULL, ",\n"))
			field[n++] = next;
		if (n < fields || !strcmp(field[0], "engine"))
			continue;
		if (fields == FIELDS && !wanted_batch(field[2]))
			continue;
		add(table, field);
	}
	fclose(in);
}

void bench_add_published(struct table *table)
{
	const struct bench_options *options = &bench.options;
	bool size = !options->sizes.count;

	for (size_t i = 0; i < options->sizes.count; i++)
		size |= options->sizes.number[i] == 256;
	if (!size || (options->subjects.count && !bench_has(&options->subjects, "published")))
		return;
	if (!strcmp(table->bench, "fastpath"))
		add_file(table, "bench/published/fastpath.csv", 4, add_fastpath);
	if (!strcmp(table->bench, "bulk"))
		add_file(table, "bench/published/bulk.csv", FIELDS, add_bulk);
}
