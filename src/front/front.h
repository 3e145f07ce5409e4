/*
 * front.h: what the per-CPU front offers to the floors above: the hit as inlines, misses, bulk and draining.
 *
 * The concurrency argument. A hit runs inside one restartable sequence: it either commits with its last store on
 * the CPU whose shelf it read, or has done nothing. So a shelf's word and the block under it are changed by nobody
 * else while a sequence runs; a miss works on blocks that it has detached, which are its own; and a drain from
 * another CPU closes the shelf first and lets membarrier abort whoever saw it open.
 */
#ifndef KM_FRONT_FRONT_H
#define KM_FRONT_FRONT_H

#include "../engine/engine.h"
#include "../port/bits.h"

/* This thread is inside a slow path: a nested call, from a signal handler, must not enter another. */
extern km_tls bool km_front_busy;

/* What a miss calls: the only ways from here up. Set once at start. */
extern void (*km_front_tick)(void);	/* now and then, outside of locks, where system calls are allowed */
extern bool (*km_front_pressure)(void);	/* pages ran out: true if something was given back */

/* Slow halves. Return and fail as the public functions do. */
void *km_alloc_miss(struct kmem_cache *cache, gfp_t gfp) km_cold;
void *km_alloc_miss_node(struct kmem_cache *cache, gfp_t gfp, int node) km_cold;
void km_free_miss(struct kmem_cache *cache, void *object) km_cold;

/* Bulk over one cache; objects are valid and not NULL. */
bool km_front_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects);
void km_front_free_bulk(struct kmem_cache *cache, size_t n, void **objects);

/* Take everything off the CPUs' shelves and give it to the engine. */
void km_front_drain(struct kmem_cache *cache);
/* The same for several caches with one fence. */
void km_front_drain_all(struct kmem_cache **caches, size_t count);
/* Set up the shelf of a new cache (hooks, engine and capacity are known), or take it down. */
void km_front_open(struct kmem_cache *cache);
void km_front_close(struct kmem_cache *cache);
void km_front_fork(bool before, bool child);
size_t km_front_shelf_objects(const struct kmem_cache *cache);

/* Say that an allocation failed; returns NULL with errno = error. __GFP_NOFAIL ends the process. */
void *km_front_failed(const char *name, size_t size, gfp_t gfp, int error) km_cold;

/* An object of the cache with this id, or NULL: a miss. Id 0 always misses. */
km_inline void *km_front_alloc_id(size_t id)
{
#ifdef KMEM_HAVE_RSEQ
	return kmem_shelf_pop(&km_entries[id].open, km_percpu.base, km_rseq);
#else
	(void)id;
	return NULL;
#endif
}

/*
 * Free an object whatever its cache; false: a miss. All that is rare ends at entry 0, which is closed: not ours,
 * large, a damaged address. One conditional branch in all, the shelf's own.
 */
km_inline bool km_front_free_any(void *object)
{
#ifdef KMEM_HAVE_RSEQ
	uintptr_t index = ((uintptr_t)object - (uintptr_t)km_arena_front.base) >> KM_PAGE_SHIFT;

	index &= -(uintptr_t)(index < km_arena_front.pages);
	uintptr_t at = (uintptr_t)km_arena_front.map[index] * sizeof(struct km_entry);
	const struct km_entry *entry = (const struct km_entry *)((char *)km_entries + at);
	uint64_t offset = (uint32_t)(uintptr_t)object & entry->slab_mask;
	at &= -(uintptr_t)((offset * entry->divides < entry->divides) & (offset <= entry->last));
	entry = (const struct km_entry *)((char *)km_entries + at);
	return kmem_shelf_push(&entry->open, km_percpu.base, km_rseq, object);
#else
	(void)object;
	return false;
#endif
}

#endif
