/*
 * Who is behind malloc in this process: the file that holds it, found in the map of the process, so
 * that a preload that did not happen cannot pass for a figure. And, where it is our own, its
 * discipline and version. Never calls the allocator while looking.
 */
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* Only our own malloc has them. */
__attribute__((weak)) const char *kmem_percpu_discipline(void);
__attribute__((weak)) const char *kmem_version(void);

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

void bench_print_subject(void)
{
	print_owner((uintptr_t)malloc);
	printf("info libc glibc %s\n", gnu_get_libc_version());
	if (kmem_percpu_discipline && kmem_version) {
		printf("info discipline %s\n", kmem_percpu_discipline());
		printf("info version %s\n", kmem_version());
	}
}
