/* The worker over nothing at all: the loop alone, for comparison with the fast path in a header. */
#include "api_nothing_inline.h"
#include "work_cost.h"

const struct work bench_works[] = {
	{ "pair", cost_pair },
	{ "loop", cost_loop },
	{ NULL, NULL },
};
