/*
 * The third column of the published tables: a batch from a cache, freed without the cache; and, as published for SLOB,
 * from a loop of kmalloc. Included after api/cache_open.h and works/bulk.h.
 */
#ifndef BENCH_WORK_KFREE_BULK_H
#define BENCH_WORK_KFREE_BULK_H

static size_t kfree_bulk_size;

bench_inline void kfree_bulk_free(struct api api, size_t count, void **objects)
{
	(void)api;
	kfree_bulk(count, objects);
}

bench_inline bool kfree_bulk_kmalloc(struct api api, size_t count, void **objects)
{
	bool good = true;

	(void)api;
	for (size_t k = 0; k < count; k++) {
		objects[k] = kmalloc(kfree_bulk_size, GFP_KERNEL);
		good &= objects[k] != NULL;
	}
	return good;
}

bench_noinline uint64_t kfree_bulk_window(const struct cell *cell, uint64_t count)
{
	return bulk_loop(cell, count, api_alloc_bulk, kfree_bulk_free);
}

bench_noinline uint64_t kmalloc_kfree_bulk_window(const struct cell *cell, uint64_t count)
{
	return bulk_loop(cell, count, kfree_bulk_kmalloc, kfree_bulk_free);
}

static void kfree_bulk_run(const struct cell *cell)
{
	cost_cell(cell, kfree_bulk_window, cell->batch);
}

static void kmalloc_kfree_bulk_run(const struct cell *cell)
{
	kfree_bulk_size = cell->size;
	cost_cell(cell, kmalloc_kfree_bulk_window, cell->batch);
}

#endif
