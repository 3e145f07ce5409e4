/*
 * pcs_check.c: kmem_check_all finds damage to the per-CPU sheaves of a cache at rest: a closed sheaf, a wrong mask,
 * a fast-path sheaf not for hits, and a foreign pointer in a sheaf. The test damages each, expects the report, and
 * repairs. Disciplines: all.
 */
#include <stdio.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "alloc/fast_path.h"
#include "kit/inside.h"

static struct kmem_cache *cache, *other;

/* A wrong value of the field is reported, and the right value is not. */
#define BROKEN(field, value)                                                                       \
	do {                                                                                       \
		__typeof__(field) whole = (field);                                                 \
		(field) = (value);                                                                 \
		CHECK(kmem_check_all() == -EIO);                                                   \
		(field) = whole;                                                                   \
		CHECK(kmem_check_all() == 0);                                                      \
	} while (0)

/* The sheaf with objects on some CPU: there is one. */
static void **block_of(const struct kmem_cache *cache)
{
	km_for_each_cpu(cpu) {
		uintptr_t top = km_pcs_top_cpu(&cache->fast.pcs, cpu);

		if (top && *(void **)(km_area(cpu) + top))
			return (void **)(km_area(cpu) + top);
	}
	return NULL;
}

int main(void)
{
	struct kmem_cache_args args = { .engine = "sheaf" };
	void *objects[8], *strange;

	cache = kmem_cache_create("checked", 64, &args, 0);
	other = kmem_cache_create("other", 64, &args, 0);
	NEED(cache && other && (strange = kmem_cache_alloc(other, GFP_KERNEL)));
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 8, objects));
	kmem_cache_free_bulk(cache, 8, objects);
	NEED(kmem_check_all() == 0);

	BROKEN(cache->fast.pcs.inner.pcs, cache->fast.pcs.slot + 64);
	BROKEN(cache->fast.pcs.inner.mask, cache->fast.pcs.sheaf_mask * 2 + 1);
	BROKEN(cache->fast.pcs.front.open.mask, cache->fast.pcs.inner.mask * 2 + 1);
	BROKEN(cache->fast.pcs.front.open.pcs, cache->fast.pcs.slot + 64);
	void **block = block_of(cache);
	if (block) {
		BROKEN(block[0], strange);
		BROKEN(block[0], (void *)&args);
	}
	kmem_cache_free(other, strange);
	kmem_cache_destroy(other);
	kmem_cache_destroy(cache);
	printf("%u failures%s\n", failures, block ? "" : "; no CPU has a block here");
	return failures != 0;
}
