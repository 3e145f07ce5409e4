/* The worker over empty functions: the cost of the calls, the loops and the filing. */
#include "api/nothing.h"
#include "works/apart.h"
#include "works/bulk.h"
#include "works/churn.h"
#include "works/cycle.h"
#include "works/pair.h"
#include "works/worst.h"
#include "works/worst_bulk.h"

/* The empty allocator has one object only, but filing needs as many objects as other subjects have. */
static void *nothing_own(size_t index)
{
	static char objects[WORST_OBJECTS][256] __attribute__((aligned(4096)));

	return objects[index];
}

/* The first line of the published table: an iteration with a barrier and no other work. */
bench_noinline uint64_t nothing_iterations(const struct cell *cell, uint64_t count)
{
	uint64_t start = clock_start();

	(void)cell;
	for (uint64_t i = 0; i < count; i++)
		__asm__ __volatile__("" ::: "memory");
	return clock_stop() - start;
}

static void nothing_for_loop(const struct cell *cell)
{
	bench_pin();
	bench_print("cycles/object", "-", "-", bench_cost(nothing_iterations, cell, 1));
}

static void nothing_worst(const struct cell *cell)
{
	if (cell->size != 256)
		bench_die("the filing is measured with objects of 256 bytes");
	worst_open(cell, nothing_own);
	bench_print("cycles/object", "-", "-", bench_cost(worst_bulk_window, cell, cell->batch));
}

const struct work bench_works[] = {
	{ "for-loop", nothing_for_loop },
	{ "pair", pair_run },
	{ "alloc", apart_alloc },
	{ "free", apart_free },
	{ "loop", loop_run },
	{ "bulk", bulk_run },
	{ "worst-bulk", nothing_worst },
	{ "live-set-cycle", cycle_forward },
	{ "live-set-cycle-reverse", cycle_reverse },
	{ "live-set-cycle-random", cycle_random },
	{ "churn", churn_run },
	{ NULL, NULL },
};
