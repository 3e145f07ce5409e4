/* The worker over kmalloc/kfree, kmalloc_bulk and kfree_bulk. */
#include "api/kmalloc.h"
#include "works/blocks.h"
#include "works/bulk.h"
#include "works/churn.h"
#include "works/cycle.h"
#include "works/pair.h"
#include "works/fresh.h"
#include "works/idle.h"
#include "works/larson.h"
#include "works/threads.h"
#include "works/turn.h"

const struct work bench_works[] = {
	{ "pair", pair_run },
	{ "loop", loop_run },
	{ "bulk", bulk_run },
	{ "producer-consumer", threads_pass },
	{ "threads-4k", threads_pairs },
	{ "larson", larson_run },
	{ "idle-threads", idle_run },
	{ "zero", zero_run },
	{ "turn", turn_run },
	{ "blocks", pair_run },
	{ "blocks-written", blocks_written_run },
	{ "realloc", realloc_run },
	{ "held", held_run },
	{ "live-set-cycle", cycle_forward },
	{ "live-set-cycle-reverse", cycle_reverse },
	{ "live-set-cycle-random", cycle_random },
	{ "churn", churn_run },
	{ NULL, NULL },
};
