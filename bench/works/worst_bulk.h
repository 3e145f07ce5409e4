/* `worst` through a batch interface. Included after works/worst.h and an interface (api/) with batches. */
#ifndef BENCH_WORK_WORST_BULK_H
#define BENCH_WORK_WORST_BULK_H

bench_noinline uint64_t worst_bulk_window(const struct cell *cell, uint64_t count)
{
	const struct api api = worst.api;
	const size_t batch = cell->batch;
	void *objects[BENCH_MAX_BATCH];
	uint64_t start = clock_start();

	for (uint64_t i = 0; i < count; i++) {
		worst_pick(cell, objects);
		api_free_bulk(api, batch, objects);
		bench_use(objects);
		if (__builtin_expect(!api_alloc_bulk(api, batch, objects), 0))
			bench_die("a batch allocation failed");
		for (size_t k = 0; k < batch; k++)
			worst_file(objects[k]);
	}
	return clock_stop() - start;
}

static void worst_bulk(const struct cell *cell)
{
	worst_cell(cell, worst_bulk_window);
}

#endif
