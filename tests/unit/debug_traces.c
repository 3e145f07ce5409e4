/*
 * debug_traces: with more stacks than there is room for, the stack with the most objects is the first line, at any
 * place in the walk; each object is in TOTAL, and in a line, or in the line of other stacks. With all memory granted,
 * with the least, and with none.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "os/os.h"

#define DEPTH	11		/* 2^DEPTH stacks */
#define MANY	5000

static struct kmem_cache *cache;
static unsigned refusals;	/* refusals still to come */
static bool bare;		/* no unwinder: one stack for all */

static bool refuse(const char *call)
{
	return !strcmp(call, "map") && refusals && refusals--;
}

static void odd(unsigned bits, int depth);

/* Each bit selects one of two functions to call. */
static __attribute__((noinline, noipa)) void even(unsigned bits, int depth)
{
	if (!depth)
		NEED(kmem_cache_alloc(cache, GFP_KERNEL));
	else if (bits & 1)
		odd(bits >> 1, depth - 1);
	else
		even(bits >> 1, depth - 1);
	__asm__ volatile("" ::: "memory");
}

static __attribute__((noinline, noipa)) void odd(unsigned bits, int depth)
{
	if (!depth)
		NEED(kmem_cache_alloc(cache, GFP_KERNEL));
	else if (bits & 1)
		odd(bits >> 1, depth - 1);
	else
		even(bits >> 1, depth - 1);
	__asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void leak(void)
{
	for (int i = 0; i < MANY; i++)
		NEED(kmem_cache_alloc(cache, GFP_KERNEL));
}

static char text[8 << 20];

static int print(unsigned times)
{
	int file = open("/tmp", O_TMPFILE | O_RDWR, 0600);

	NEED(file >= 0);
	refusals = times;
	int result = kmem_cache_print_traces(cache, file);
	refusals = 0;
	ssize_t bytes = pread(file, text, sizeof(text) - 1, 0);
	NEED(bytes >= 0 && bytes < (ssize_t)sizeof(text) - 1);
	text[bytes] = '\0';
	close(file);
	return result;
}

/* The lines of stacks add up; returns how many there are. */
static unsigned long add_up(unsigned long expected)
{
	unsigned long count, stacks, sum = 0, lines = 0, before = ~0ul, total = 0;

	for (char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
		if (sscanf(line, "%lu of %lu other stacks", &count, &stacks) == 2) {
			CHECK(lines + stacks == (1u << DEPTH) + 1, "%lu and %lu", lines, stacks);
			sum += count;
		} else if (sscanf(line, "%lu %*s age=", &count) == 1 && strncmp(line, "        ", 8)) {
			CHECK(count <= before, "%lu behind %lu", count, before);
			before = count;
			sum += count;
			lines++;
		} else if (sscanf(line, "TOTAL %lu\n", &count) == 1) {
			total = count;
		}
	}
	CHECK_EQUAL(total, expected);
	CHECK_EQUAL(sum, expected);
	CHECK(strtoul(text, NULL, 10) == (bare ? expected : MANY), "%.80s", text);
	return lines;
}

int main(void)
{
	const unsigned long all = (1u << DEPTH) + MANY;

	cache = kmem_cache_create("traced", 64, NULL, SLAB_STORE_USER);
	NEED(cache && kmem_cache_validate(cache) == 0);
	for (unsigned bits = 0; bits < 1u << DEPTH; bits++)
		even(bits, DEPTH);
	leak();
	km_os_fault = refuse;
	NEED(print(0) == 0);
	bare = !strstr(strstr(text, "\n        ") + 1, "\n        ");
	CHECK(add_up(all) == (bare ? 1 : (1u << DEPTH) + 1));
	/* The least memory tried. */
	NEED(print(8) == 0);
	CHECK(add_up(all) == (bare ? 1 : 16));
	CHECK(print(100) == -ENOMEM);
	CHECK(!*text, "%s", text);
	return failures != 0;
}
