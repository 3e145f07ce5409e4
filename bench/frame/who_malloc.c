/*
 * Names the file of malloc, from the map of the process, so a failed preload cannot pass for a figure. For libkmem's
 * malloc also the engine, discipline and version. This file has no timed code.
 */
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <kmem/stats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frame/bench.h"

/* Defined by libkmem's malloc only. */
#pragma weak kmem_percpu_discipline
#pragma weak kmem_version
#pragma weak kmem_cache_of
#pragma weak kmem_cache_get_stats

static void print_owner(uintptr_t address)
{
	static char buffer[4096];
	char line[4096], path[4096];
	uintptr_t start, end;
	FILE *maps = fopen("/proc/self/maps", "r");

	if (!maps)
		bench_die("cannot read /proc/self/maps");
	setvbuf(maps, buffer, _IOFBF, sizeof(buffer));
	while (fgets(line, sizeof(line), maps)) {
		path[0] = '\0';
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %4095s", &start, &end,
			   path) >= 2 &&
		    address >= start && address < end)
			printf("info malloc %s\n", path[0] ? path : "?");
	}
	fclose(maps);
}

static void print_ours(void)
{
	struct kmem_cache_stats stats = { .engine = "none" };
	void *object = malloc(64);
	struct kmem_cache *cache = kmem_cache_of(object);

	if (cache)
		kmem_cache_get_stats(cache, &stats);
	free(object);
	printf("info engine %s\n", stats.engine);
	printf("info discipline %s\n", kmem_percpu_discipline());
	printf("info version %s\n", kmem_version());
}

void bench_print_subject(void)
{
	print_owner((uintptr_t)malloc);
	printf("info libc glibc %s\n", gnu_get_libc_version());
	if (kmem_percpu_discipline && kmem_version && kmem_cache_of && kmem_cache_get_stats)
		print_ours();
}
