/*
 * charged.h: what the tests of CPUs' charged blocks share, beside paid.h: where hits put what they free, what lies on
 * the blocks, and a main that stays on its CPU.
 */
#ifndef TESTS_KIT_CHARGED_H
#define TESTS_KIT_CHARGED_H

#include "cpus.h"
#include "paid.h"

#include "cache/cache.h"
#include "percpu/owned_sheaf.h"

/* Where a hit puts an object of this cache: nowhere, on the public shelf, on the charged block, or, where several pay,
 * on one that has objects of them all. */
enum back { NOWHERE, PUBLIC, CHARGED, MIXED };

static inline enum back back_of(const struct kmem_cache *cache)
{
	uint32_t back = cache->pcs.front.back.pcs;

	/* kfree goes by the entry. */
	NEED(cache->id < KM_MAP_FIRST || !km_id_masks(cache->id)->sheaf == !back);
	return !back ? NOWHERE : back == cache->mixed.slot ? MIXED : back == cache->charged.slot ? CHARGED : PUBLIC;
}

/* Under the soft disciplines no hit goes there, and where each free is proved nothing lies there. */
static inline bool has_blocks(const struct kmem_cache *cache)
{
	return km_percpu.discipline == KM_DISCIPLINE_RSEQ && cache->charged.slot && !cache->live_shift;
}

/* Where several pay they have objects of anybody: for hits, and by concurrency id no free of such a cache is one. */
static inline bool has_mixed_blocks(const struct kmem_cache *cache)
{
	return has_blocks(cache) && km_hits_by_cpu();
}

static inline size_t lies_charged(const struct kmem_cache *cache)
{
	size_t count = 0;

	for (unsigned cpu = 0; cache->charged.slot && cpu < km_percpu.cpus; cpu++)
		count += km_pcs_count_cpu(&cache->charged, cpu);
	return count;
}

/* So many, each in another of the ways in which an object goes. */
static inline void free_each_way(struct kmem_cache *cache, void **objects, int from, int to)
{
	for (int i = from; i < to; i++)
		switch (i % 4) {
		case 0:
			kmem_cache_free(cache, objects[i]);
			break;
		case 1:
			kfree(objects[i]);
			break;
		case 2:
			kmem_cache_free_bulk(cache, 1, &objects[i]);
			break;
		default:
			kfree_bulk(1, &objects[i]);
		}
}

/* GROUPS_MAIN of a program that stays on its CPU. */
#define CHARGED_MAIN(cases)                                                                        \
	__attribute__((constructor)) static void stay(void)                                        \
	{                                                                                          \
		stay_here();                                                                       \
	}                                                                                          \
	GROUPS_MAIN(cases)

#endif
