/*
 * api.h: what the tests of the public interface share. The program runs itself once for each engine (as the process
 * default, by KMEM_OPTIONS), and there each case in a process of its own.
 */
#ifndef TESTS_KIT_API_H
#define TESTS_KIT_API_H

#include <stdint.h>

#include <kmem/inline.h>
#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "cases.h"
#include "slab/engines.h"

/* The engine is slob: an object does not say whose it is, and kmalloc is by the byte. */
static bool slob;

/* An unsized cache of the default engine. */
static struct kmem_cache *make(const char *name, unsigned size)
{
	struct kmem_cache *cache = kmem_cache_create(name, size, NULL, 0);

	NEED(cache);
	return cache;
}

/* Everything is back: no object, and no slab but those that must keep their type. */
static void gone(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	NEED(kmem_cache_shrink(cache) == 0);
	kmem_cache_get_stats(cache, &stats);
	NEED(stats.active_objects == 0 && stats.total_slabs == 0 && stats.shelf_objects == 0);
	NEED(kmem_check_all() == 0);
	kmem_cache_destroy(cache);
}

/* Is every byte of it `value`? The compiler does not see how many bytes were asked for: an object has more. */
static int all(const void *p, int value, size_t bytes)
{
	const unsigned char *byte = p;

	__asm__("" : "+r"(byte));
	for (size_t i = 0; i < bytes; i++)
		if (byte[i] != (unsigned char)value)
			return 0;
	return 1;
}

/* Argument: the engine; none: each of them, or that of TEST_ENGINE alone, by running this program again. */
static int api_main(int argc, char **argv, const struct test_case *cases, size_t count, const char *more)
{
	static const char *const engines[] = { KM_ENGINE_NAMES };
	const char *only = getenv("TEST_ENGINE");
	int failed = 0;

	if (argc > 1) {
		slob = strcmp(argv[1], "slob") == 0;
		return run_cases(cases, count, argv[1]);
	}
	for (size_t i = 0; i < (only ? 1 : sizeof(engines) / sizeof(engines[0])); i++) {
		const char *engine = only ?: engines[i];
		char options[64];

		snprintf(options, sizeof(options), "engine:%s%s", engine, more);
		failed |= again(argv[0], engine, options) != 0;
	}
	return failed;
}

#define API_MAIN(cases) API_MAIN_OPTIONS(cases, "")
/* The same with ",key:value" in KMEM_OPTIONS as well. */
#define API_MAIN_OPTIONS(cases, more)                                                              \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		return api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), more);        \
	}

#endif
