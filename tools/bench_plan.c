/*
 * The tables: which cells each has, and which subject runs which of them. Sizes, batches and thread
 * counts come from here and the command line; the code under test knows nothing of them.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static const unsigned long fastpath_sizes[] = { 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096 };
static const unsigned long bulk_batches[] = { 1,  2,  3,  4,  8,  16,  30,
					      32, 34, 48, 64, 128, 158, 250 };
static const unsigned long worst_matches[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 65 };
static const unsigned long peers_sizes[] = { 8, 256, 4096 };
static const unsigned long peers_batches[] = { 16, 64, 250 };
static const unsigned long larson_threads[] = { 2, 64 };
static const unsigned long page_threads[] = { 2, 96 };

static struct table *planned;
static size_t job_room;

/* An option's list, or the table's own. */
static struct numbers choose(const struct numbers *option, const unsigned long *own, size_t count)
{
	struct numbers numbers = { .count = count };

	if (option->count)
		return *option;
	memcpy(numbers.number, own, count * sizeof(*own));
	return numbers;
}
#define CHOOSE(option, own) choose(&bench.options.option, own, sizeof(own) / sizeof(*(own)))

static bool wanted_work(const char *work)
{
	return !bench.options.works.count || bench_has(&bench.options.works, work);
}

static struct job *add_job(struct variant *variant, size_t most_cells)
{
	struct job *job;

	planned->jobs = bench_grow(planned->jobs, planned->job_count, &job_room,
				   sizeof(*planned->jobs));
	job = &planned->jobs[planned->job_count++];
	job->variant = variant;
	job->count = 0;
	job->cells = calloc(most_cells, sizeof(*job->cells));
	if (!job->cells)
		bench_fatal("out of memory");
	return job;
}

static struct plan_cell *add_cell(struct job *job, const char *work, const char *row_work,
				  unsigned long size, unsigned long batch, unsigned long threads)
{
	struct plan_cell *cell = &job->cells[job->count++];

	cell->work = work;
	cell->row_work = row_work;
	cell->touch = "none";
	cell->size = size;
	cell->batch = batch;
	cell->threads = threads;
	return cell;
}

/* The last job stays only if it has something to do. */
static void end_job(struct job *job)
{
	if (!job->count)
		planned->job_count--;
}

static bool is(const struct variant *variant, const char *api)
{
	return !strcmp(variant->api, api);
}

static void plan_fastpath(struct variant *variant)
{
	struct numbers sizes = CHOOSE(sizes, fastpath_sizes);
	struct job *job;

	if (is(variant, "bulk") || !wanted_work("pair"))
		return;
	job = add_job(variant, sizes.count);
	for (size_t i = 0; i < sizes.count; i++)
		add_cell(job, "pair", "pair", sizes.number[i], 1, 1);
}

/* Cells of one work over all batches; the row's interface may differ from the worker's. */
static void add_batches(struct job *job, const char *work, const char *row_work,
			const char *row_api)
{
	static const unsigned long sizes[] = { 256 };
	struct numbers batches = CHOOSE(batches, bulk_batches), size = CHOOSE(sizes, sizes);

	if (!wanted_work(row_work))
		return;
	for (size_t s = 0; s < size.count; s++)
		for (size_t i = 0; i < batches.count; i++)
			add_cell(job, work, row_work, size.number[s], batches.number[i], 1)
				->row_api = row_api;
}

static void plan_bulk(struct variant *variant)
{
	struct job *job;

	/* Static is what the published module had: a plain call. DPDK is inline as well. */
	if (!bench.options.linkages.count && strcmp(variant->linkage, "static") &&
	    strcmp(variant->subject, "dpdk"))
		return;
	job = add_job(variant, 4 * BENCH_LIST * BENCH_LIST);
	if (variant->kind == SUBJECT_NOTHING) {
		add_batches(job, "loop", "loop", NULL);
		if (strcmp(variant->linkage, "inline"))
			add_batches(job, "bulk", "bulk", "bulk");
	} else if (is(variant, "kmem_cache")) {
		add_batches(job, "loop", "loop", NULL);
		if (strcmp(variant->linkage, "inline")) {
			add_batches(job, "bulk", "bulk", "bulk");
			add_batches(job, "kfree-bulk", "bulk", "kfree_bulk");
		}
	} else if (is(variant, "kmalloc")) {
		add_batches(job, "loop", "loop", NULL);
		add_batches(job, "bulk", "bulk", "kmalloc_bulk");
	} else if (is(variant, "malloc")) {
		add_batches(job, "loop", "loop", NULL);
	} else {
		if (!strcmp(variant->subject, "dpdk"))
			add_batches(job, "loop", "loop", NULL);
		add_batches(job, "bulk", "bulk", NULL);
	}
	end_job(job);
}

static void add_matches(struct job *job, const char *work, const char *row_work,
			const char *row_api)
{
	size_t count = sizeof(worst_matches) / sizeof(*worst_matches);

	if (!wanted_work(row_work))
		return;
	for (size_t i = 0; i < count; i++) {
		struct plan_cell *cell = add_cell(job, work, row_work, 256, 64, 1);

		cell->match = worst_matches[i];
		cell->row_api = row_api;
		cell->touch = "first";
	}
}

static void plan_worst(struct variant *variant)
{
	struct job *job;

	if (!bench.options.linkages.count && strcmp(variant->linkage, "static"))
		return;
	if (is(variant, "kmalloc") || is(variant, "bulk") || !strcmp(variant->linkage, "inline"))
		return;
	job = add_job(variant, 2 * sizeof(worst_matches) / sizeof(*worst_matches));
	if (variant->kind != SUBJECT_NOTHING)
		add_matches(job, "worst-loop", "loop", NULL);
	if (!is(variant, "malloc") || variant->kind == SUBJECT_NOTHING)
		add_matches(job, "worst-bulk", "bulk", "bulk");
	end_job(job);
}

static void plan_peers_cost(struct variant *variant)
{
	struct numbers sizes = CHOOSE(sizes, peers_sizes);
	struct numbers batches = CHOOSE(batches, peers_batches);
	struct job *job;

	if (is(variant, "bulk"))
		return;
	job = add_job(variant, 2 * BENCH_LIST);
	for (size_t i = 0; wanted_work("pair") && i < sizes.count; i++)
		add_cell(job, "pair", "pair", sizes.number[i], 1, 1);
	for (size_t i = 0; wanted_work("loop") && i < batches.count; i++)
		add_cell(job, "loop", "loop", 256, batches.number[i], 1);
	end_job(job);
}

/* One process for one cell: what a work leaves behind must not be the next one's. */
static void add_single(struct variant *variant, const char *work, const char *touch,
		       unsigned long size, unsigned long threads, unsigned long objects)
{
	struct plan_cell *cell;

	if (!wanted_work(work))
		return;
	cell = add_cell(add_job(variant, 1), work, work, size, 0, threads);
	cell->touch = touch;
	cell->objects = objects;
}

static bool only_shared(const struct variant *variant)
{
	return !bench.options.linkages.count && strcmp(variant->linkage, "shared");
}

/* Resident memory has no linkage to speak of, and takes long: shared, unless asked otherwise. */
static void plan_memory(struct variant *variant, const char *work)
{
	bool quick = bench.options.quick;

	if (only_shared(variant) || !strcmp(variant->linkage, "inline") || is(variant, "bulk") ||
	    variant->kind == SUBJECT_NOTHING)
		return;
	if (!strcmp(work, "live-set") && !is(variant, "kmalloc"))
		add_single(variant, work, "whole", 128, 1, quick ? 100000 : 1000000);
	if (!strcmp(work, "idle-threads") && !is(variant, "kmem_cache"))
		add_single(variant, work, "first", 0, quick ? 100 : 1000, 0);
}

static void plan_threads(struct variant *variant, const char *work)
{
	struct numbers larson = CHOOSE(threads, larson_threads);
	struct numbers page = CHOOSE(threads, page_threads);

	if (is(variant, "bulk") || variant->kind == SUBJECT_NOTHING)
		return;
	if (!strcmp(work, "producer-consumer"))
		add_single(variant, work, "first", 256, 2, 0);
	for (size_t i = 0; !strcmp(work, "larson") && i < larson.count; i++)
		if (!is(variant, "kmem_cache"))
			add_single(variant, work, "first", 0, larson.number[i], 0);
	for (size_t i = 0; !strcmp(work, "threads-4k") && i < page.count; i++)
		add_single(variant, work, "first", 4096, page.number[i], 0);
}

static void each_variant(void (*plan)(struct variant *))
{
	for (size_t i = 0; i < bench.variant_count; i++)
		plan(&bench.variants[i]);
}

static void plan_peers(void)
{
	static const char *const threads[] = { "producer-consumer", "larson", "threads-4k" };
	static const char *const memory[] = { "idle-threads", "live-set" };

	each_variant(plan_peers_cost);
	for (size_t w = 0; w < 3; w++)
		for (size_t i = 0; i < bench.variant_count; i++)
			plan_threads(&bench.variants[i], threads[w]);
	for (size_t w = 0; w < 2; w++)
		for (size_t i = 0; i < bench.variant_count; i++)
			plan_memory(&bench.variants[i], memory[w]);
}

void bench_plan(const char *name)
{
	planned = &bench.tables[bench.table_count++];
	planned->bench = name;
	job_room = 0;
	if (!strcmp(name, "fastpath"))
		each_variant(plan_fastpath);
	else if (!strcmp(name, "bulk"))
		each_variant(plan_bulk);
	else if (!strcmp(name, "worst"))
		each_variant(plan_worst);
	else
		plan_peers();
}
