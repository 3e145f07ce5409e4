/*
 * malloc_first_line.c: the data loaded by every free, and by every request of a size without hits, are not in the
 * first cache line of a page. Programs have the heads of their own pages there, and lines at the same place of pages
 * share a few places in the processor's cache. The per-CPU sheaf used for sizes without hits is always empty, on
 * each CPU.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>

#include <kmem/kmem.h>

#include "kit/cpus.h"
#include "kit/malloc.h"
#include "malloc/malloc.h"

#define CACHES 64u

static bool is_in_first_line(const void *p)
{
	return (uintptr_t)p % KM_PAGE_SIZE < 64;
}

static void look_at_empty_pcs(void)
{
	km_for_each_cpu(cpu) {
		const char *area = km_area(cpu);
		const uint64_t *word = (const uint64_t *)area + km_malloc_id[KM_MALLOC_STEPS];

		NEED(!is_in_first_line(word) && !is_in_first_line(area + *word));
		NEED(*(const uint64_t *)(area + *word) == 0);
	}
}

static void use_large_sizes(void)
{
	for (int i = 0; i < 100; i++) {
		void *p = malloc(100000), *q = kmalloc(20000, GFP_KERNEL);
		void *r = kmalloc(100, GFP_KERNEL | __GFP_ACCOUNT);

		NEED(p && q && r && (uintptr_t)p % KM_PAGE_SIZE == 0);
		free(p);
		kfree(q);
		kfree(r);
	}
}

static void use_each_cpu(void)
{
	for (int i = 0; cpu_at(i) >= 0; i++) {
		NEED(go_to_cpu(cpu_at(i)));
		use_large_sizes();
	}
	go_anywhere();
}

/* The words belong to no other per-CPU sheaf, and none is stored at the place that every free loads. */
static void look_at_word(const struct kmem_cache *cache)
{
	NEED(cache->fast.pcs.slot / 8 != KM_ID_EMPTY && cache->fast.pcs.slot / 8 != KM_ID_EMPTY + 1);
	NEED(cache->fast.pcs.slot % KM_PAGE_SIZE != (uintptr_t)km_hot.map % KM_PAGE_SIZE);
}

static void make_caches(void)
{
	struct kmem_cache *cache[CACHES];
	char name[32];

	for (size_t size = 8; size <= KMALLOC_MAX_CACHE_SIZE; size *= 2)
		look_at_word(km_kmalloc_cache(size));
	for (unsigned i = 0; i < CACHES; i++) {
		snprintf(name, sizeof(name), "first_line-%u", i);
		cache[i] = kmem_cache_create(name, 200, 0, SLAB_NO_MERGE, NULL);
		NEED(cache[i]);
		look_at_word(cache[i]);
		kmem_cache_free(cache[i], kmem_cache_alloc(cache[i], GFP_KERNEL));
	}
	look_at_empty_pcs();
	for (unsigned i = 0; i < CACHES; i++)
		kmem_cache_destroy(cache[i]);
}

int main(void)
{
	use_each_cpu();
	if (km_percpu.discipline != KM_DISCIPLINE_RSEQ || km_percpu.index != KM_INDEX_CPU) {
		puts("no sheaf is found by a CPU's number here");
		return 77;
	}
	look_at_empty_pcs();
	make_caches();
	kmem_shrink_all();
	look_at_empty_pcs();
	NEED(!is_in_first_line(km_hot.map));
	return 0;
}
