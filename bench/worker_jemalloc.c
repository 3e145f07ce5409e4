/* The worker over jemalloc's experimental batch interface. */
#include "api_jemalloc.h"
#include "work_bulk.h"

const struct work bench_works[] = {
	{ "bulk", bulk_run },
	{ NULL, NULL },
};
