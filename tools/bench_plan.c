/*
 * The tables: which cells each has, and which subject runs which of them. Sizes, batches and thread
 * counts come from here and the command line; the code under test knows nothing of them.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static const unsigned long fastpath_sizes[] = { 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096 };
const unsigned long bench_bulk_batches[BENCH_BULK_BATCHES] = { 1,	2,  3,	4,  8,	 16,  30,
							       32, 34, 48, 64, 128, 158, 250 };
static const unsigned long worst_matches[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 65 };
/* Windows of 16 stay in every engine's ready objects; of 10000 is what the published module took. */
static const unsigned long apart_batches[] = { 16, 10000 };
static const unsigned long apart_sizes[] = { 8, 64, 256, 1024, 4096 };
static const unsigned long latency_batches[] = { 16, 32, 64 };
static const unsigned long netio_threads[] = { 8 };

#define WORKER_SECONDS 600u	/* a worker of which nothing else is known hangs then */
#define COST_MS 25u		/* a cell of cost per object */
#define START_MS 25u		/* a process */
#define APART_BYTES (4096ul << 10)
#define NETIO_PACKETS 200000ul	/* of each sender: about a second */
#define FIO_BLOCKS (1ul << 20)	/* of 4 KiB; the 100 GiB of fio's example would take a minute a run */

static struct table *planned;
static size_t job_room;

/* An option's list, or the table's own. */
struct numbers bench_choose(const struct numbers *option, const unsigned long *own, size_t count)
{
	struct numbers numbers = { .count = count };

	if (option->count)
		return *option;
	memcpy(numbers.number, own, count * sizeof(*own));
	return numbers;
}

bool bench_wanted_work(const char *work)
{
	return !bench.options.works.count || bench_has(&bench.options.works, work);
}

struct job *bench_add_job(struct variant *variant, size_t most_cells)
{
	struct job *job;

	planned->jobs = kmem_grow(planned->jobs, planned->job_count, &job_room,
				  sizeof(*planned->jobs));
	job = &planned->jobs[planned->job_count++];
	*job = (struct job){ .variant = variant, .every = 1 };
	job->cells = kmem_need(calloc(most_cells, sizeof(*job->cells)));
	return job;
}

struct plan_cell *bench_add_cell(struct job *job, const char *work, const char *row_work,
				 unsigned long size, unsigned long batch, unsigned long threads)
{
	struct plan_cell *cell = &job->cells[job->count++];

	cell->work = work;
	cell->row_work = row_work;
	cell->touch = "none";
	cell->size = size;
	cell->batch = batch;
	cell->threads = threads;
	cell->ms = COST_MS;
	return cell;
}

/* The last job stays only if it has something to do. */
void bench_end_job(struct job *job)
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
	struct numbers sizes = BENCH_CHOOSE(sizes, fastpath_sizes);
	struct job *job;

	if (is(variant, "bulk") || !bench_wanted_work("pair"))
		return;
	job = bench_add_job(variant, sizes.count);
	for (size_t i = 0; i < sizes.count; i++)
		bench_add_cell(job, "pair", "pair", sizes.number[i], 1, 1);
}

/* Cells of one work over all batches; the row's interface may differ from the worker's. */
void bench_add_batches(struct job *job, const char *work, const char *row_work, const char *row_api,
		       const struct numbers *batches)
{
	static const unsigned long sizes[] = { 256 };
	struct numbers size = BENCH_CHOOSE(sizes, sizes);

	if (!bench_wanted_work(row_work))
		return;
	for (size_t s = 0; s < size.count; s++)
		for (size_t i = 0; i < batches->count; i++)
			bench_add_cell(job, work, row_work, size.number[s], batches->number[i], 1)
				->row_api = row_api;
}

static void add_batches(struct job *job, const char *work, const char *row_work,
			const char *row_api)
{
	struct numbers batches = BENCH_CHOOSE(batches, bench_bulk_batches);

	bench_add_batches(job, work, row_work, row_api, &batches);
}

static void plan_bulk(struct variant *variant)
{
	struct job *job;

	/* Static is what the published module had: a plain call. DPDK is inline as well. */
	if (!bench.options.linkages.count && strcmp(variant->linkage, "static") &&
	    strcmp(variant->subject, "dpdk"))
		return;
	job = bench_add_job(variant, 4 * BENCH_LIST * BENCH_LIST + 2);
	if (bench_wanted_work("pair") && (is(variant, "kmem_cache") || variant->kind == SUBJECT_NOTHING))
		bench_add_cell(job, "pair", "pair", 256, 1, 1);
	if (variant->kind == SUBJECT_NOTHING) {
		if (bench_wanted_work("for-loop"))
			bench_add_cell(job, "for-loop", "for-loop", 0, 1, 1);
		add_batches(job, "loop", "loop", NULL);
		if (strcmp(variant->linkage, "inline"))
			add_batches(job, "bulk", "bulk", "bulk");
	} else if (is(variant, "kmem_cache")) {
		add_batches(job, "loop", "loop", NULL);
		if (strcmp(variant->linkage, "inline")) {
			add_batches(job, "bulk", "bulk", "bulk");
			/* A cache of slob has no header that kfree could go by: kmalloc's have. */
			add_batches(job, strcmp(variant->subject, "slob") ? "kfree-bulk" :
									    "kmalloc-kfree-bulk",
				    "bulk", "kfree_bulk");
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
	bench_end_job(job);
}

static void add_matches(struct job *job, const char *work, const char *row_work,
			const char *row_api)
{
	size_t count = sizeof(worst_matches) / sizeof(*worst_matches);

	if (!bench_wanted_work(row_work))
		return;
	for (size_t i = 0; i < count; i++) {
		struct plan_cell *cell = bench_add_cell(job, work, row_work, 256, 64, 1);

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
	job = bench_add_job(variant, 2 * sizeof(worst_matches) / sizeof(*worst_matches));
	if (variant->kind != SUBJECT_NOTHING)
		add_matches(job, "worst-loop", "loop", NULL);
	if (!is(variant, "malloc") || variant->kind == SUBJECT_NOTHING)
		add_matches(job, "worst-bulk", "bulk", "bulk");
	bench_end_job(job);
}

struct job *bench_add_single(struct variant *variant, const char *work, const char *touch, unsigned long size,
			     unsigned long threads, unsigned long objects)
{
	struct plan_cell *cell;
	struct job *job;

	if (!bench_wanted_work(work))
		return NULL;
	job = bench_add_job(variant, 1);
	cell = bench_add_cell(job, work, work, size, 0, threads);
	cell->touch = touch;
	cell->objects = objects;
	return job;
}

/* alloc and free apart; 10000 objects only where they stay within what an engine may keep. */
static void add_apart(struct job *job, const char *work)
{
	struct numbers sizes = BENCH_CHOOSE(sizes, apart_sizes);
	struct numbers batches = BENCH_CHOOSE(batches, apart_batches);

	for (size_t b = 0; bench_wanted_work(work) && b < batches.count; b++)
		for (size_t s = 0; s < sizes.count; s++)
			if (batches.number[b] * sizes.number[s] <= APART_BYTES)
				bench_add_cell(job, work, work, sizes.number[s], batches.number[b], 1);
}

static void plan_slab_fastpath(struct variant *variant)
{
	struct numbers sizes = BENCH_CHOOSE(sizes, apart_sizes);
	struct job *job;

	if (!variant->only && variant->kind != SUBJECT_NOTHING)
		return;
	if (strcmp(variant->linkage, "static") && !bench.options.linkages.count)
		return;
	if (!strcmp(variant->linkage, "inline"))
		return;
	job = bench_add_job(variant, BENCH_LIST * (2 * BENCH_LIST + 1));
	for (size_t s = 0; bench_wanted_work("pair") && s < sizes.count; s++)
		bench_add_cell(job, "pair", "pair", sizes.number[s], 1, 1);
	add_apart(job, "alloc");
	add_apart(job, "free");
	bench_end_job(job);
}

static void add_latency(struct variant *variant, unsigned long size, unsigned long batch)
{
	static const struct {
		const char *work, *api, *state;
	} kinds[] = { { "latency-bulk-fresh", "bulk", "fresh" },
		      { "latency-loop-fresh", "kmem_cache", "fresh" },
		      { "latency-bulk", "bulk", "warm" },
		      { "latency-loop", "kmem_cache", "warm" } };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		struct plan_cell *cell = bench_add_cell(bench_add_job(variant, 1), kinds[i].work, "latency",
						  size, batch, 1);

		cell->row_api = kinds[i].api;
		cell->state = kinds[i].state;
	}
}

/* One call in a process of its own: one figure for each run. */
static void plan_latency(struct variant *variant)
{
	static const unsigned long own_size[] = { 256 };
	struct numbers batches = BENCH_CHOOSE(batches, latency_batches), sizes = BENCH_CHOOSE(sizes, own_size);

	if (variant->kind != SUBJECT_OURS || !is(variant, "kmem_cache") || !bench_wanted_work("latency"))
		return;
	if (strcmp(variant->linkage, "static") && !bench.options.linkages.count)
		return;
	if (!strcmp(variant->linkage, "inline"))
		return;
	for (size_t s = 0; s < sizes.count; s++)
		for (size_t b = 0; b < batches.count; b++)
			add_latency(variant, sizes.number[s], batches.number[b]);
}

static void plan_netio(struct variant *variant)
{
	struct numbers threads = BENCH_CHOOSE(threads, netio_threads);

	if (!variant->only || !bench_wanted_work("netio"))
		return;
	if (is(variant, "malloc"))
		bench_add_single(variant, "netio", "whole", 4096, 2, bench.options.quick ?
			   FIO_BLOCKS / 10 : FIO_BLOCKS);
	for (size_t i = 0; is(variant, "kmem_cache") && i < threads.count; i++)
		bench_add_single(variant, "netio", "whole", 0, threads.number[i], bench.options.quick ?
			   NETIO_PACKETS / 10 : NETIO_PACKETS);
}

static void each_variant(void (*plan)(struct variant *))
{
	for (size_t i = 0; i < bench.variant_count; i++) {
		struct variant *variant = &bench.variants[i];

		if (!variant->only || !strcmp(variant->only, planned->bench))
			plan(variant);
	}
}

/* Of a table whose rounds were published as runs, how many; 0: of another one. */
static unsigned int published_runs(const char *name)
{
	return !strcmp(name, "netio")	     ? BENCH_NETIO_RUNS :
	       !strcmp(name, "bulk-latency") ? BENCH_LATENCY_RUNS : 0;
}

/* --quick takes fewer. */
static unsigned int rounds_of(const char *name)
{
	const struct bench_options *options = &bench.options;
	unsigned int runs = published_runs(name);

	if (!runs)
		return bench.environment.rounds;
	return options->runs ? options->runs : options->quick ? runs / 10 : runs;
}

/* Of --quick the windows are shorter; what a work waits for is not. */
static void expect(struct job *job)
{
	unsigned int ms = 0;

	for (size_t i = 0; i < job->count; i++)
		ms += job->cells[i].ms;
	job->ms = START_MS + (bench.options.quick ? ms / 2 : ms);
}

void bench_plan(const char *name)
{
	planned = &bench.tables[bench.table_count++];
	planned->bench = name;
	planned->rounds = rounds_of(name);
	planned->rounds_name = published_runs(name) ? "runs" : "rounds";
	planned->worker_s = WORKER_SECONDS;
	planned->limit_s = bench.options.seconds;
	job_room = 0;
	if (!strcmp(name, "fastpath"))
		each_variant(plan_fastpath);
	else if (!strcmp(name, "bulk"))
		each_variant(plan_bulk);
	else if (!strcmp(name, "worst"))
		each_variant(plan_worst);
	else if (!strcmp(name, "slab-fastpath"))
		each_variant(plan_slab_fastpath);
	else if (!strcmp(name, "bulk-latency"))
		each_variant(plan_latency);
	else if (!strcmp(name, "netio"))
		each_variant(plan_netio);
	else if (!strcmp(name, "memcg"))
		each_variant(bench_plan_memcg);
	else if (!strcmp(name, "forwarding"))
		each_variant(bench_plan_forwarding);
	else
		bench_plan_peers(planned);
	for (size_t i = 0; i < planned->job_count; i++)
		expect(&planned->jobs[i]);
}
