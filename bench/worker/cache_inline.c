/* The worker over a kmem_cache with the fast path in the header. */
#include "api/cache_inline.h"
#include "works/pair.h"
#include "works/threads.h"

const struct work bench_works[] = {
	{ "pair", pair_run },
	{ "loop", loop_run },
	{ "producer-consumer", threads_pass },
	{ "threads-4k", threads_pairs },
	{ NULL, NULL },
};
