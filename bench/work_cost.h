/*
 * Cost of one object, single-threaded and pinned, objects not touched: `pair` (alloc, free) and
 * `loop` (a batch of allocs, then the frees in the same order, ascending). Included after an
 * api_*.h.
 *
 * The loop is as plain as the published one. Unrolled eight times it trains the predictors of some
 * CPUs so badly that a fast path in a header takes more than twice as long.
 */
#ifndef BENCH_WORK_COST_H
#define BENCH_WORK_COST_H

static struct api cost_api;

bench_noinline uint64_t pair_window(const struct cell *cell, uint64_t count)
{
	const struct api api = cost_api;
	uint64_t start = clock_start();

	(void)cell;
	for (uint64_t i = 0; i < count; i++) {
		void *object = api_alloc(api);

		bench_check(object);
		bench_use(object);
		api_free(api, object);
	}
	return clock_stop() - start;
}

bench_noinline uint64_t loop_window(const struct cell *cell, uint64_t count)
{
	const struct api api = cost_api;
	const size_t batch = cell->batch;
	void *objects[BENCH_MAX_BATCH];
	uint64_t start = clock_start();

	for (uint64_t i = 0; i < count; i++) {
		for (size_t k = 0; k < batch; k++) {
			objects[k] = api_alloc(api);
			bench_check(objects[k]);
		}
		bench_use(objects);
		for (size_t k = 0; k < batch; k++)
			api_free(api, objects[k]);
	}
	return clock_stop() - start;
}

static void cost_pair(const struct cell *cell)
{
	bench_pin();
	cost_api = api_open(cell->size);
	bench_print("cycles/object", "-", "-", bench_cost(pair_window, cell, 1));
	api_close(cost_api);
}

static void cost_loop(const struct cell *cell)
{
	bench_pin();
	cost_api = api_open(cell->size);
	bench_print("cycles/object", "-", "-", bench_cost(loop_window, cell, cell->batch));
	api_close(cost_api);
}

#endif
