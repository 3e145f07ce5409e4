/* The worker of `netio`: senders and receivers whose packets are objects of caches. */
#include "bench.h"
#include "work_netio.h"

const struct work bench_works[] = {
	{ "netio", netio_run },
	{ NULL, NULL },
};
