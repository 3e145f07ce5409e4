/*
 * malloc_slabs.c: no class of malloc wastes more than a fifth of each slab, in any engine. So blocks of any size
 * below the largest class, many freed and allocated again, take little more than their bytes.
 */
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/cases.h"
#include "kit/malloc.h"
#include "kit/random.h"
#include "kmalloc/size_classes.h"

#define LARGEST	KM_MALLOC_MAX_SMALL
#define BLOCKS	((20u << 20) / 9000)

/* Of each size; of caches without shared slabs. */
static void classes(void)
{
	unsigned seen = 0;
	const struct kmem_cache *last = NULL;

	for (size_t size = 16; size <= LARGEST; size += 16) {
		void *p = malloc(size);
		struct kmem_cache *cache = kmem_cache_of(p);
		struct kmem_cache_stats stats;

		NEED(p && cache);
		kmem_cache_get_stats(cache, &stats);
		free(p);
		if (cache == last)
			continue;
		last = cache;
		size_t bytes = (size_t)stats.pages_per_slab * 4096, used = (size_t)stats.objects_per_slab * stats.size;
		CHECK(used <= bytes && bytes - used <= bytes / 5, "%s: %u objects of %u in %zu bytes", stats.name,
		      stats.objects_per_slab, (unsigned)stats.size, bytes);
		seen++;
	}
	CHECK(seen > KM_MALLOC_CLASSES * 3 / 4, "%u", seen);
}

static size_t used_bytes(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return stats.pages_used * 4096;
}

/* In turns, nine of ten go, and as many come. */
static void in_turns(void)
{
	static void *block[BLOCKS];
	static size_t bytes[BLOCKS];
	size_t live = 0, before = used_bytes();

	for (int turn = 0; turn < 4; turn++) {
		for (size_t i = 0; i < BLOCKS; i++) {
			if (block[i])
				continue;
			bytes[i] = 17000 + random_below(1000);
			live += bytes[i];
			NEED((block[i] = malloc(bytes[i])));
		}
		size_t used = used_bytes() - before;
		CHECK(used < live + live / 3, "%zu of %zu", used, live);
		for (size_t i = 0; i < BLOCKS && turn < 3; i++) {
			if (!random_below(10))
				continue;
			live -= bytes[i];
			free(block[i]);
			block[i] = NULL;
		}
	}
}

static const struct test_case cases[] = { { "classes", classes }, { "in turns", in_turns } };

int main(int argc, char **argv)
{
	static const char *const engines[] = { "sheaf", "slub", "slab" };
	int failed = 0;

	if (argc > 1)
		return run_cases(cases, sizeof(cases) / sizeof(cases[0]), argv[1]);
	check_ours();
	for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
		char options[32];

		snprintf(options, sizeof(options), "engine:%s", engines[i]);
		failed |= again(argv[0], engines[i], options) != 0;
	}
	return failed;
}
