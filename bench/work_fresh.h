/*
 * `zero` (an object that is all zero, and its free) and `aligned` (to 64 bytes): cost of one object, alone or beside
 * threads that do the same. What the allocator writes is its own affair; nothing is touched besides. Included after an
 * api_*.h.
 */
#ifndef BENCH_WORK_FRESH_H
#define BENCH_WORK_FRESH_H

#include <stdlib.h>
#include <string.h>

#define FRESH_ALIGN 64u

static struct api fresh_api;

/* Inlined into each window with its call known: no call goes through a pointer. */
bench_inline uint64_t fresh_loop(uint64_t count, void *(*alloc)(struct api))
{
	const struct api api = fresh_api;
	uint64_t start = clock_start();

	for (uint64_t i = 0; i < count; i++) {
		void *object = alloc(api);

		bench_check(object);
		bench_use(object);
		api_free(api, object);
	}
	return clock_stop() - start;
}

static void fresh_cell(const struct cell *cell, uint64_t (*window)(const struct cell *, uint64_t))
{
	bench_pin();
	fresh_api = api_open(cell->size);
	bench_print("cycles/object", "-", "-", bench_cost(window, cell, 1));
	api_close(fresh_api);
}

bench_noinline uint64_t zero_window(const struct cell *cell, uint64_t count)
{
	(void)cell;
	return fresh_loop(count, api_zalloc);
}

/* A figure of `zero` counts only if what was written before is gone. */
static void zero_check(size_t size)
{
	const struct api api = api_open(size);
	unsigned char *object = api_alloc(api);

	bench_check(object);
	memset(object, 1, size);
	bench_use(object);
	api_free(api, object);
	object = api_zalloc(api);
	bench_check(object);
	for (size_t i = 0; i < size; i++)
		if (object[i])
			bench_die("an object that should be zero is not");
	api_free(api, object);
	api_close(api);
}

static void zero_run(const struct cell *cell)
{
	zero_check(cell->size);
	fresh_cell(cell, zero_window);
}

#ifdef API_ALIGNED
bench_inline void *aligned_alloc_64(struct api api)
{
	return api_alloc_aligned(api, FRESH_ALIGN);
}

bench_noinline uint64_t aligned_window(const struct cell *cell, uint64_t count)
{
	(void)cell;
	return fresh_loop(count, aligned_alloc_64);
}

static void aligned_run(const struct cell *cell)
{
	void *object = aligned_alloc_64(api_open(cell->size));

	if (!object || (uintptr_t)object % FRESH_ALIGN)
		bench_die("an object is not aligned");
	free(object);
	fresh_cell(cell, aligned_window);
}
#endif

#endif
