/*
 * traced: a cache with SLAB_TRACE and no other debugging prints each allocation and free, and changes no behaviour:
 * its objects have no red zone and no poison, wrong frees are reported as for every cache, and validation finds the
 * usual damage. For each engine with traces.
 */
#define _GNU_SOURCE
#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/cases.h"
#include "kit/heard.h"

#include "cache/cache.h"

static struct kmem_cache *cache, *other;

static void says_both(void)
{
	void *p, *many[3];
	char line[64];

	SAYS("TRACE traced alloc", p = kmem_cache_alloc(cache, GFP_KERNEL));
	NEED(p);
	snprintf(line, sizeof(line), "TRACE traced free %p", p);
	CHECK(ksize(p) >= 60);
	memset(p, 1, 60);
	SAYS(line, kmem_cache_free(cache, p));
	SAYS("TRACE traced alloc", NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 3, many)));
	SAYS("TRACE traced free", kmem_cache_free_bulk(cache, 3, many));
	SAYS("TRACE traced alloc", p = kmem_cache_zalloc(cache, GFP_KERNEL));
	NEED(p && !*(char *)p);
	/* A byte behind the object has no owner, and is not checked. */
	SAYS("TRACE traced free", kmem_cache_free(cache, p));
}

static void wrong_frees(void)
{
	char *p = kmem_cache_alloc(cache, GFP_KERNEL), *strange = kmem_cache_alloc(other, GFP_KERNEL);

	NEED(p && strange);
	SAYS("object belongs to different cache", kmem_cache_free(cache, strange));
	kmem_cache_free(other, strange);
	SAYS("not the start of an object", kmem_cache_free(cache, p + 8));
	SAYS("TRACE traced free", kmem_cache_free(cache, p));
}

static void looks(void)
{
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);

	SAYS(NULL, CHECK(kmem_cache_validate(cache) == 0));
	SAYS(NULL, CHECK(kmem_check_all() == 0));
	SAYS("TRACE traced free", kmem_cache_free(cache, p));
	SAYS(NULL, kmem_cache_shrink(cache));
	SAYS(NULL, CHECK(kmem_check_all() == 0));
	SAYS(NULL, kmem_cache_destroy(cache));
}

static const struct test_case cases[] = {
	{ "says both", says_both }, { "wrong frees", wrong_frees }, { "looks", looks },
};

int main(void)
{
	static const char *const engines[] = { "sheaf", "slub", "slab" };
	int failed = 0;

	km_misuse_set(KM_MISUSE_WARN);
	for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
		struct kmem_cache_args args = { .engine = engines[i] };

		cache = kmem_cache_create("traced", 60, &args, SLAB_TRACE);
		other = kmem_cache_create("other", 60, &args, SLAB_NO_MERGE);
		NEED(cache && other && cache != other);
		failed |= run_cases(cases, sizeof(cases) / sizeof(cases[0]), engines[i]);
		kmem_cache_destroy(cache);
		kmem_cache_destroy(other);
	}
	return failed;
}
