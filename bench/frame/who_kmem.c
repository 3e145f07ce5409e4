/*
 * Names the library behind the kmem_ functions of this process: version, discipline, and the engine in use, so a
 * refused option cannot pass for a figure.
 */
#include <kmem/kmem.h>
#include <kmem/stats.h>
#include <stdio.h>

#include "frame/bench.h"

void bench_print_subject(void)
{
	struct kmem_cache_stats stats;
	struct kmem_cache *probe = kmem_cache_create("probe", 64, NULL, 0);

	if (!probe)
		bench_die("the library did not start");
	kmem_cache_get_stats(probe, &stats);
	kmem_cache_destroy(probe);
	printf("info engine %s\n", stats.engine);
	printf("info discipline %s\n", kmem_percpu_discipline());
	printf("info version %s\n", kmem_version());
}
