/*
 * The worker over a kmem_cache: one by one, in batches, and batches freed without naming the
 * cache.
 */
#include <string.h>

#include "api_cache.h"
#include "work_apart.h"
#include "work_bulk.h"
#include "work_cost.h"
#include "work_fresh.h"
#include "work_kfree_bulk.h"
#include "work_latency.h"
#include "work_live.h"
#include "work_threads.h"
#include "work_adrift.h"
#include "work_worst.h"
#include "work_worst_bulk.h"

const struct work bench_works[] = {
	{ "pair", cost_pair },
	{ "loop", cost_loop },
	{ "bulk", bulk_run },
	{ "kfree-bulk", kfree_bulk_run },
	{ "kmalloc-kfree-bulk", kmalloc_kfree_bulk_run },
	{ "alloc", apart_alloc },
	{ "free", apart_free },
	{ "latency-bulk", latency_bulk_warm },
	{ "latency-bulk-fresh", latency_bulk_fresh },
	{ "latency-loop", latency_loop_warm },
	{ "latency-loop-fresh", latency_loop_fresh },
	{ "worst-loop", worst_loop },
	{ "worst-bulk", worst_bulk },
	{ "producer-consumer", threads_pass },
	{ "threads-4k", threads_pairs },
	{ "live-set", live_run },
	{ "adrift", adrift_run },
	{ "zero", zero_run },
	{ NULL, NULL },
};
