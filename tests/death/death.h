/* death.h: helpers for the cases of death.c: the announcement of expected lines, and objects to misuse. */
#ifndef DEATH_H
#define DEATH_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

/* The parent reads the case's expected lines from this descriptor. */
#define CHECK_FD 2
#include "kit/cpus.h"

#include "cache/cache.h"
#include "os/os.h"

#include "steps.h"

#define OBJECTS 3000

static const char *mode;		/* in the child: what a misuse does */
static bool slob;			/* ... and whether kmalloc's blocks are of no cache */

/* Announces one line for the next step. Any line not announced fails the case. */
static void expect(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void expect(const char *format, ...)
{
	char line[512], step[128];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	dprintf(3, "libkmem: %s%s\n", line, next_step(line, step));
}

/* A block of so many bytes is beyond the function's limit. */
static void expect_beyond(const char *function, const char *bytes, const char *limit)
{
	expect("%s: unable to allocate %s bytes, gfp=0x1b00(GFP_KERNEL), reason: limit of %s (%s bytes)", function,
	       bytes, function, limit);
}

/* The misuse before was found at once: this code runs only after a warning. */
static void after_warning(void)
{
	NEED(strcmp(mode, "warn") == 0);
}

/* Hides a pointer's origin, and its free, from the compiler. */
static void *blind(void *p)
{
	__asm__ volatile("" : "+r"(p));
	return p;
}

static struct kmem_cache *cache_of(const char *name, unsigned size, slab_flags_t flags)
{
	struct kmem_cache *cache = kmem_cache_create(name, size, NULL, flags);

	NEED(cache);
	return cache;
}

static void *get(struct kmem_cache *cache)
{
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);

	NEED(p);
	memset(p, 0x5a, kmem_cache_size(cache));
	return blind(p);
}

/* Allocates and frees enough objects to move all cached objects to the slabs. */
static void churn(struct kmem_cache *cache)
{
	static void *objects[OBJECTS];

	for (int i = 0; i < OBJECTS; i++)
		objects[i] = get(cache);
	for (int i = 0; i < OBJECTS; i++)
		kmem_cache_free(cache, objects[i]);
	kmem_cache_shrink(cache);
}

#endif
