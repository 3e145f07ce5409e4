/*
 * start_pages.c: the pages of its own tables written by the library at its start and for its first caches: only a
 * few, because every process has them. Tables are as large as their contents, and missing nodes are not set up. And
 * each of many caches is found by its name after growth of the table of names. Not with nodes: each node's first
 * pages cost more than is looked for.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <kmem/kmem.h>

#include "kit/check.h"

/* The program's own writable data, by the linker. */
extern char __data_start[], _end[];

#define CACHES	40
/*
 * 17 pages, or 18 by the order of variables from the compiler and the linker. Variables between sparse arrays were 6
 * pages more, and the lists of 8 nodes and a page for each name 20. Debug builds have variables between arrays.
 */
#ifdef KM_DEBUG
#define MOST_KB	112
#else
#define MOST_KB	72
#endif

static unsigned long written_kb(void)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned long sum = 0, kb;
	uintptr_t start = 0, end = 0;
	char line[512];

	NEED(file);
	while (fgets(line, sizeof(line), file)) {
		uintptr_t from, to;

		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
			start = from;
			end = to;
		} else if (sscanf(line, "Anonymous: %lu", &kb) == 1 && start < (uintptr_t)_end &&
			   end > (uintptr_t)__data_start) {
			sum += kb;
		}
	}
	fclose(file);
	return sum;
}

static struct kmem_cache *make(int i)
{
	char name[32];

	snprintf(name, sizeof(name), "start-%d", i);
	struct kmem_cache *cache = kmem_cache_create(name, 64 + 8 * ((unsigned)i % 64), 0, 0, NULL);
	NEED(cache);
	return cache;
}

#define MANY	1200

/* Each existing name is reported as existing; an ended one is not. */
static int many(void)
{
	static struct kmem_cache *caches[MANY];

	for (int i = 0; i < MANY; i++)
		caches[i] = make(i);
	for (int i = 0; i < MANY; i += 100)
		kmem_cache_destroy(caches[i]);
	for (int i = 0; i < MANY; i += 50)
		make(i);
	return 0;
}

static void all_found(const char *self)
{
	char line[512];
	unsigned found = 0;

	snprintf(line, sizeof(line), "%s many 2>&1", self);
	FILE *from = popen(line, "r");
	NEED(from);
	while (fgets(line, sizeof(line), from))
		found += strstr(line, "a cache of that name exists") != NULL;
	NEED(!pclose(from));
	NEED(found == MANY / 100);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return many();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	puts("a sanitizer writes to these tables as well");
	return 77;
#endif
	NEED(slab_is_available());
	for (int i = 0; i < CACHES; i++)
		make(i);
	unsigned long kb = written_kb();
	printf("%lu KiB\n", kb);
	NEED(kb && kb <= MOST_KB);
	all_found(argv[0]);
	return 0;
}
