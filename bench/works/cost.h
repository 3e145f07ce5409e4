/*
 * The frame of the works that measure the cost of one object: pinned, with a fresh interface for each cell, in windows;
 * the best window counts (bench_cost). Included by these works, after an interface (api/).
 */
#ifndef BENCH_WORK_COST_H
#define BENCH_WORK_COST_H

static struct api cost_api;	/* the interface of the running cell */

static void cost_cell(const struct cell *cell, bench_window *window, unsigned int objects)
{
	bench_pin();
	cost_api = api_open(cell->size);
	bench_print("cycles/object", "-", "-", bench_cost(window, cell, objects));
	api_close(cost_api);
}

#endif
