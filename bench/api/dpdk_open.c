/*
 * Starts DPDK without huge pages, devices, files or telemetry, and makes pools. The pinned CPU becomes the main lcore,
 * because the per-lcore cache must be in use.
 */
#include <rte_eal.h>
#include <rte_mempool.h>
#include <rte_version.h>
#include <stdio.h>

#include "api/dpdk.h"

#define POOL_OBJECTS 8191u	/* a power of two less one: the capacity of the ring behind the pool */

static void dpdk_start(void)
{
	static bool started;
	char lcore[16];
	char *arguments[] = { "bench", "-l", lcore, "--no-huge", "--no-pci", "-m", "64",
			      "--no-telemetry", "--no-shconf", "--log-level=1", NULL };

	if (started)
		return;
	snprintf(lcore, sizeof(lcore), "%d", bench_amounts.cpu < 0 ? 0 : bench_amounts.cpu);
	if (rte_eal_init(sizeof(arguments) / sizeof(*arguments) - 1, arguments) < 0)
		bench_die("DPDK does not start");
	started = true;
}

struct api api_open(size_t size)
{
	struct api api;

	dpdk_start();
	api.pool = rte_mempool_create("bench", POOL_OBJECTS, (unsigned int)size,
				      RTE_MEMPOOL_CACHE_MAX_SIZE, 0, NULL, NULL, NULL, NULL,
				      SOCKET_ID_ANY, 0);
	if (!api.pool)
		bench_die("cannot make a mempool");
	return api;
}

void api_close(struct api api)
{
	rte_mempool_free(api.pool);
}

void bench_print_subject(void)
{
	printf("info version %u.%u.%u\n", RTE_VER_YEAR, RTE_VER_MONTH, RTE_VER_MINOR);
}
