/*
 * The third column of the published tables: a batch from a cache, freed without naming the cache. Engine slob
 * needs the name: there, a batch from kmalloc.
 * Included after an api_*.h that has api_kfree_bulk, and after work_bulk.h.
 */
#ifndef BENCH_WORK_KFREE_BULK_H
#define BENCH_WORK_KFREE_BULK_H

bench_noinline uint64_t kfree_bulk_window(const struct cell *cell, uint64_t count)
{
	const struct api api = bulk_api;
	const size_t batch = cell->batch;
	void *objects[BENCH_MAX_BATCH];
	uint64_t start = clock_start();

	for (uint64_t i = 0; i < count; i++) {
		if (__builtin_expect(!api_alloc_bulk_unnamed(api, batch, objects), 0))
			bench_die("a batch allocation failed");
		bench_use(objects);
		api_kfree_bulk(api, batch, objects);
	}
	return clock_stop() - start;
}

static void kfree_bulk_run(const struct cell *cell)
{
	bench_pin();
	bulk_api = api_open(cell->size);
	bench_print("cycles/object", "-", "-", bench_cost(kfree_bulk_window, cell, cell->batch));
	api_close(bulk_api);
}

#endif
