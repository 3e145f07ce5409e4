/* The worker over DPDK's mempool behind plain calls. */
#include "api_dpdk_calls.h"
#include "work_bulk.h"
#include "work_cost.h"

const struct work bench_works[] = {
	{ "pair", cost_pair },
	{ "loop", cost_loop },
	{ "bulk", bulk_run },
	{ NULL, NULL },
};
