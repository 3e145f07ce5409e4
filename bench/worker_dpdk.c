/* The worker over DPDK's mempool, one by one and in batches, inline as its users have it. */
#include "api_dpdk.h"
#include "work_bulk.h"
#include "work_cost.h"

const struct work bench_works[] = {
	{ "pair", cost_pair },
	{ "loop", cost_loop },
	{ "bulk", bulk_run },
	{ NULL, NULL },
};
