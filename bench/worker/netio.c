/* The worker of `netio`: senders and receivers with packets from caches. */
#include "frame/bench.h"
#include "works/netio.h"

const struct work bench_works[] = {
	{ "netio", netio_run },
	{ NULL, NULL },
};
