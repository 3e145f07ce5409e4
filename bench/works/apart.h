/*
 * `alloc` and `free` apart, single-threaded and pinned, objects not touched: windows of n allocations, then n frees in
 * the same order. A clock reading stands before and after each part, as in the kernel's module with n = 10000. The time
 * of a reading is subtracted. Both works run the same instructions and report different parts. Included after an
 * interface (api/).
 */
#ifndef BENCH_WORK_APART_H
#define BENCH_WORK_APART_H

#include "works/cost.h"

static struct {
	uint64_t clock;		/* cycles of an empty window */
	uint64_t freed;		/* cycles of the frees of the last windows */
} apart;

bench_noinline uint64_t apart_window(const struct cell *cell, uint64_t count)
{
	const struct api api = cost_api;
	const size_t batch = cell->batch;
	uint64_t allocated = 0, freed = 0;
	void *objects[BENCH_MAX_BATCH];

	for (uint64_t i = 0; i < count; i++) {
		uint64_t start = clock_start(), middle, stop;

		for (size_t k = 0; k < batch; k++) {
			objects[k] = api_alloc(api);
			bench_check(objects[k]);
		}
		stop = clock_stop();
		allocated += stop - start;
		bench_use(objects);
		middle = clock_start();
		for (size_t k = 0; k < batch; k++)
			api_free(api, objects[k]);
		freed += clock_stop() - middle;
	}
	apart.freed = freed - count * apart.clock;
	return allocated - count * apart.clock;
}

bench_noinline uint64_t apart_free_window(const struct cell *cell, uint64_t count)
{
	apart_window(cell, count);
	return apart.freed;
}

static void apart_cell(const struct cell *cell, bench_window *window)
{
	bench_pin();
	apart.clock = bench_clock_cost();
	cost_cell(cell, window, cell->batch);
}

static void apart_alloc(const struct cell *cell)
{
	apart_cell(cell, apart_window);
}

static void apart_free(const struct cell *cell)
{
	apart_cell(cell, apart_free_window);
}

#endif
