/*
 * figures.c: a malloc program for a comparison of figures with the kernel. figures [fork] FILE: allocates objects,
 * blocks and mappings, touched and freed in part, grown blocks, and a group with a limit. Writes the program's own
 * figures as JSON into FILE, and the process number, the bytes of all blocks and the figures of mallinfo2 and
 * mallctl to standard output, then "ready", and waits. fork: the program is the child of a running process.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "tests/kit/rollup.h"

#define MIB	((size_t)1 << 20)
#define MANY	30000

int mallctl(const char *name, void *old, size_t *old_bytes, const void *new, size_t new_bytes);

static char *block[MANY];
static size_t usable;

static void *want(void *p)
{
	if (!p)
		exit(3);
	return p;
}

static char *get(size_t bytes)
{
	char *p = want(malloc(bytes));

	usable += malloc_usable_size(p);
	return memset(p, 1, bytes);
}

static void put(char *p)
{
	usable -= malloc_usable_size(p);
	free(p);
}

static size_t told(const char *name)
{
	size_t bytes = 0, length = sizeof(bytes);

	return mallctl(name, &bytes, &length, NULL, 0) ? 0 : bytes;
}

/*
 * Memory with each byte written: mallctl's resident figure grows at least as much as the kernel's. No huge page is
 * added then.
 */
static void all_touched(void)
{
	char **p = want(calloc(2000, sizeof(*p)));
	size_t bytes = told("stats.resident"), kernel = rollup_kb("Anonymous") * 1024;

	for (int i = 0; i < 2000; i++)
		p[i] = get(60000);
	printf("grown %zu\nkernel_grown %zu\n", told("stats.resident") - bytes, rollup_kb("Anonymous") * 1024 - kernel);
	for (int i = 0; i < 2000; i++)
		put(p[i]);
	free(p);
}

/* After a peak: two thirds of each size are freed, in the order of allocation. */
static void peak(void)
{
	for (size_t i = 0; i < MANY; i++)
		block[i] = get(i % 10 ? 16 + i % 3000 : 20000 + i * 3);
	for (size_t i = 0; i < MANY; i++)
		if (i % 3)
			put(block[i]);
}

static void blocks(void)
{
	char *grown = want(malloc(100));

	for (size_t bytes = 100; bytes < 2 * MIB; bytes += bytes / 8)
		memset(grown = want(realloc(grown, bytes)), 1, bytes);
	free(grown);
	for (size_t bytes = 100; bytes < MIB; bytes += bytes / 8)
		memset(grown = want(realloc(bytes == 100 ? NULL : grown, bytes)), 1, bytes);
	usable += malloc_usable_size(grown);
	for (int i = 0; i < 6; i++)
		block[i] = get((5 + (size_t)i) * MIB);
	put(block[0]);
	put(block[4]);
	/* Half of these was never touched. */
	for (int i = 0; i < 3; i++) {
		char *half = want(calloc(1, 12 * MIB));

		usable += malloc_usable_size(half);
		memset(half, 1, 6 * MIB);
	}
}

static void group(void)
{
	struct mem_cgroup *tenant = want(mem_cgroup_create(NULL, "tenant", 0));
	size_t bytes = 0;

	if (mem_cgroup_set_max(tenant, 4 * MIB))
		exit(4);
	for (int i = 0; i < 1000; i++)
		bytes += ksize(want(kmalloc_in(tenant, 1000, GFP_KERNEL)));
	printf("charged %zu\n", bytes);
}

int main(int argc, char **argv)
{
	static char text[4096];

	setvbuf(stdout, text, _IOFBF, sizeof(text));
	if (getenv("KMEM_OPTIONS") && !strcmp(getenv("KMEM_OPTIONS"), "huge:0"))
		all_touched();
	peak();
	if (argc > 2 && !strcmp(argv[1], "fork")) {
		if (fork())
			return pause();
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	}
	blocks();
	group();
	struct mallinfo2 info = mallinfo2();
	int fd = open(argv[argc - 1], O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || kmem_print_json(fd))
		exit(5);
	close(fd);
	printf("number %d\nusable %zu\narena %zu\nuordblks %zu\nfordblks %zu\nhblkhd %zu\n", (int)getpid(), usable,
	       info.arena, info.uordblks, info.fordblks, info.hblkhd);
	printf("allocated %zu\nresident %zu\nready\n", told("stats.allocated"), told("stats.resident"));
	fflush(stdout);
	for (;;)
		pause();
}
