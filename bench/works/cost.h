/*
 * The frame of the works that measure what one object costs: pinned, with an interface of its own for each cell, in
 * windows of which the best counts (bench_cost). Included by those works, after an interface (api/).
 */
#ifndef BENCH_WORK_COST_H
#define BENCH_WORK_COST_H

static struct api cost_api;	/* the running cell's */

static void cost_cell(const struct cell *cell, bench_window *window, unsigned int objects)
{
	bench_pin();
	cost_api = api_open(cell->size);
	bench_print("cycles/object", "-", "-", bench_cost(window, cell, objects));
	api_close(cost_api);
}

#endif
