/* The worker over malloc/free of every peer and of libkmem; linked or preloaded by the driver. */
#include "api/malloc.h"
#include "works/blocks.h"
#include "works/churn.h"
#include "works/cycle.h"
#include "works/pair.h"
#include "works/fresh.h"
#include "works/idle.h"
#include "works/larson.h"
#include "works/live.h"
#include "works/threads.h"
#include "works/turn.h"
#include "works/adrift.h"
#include "works/worst.h"

const struct work bench_works[] = {
	{ "pair", pair_run },		   { "loop", loop_run },
	{ "worst-loop", worst_loop },	   { "producer-consumer", threads_pass },
	{ "threads-4k", threads_pairs },   { "larson", larson_run },
	{ "live-set", live_run },	   { "idle-threads", idle_run },
	{ "adrift", adrift_run },	   { "turn", turn_run },
	{ "zero", zero_run },		   { "aligned", aligned_run },
	{ "blocks", pair_run },	   { "blocks-written", blocks_written_run },
	{ "realloc", realloc_run },	   { "held", held_run },
	{ "churn", churn_run },		   { "live-set-cycle", cycle_forward },
	{ "live-set-cycle-reverse", cycle_reverse },
	{ "live-set-cycle-random", cycle_random },
	{ NULL, NULL },
};
