/*
 * kinds.c: a program with every kind of memory: objects of each engine, blocks of whole pages, some of them cached,
 * blocks above 4 MiB, much metadata. kinds WORD...: reserve: some memory is committed ahead; locked: all is locked
 * from the start; caches: with very many; many: more large blocks than separate mappings; fork: in a child that goes
 * on. The program prints its number and "ready", and waits.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

#include <kmem/kmem.h>

#include "slab/engines.h"

#define MIB	((size_t)1 << 20)

static void *want(void *p)
{
	if (!p)
		exit(3);
	return p;
}

static bool has(char **words, const char *word)
{
	while (*words && strcmp(*words, word))
		words++;
	return *words != NULL;
}

static void objects(void)
{
	static const char *const engines[] = { KM_ENGINE_NAMES };

	for (int i = 0; i < 4; i++) {
		struct kmem_cache_args args = { .engine = engines[i] };
		struct kmem_cache *cache = want(kmem_cache_create(engines[i], 200, &args, 0));

		for (int j = 0; j < 20000; j++)
			memset(want(kmem_cache_alloc(cache, GFP_KERNEL)), 1, 200);
	}
	for (int i = 0; i < 20000; i++)
		if (i % 3)
			want(kmalloc(8 + i % 1000, GFP_KERNEL));
		else
			kfree(want(kmalloc(8 + i % 1000, GFP_KERNEL)));
}

static void blocks(void)
{
	for (int i = 0; i < 160; i++) {
		size_t bytes = (size_t)10000 << i % 9;
		char *p = want(kvmalloc(bytes, GFP_KERNEL));

		memset(p, 1, bytes / 2);
		if (i % 5 == 0)
			kvfree(p);
	}
}

static void big_blocks(int count)
{
	char *p[3000];

	for (int i = 0; i < count; i++)
		memset(p[i] = want(kvmalloc(5 * MIB, GFP_KERNEL)), 1, MIB / 16);
	for (int i = 0; i < count; i += 3)
		kvfree(p[i]);
}

int main(int argc, char **argv)
{
	(void)argc;
	if (has(argv, "locked") && mlockall(MCL_CURRENT | MCL_FUTURE))
		exit(puts("refused\nready") < 0);
	if (has(argv, "reserve"))
		kmem_reserve(want(kmem_cache_create("reserved", 500, 0, 0, NULL)), 50000);
	objects();
	blocks();
	big_blocks(has(argv, "many") ? 2000 : 10);
	for (int i = 0; has(argv, "caches") && i < 10000; i++) {
		char name[32];

		snprintf(name, sizeof(name), "of many %d", i);
		want(kmem_cache_alloc(want(kmem_cache_create(name, 64, 0, 0, NULL)), GFP_KERNEL));
	}
	if (has(argv, "fork")) {
		if (fork())
			return pause();
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		blocks();
	}
	printf("number %d\nready\n", (int)getpid());
	fflush(stdout);
	pause();
	return 0;
}
