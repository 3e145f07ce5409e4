/*
 * api.h: common code for tests of the public interface. The program runs itself once for each engine (the process
 * default, by KMEM_OPTIONS), and each case in a process of its own.
 */
#ifndef TESTS_KIT_API_H
#define TESTS_KIT_API_H

#include <stdint.h>

#include <kmem/inline.h>
#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "cases.h"
#include "slab/engines.h"

/* The engine is slob: objects do not record their cache, and kmalloc is byte-granular. */
static bool slob;

/* Creates a cache of the default engine, without arguments. */
static struct kmem_cache *make(const char *name, unsigned size)
{
	struct kmem_cache *cache = kmem_cache_create(name, size, NULL, 0);

	NEED(cache);
	return cache;
}

/*
 * Checks the cache is empty after a shrink: no objects in use, no slabs, no cached objects; then destroys the cache.
 */
static void gone(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	NEED(kmem_cache_shrink(cache) == 0);
	kmem_cache_get_stats(cache, &stats);
	NEED(stats.active_objects == 0 && stats.total_slabs == 0 && stats.shelf_objects == 0);
	NEED(kmem_check_all() == 0);
	kmem_cache_destroy(cache);
}

/*
 * Returns: whether all `bytes` bytes are `value`. The asm hides the requested size from the compiler: an object is
 * larger.
 */
static int all(const void *p, int value, size_t bytes)
{
	const unsigned char *byte = p;

	__asm__("" : "+r"(byte));
	for (size_t i = 0; i < bytes; i++)
		if (byte[i] != (unsigned char)value)
			return 0;
	return 1;
}

/*
 * Runs the cases for the engine in argv[1]; without an argument runs this program again for each engine, or for
 * TEST_ENGINE alone.
 */
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
/* API_MAIN with `more`, ",key:value", added to KMEM_OPTIONS. */
#define API_MAIN_OPTIONS(cases, more)                                                              \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		return api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), more);        \
	}

#endif
