/*
 * charged_cpus.h: common code for tests of charged sheaves, beside charged_objects.h: the sheaf for fast-path frees,
 * the objects in charged sheaves, and a main on one CPU.
 */
#ifndef TESTS_KIT_CHARGED_CPUS_H
#define TESTS_KIT_CHARGED_CPUS_H

#include "cpus.h"
#include "charged_objects.h"

#include "cache/cache.h"
#include "percpu/owned_sheaf.h"

/*
 * The sheaf for fast-path frees of the cache: none, the plain sheaf, the charged sheaf, or, with several groups, the
 * mixed sheaf with objects of all groups.
 */
enum back { NOWHERE, PUBLIC, CHARGED, MIXED };

static inline enum back back_of(const struct kmem_cache *cache)
{
	uint32_t back = cache->fast.pcs.front.back.pcs;

	/* kfree decides by the entry. */
	NEED(cache->fast.id < KM_MAP_FIRST || !km_id_masks(cache->fast.id)->sheaf == !back);
	return !back				   ? NOWHERE
	       : back == cache->memcg.mixed.slot   ? MIXED
	       : back == cache->memcg.charged.slot ? CHARGED
						   : PUBLIC;
}

/* The soft disciplines use no charged sheaf on the fast path, and with validated frees the sheaf is empty. */
static inline bool has_blocks(const struct kmem_cache *cache)
{
	return km_percpu.discipline == KM_DISCIPLINE_RSEQ && cache->memcg.charged.slot && !cache->layout.live_shift;
}

/*
 * With several groups, a mixed sheaf has objects of any group, for hits only. By concurrency id a free of such a
 * cache is never a hit.
 */
static inline bool has_mixed_blocks(const struct kmem_cache *cache)
{
	return has_blocks(cache) && km_hits_by_cpu();
}

static inline size_t lies_charged(const struct kmem_cache *cache)
{
	size_t count = 0;

	for (unsigned cpu = 0; cache->memcg.charged.slot && cpu < km_percpu.cpus; cpu++)
		count += km_pcs_count_cpu(&cache->memcg.charged, cpu);
	return count;
}

/* Frees objects [from, to), in turn by each of the four functions. */
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

/* GROUPS_MAIN for a program on one CPU. */
#define CHARGED_MAIN(cases)                                                                        \
	__attribute__((constructor)) static void stay(void)                                        \
	{                                                                                          \
		stay_here();                                                                       \
	}                                                                                          \
	GROUPS_MAIN(cases)

#endif
