/* The worker over jemalloc's experimental batch interface. */
#include "api/jemalloc.h"
#include "works/bulk.h"

const struct work bench_works[] = {
	{ "bulk", bulk_run },
	{ NULL, NULL },
};
