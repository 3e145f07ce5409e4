/*
 * malloc.h: common code for tests of malloc. The tests are plain C programs, linked with the archive, or run with the
 * library preloaded. The tests therefore also check the origin of malloc.
 */
#ifndef TESTS_KIT_MALLOC_H
#define TESTS_KIT_MALLOC_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

__attribute__((weak)) const char *kmem_percpu_discipline(void);
struct kmem_cache;
__attribute__((weak)) struct kmem_cache *kmem_cache_of(const void *object);

/* Checks: malloc is libkmem's, and the discipline the requested one. */
static inline void check_ours(void)
{
	const char *wanted = getenv("KMEM_PERCPU");
	void *p = malloc(100);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	free(p);
	puts("a sanitizer's malloc comes first");
	exit(77);
#endif

	NEED(kmem_percpu_discipline && kmem_cache_of, "(is the library preloaded?)");
	NEED(kmem_cache_of(p));
	NEED(!wanted || strcmp(wanted, kmem_percpu_discipline()) == 0, "(%s)",
	      kmem_percpu_discipline());
	free(p);
}

/* fill writes a pattern computed from seed; is_filled checks the pattern. */
static inline void fill(void *p, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++)
		((unsigned char *)p)[i] = (unsigned char)(seed + i * 7 + (i >> 8));
}

static inline int is_filled(const void *p, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++)
		if (((const unsigned char *)p)[i] != (unsigned char)(seed + i * 7 + (i >> 8)))
			return 0;
	return 1;
}

#endif
