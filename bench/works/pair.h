/*
 * `pair` (alloc, free) and `loop` (a batch of allocs, then the frees in the same order): the cost of one object, not
 * touched, alone or beside threads with the same work. Included after an interface (api/).
 *
 * The loop is as plain as the published loop. Unrolled eight times, the loop trains the predictors of some CPUs so
 * badly that a fast path in a header takes more than twice as long.
 */
#ifndef BENCH_WORK_PAIR_H
#define BENCH_WORK_PAIR_H

#include "works/cost.h"

/*
 * Runs pairs of any interface. Inlined into each window with the call known, because a call through a pointer would be
 * measured, too.
 */
bench_inline uint64_t pair_loop(uint64_t count, void *(*alloc)(struct api))
{
	const struct api api = cost_api;
	uint64_t start = clock_start();

	for (uint64_t i = 0; i < count; i++) {
		void *object = alloc(api);

		bench_check(object);
		bench_use(object);
		api_free(api, object);
	}
	return clock_stop() - start;
}

bench_noinline uint64_t pair_window(const struct cell *cell, uint64_t count)
{
	(void)cell;
	return pair_loop(count, api_alloc);
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

static void pair_run(const struct cell *cell)
{
	cost_cell(cell, pair_window, 1);
}

static void loop_run(const struct cell *cell)
{
	cost_cell(cell, loop_window, cell->batch);
}

#endif
