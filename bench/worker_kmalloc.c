/* The worker over kmalloc/kfree, kmalloc_bulk and kfree_bulk. */
#include "api_kmalloc.h"
#include "work_blocks.h"
#include "work_bulk.h"
#include "work_cost.h"
#include "work_fresh.h"
#include "work_idle.h"
#include "work_larson.h"
#include "work_threads.h"

const struct work bench_works[] = {
	{ "pair", cost_pair },
	{ "loop", cost_loop },
	{ "bulk", bulk_run },
	{ "producer-consumer", threads_pass },
	{ "threads-4k", threads_pairs },
	{ "larson", larson_run },
	{ "idle-threads", idle_run },
	{ "zero", zero_run },
	{ "blocks", blocks_run },
	{ "blocks-written", blocks_written_run },
	{ "realloc", realloc_run },
	{ "held", held_run },
	{ NULL, NULL },
};
