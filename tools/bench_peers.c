/*
 * The table of peers: which works it has, who runs them, and what they take. A whole run ends within ten minutes: the
 * engines that are not the default stand beside it only where they are named, a crowd of threads and works whose cost
 * no call's linkage shows in run `shared`, and works that wait for seconds run in every third round. What is left out
 * is said; who names works, linkages or rounds gets them all.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define PEERS_SECONDS 600u	/* a whole table */
#define PEERS_WORKER_SECONDS 120u	/* a worker that takes longer hangs */
#define RUN_MS 100u		/* a cell of throughput ... */
#define CROWD_MS 250u		/* ... with more than CROWD threads, so that each runs several times */
#define CROWD 8u
#define WAITS_EVERY 3u		/* rounds, of works that wait */
#define COUNT(list) (sizeof(list) / sizeof(*(list)))

enum interface { CACHE = 1, INLINE = 2, KMALLOC = 4, MALLOC = 8, NOTHING = 16 };
#define ALL_OURS (CACHE | INLINE | KMALLOC | MALLOC)

static const unsigned long pair_sizes[] = { 8, 256, 4096 };
static const unsigned long loop_batches[] = { 16, 64, 250 };
static const unsigned long block_sizes[] = { 10000,  16000,  40000,  64000,
					     100000, 200000, 500000, 1000000 };
static const unsigned long realloc_sizes[] = { 4000, 4000000 };
static const unsigned long together[] = { 1, 2 };

/* Works that have a process of their own, and a job for each number of threads. */
static const struct alone {
	const char *work, *touch;
	enum interface interfaces;
	bool shared;		/* whatever the linkage costs does not show */
	bool waits;		/* for seconds: it runs in every third round */
	bool named;		/* only where --work names it */
	unsigned long size, threads[2];
	unsigned long objects;	/* --quick: a tenth */
	unsigned int ms;	/* that it takes, about; 0: of throughput, as long as is said */
} alone[] = {
	{ "producer-consumer", "first", ALL_OURS, .size = 256, .threads = { 2 } },
	{ "larson", "first", KMALLOC | MALLOC, .threads = { 2, 64 } },
	{ "threads-4k", "first", ALL_OURS, .size = 4096, .threads = { 2, 96 } },
	{ "idle-threads", "first", KMALLOC | MALLOC, .shared = true, .waits = true, .threads = { 1000 }, .ms = 2000 },
	{ "live-set", "whole", CACHE | MALLOC, .shared = true, .waits = true, .size = 128, .threads = { 1 },
	  .objects = 1000000, .ms = 2000 },
	{ "adrift", "whole", CACHE | MALLOC, .shared = true, .named = true, .size = 592, .threads = { 16 },
	  .objects = 655360, .ms = 33000 },
	{ "held", "whole", KMALLOC | MALLOC, .shared = true, .waits = true, .threads = { 1, 2 }, .ms = 200 },
};

static enum interface interface_of(const struct variant *variant)
{
	if (variant->kind == SUBJECT_NOTHING)
		return NOTHING;
	if (!strcmp(variant->api, "malloc"))
		return MALLOC;
	if (!strcmp(variant->api, "kmalloc"))
		return KMALLOC;
	if (!strcmp(variant->api, "kmem_cache"))
		return strcmp(variant->linkage, "inline") ? CACHE : INLINE;
	return 0;
}

static bool only_shared(const struct variant *variant)
{
	return !bench.options.linkages.count && strcmp(variant->linkage, "shared");
}

static bool has_cpus(unsigned long threads)
{
	static bool said;

	if (threads <= (unsigned long)sysconf(_SC_NPROCESSORS_ONLN))
		return true;
	if (!said)
		bench_without("costs of threads at once", "there are fewer CPUs than threads");
	return !(said = true);
}

/* Cells of costs with so many threads. Single ones come first: some allocators go slower from the first thread on. */
static void add_costs(struct job *job, const struct variant *variant, unsigned long threads)
{
	static const struct {
		const char *work;
		enum interface interfaces;
	} works[] = { { "zero", CACHE | KMALLOC | MALLOC }, { "aligned", MALLOC } };

	for (size_t i = 0; i < COUNT(works); i++)
		if (bench_wanted_work(works[i].work) && (works[i].interfaces & interface_of(variant)))
			bench_add_cell(job, works[i].work, works[i].work, 256, 1, threads);
}

static void plan_costs(struct variant *variant)
{
	struct numbers sizes = BENCH_CHOOSE(sizes, pair_sizes), batches = BENCH_CHOOSE(batches, loop_batches);
	struct numbers threads = BENCH_CHOOSE(threads, together);
	struct job *job = bench_add_job(variant, 8 * BENCH_LIST);

	for (size_t i = 0; bench_wanted_work("pair") && i < sizes.count; i++)
		bench_add_cell(job, "pair", "pair", sizes.number[i], 1, 1);
	for (size_t i = 0; bench_wanted_work("loop") && i < batches.count; i++)
		bench_add_cell(job, "loop", "loop", 256, batches.number[i], 1);
	for (size_t i = 0; i < threads.count; i++)
		if (has_cpus(threads.number[i]))
			add_costs(job, variant, threads.number[i]);
	bench_end_job(job);
}

/* Blocks of pages, and what grows to be one: a process for each, single threads first. */
static void plan_blocks(struct variant *variant)
{
	struct numbers sizes = BENCH_CHOOSE(sizes, block_sizes), threads = BENCH_CHOOSE(threads, together);
	struct job *job;

	if (only_shared(variant) || !(interface_of(variant) & (KMALLOC | MALLOC)) || !bench_wanted_work("blocks"))
		return;
	job = bench_add_job(variant, 2 * BENCH_LIST * BENCH_LIST);
	for (size_t t = 0; t < threads.count; t++)
		for (size_t i = 0; has_cpus(threads.number[t]) && i < 2 * sizes.count; i++)
			bench_add_cell(job, i % 2 ? "blocks-written" : "blocks", "blocks", sizes.number[i / 2], 1,
				       threads.number[t])->touch = i % 2 ? "pages" : "none";
	bench_end_job(job);
}

static void plan_realloc(struct variant *variant)
{
	struct numbers sizes = BENCH_CHOOSE(sizes, realloc_sizes), threads = BENCH_CHOOSE(threads, together);
	struct job *job;

	if (only_shared(variant) || !(interface_of(variant) & (KMALLOC | MALLOC)) || !bench_wanted_work("realloc"))
		return;
	job = bench_add_job(variant, BENCH_LIST * BENCH_LIST);
	for (size_t t = 0; t < threads.count; t++)
		for (size_t i = 0; has_cpus(threads.number[t]) && i < sizes.count; i++) {
			struct plan_cell *cell = bench_add_cell(job, "realloc", "realloc", sizes.number[i], 1,
								threads.number[t]);

			cell->touch = "pages";
			cell->ms = 60;
		}
	bench_end_job(job);
}

/* First fit among 1000 threads' remains looks through all of them at each allocation. */
static bool is_senseless(const struct variant *variant, const char *work)
{
	if (strcmp(variant->subject, "slob") || strcmp(work, "idle-threads"))
		return false;
	bench_without("slob idle-threads", "first fit through what 1000 threads hold takes longer than all the rest");
	return true;
}

/* Whether anybody's wish says how much is done: then nothing is spared. */
static bool is_chosen(void)
{
	return bench.options.rounds || bench.options.works.count;
}

static void plan_alone(struct variant *variant, const struct alone *work)
{
	bool larson = !strcmp(work->work, "larson") || !strcmp(work->work, "threads-4k");
	bool quick = bench.options.quick;
	struct numbers threads = { .count = work->threads[1] ? 2 : 1 };

	memcpy(threads.number, work->threads, sizeof(work->threads));
	if (larson && bench.options.threads.count)
		threads = bench.options.threads;
	if (work->named && !bench.options.works.count)
		bench_without(work->work, bench_format("half a minute of each subject and round: --work %s",
						       work->work));
	if (!(interface_of(variant) & work->interfaces) || (work->shared && only_shared(variant)) ||
	    (work->named && !bench.options.works.count) || !bench_wanted_work(work->work) ||
	    is_senseless(variant, work->work))
		return;
	for (size_t i = 0; i < threads.count; i++) {
		unsigned long count = threads.number[i];
		struct job *job;

		/* Who waits for a CPU most of the time does not see how a call is made. */
		if (larson && count > CROWD && only_shared(variant) && !is_chosen())
			continue;
		if (!strcmp(work->work, "idle-threads") && quick)
			count /= 10;
		job = bench_add_single(variant, work->work, work->touch, work->size, count,
				       quick ? work->objects / 10 : work->objects);
		job->cells[0].run_ms = work->ms ? 0 : count > CROWD ? CROWD_MS : RUN_MS;
		job->cells[0].ms = work->ms ? work->ms : job->cells[0].run_ms;
		job->every = work->waits && !is_chosen() ? WAITS_EVERY : 1;
	}
}

/* Ours as users get it, unless somebody names more: the other tables compare the engines. */
static bool takes_part(const struct variant *variant)
{
	if (variant->only)
		return false;
	if (variant->kind != SUBJECT_OURS || bench.options.engines.count || bench.options.subjects.count ||
	    !strcmp(variant->subject, "sheaf"))
		return true;
	bench_without(variant->subject, "peers has the default engine; --engine adds others");
	return false;
}

static void each(void (*plan)(struct variant *))
{
	for (size_t i = 0; i < bench.variant_count; i++)
		if (takes_part(&bench.variants[i]) && interface_of(&bench.variants[i]))
			plan(&bench.variants[i]);
}

void bench_plan_peers(struct table *table)
{
	table->worker_s = PEERS_WORKER_SECONDS;
	if (!is_chosen() && !table->limit_s)
		table->limit_s = PEERS_SECONDS;
	each(plan_costs);
	each(plan_blocks);
	each(plan_realloc);
	for (size_t w = 0; w < COUNT(alone); w++)
		for (size_t i = 0; i < bench.variant_count; i++)
			if (takes_part(&bench.variants[i]))
				plan_alone(&bench.variants[i], &alone[w]);
}
