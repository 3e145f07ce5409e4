/*
 * `live-set`: many allocated objects of one size, single-threaded and pinned, as many random replacements as objects,
 * whole object written. Resident memory at the peak, at the end of the replacements, and after the frees and a time for
 * the allocator to return memory: 1.5 s, one alloc and free (for allocators that only act in calls), 0.1 s. The
 * worker's table of pointers is touched first and subtracted. Included after an interface (api/).
 */
#ifndef BENCH_WORK_LIVE_H
#define BENCH_WORK_LIVE_H

#include <string.h>

static struct {
	struct api api;
	void **objects;
	size_t bytes;		/* of the table */
	double peak_rss, peak_pss;
} live;

static void live_peak(void)
{
	double rss, pss;

	bench_read_memory(&rss, &pss);
	if (rss > live.peak_rss)
		live.peak_rss = rss;
	if (pss > live.peak_pss)
		live.peak_pss = pss;
}

static void *live_alloc(const struct cell *cell, unsigned char fill)
{
	void *object = api_alloc(live.api);

	bench_check(object);
	memset(object, fill, cell->size);
	return object;
}

static void live_replace(const struct cell *cell, uint32_t count)
{
	uint64_t random = 2, start = bench_now_ns();
	double ns;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t slot = rng_index(rng_next(&random), count);

		api_free(live.api, live.objects[slot]);
		live.objects[slot] = live_alloc(cell, (unsigned char)i);
	}
	ns = (double)(bench_now_ns() - start);
	bench_print("ns/object", "-", "-", ns / count);
	bench_print("ops/s", "-", "-", count * 1e9 / ns);
}

static void live_run(const struct cell *cell)
{
	uint32_t count = bench_amounts.live_objects;

	bench_pin();
	live.bytes = count * sizeof(void *);
	live.objects = bench_table(live.bytes);
	live.api = api_open(cell->size);
	for (uint32_t i = 0; i < count; i++)
		live.objects[i] = live_alloc(cell, 1);
	live_peak();
	live_replace(cell, count);
	live_peak();
	bench_print("bytes", "rss", "peak", live.peak_rss - (double)live.bytes);
	bench_print("bytes", "pss", "peak", live.peak_pss - (double)live.bytes);
	bench_print_memory("end", (double)live.bytes);
	for (uint32_t i = 0; i < count; i++)
		api_free(live.api, live.objects[i]);
	bench_sleep_ms(1500);
	api_free(live.api, live_alloc(cell, 1));
	bench_sleep_ms(100);
	bench_print_memory("freed", (double)live.bytes);
	api_close(live.api);
}

#endif
