/*
 * The table of accounting: which cells it has, and, under it, what accounting costs as ratios within the run. Every
 * engine but slob runs accounted and not; what is about the charging alone (threads, the published loop of 4, groups)
 * runs on the default engine, unless engines are named.
 */
#include <string.h>

#include "bench.h"

#define MEMCG_LOOP 4ul		/* as published: 4 kmalloc, then 4 kfree */
#define MEMCG_OBJECTS 4ul	/* of a group that comes and goes */
#define MEMCG_CELLS (4u * BENCH_LIST * BENCH_LIST)

static const unsigned long memcg_size[] = { 256 };
static const unsigned long memcg_loop_sizes[] = { 32, 4096 };
static const unsigned long memcg_batch[] = { 64 };
static const unsigned long memcg_threads[] = { 2, 96 };
static const unsigned long memcg_cpus[] = { 96 };
static const unsigned long memcg_transfers[] = { 100 };
static const unsigned long memcg_groups[] = { 1, 10, 100, 1000 };

static bool is(const char *a, const char *b)
{
	return a && !strcmp(a, b);
}

/* Who pays for the objects of a cell's cache; "several": another group has one of them. */
static void set_payers(struct job *job, const struct variant *variant, const char *payers)
{
	for (size_t i = 0; i < job->count; i++)
		job->cells[i].payers = is(variant->accounting, "off") ? NULL : payers;
}

/* Bulk.csv and fastpath.csv with somebody who pays, and with nobody; by the stock alone only the batch of 64. */
static void plan_costs(struct variant *variant, const char *payers)
{
	bool all = is(variant->accounting, "off") || is(variant->accounting, "shelf");
	struct numbers sizes = BENCH_CHOOSE(sizes, memcg_size);
	struct numbers batches = all ? BENCH_CHOOSE(batches, bench_bulk_batches) :
				       BENCH_CHOOSE(batches, memcg_batch);
	struct job *job = bench_add_job(variant, MEMCG_CELLS);

	for (size_t i = 0; bench_wanted_work("pair") && i < sizes.count; i++)
		bench_add_cell(job, "pair", "pair", sizes.number[i], 1, 1);
	if (is(variant->api, "kmem_cache")) {
		bench_add_batches(job, "loop", "loop", NULL, &batches);
		bench_add_batches(job, "bulk", "bulk", "bulk", &batches);
		bench_add_batches(job, "kfree-bulk", "bulk", "kfree_bulk", &batches);
	}
	set_payers(job, variant, payers);
	bench_end_job(job);
}

/* An object in each group's name in turn. One group alone: also where it is not the cache's only payer. */
static void plan_groups(struct variant *variant, const char *payers)
{
	struct numbers sizes = BENCH_CHOOSE(sizes, memcg_size);
	struct job *job = bench_add_job(variant, MEMCG_CELLS);
	size_t count = is(payers, "several") ? 1 : sizeof(memcg_groups) / sizeof(*memcg_groups);

	for (size_t s = 0; bench_wanted_work("groups") && s < sizes.count; s++)
		for (size_t i = 0; i < count; i++)
			bench_add_cell(job, "groups", "groups", sizes.number[s], 1, 1)->groups =
				memcg_groups[i];
	set_payers(job, variant, payers);
	for (size_t i = 0; i < job->count; i++)
		if (job->cells[i].payers && job->cells[i].groups > 1)
			job->cells[i].payers = "several";
	bench_end_job(job);
}

static void plan_churn(struct variant *variant)
{
	struct numbers sizes = BENCH_CHOOSE(sizes, memcg_size);
	struct job *job = bench_add_job(variant, MEMCG_CELLS);

	for (size_t s = 0; bench_wanted_work("churn") && s < sizes.count; s++)
		bench_add_cell(job, "churn", "churn", sizes.number[s], MEMCG_OBJECTS, 1);
	bench_end_job(job);
}

/* The published loop of one thread, and each number of threads in a process of its own. */
static void plan_pages(struct variant *variant)
{
	static const unsigned long own_batch[] = { MEMCG_LOOP };
	struct numbers sizes = BENCH_CHOOSE(sizes, memcg_loop_sizes);
	struct numbers batches = BENCH_CHOOSE(batches, own_batch);
	struct numbers threads = BENCH_CHOOSE(threads, memcg_threads);
	struct job *job = bench_add_job(variant, MEMCG_CELLS);

	for (size_t s = 0; bench_wanted_work("loop") && s < sizes.count; s++)
		for (size_t b = 0; b < batches.count; b++)
			bench_add_cell(job, "loop", "loop", sizes.number[s], batches.number[b], 1);
	set_payers(job, variant, "one");
	bench_end_job(job);
	for (size_t t = 0; bench_wanted_work("threads-4k") && t < threads.count; t++) {
		job = bench_add_job(variant, 1);
		bench_add_cell(job, "threads-4k", "threads-4k", 4096, 1, threads.number[t])->touch =
			"first";
		set_payers(job, variant, "one");
	}
}

static void plan_model(struct variant *variant)
{
	struct numbers cpus = BENCH_CHOOSE(threads, memcg_cpus);
	struct numbers transfers = BENCH_CHOOSE(transfers, memcg_transfers);

	for (size_t c = 0; bench_wanted_work("simulation") && c < cpus.count; c++)
		for (size_t t = 0; t < transfers.count; t++)
			bench_add_cell(bench_add_job(variant, 1), "simulation", "simulation", 4096, 1,
				       cpus.number[c])->transfer = transfers.number[t];
}

/* The same calls to empty functions. */
static void plan_nothing(struct variant *variant)
{
	struct numbers batches = BENCH_CHOOSE(batches, memcg_batch);
	struct job *job = bench_add_job(variant, MEMCG_CELLS);

	if (bench_wanted_work("pair"))
		bench_add_cell(job, "pair", "pair", 256, 1, 1);
	bench_add_batches(job, "loop", "loop", NULL, &batches);
	bench_add_batches(job, "bulk", "bulk", "bulk", &batches);
	bench_end_job(job);
}

void bench_plan_memcg(struct variant *variant)
{
	const struct bench_options *options = &bench.options;
	bool main_engine = is(variant->subject, "sheaf") || options->engines.count ||
			   options->subjects.count;

	if (!options->linkages.count && strcmp(variant->linkage, "static"))
		return;
	if (variant->kind == SUBJECT_NOTHING && strcmp(variant->linkage, "inline"))
		plan_nothing(variant);
	if (variant->kind == SUBJECT_MODEL)
		plan_model(variant);
	if (variant->kind != SUBJECT_OURS || !variant->accounting)
		return;
	plan_costs(variant, "one");
	if (is(variant->accounting, "shelf"))
		plan_costs(variant, "several");
	if (!main_engine)
		return;
	if (is(variant->api, "kmalloc")) {
		plan_pages(variant);
		return;
	}
	plan_groups(variant, "one");
	if (strcmp(variant->accounting, "off"))
		plan_groups(variant, "several");
	plan_churn(variant);
}

/* ------------------------------------------------------------------ ratios */

/* What to look for; NULL and 0: whatever. */
struct wanted {
	const char *work, *api, *accounting, *payers, *unit;
	unsigned long size, batch, threads, groups, transfer;
};

/* The median of the first row like `same` (engine, linkage, discipline) with these fields; 0: there is none. */
static double find(const struct table *table, const struct variant *same, const struct wanted *wanted)
{
	for (size_t i = 0; i < table->row_count; i++) {
		const struct row *row = &table->rows[i];
		const struct variant *v = row->variant;

		if (v && bench_same(v->subject, same->subject) && bench_same(v->linkage, same->linkage) &&
		    bench_same(v->percpu, same->percpu) && is(row->work, wanted->work) &&
		    is(row->unit, wanted->unit) && is(row->accounting, wanted->accounting) &&
		    (!wanted->api || is(row->api, wanted->api)) &&
		    (!wanted->payers || is(row->payers, wanted->payers)) &&
		    (!wanted->size || row->size == wanted->size) &&
		    (!wanted->batch || row->batch == wanted->batch) &&
		    (!wanted->threads || row->threads == wanted->threads) &&
		    (!wanted->transfer || row->transfer == wanted->transfer) &&
		    (!wanted->groups || row->groups == wanted->groups))
			return row->median;
	}
	return 0;
}

static struct grid ratios;

static void add_ratio(const struct variant *v, const char *what, double over, double under)
{
	if (over > 0 && under > 0)
		bench_grid_line(&ratios, bench_format("  %-6s %-7s %-7s %s", v->subject, v->percpu ? v->percpu : "",
						      v->linkage, what), false)->cells[0] =
			bench_format("%.2f", over / under);
}

/* Cost of a cell with accounting, over that without. */
static void add_cost(const struct table *table, const struct variant *v,
		       struct wanted wanted, const char *what)
{
	wanted.unit = "cycles/object";
	wanted.accounting = "off";
	double off = find(table, v, &wanted);

	wanted.accounting = "shelf";
	wanted.payers = "one";
	add_ratio(v, bench_format("%s, accounted / not, one payer", what),
		    find(table, v, &wanted), off);
	wanted.payers = "several";
	add_ratio(v, bench_format("%s, accounted / not, several payers", what),
		    find(table, v, &wanted), off);
}

static void add_costs(const struct table *table, const struct variant *v)
{
	add_cost(table, v, (struct wanted){ .work = "pair", .api = "kmem_cache", .size = 256 },
		   "a pair of 256 bytes");
	add_cost(table, v, (struct wanted){ .work = "pair", .api = "kmalloc", .size = 256 },
		   "a pair of 256 bytes, kmalloc");
	add_cost(table, v, (struct wanted){ .work = "bulk", .api = "bulk", .size = 256, .batch = 64 },
		   "bulk of 64 of 256 bytes");
}

/* Operations a second under one accounting over those under another. */
static void add_rates(const struct table *table, const struct variant *v, struct wanted wanted,
			const char *over, const char *under, const char *what)
{
	wanted.unit = "ops/s";
	wanted.accounting = over;
	double rate = find(table, v, &wanted);

	wanted.accounting = under;
	add_ratio(v, what, rate, find(table, v, &wanted));
}

static void add_rules(const struct table *table, const struct variant *v, struct wanted wanted,
			const char *who)
{
	add_rates(table, v, wanted, "v1-keep", "v1-drain",
		    bench_format("4 KiB, %s, ops/s keep / drain, v1 (published: 1.1)", who));
	add_rates(table, v, wanted, "v2-keep", "v2-drain",
		    bench_format("4 KiB, %s, ops/s keep / drain, v2 (published: 49.3)", who));
}

static void add_threads(const struct table *table, const struct variant *v)
{
	struct numbers threads = BENCH_CHOOSE(threads, memcg_threads);

	for (size_t i = 0; i < threads.count; i++) {
		struct wanted wanted = { .work = "threads-4k", .threads = threads.number[i] };
		const char *who = bench_format("%lu threads", threads.number[i]);

		add_rates(table, v, wanted, "off", "shelf",
			    bench_format("4 KiB, %s, time accounted (shelf) / not", who));
		add_rules(table, v, wanted, who);
	}
}

static void add_model(const struct table *table, const struct variant *v)
{
	struct numbers cpus = BENCH_CHOOSE(threads, memcg_cpus);
	struct numbers transfers = BENCH_CHOOSE(transfers, memcg_transfers);

	for (size_t c = 0; c < cpus.count; c++)
		for (size_t t = 0; t < transfers.count; t++)
			add_rules(table, v,
				    (struct wanted){ .work = "simulation", .threads = cpus.number[c],
						     .transfer = transfers.number[t] },
				    bench_format("%lu CPUs simulated, %lu ns", cpus.number[c],
						 transfers.number[t]));
}

static void add_groups(const struct table *table, const struct variant *v)
{
	static const char *const payers[] = { "one", "several" };
	struct wanted wanted = { .work = "groups", .accounting = "shelf", .unit = "cycles/object",
				 .groups = 1000 };
	double many = find(table, v, &wanted);

	wanted.groups = 1;
	for (size_t i = 0; i < 2; i++) {
		wanted.payers = payers[i];
		add_ratio(v, bench_format("1000 groups in turn / 1, which is %s of the cache's payers",
						 i ? "one" : "all"),
			    many, find(table, v, &wanted));
	}
}

void bench_print_memcg(FILE *out, const struct table *table, int width)
{
	if (strcmp(table->bench, "memcg"))
		return;
	ratios.column_count = 1;
	for (size_t i = 0; i < bench.variant_count; i++) {
		const struct variant *v = &bench.variants[i], *before = i ? v - 1 : NULL;

		if (!is(v->only, "memcg") || (before && is(before->only, "memcg") &&
					      bench_same(v->subject, before->subject) &&
					      bench_same(v->linkage, before->linkage) &&
					      bench_same(v->percpu, before->percpu)))
			continue;
		add_costs(table, v);
		add_threads(table, v);
		add_model(table, v);
		add_groups(table, v);
	}
	if (ratios.line_count) {
		fputs("\nmemcg: ratios within this run\n", out);
		bench_grid_print(out, &ratios, width);
	}
	bench_wrap(out, width, "Published rows with memcg on measured the per-group copies of each cache of their day, "
		   "in which an object's cache says who pays; the stock of bytes and the 4 KiB rows came later "
		   "(Linux 5.9, 5.14).");
}
