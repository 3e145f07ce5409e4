/* The worker over a kmem_cache whose fast path stands in the header. */
#include "api_cache_inline.h"
#include "work_cost.h"
#include "work_threads.h"

const struct work bench_works[] = {
	{ "pair", cost_pair },
	{ "loop", cost_loop },
	{ "producer-consumer", threads_pass },
	{ "threads-4k", threads_pairs },
	{ NULL, NULL },
};
