/* The worker without any code: the loop alone, for a comparison with the fast path in a header. */
#include "api/nothing_inline.h"
#include "works/pair.h"

const struct work bench_works[] = {
	{ "pair", pair_run },
	{ "loop", loop_run },
	{ NULL, NULL },
};
