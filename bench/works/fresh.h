/*
 * `zero` (a zeroed object, and its free) and `aligned` (to 64 bytes): the cost of one object, alone or beside threads
 * with the same work. The work writes nothing; the allocator may. Included after an interface (api/).
 */
#ifndef BENCH_WORK_FRESH_H
#define BENCH_WORK_FRESH_H

#include <stdlib.h>
#include <string.h>

#include "works/pair.h"

#define FRESH_ALIGN 64u

bench_noinline uint64_t zero_window(const struct cell *cell, uint64_t count)
{
	(void)cell;
	return pair_loop(count, api_zalloc);
}

/* A figure of `zero` counts only if the earlier content is gone. */
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
	cost_cell(cell, zero_window, 1);
}

#ifdef API_ALIGNED
bench_inline void *aligned_alloc_64(struct api api)
{
	return api_alloc_aligned(api, FRESH_ALIGN);
}

bench_noinline uint64_t aligned_window(const struct cell *cell, uint64_t count)
{
	(void)cell;
	return pair_loop(count, aligned_alloc_64);
}

static void aligned_run(const struct cell *cell)
{
	void *object = aligned_alloc_64(api_open(cell->size));

	if (!object || (uintptr_t)object % FRESH_ALIGN)
		bench_die("an object is not aligned");
	free(object);
	cost_cell(cell, aligned_window, 1);
}
#endif

#endif
