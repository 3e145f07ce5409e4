/*
 * merging.c: KMEM_OPTIONS=merge:1: caches of equal layout share slabs, and each cache keeps its promises: alignment,
 * flags, capacity, constructor, and its objects after the other cache's destruction.
 */
#include "kit/api.h"

static struct kmem_cache *cache_of(unsigned size, const struct kmem_cache_args *args, slab_flags_t flags)
{
	struct kmem_cache *cache = kmem_cache_create("merging", size, args, flags);

	NEED(cache);
	return cache;
}

static void no_constructor(void *object)
{
	(void)object;
}

static void shared(void)
{
	struct kmem_cache *first = cache_of(100, NULL, 0), *second = cache_of(104, NULL, 0);
	struct kmem_cache *other = cache_of(96, NULL, 0);

	NEED(first == second && other != first);
	NEED(kmem_cache_size(first) == 104);
	char *p = kmem_cache_zalloc(first, GFP_KERNEL);
	NEED(p && all(p, 0, 104));
	kmem_cache_destroy(first);
	/* One of the two names is left. */
	memset(p, 1, 104);
	void *q = kmem_cache_alloc(second, GFP_KERNEL);
	NEED(q && q != p && all(p, 1, 104));
	kmem_cache_free(second, p);
	kmem_cache_free(second, q);
	gone(second);
	kmem_cache_destroy(other);
}

static void line_aligned(void)
{
	struct kmem_cache *first = cache_of(56, NULL, 0), *second = cache_of(56, NULL, SLAB_HWCACHE_ALIGN);

	NEED(first != second);
	/* Slob does not round sizes up, and so finds none alike. */
	NEED(slob || cache_of(56, NULL, SLAB_HWCACHE_ALIGN) == second);
	for (int i = 0; i < 10; i++)
		NEED((uintptr_t)kmem_cache_alloc(second, GFP_KERNEL) % 64 == 0);
}

static void aligned(void)
{
	struct kmem_cache_args args = { .align = 32 };
	struct kmem_cache *first = cache_of(72, NULL, 0), *second = cache_of(72, &args, 0);

	NEED(first != second);
	for (int i = 0; i < 10; i++)
		NEED((uintptr_t)kmem_cache_alloc(second, GFP_KERNEL) % 32 == 0);
}

/* A cache unlike all others is never merged, in any order of creation. */
static void never(void)
{
	static const slab_flags_t flags[] = {
		SLAB_NO_SHEAVES, SLAB_NO_MERGE, SLAB_TYPESAFE_BY_RCU, SLAB_NOLEAKTRACE, SLAB_ACCOUNT,
		SLAB_RECLAIM_ACCOUNT, SLAB_CONSISTENCY_CHECKS,
	};
	const struct kmem_cache_args odd[] = {
		{ .sheaf_capacity = 100 }, { .ctor = no_constructor }, { .useroffset = 8, .usersize = 8 },
	};
	unsigned size = 200;

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++, size += 32) {
		NEED(cache_of(size, NULL, 0) != cache_of(size, NULL, flags[i]));
		struct kmem_cache *before = cache_of(size + 16, NULL, flags[i]);
		NEED(cache_of(size + 16, NULL, 0) != before);
	}
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++, size += 32) {
		NEED(cache_of(size, NULL, 0) != cache_of(size, &odd[i], 0));
		struct kmem_cache *before = cache_of(size + 16, &odd[i], 0);
		NEED(cache_of(size + 16, NULL, 0) != before);
	}
}

static const struct test_case cases[] = {
	{ "shared", shared },
	{ "aligned to a line", line_aligned },
	{ "aligned", aligned },
	{ "never merged", never },
};

API_MAIN_OPTIONS(cases, ",merge:1")
