/*
 * drain.h: functions shared by drain.c, publish.c, resize.c and memcg/charge_state.c. Invariant: each function here
 * is called with km_drain_lock held, or for a cache not yet visible to other threads.
 */
#ifndef KM_ALLOC_DRAIN_H
#define KM_ALLOC_DRAIN_H

#include "alloc_ops.h"

/* Some CPUs; NULL in place of a list: all online CPUs. */
struct km_cpu_list {
	const uint16_t *cpus;
	size_t count;
};

/* drain.c: calls `take` for each online CPU of the list. */
void km_alloc_each_cpu(struct kmem_cache *cache, const struct km_cpu_list *from, const void *arg,
		       void (*take)(struct kmem_cache *cache, unsigned cpu, const void *arg));

/* publish.c: close and open the cache's sheaves, without the fence. Each ends with km_alloc_show. */
void km_alloc_close_pcs(struct kmem_cache *cache);
void km_alloc_open_pcs(struct kmem_cache *cache);
/* Writes all words that the fast path reads, from the open sheaves. */
void km_alloc_show(struct kmem_cache *cache);
/* Writes the cache's entries of a table of sizes: the cache's id if open, else none. */
void km_alloc_show_entries(struct kmem_cache *cache, bool open);

#endif
