/*
 * slub.h: what the files of the engine slub share: a node, the word of a slab, and counting.
 *
 *	63          32 31     30    16 15    0
 *	[    head     | frozen | objects | inuse ]
 *
 * A slab's freelist and counts change as one word. head: the first free object, as its offset in the slab plus one,
 * 0 where there is none. objects - inuse is always the length of that freelist; what a CPU has taken off it counts as
 * in use. Frozen: a CPU, or a function on its way, owns the slab's free objects, and the slab is on no node's list.
 * Kernel: a pair of words, {pointer, counts}; here one, because a compare-and-swap of 8 bytes takes half the time of
 * one of 16 (docs/decisions). The same word may come back: nobody reads a link but who owns the freelist, so that
 * does no harm.
 */
#ifndef KM_SLUB_H
#define KM_SLUB_H

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

struct slub_slab {
	uint64_t word;			/* as above */
	struct km_chain_link link km_aligned(16);	/* on a CPU's partial list */
};
KM_ENGINE_PAGE(slub_slab, struct slub_slab)

struct slub_node {
	struct km_slabs slabs;		/* on the list: not frozen, something free; counts but that of those are
					 * changed by atomic additions */
	uint32_t free_each;		/* objects that a slab of the list has free, in 16ths, when last looked at */

	/* Of node 0, for the whole cache; read by slow paths. */
	uint32_t cpu_partial km_aligned(64);	/* free objects a CPU may keep in partial slabs */
	uint32_t cpu_partial_slabs;	/* the same in slabs, taken to be half full */
	bool touched;			/* a slab moved since the last reap */
	const struct km_range *range;	/* the first one */
	uint64_t factor, bound;		/* slub_aligned has the rule */
	uint32_t slab_mask;		/* bytes of a slab of the usual order, minus one */

	struct km_lock drain km_aligned(64);
	uint64_t events[KMEM_NR_EVENTS];	/* where they are not counted by CPU */
};

km_inline struct slub_node *slub_node(const struct kmem_cache *cache, unsigned node)
{
	return cache->node[node];
}

/* Read first: the line is read by all. */
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

/* The counts of `word`, with this object as head. */
km_inline uint64_t slub_with_head(uint64_t word, const char *base, const void *object)
{
	uint64_t offset = (uint64_t)((const char *)object - base);

	return (word & SLUB_COUNTS) | (offset + 1) << SLUB_HEAD_SHIFT;
}

km_inline uint64_t slub_with_list(uint64_t word, const char *base, const void *freelist)
{
	return freelist ? slub_with_head(word, base, freelist) : word & SLUB_COUNTS;
}

/* Acquire pairs with the release in slub_change: who sees a head sees the links behind it. */
km_inline uint64_t slub_look(const struct km_page *slab)
{
	return km_load_acquire(&slub_slab(slab)->word);
}

km_inline bool slub_change(struct km_page *slab, uint64_t *seen, uint64_t next)
{
	return km_cas_both(&slub_slab(slab)->word, seen, next);
}

/* Of one that is on a node's list; of others what their owner has left there. */
km_inline unsigned slub_free_objects(const struct km_page *slab)
{
	return slub_free_count(km_load(&slub_slab(slab)->word));
}

/* ---- what is on a CPU */

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

/* A slab's address from that of any of its objects. */
km_inline char *slub_base(const struct km_page *slab, const void *object)
{
	return (char *)((uintptr_t)object & ~(((uintptr_t)KM_PAGE_SIZE << slab->order) - 1));
}

/*
 * Does an object begin there, in a slab of the usual order? factor is 2^64 / size rounded up, e what that added, times
 * size: the k-th multiple of size, times factor, is k * e modulo 2^64, and bound is objects * e; anything else comes
 * out far above.
 */
km_inline bool slub_aligned(uint64_t factor, uint64_t bound, uint64_t offset)
{
	return offset * factor < bound;
}

/* km_slab_of, short where nothing is wrong and the slab is of the usual order in the first range, as nearly all. */
km_inline struct km_page *slub_slab_of(struct kmem_cache *cache, void *object)
{
	const struct slub_node *n = slub_node(cache, 0);
	uint64_t offset = (uintptr_t)object & n->slab_mask;
	size_t index = ((uintptr_t)object - offset - (uintptr_t)n->range->base) >> KM_PAGE_SHIFT;
	int ignored;

	if (km_likely(index < km_load_acquire(&n->range->ready))) {
		struct km_page *slab = &n->range->page[index];

		/* It may be another block's, which comes or goes just now: of a slab of a lesser order. */
		if (km_likely(km_load(&slab->cache) == cache && km_load(&slab->type) == KM_PAGE_SLAB &&
			      km_load(&slab->order) == cache->order &&
			      slub_aligned(n->factor, n->bound, offset)))
			return slab;
	}
	return km_slab_of(cache, object, &ignored, "kmem_cache_free");
}

/* ---- counting: by CPU under rseq, where that is cheap. Kernel: who migrates meanwhile may lose one, too. */

km_inline uint64_t *slub_events(const struct kmem_cache *cache)
{
	return km_likely(cache->percpu_offset) ?
		       (uint64_t *)(km_area(km_chain_cpu_id()) + cache->percpu_offset) :
		       slub_node(cache, 0)->events;
}

km_inline void slub_bump(const struct kmem_cache *cache, uint64_t *events, enum kmem_event event,
			 uint64_t n)
{
	if (km_likely(cache->percpu_offset))
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

/* Put slabs that were frozen on a CPU's partial list on their node's, or let them go. */
void km_slub_put_partials(struct kmem_cache *cache, struct km_chain_link *link);
/* Take a slab off a CPU with what is left of its freelist. */
void km_slub_deactivate(struct kmem_cache *cache, struct km_page *slab, void *freelist, bool may_wait);
/* A slab that nobody knows of any more: its memory goes, whatever is in it. */
void km_slub_free_slab(struct kmem_cache *cache, struct km_page *slab);
/* The same of one whose word says that all is free. False: that is wrong; it is said, and the slab stays. */
bool km_slub_discard(struct kmem_cache *cache, struct km_page *slab);

/* Free `count` objects of a slab, linked from head to tail; the tail's link is not set. */
void km_slub_free_to_slab(struct kmem_cache *cache, struct km_page *slab, char *base, void *head,
			  void *tail, unsigned count);
void km_slub_report_double(struct kmem_cache *cache, void *object);

void *km_slub_alloc(struct kmem_cache *cache, const struct km_request *request);
void km_slub_free(struct kmem_cache *cache, void *object);
unsigned km_slub_take(struct kmem_cache *cache, const struct km_request *request, void **objects,
		      unsigned want);

/* ---- slub_bulk.c: freeing many */

void km_slub_give(struct kmem_cache *cache, void **objects, unsigned count);
unsigned km_slub_give_last(struct kmem_cache *cache, void **objects, unsigned count);

/* ---- slub_checked.c: caches that validate each free: no per-CPU slabs, all under the node's lock */

unsigned km_slub_take_checked(struct kmem_cache *cache, const struct km_request *request,
			      void **objects, unsigned want);
void km_slub_free_checked(struct kmem_cache *cache, void *object);
/* The freelists of a cache, or of a slab in hand, are looked at; damages are told, and mended: how many, or false. */
int km_slub_mend(struct kmem_cache *cache);
bool km_slub_mend_slab(struct kmem_cache *cache, struct km_page *slab);

/* May a slab whose objects are all free go, with so many others partly used? Lock held. */
km_inline bool slub_may_go(const struct kmem_cache *cache, const struct slub_node *n)
{
	km_debug(km_is_locked(&n->slabs.lock), "how many slabs are listed is asked under their lock");
	return km_load(&n->slabs.counts.partial) >= km_load(&cache->min_partial) && !km_slabs_stay(cache);
}

/* A fresh slab, counted; NULL: no memory. Its pair is not set. */
struct km_page *km_slub_new_slab(struct kmem_cache *cache, const struct km_request *request);
/* Thread `count` objects of a fresh slab in this order; returns the first of them. */
void *km_slub_thread_list(struct kmem_cache *cache, struct km_page *slab, struct km_slab_order *order, unsigned count);

#endif
