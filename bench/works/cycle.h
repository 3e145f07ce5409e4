/*
 * `live-set-cycle`: N objects of one size are allocated, each with its first word written, then all are freed: in the
 * order of allocation, in reverse, or at random. Single-threaded and pinned. The figures are the cycles of an
 * allocation, of a free, and of both, each from its best window. A window has whole cycles of about a millisecond, at
 * least one; one window first is untimed. The time of a clock reading is subtracted. Included after an interface
 * (api/).
 */
#ifndef BENCH_WORK_CYCLE_H
#define BENCH_WORK_CYCLE_H

#include <sys/mman.h>

#define CYCLE_WINDOW_NS 1000000u
#define CYCLE_MOST 100000000u	/* objects; the tables have 12 bytes for each */

enum cycle_order { CYCLE_FORWARD, CYCLE_REVERSE, CYCLE_RANDOM };

struct cycle {
	struct api api;
	void **objects;		/* in the order of allocation */
	uint32_t *turns;	/* the index of the object for each free */
	uint32_t count;
	uint64_t clock;		/* cycles of an empty part */
};

struct cycle_cost {
	double alloc, free;	/* cycles of one object */
};

static void cycle_set_turns(const struct cycle *cycle, enum cycle_order order)
{
	uint64_t random = 3;

	for (uint32_t i = 0; i < cycle->count; i++)
		cycle->turns[i] = order == CYCLE_REVERSE ? cycle->count - 1 - i : i;
	for (uint32_t i = cycle->count - 1; order == CYCLE_RANDOM && i; i--) {
		uint32_t other = rng_index(rng_next(&random), i + 1), turn = cycle->turns[i];

		cycle->turns[i] = cycle->turns[other];
		cycle->turns[other] = turn;
	}
}

bench_noinline struct cycle_cost cycle_window(const struct cycle *cycle, uint64_t rounds)
{
	const struct api api = cycle->api;
	const uint32_t count = cycle->count;
	uint64_t allocated = 0, freed = 0;
	double objects = (double)rounds * count;

	for (uint64_t round = 0; round < rounds; round++) {
		uint64_t start = clock_start(), middle;

		for (uint32_t i = 0; i < count; i++) {
			uint64_t *object = api_alloc(api);

			bench_check(object);
			*(volatile uint64_t *)object = i;
			cycle->objects[i] = object;
		}
		allocated += clock_stop() - start;
		bench_use(cycle->objects);
		middle = clock_start();
		for (uint32_t i = 0; i < count; i++)
			api_free(api, cycle->objects[cycle->turns[i]]);
		freed += clock_stop() - middle;
	}
	return (struct cycle_cost){ ((double)allocated - (double)(rounds * cycle->clock)) / objects,
				    ((double)freed - (double)(rounds * cycle->clock)) / objects };
}

static void cycle_measure(const struct cycle *cycle)
{
	struct cycle_cost best = { 0 };
	uint64_t begin = bench_now_ns(), rounds, ns;
	double both = 0;

	cycle_window(cycle, 1);
	ns = bench_now_ns() - begin;
	rounds = 1 + CYCLE_WINDOW_NS / (ns + 1);
	cycle_window(cycle, rounds);
	begin = bench_now_ns();
	for (unsigned int i = 0; i < BENCH_WINDOWS || bench_now_ns() - begin < bench_amounts.cell_us * 1000ull; i++) {
		struct cycle_cost cost = cycle_window(cycle, rounds);

		best.alloc = !i || cost.alloc < best.alloc ? cost.alloc : best.alloc;
		best.free = !i || cost.free < best.free ? cost.free : best.free;
		both = !i || cost.alloc + cost.free < both ? cost.alloc + cost.free : both;
	}
	bench_print("cycles/object", "alloc", "-", best.alloc);
	bench_print("cycles/object", "free", "-", best.free);
	bench_print("cycles/object", "-", "-", both);
}

static void cycle_run(const struct cell *cell, enum cycle_order order)
{
	struct cycle cycle = { .count = bench_amounts.live_objects };

	if (!cycle.count || cycle.count > CYCLE_MOST)
		bench_die("a cycle has 1 to 100000000 objects");
	if (cell->size < sizeof(uint64_t))
		bench_die("the objects of a cycle have a word that is written");
	bench_pin();
	cycle.objects = bench_table(cycle.count * sizeof(*cycle.objects));
	cycle.turns = bench_table(cycle.count * sizeof(*cycle.turns));
	cycle_set_turns(&cycle, order);
	cycle.clock = bench_clock_cost();
	cycle.api = api_open(cell->size);
	cycle_measure(&cycle);
	api_close(cycle.api);
	munmap(cycle.turns, cycle.count * sizeof(*cycle.turns));
	munmap(cycle.objects, cycle.count * sizeof(*cycle.objects));
}

static void cycle_forward(const struct cell *cell)
{
	cycle_run(cell, CYCLE_FORWARD);
}

static void cycle_reverse(const struct cell *cell)
{
	cycle_run(cell, CYCLE_REVERSE);
}

static void cycle_random(const struct cell *cell)
{
	cycle_run(cell, CYCLE_RANDOM);
}

#endif
