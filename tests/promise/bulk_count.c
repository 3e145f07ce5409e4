/*
 * bulk_count.c: kmem_cache_alloc_bulk returns the number of objects, n or 0, with each layer between the call and
 * the engine: none, debugging, constructors, zeroing, charged groups, a private group. Callers for Linux up to 7.1
 * use the result as a count. Disciplines: all.
 */
#include "kit/api.h"
#include "kit/groups.h"

#include <kmem/memcg.h>

enum { MOST = 600 };
static void *objects[MOST];

/* Counts with a wrong result if the code counts in a bool or a byte, or if a sheaf has fewer objects than n. */
static void counts(struct kmem_cache *cache, gfp_t gfp)
{
	static const size_t try[] = { 1, 2, 7, 16, 60, 61, 255, 256, 257, 512, MOST };

	for (size_t i = 0; i < sizeof(try) / sizeof(try[0]); i++)
		for (int round = 0; round < 3; round++) {
			int got = kmem_cache_alloc_bulk(cache, gfp, try[i], objects);

			NEED(got == (int)try[i], "%d of %zu", got, try[i]);
			kmem_cache_free_bulk(cache, try[i], objects);
		}
	NEED(kmem_cache_alloc_bulk(cache, gfp, 0, objects) == 0);
}

static void plain(void)
{
	struct kmem_cache *cache = make("plain", 256);

	counts(cache, GFP_KERNEL);
	counts(cache, GFP_KERNEL | __GFP_ZERO);
	counts(cache, GFP_KERNEL | __GFP_FULLEST);
	gone(cache);
}

static void looked_at(void)
{
	static const slab_flags_t flags[] = { SLAB_CONSISTENCY_CHECKS, SLAB_POISON | SLAB_RED_ZONE | SLAB_STORE_USER,
					      SLAB_NO_SHEAVES };

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		struct kmem_cache *cache = kmem_cache_create("looked at", 256, NULL, flags[i]);

		NEED(cache);
		counts(cache, GFP_KERNEL);
		gone(cache);
	}
}

static void switched(void)
{
	struct kmem_cache *cache = make("switched", 256);
	void *own = kmem_cache_alloc(cache, GFP_KERNEL);

	counts(cache, GFP_KERNEL);
	if (!slob)
		NEED(kmem_cache_set_debug(cache, "FZPU") == 0);
	counts(cache, GFP_KERNEL);
	if (!slob)
		NEED(kmem_cache_set_debug(cache, "-") == 0);
	counts(cache, GFP_KERNEL);
	kmem_cache_free(cache, own);
	kmem_cache_destroy(cache);
}

static void charged(void)
{
	struct kmem_cache *cache = kmem_cache_create("charged", 256, NULL, SLAB_ACCOUNT);
	struct mem_cgroup *one = group_below(NULL, "one"), *two = group_below(NULL, "two");
	struct mem_cgroup *private = private_group("private"), *before = mem_cgroup_active();

	NEED(cache);
	counts(cache, GFP_KERNEL);
	for (int round = 0; round < 3; round++) {
		set_active_memcg(one);
		counts(cache, GFP_KERNEL);
		set_active_memcg(two);
		counts(cache, GFP_KERNEL);
		set_active_memcg(private);
		counts(cache, GFP_KERNEL);
	}
	NEED(mem_cgroup_set_max(one, 4096) == 0);
	set_active_memcg(one);
	NEED(slob || kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, MOST, objects) == 0);
	set_active_memcg(before);
	kmem_cache_destroy(cache);
}

static const struct test_case cases[] = {
	{ "plain", plain }, { "each object is looked at", looked_at }, { "switched", switched }, { "charged", charged },
};

API_MAIN(cases)
