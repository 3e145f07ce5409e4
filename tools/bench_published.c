/*
 * The figures that the kernel's authors published, from bench/published/, as rows beside ours.
 * They belong to other machines: to be set beside, never divided by. The fast path and bulk were
 * published with memory cgroups compiled in and switched on or off at run time: the field `memcg`.
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

/* The tables whose machine, size and count are other ones, or are not known. */
static struct row *new_other(struct table *table, const char *engine, const char *work,
			     const char *api, const char *unit, const char *figure)
{
	struct row *row = new_published(table, engine, "off", unit, figure);

	row->memcg = NULL;
	row->touch = NULL;
	row->size = row->threads = 0;
	row->work = work;
	row->api = api;
	return row;
}

/* Label and ns; "slab ..." or "slub". */
static void add_slab_fastpath(struct table *table, char **field)
{
	struct row *row = new_other(table, strncmp(field[0], "slab", 4) ? "slub" : "slab", "pair",
				    "kmem_cache", "ns/object", field[1]);

	row->label = bench_format("%s", field[0]);
	row->batch = row->threads = 1;
}

/* Function, median and mean; minimum and maximum were not published. */
static void add_latency(struct table *table, char **field)
{
	bool bulk = strstr(field[0], "bulk") != NULL;
	struct row *row = new_other(table, "slub", "latency", bulk ? "bulk" : "kmem_cache",
				    "cycles", field[1]);

	row->threads = 1;
	row->median = row->min = row->max = row->values[0];
	row->avg = strtod(field[2], NULL);
	row->settled = true;
	row->count = BENCH_LATENCY_RUNS;
}

/* Time, allocator, min, max, avg, sd; the median was not published: the average stands for it. */
static void add_min_partial(struct table *table, char **field)
{
	const char *dash = strchr(field[1], '-');
	struct row *row = new_other(table, dash ? bench_format("%.*s", (int)(dash - field[1]),
							       field[1]) : field[1],
				    "netio", "kmalloc", "s", field[4]);

	row->time = bench_format("%s", field[0]);
	if (!strcmp(row->of, "slub"))
		row->min_partial = dash ? "size" : "static";
	row->min = strtod(field[2], NULL);
	row->max = strtod(field[3], NULL);
	row->median = row->avg = strtod(field[4], NULL);
	row->sd = strtod(field[5], NULL);
	row->settled = true;
	row->count = BENCH_NETIO_RUNS;
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

/* Hierarchy, before or after the patch that keeps the stock, kilo-ops/s of 96 threads. */
static void add_memcg(struct table *table, char **field)
{
	struct row *row = new_other(table, "slub", "threads-4k", "kmalloc", "ops/s", field[2]);

	row->values[0] *= 1000;
	row->size = 4096;
	row->threads = 96;
	row->accounting = bench_format("%s-%s", field[0], strcmp(field[1], "before") ? "keep" : "drain");
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
		if (n < fields || !strcmp(field[0], "engine") || !strcmp(field[0], "time") ||
		    !strcmp(field[0], "function") || !strcmp(field[0], "allocator") ||
		    !strcmp(field[0], "hierarchy"))
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
	if (options->subjects.count && !bench_has(&options->subjects, "published"))
		return;
	if (!strcmp(table->bench, "slab-fastpath"))
		add_file(table, "bench/published/slab_fastpath.csv", 2, add_slab_fastpath);
	if (!strcmp(table->bench, "bulk-latency"))
		add_file(table, "bench/published/alloc_bulk_vs_loop.csv", 3, add_latency);
	if (!strcmp(table->bench, "netio"))
		add_file(table, "bench/published/min_partial.csv", 6, add_min_partial);
	if (!strcmp(table->bench, "memcg") &&
	    (bench_wanted_work("threads-4k") || bench_wanted_work("simulation")))
		add_file(table, "bench/published/memcg_4k.csv", 3, add_memcg);
	if (!size)
		return;
	if (!strcmp(table->bench, "fastpath") || !strcmp(table->bench, "bulk") ||
	    (!strcmp(table->bench, "memcg") && bench_wanted_work("pair")))
		add_file(table, "bench/published/fastpath.csv", 4, add_fastpath);
	if (!strcmp(table->bench, "bulk") ||
	    (!strcmp(table->bench, "memcg") && bench_wanted_work("bulk")))
		add_file(table, "bench/published/bulk.csv", FIELDS, add_bulk);
}
