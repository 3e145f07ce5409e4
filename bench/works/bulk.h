/*
 * The cost of one object through a batch interface, single-threaded and pinned, objects not touched: one call allocates
 * a batch and one call frees the batch. Included after an interface (api/).
 */
#ifndef BENCH_WORK_BULK_H
#define BENCH_WORK_BULK_H

#include "works/cost.h"

/* Inlined into each window with both calls known, because a call through a pointer would be measured, too. */
bench_inline uint64_t bulk_loop(const struct cell *cell, uint64_t count,
				bool (*alloc)(struct api, size_t, void **),
				void (*free)(struct api, size_t, void **))
{
	const struct api api = cost_api;
	const size_t batch = cell->batch;
	void *objects[BENCH_MAX_BATCH];
	uint64_t start = clock_start();

	for (uint64_t i = 0; i < count; i++) {
		if (__builtin_expect(!alloc(api, batch, objects), 0))
			bench_die("a batch allocation failed");
		bench_use(objects);
		free(api, batch, objects);
	}
	return clock_stop() - start;
}

bench_noinline uint64_t bulk_window(const struct cell *cell, uint64_t count)
{
	return bulk_loop(cell, count, api_alloc_bulk, api_free_bulk);
}

static void bulk_run(const struct cell *cell)
{
	cost_cell(cell, bulk_window, cell->batch);
}

#endif
