/*
 * `latency`: the cycles of one allocation of `batch` objects, by one bulk call or by a loop of single calls; pinned,
 * objects not touched, in a process without other work. Two states of the cache: `fresh` has never given an object, but
 * an earlier cache has, because in the kernel code and pages are always present; `warm` has given and taken back as
 * many objects. The time of a clock reading is subtracted. Included after api/cache_open.h.
 */
#ifndef BENCH_WORK_LATENCY_H
#define BENCH_WORK_LATENCY_H

#define LATENCY_EARLIER 2u	/* caches before the measured cache */

static void *latency_objects[BENCH_MAX_BATCH];

bench_noinline uint64_t latency_bulk(struct api api, size_t batch)
{
	uint64_t start = clock_start();

	if (__builtin_expect(!api_alloc_bulk(api, batch, latency_objects), 0))
		bench_die("a batch allocation failed");
	return clock_stop() - start;
}

bench_noinline uint64_t latency_loop(struct api api, size_t batch)
{
	uint64_t start = clock_start();

	for (size_t k = 0; k < batch; k++) {
		latency_objects[k] = api_alloc(api);
		bench_check(latency_objects[k]);
	}
	return clock_stop() - start;
}

static void latency_cell(const struct cell *cell, uint64_t (*once)(struct api, size_t), bool warm)
{
	uint64_t clock, clocks = 0;

	bench_pin();
	clock = bench_clock_cost();
	memset(latency_objects, 0, sizeof(latency_objects));
	for (unsigned int i = 0; i <= LATENCY_EARLIER; i++) {
		struct api api = api_open(cell->size);

		for (unsigned int k = 0; k <= warm; k++) {
			clocks = once(api, cell->batch);
			api_free_bulk(api, cell->batch, latency_objects);
		}
		api_close(api);
	}
	bench_print("cycles", "-", "-", (double)(clocks > clock ? clocks - clock : 0));
}

static void latency_bulk_fresh(const struct cell *cell)
{
	latency_cell(cell, latency_bulk, false);
}

static void latency_bulk_warm(const struct cell *cell)
{
	latency_cell(cell, latency_bulk, true);
}

static void latency_loop_fresh(const struct cell *cell)
{
	latency_cell(cell, latency_loop, false);
}

static void latency_loop_warm(const struct cell *cell)
{
	latency_cell(cell, latency_loop, true);
}

#endif
