/* The worker over a kmem_cache: single objects, batches, and batches freed without the cache. */
#include <string.h>

#include "api/cache.h"
#include "works/apart.h"
#include "works/bulk.h"
#include "works/cycle.h"
#include "works/pair.h"
#include "works/fresh.h"
#include "works/kfree_bulk.h"
#include "works/latency.h"
#include "works/live.h"
#include "works/threads.h"
#include "works/turn.h"
#include "works/adrift.h"
#include "works/worst.h"
#include "works/worst_bulk.h"

const struct work bench_works[] = {
	{ "pair", pair_run },
	{ "loop", loop_run },
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
	{ "live-set-cycle", cycle_forward },
	{ "live-set-cycle-reverse", cycle_reverse },
	{ "live-set-cycle-random", cycle_random },
	{ "adrift", adrift_run },
	{ "zero", zero_run },
	{ "turn", turn_run },
	{ NULL, NULL },
};
