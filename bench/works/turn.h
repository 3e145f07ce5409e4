/*
 * `turn`: objects of many kinds in turn, one of each at a time: allocated, first word written, freed. The number of
 * kinds is the cell's batch; sizes are 16, 32, 48 bytes and so on. Each call needs the data of another kind: a cache's
 * record, or a class's list. Included after an interface (api/).
 */
#ifndef BENCH_WORK_TURN_H
#define BENCH_WORK_TURN_H

#include "works/cost.h"

#define TURN_KINDS	256u
#define TURN_STEP	16u	/* bytes from one kind to the next */

static struct api turn_kinds[TURN_KINDS];

bench_noinline uint64_t turn_window(const struct cell *cell, uint64_t count)
{
	const size_t kinds = cell->batch;
	uint64_t start = clock_start();

	for (uint64_t i = 0; i < count; i++)
		for (size_t k = 0; k < kinds; k++) {
			void *object = api_alloc(turn_kinds[k]);

			bench_check(object);
			*(volatile uint64_t *)object = i;
			api_free(turn_kinds[k], object);
		}
	return clock_stop() - start;
}

static void turn_run(const struct cell *cell)
{
	if (!cell->batch || cell->batch > TURN_KINDS)
		bench_die("more kinds in turn than fit the table");
	bench_pin();
	for (unsigned int k = 0; k < cell->batch; k++)
		turn_kinds[k] = api_open((size_t)(k + 1) * TURN_STEP);
	bench_print("cycles/object", "-", "-", bench_cost(turn_window, cell, cell->batch));
	for (unsigned int k = 0; k < cell->batch; k++)
		api_close(turn_kinds[k]);
}

#endif
