/* The worker over DPDK's mempool, single objects and batches, inline. */
#include "api/dpdk.h"
#include "works/bulk.h"
#include "works/pair.h"

const struct work bench_works[] = {
	{ "pair", pair_run },
	{ "loop", loop_run },
	{ "bulk", bulk_run },
	{ NULL, NULL },
};
