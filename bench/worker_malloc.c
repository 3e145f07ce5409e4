/*
 * The worker over malloc/free: every peer, and our own malloc; linked or preloaded by the driver.
 */
#include "api_malloc.h"
#include "work_blocks.h"
#include "work_cost.h"
#include "work_fresh.h"
#include "work_idle.h"
#include "work_larson.h"
#include "work_live.h"
#include "work_threads.h"
#include "work_adrift.h"
#include "work_worst.h"

const struct work bench_works[] = {
	{ "pair", cost_pair },		   { "loop", cost_loop },
	{ "worst-loop", worst_loop },	   { "producer-consumer", threads_pass },
	{ "threads-4k", threads_pairs },   { "larson", larson_run },
	{ "live-set", live_run },	   { "idle-threads", idle_run },
	{ "adrift", adrift_run },
	{ "zero", zero_run },		   { "aligned", aligned_run },
	{ "blocks", blocks_run },	   { "blocks-written", blocks_written_run },
	{ "realloc", realloc_run },	   { "held", held_run },
	{ NULL, NULL },
};
