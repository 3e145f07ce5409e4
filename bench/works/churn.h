/*
 * `churn`: a steady state of N allocated objects of mixed sizes. A random object is freed and replaced by an object of
 * another size, first word written; the cost of one replacement, alone or beside a thread with its own N objects. Sizes
 * are uniform from the cell's `low` to its size. Each set is replaced twice before the clock runs. Included after an
 * interface (api/) for any size.
 */
#ifndef BENCH_WORK_CHURN_H
#define BENCH_WORK_CHURN_H

#include <sys/mman.h>

#include "works/cost.h"

#define CHURN_SETS 65u		/* of the main thread and 64 others */
#define CHURN_MAIN 1000u	/* maximum of the main thread's objects, if other threads are measured */
#define CHURN_MOST 100000000u	/* objects of a set */
#define CHURN_WARM 2u		/* replacements of each object */

struct churn_set {
	void **objects;
	uint64_t random;
	uint32_t count;
};

static struct {
	struct churn_set sets[CHURN_SETS];
	_Atomic(unsigned int) used;
} churn;

static __thread struct churn_set *churn_own;

bench_inline void *churn_alloc(const struct cell *cell, struct api api, uint64_t random)
{
	uint64_t *object = api_alloc_sized(api, rng_between(random, cell->low, (uint32_t)cell->size));

	bench_check(object);
	*(volatile uint64_t *)object = random;
	return object;
}

bench_inline void churn_replace(const struct cell *cell, struct churn_set *set, uint64_t count)
{
	const struct api api = cost_api;
	uint64_t random = set->random;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t next = rng_next(&random);
		uint32_t slot = rng_index(next, set->count);

		api_free(api, set->objects[slot]);
		set->objects[slot] = churn_alloc(cell, api, next);
	}
	set->random = random;
}

/* Makes the calling thread's set of objects, and brings the set to its steady state. */
bench_noinline void churn_fill(const struct cell *cell, uint32_t count)
{
	unsigned int index = atomic_fetch_add(&churn.used, 1);
	struct churn_set *set = &churn.sets[index];

	if (index >= CHURN_SETS)
		bench_die("too many threads at once");
	set->objects = bench_table(count * sizeof(void *));
	set->count = count;
	set->random = 0x2000 + index;
	for (uint32_t i = 0; i < count; i++)
		set->objects[i] = churn_alloc(cell, cost_api, rng_next(&set->random));
	churn_replace(cell, set, (uint64_t)CHURN_WARM * count);
	churn_own = set;
}

bench_noinline uint64_t churn_window(const struct cell *cell, uint64_t count)
{
	uint64_t start;

	if (!churn_own)		/* the first, untimed window of a thread */
		churn_fill(cell, bench_amounts.live_objects);
	start = clock_start();
	churn_replace(cell, churn_own, count);
	return clock_stop() - start;
}

static void churn_run(const struct cell *cell)
{
	uint32_t count = bench_amounts.live_objects;

	if (!count || count > CHURN_MOST)
		bench_die("a churn has 1 to 100000000 objects");
	if (cell->low < sizeof(uint64_t) || cell->low > cell->size || cell->size > UINT32_MAX)
		bench_die("the sizes of a churn are from 8 bytes up, the least first");
	bench_pin();
	cost_api = api_open(cell->size);
	atomic_store(&churn.used, 0);
	churn_fill(cell, cell->threads > 1 && count > CHURN_MAIN ? CHURN_MAIN : count);
	bench_print("cycles/object", "-", "-", bench_cost(churn_window, cell, 1));
	for (unsigned int k = 0; k < atomic_load(&churn.used); k++) {
		struct churn_set *set = &churn.sets[k];

		for (uint32_t i = 0; i < set->count; i++)
			api_free(cost_api, set->objects[i]);
		munmap(set->objects, set->count * sizeof(void *));
	}
	churn_own = NULL;
	api_close(cost_api);
}

#endif
