/* The worker over kmalloc and kfree, charged to a group or uncharged. */
#include "api/account_kmalloc.h"
#include "works/pair.h"
#include "works/account.h"
#include "works/account_threads.h"

const struct work bench_works[] = {
	{ "pair", account_pair },
	{ "loop", account_loop },
	{ "threads-4k", account_threads },
	{ NULL, NULL },
};
