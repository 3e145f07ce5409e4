/*
 * slub.h: declarations shared by the files of the engine slub: a node, the word of a slab, and counting.
 *
 *	63          32 31     30    16 15    0
 *	[    head     | frozen | objects | inuse ]
 *
 * A slab's freelist and counts change as one word. head: offset of the first free object in the slab plus one, 0
 * without a free object. objects - inuse is always the length of this freelist; objects taken by a CPU count as in
 * use. Frozen: a CPU or a running function owns the slab's free objects, and the slab is on no node's list.
 *
 * Kernel: a pair of words, {pointer, counts}. Here one word, because a compare-and-swap of 8 bytes takes half the
 * time of one of 16 (docs/theory.md). An equal word may recur (ABA) without harm, because only the owner of a
 * freelist reads its links.
 */
#ifndef KM_SLUB_H
#define KM_SLUB_H

#include <kmem/record.h>

#include "percpu/cpu_freelist_hit.h"
#include "os/die.h"
#include "slab/freeptr.h"
#include "slab/partial.h"

#define SLUB_INUSE		0xffffull
#define SLUB_OBJECTS_SHIFT	16
#define SLUB_MAX_OBJECTS	KM_SLAB_MAX_OBJECTS
#define SLUB_OBJECTS		((uint64_t)SLUB_MAX_OBJECTS << SLUB_OBJECTS_SHIFT)
#define SLUB_FROZEN		(1ull << 31)
#define SLUB_HEAD_SHIFT		32
#define SLUB_COUNTS		0xffffffffull
_Static_assert((KM_PAGE_SIZE << KM_MAX_ORDER) < (1ull << 32), "an offset fits");
_Static_assert(KMEM_RECORD_SLUB_INUSE(SLUB_INUSE) == SLUB_INUSE && KMEM_RECORD_SLUB_FROZEN(SLUB_FROZEN) &&
	       KMEM_RECORD_SLUB_OBJECTS(SLUB_OBJECTS) == SLUB_MAX_OBJECTS && !KMEM_RECORD_SLUB_HEAD(SLUB_COUNTS),
	       "readers know the word");

struct slub_slab {
	uint64_t word;			/* word of the slab: layout above */
	struct km_chain_link link km_aligned(16);	/* link in the CPU's partial list */
};
KM_ENGINE_PAGE(slub_slab, struct slub_slab)

struct slub_node {
	struct km_slabs slabs;		/* listed slabs are not frozen and have free objects; counts change by
					 * atomic additions, except `partial` */
	uint32_t free_each;		/* average of free objects in a listed slab at the last look, in 16ths */

	/* Fields of node 0, for the whole cache; read by slow paths. */
	uint32_t cpu_partial km_aligned(64);	/* free objects that a CPU may keep in partial slabs */
	uint32_t cpu_partial_slabs;	/* cpu_partial as a number of slabs, each counted as half full */
	bool touched;			/* a slow path ran since the last reap; frees to frozen slabs do not count */
	const struct km_range *range;	/* the first range of the arena */
	uint64_t factor, bound;		/* operands of slub_aligned */
	uint32_t slab_mask;		/* bytes of a slab of cache->layout.order, minus one */

	struct km_lock drain km_aligned(64);
	uint64_t events[KMEM_NR_EVENTS];	/* events that are not counted by CPU */
};

km_inline struct slub_node *slub_node(const struct kmem_cache *cache, unsigned node)
{
	return cache->state.node[node];
}

/* Sets `touched`. Reads first, because all CPUs share the cache line. */
km_inline void slub_touch(struct slub_node *n)
{
	if (km_unlikely(!km_load(&n->touched)))
		km_store(&n->touched, true);
}

/* ---- a slab's word */

km_inline unsigned slub_inuse(uint64_t word)
{
	return (unsigned)(word & SLUB_INUSE);
}

km_inline unsigned slub_objects(uint64_t word)
{
	return (unsigned)(word >> SLUB_OBJECTS_SHIFT) & SLUB_MAX_OBJECTS;
}

/* Returns `word` changed to "all objects in use": no freelist. */
km_inline uint64_t slub_full(uint64_t word)
{
	return (word & SLUB_OBJECTS) | slub_objects(word);
}

km_inline unsigned slub_free_count(uint64_t word)
{
	km_debug(slub_inuse(word) <= slub_objects(word), "a slab has no more objects in use than objects");
	return slub_objects(word) - slub_inuse(word);
}

km_inline void *slub_head(uint64_t word, char *base)
{
	uint64_t head = word >> SLUB_HEAD_SHIFT;

	return head ? base + head - 1 : NULL;
}

/* Returns the counts of `word` with `object` as head. */
km_inline uint64_t slub_with_head(uint64_t word, const char *base, const void *object)
{
	uint64_t offset = (uint64_t)((const char *)object - base);

	return (word & SLUB_COUNTS) | (offset + 1) << SLUB_HEAD_SHIFT;
}

km_inline uint64_t slub_with_list(uint64_t word, const char *base, const void *freelist)
{
	return freelist ? slub_with_head(word, base, freelist) : word & SLUB_COUNTS;
}

/* Acquire pairs with the release in slub_change: a thread that sees a head sees the links behind the head. */
km_inline uint64_t slub_look(const struct km_page *slab)
{
	return km_load_acquire(&slub_slab(slab)->word);
}

km_inline bool slub_change(struct km_page *slab, uint64_t *seen, uint64_t next)
{
	return km_cas_both(&slub_slab(slab)->word, seen, next);
}

/* Returns: the number of free objects of the slab. Exact for a slab on a node's list; for another slab, the objects
 * that the owner left in the slab. */
km_inline unsigned slub_free_objects(const struct km_page *slab)
{
	return slub_free_count(km_load(&slub_slab(slab)->word));
}

/* ---- per-CPU slabs */

km_inline uint64_t slub_tag(const struct km_page *slab, const void *address)
{
	return km_chain_tag(address, KM_PAGE_SHIFT + slab->order);
}

km_inline struct km_page *slub_tagged(uint64_t tag)
{
	return km_page_of(km_chain_tag_address(tag));
}

km_inline struct km_page *slub_linked(struct km_chain_link *link)
{
	return km_container_of(link, struct km_page, engine[offsetof(struct slub_slab, link)]);
}

/* Returns a slab's address from the address of one of its objects. */
km_inline char *slub_base(const struct km_page *slab, const void *object)
{
	return (char *)((uintptr_t)object & ~(((uintptr_t)KM_PAGE_SIZE << slab->order) - 1));
}

/* Returns: whether an object begins at this offset of a slab of cache->layout.order. factor is 2^64 / size rounded up,
 * and e is the rounding error times size. The k-th multiple of size times factor is k * e modulo 2^64; bound is objects
 * * e. Any other offset gives a far larger product. */
km_inline bool slub_aligned(uint64_t factor, uint64_t bound, uint64_t offset)
{
	return offset * factor < bound;
}

/* Does the work of km_slab_of, quickly for valid objects in slabs of cache->layout.order in the first range. */
km_inline struct km_page *slub_slab_of(struct kmem_cache *cache, void *object)
{
	const struct slub_node *n = slub_node(cache, 0);
	uint64_t offset = (uintptr_t)object & n->slab_mask;
	size_t index = ((uintptr_t)object - offset - (uintptr_t)n->range->base) >> KM_PAGE_SHIFT;
	int ignored;

	if (km_likely(index < km_load_acquire(&n->range->ready))) {
		struct km_page *slab = &n->range->page[index];

		/* Compare the descriptor: the page may be of a slab of a lower order, allocated or freed at this
		 * moment. */
		if (km_likely(km_load(&slab->cache) == cache && km_load(&slab->type) == KM_PAGE_SLAB &&
			      km_load(&slab->order) == cache->layout.order &&
			      slub_aligned(n->factor, n->bound, offset)))
			return slab;
	}
	return km_slab_of(cache, object, &ignored, "kmem_cache_free");
}

/* ---- counting: by CPU under rseq, where this is cheap. Kernel: a migration may lose a count, too. */

km_inline uint64_t *slub_events(const struct kmem_cache *cache)
{
	return km_likely(cache->state.percpu_offset) ?
		       (uint64_t *)(km_area(km_chain_cpu_id()) + cache->state.percpu_offset) :
		       slub_node(cache, 0)->events;
}

km_inline void slub_bump(const struct kmem_cache *cache, uint64_t *events, enum kmem_event event, uint64_t n)
{
	if (km_likely(cache->state.percpu_offset))
		km_store(&events[event], km_load(&events[event]) + n);
	else
		km_add(&events[event], n);
}

km_inline void slub_count_n(const struct kmem_cache *cache, enum kmem_event event, uint64_t n)
{
	slub_bump(cache, slub_events(cache), event, n);
}

km_inline void slub_count(const struct kmem_cache *cache, enum kmem_event event)
{
	slub_count_n(cache, event, 1);
}

/* ---- slub.c, for slub_cache.c */

/* Moves slabs of a CPU's partial list, frozen, to their nodes' lists, or frees empty slabs. */
void km_slub_put_partials(struct kmem_cache *cache, struct km_chain_link *link);
/* Takes a slab off a CPU, with the rest of its freelist. */
void km_slub_deactivate(struct kmem_cache *cache, struct km_page *slab, void *freelist, bool may_wait);
/* Frees a slab known to no other thread, with any live objects. */
void km_slub_free_slab(struct kmem_cache *cache, struct km_page *slab);
/* Frees a slab whose word says that all objects are free. Returns: false if the slab is damaged; then the damage
 * is reported, and the slab stays. */
bool km_slub_discard(struct kmem_cache *cache, struct km_page *slab);

/* Frees `count` objects of a slab, linked from head to tail. The tail's link is not set yet. */
void km_slub_free_to_slab(struct kmem_cache *cache, struct km_page *slab, char *base, void *head,
			  void *tail, unsigned count);

void *km_slub_alloc(struct kmem_cache *cache, const struct km_request *request);
void km_slub_free(struct kmem_cache *cache, void *object);
unsigned km_slub_take(struct kmem_cache *cache, const struct km_request *request, void **objects, unsigned want);

/* ---- slub_bulk.c: freeing many */

void km_slub_give(struct kmem_cache *cache, void **objects, unsigned count);
unsigned km_slub_give_last(struct kmem_cache *cache, void **objects, unsigned count);

/* ---- slub_checked.c: caches that validate each free; no per-CPU slabs, all changes under the node's lock */

unsigned km_slub_take_checked(struct kmem_cache *cache, const struct km_request *request,
			      void **objects, unsigned want);
void km_slub_free_checked(struct kmem_cache *cache, void *object);
/* Checks the freelists of a cache, or of a slab in hand; reports and repairs damages. Returns: number of damages;
 * for a slab, false on damage. */
int km_slub_mend(struct kmem_cache *cache);
bool km_slub_mend_slab(struct kmem_cache *cache, struct km_page *slab);

/* Returns: whether an empty slab may be freed: min_partial slabs are on the node's list. Requires: the node's lock. */
km_inline bool slub_may_go(const struct kmem_cache *cache, const struct slub_node *n)
{
	km_debug(km_is_locked(&n->slabs.lock), "the number of listed slabs is read under the lock");
	return km_load(&n->slabs.counts.partial) >= km_load(&cache->tune.min_partial) && !km_slabs_stay(cache);
}

/* Allocates and counts a slab; NULL: no memory. The slab's word is not set. */
struct km_page *km_slub_new_slab(struct kmem_cache *cache, const struct km_request *request);
/* Links `count` objects of a fresh slab in this order. Returns: the first object. */
void *km_slub_thread_list(struct kmem_cache *cache, struct km_page *slab, struct km_slab_order *order, unsigned count);

#endif
