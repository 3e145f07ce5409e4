/*
 * guard_slabs: with own_addresses and guard_slabs at most 15 slabs are neighbours: behind each object, at most so far
 * away, is an inaccessible page. The number of mappings stays near this number. Objects are allocated and freed as
 * before. Unused slabs between guards take no memory. With two memory nodes as well.
 */
#define _GNU_SOURCE
#include <unistd.h>

#include "kit/api.h"
#include "kit/mappings.h"
#include "kit/rollup.h"

#define OBJECTS 20000u
static void *many[OBJECTS];

/* Asks the system, without a fault. */
static bool is_readable(int to, const char *p)
{
	return write(to, p, 1) == 1;
}

static void guarded(size_t size)
{
	struct kmem_cache *cache = make("guarded", size);
	struct kmem_cache_stats stats;
	unsigned before = mappings_of_all();
	int ends[2];

	NEED(pipe(ends) == 0);
	for (size_t i = 0; i < OBJECTS; i++) {
		NEED((many[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		memset(many[i], 7, size);
	}
	kmem_cache_get_stats(cache, &stats);
	unsigned after = mappings_of_all();
	/* No slab is longer than 2^3 pages by default. */
	const size_t far = 16 * ((size_t)4096 << 3);
	CHECK(after <= before + 2 * (stats.total_slabs / 15 + 2) + 40, "%u mappings, then %u, for %lu slabs", before,
	      after, stats.total_slabs);
	for (size_t i = 0; i < OBJECTS && !slob; i += 97) {
		const char *at = many[i];
		size_t step = 0;

		for (char c; step < far && is_readable(ends[1], at + step); step += 4096)
			NEED(read(ends[0], &c, 1) == 1);
		CHECK(step < far, "%zu bytes behind an object of %zu all can be read", far, size);
	}
	for (size_t i = 0; i < OBJECTS; i++)
		kmem_cache_free(cache, many[i]);
	gone(cache);
	close(ends[0]);
	close(ends[1]);
}

/* Caches with a slab each take their spans from memory that others have used. */
static void unused_ones(void)
{
	enum { BLOCKS = 64, FREED = 24, CACHES = 40 };
	const size_t block = 1 << 20;
	struct kmem_cache *caches[CACHES];
	void *objects[CACHES], *blocks[BLOCKS];
	const unsigned long first_kb = rollup_kb("Anonymous");

	for (unsigned i = 0; i < BLOCKS; i++) {
		NEED((blocks[i] = kmalloc(block, GFP_KERNEL)));
		memset(blocks[i], 7, block);
	}
	for (unsigned i = 0; i < FREED; i++)
		kfree(blocks[i]);
	for (unsigned i = 0; i < CACHES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "unused-%u", i);
		caches[i] = make(name, 2000);
		NEED((objects[i] = kmem_cache_alloc(caches[i], GFP_KERNEL)));
	}
	for (unsigned i = FREED; i < BLOCKS; i++)
		kfree(blocks[i]);
	kmem_shrink_all();
	const unsigned long kb = rollup_kb("Anonymous");
	CHECK(kb <= first_kb + 4096, "%lu KiB, then %lu, for %u objects", first_kb, kb, (unsigned)CACHES);
	for (unsigned i = 0; i < CACHES; i++) {
		kmem_cache_free(caches[i], objects[i]);
		gone(caches[i]);
	}
}

static void small_ones(void) { guarded(64); }
static void middling_ones(void) { guarded(600); }
static void large_ones(void) { guarded(3000); }

static const struct test_case cases[] = {
	{ "64 bytes", small_ones }, { "600 bytes", middling_ones }, { "3000 bytes", large_ones },
	{ "unused slabs", unused_ones },
};

int main(int argc, char **argv)
{
	static const char *const options[] = {
		",own_addresses:1,guard_slabs:1", ",own_addresses:1,guard_slabs:1,nodes:2",
	};
	int failed = 0;

	for (unsigned i = 0; i < (argc > 1 ? 1 : sizeof(options) / sizeof(options[0])); i++)
		failed |= api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), options[i]);
	return failed;
}
