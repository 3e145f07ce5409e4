/* The worker over kmalloc and kfree in a group's name, or nobody's. */
#include "api_account_kmalloc.h"
#include "work_cost.h"
#include "work_account.h"
#include "work_account_threads.h"

const struct work bench_works[] = {
	{ "pair", account_pair },
	{ "loop", account_loop },
	{ "threads-4k", account_threads },
	{ NULL, NULL },
};
