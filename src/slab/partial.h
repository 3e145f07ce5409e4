/*
 * partial.h: what engines with slabs share: a node's counts, its lock and its list of partial slabs, and the sweeps
 * over nodes. Invariant: counts.partial slabs are on the list whenever the lock is free; of engines that list with
 * km_slabs_list, those and no others have KM_SLAB_PARTIAL.
 */
#ifndef KM_SLAB_PARTIAL_H
#define KM_SLAB_PARTIAL_H

#include "os/die.h"
#include "engine.h"

/* How the struct per node of such an engine begins. */
struct km_slabs {
	struct km_node_counts counts;	/* under lock, where the engine does not say otherwise */
	struct km_lock lock;
	/* Whoever wants full slabs takes from this one: of the list; NULL: none is chosen. It had so many free objects
	 * when it was last taken from. */
	unsigned packed_free;
	struct km_page *packed;
	struct km_list partial;
	/* Where the next look at some of the list goes on, towards the head; NULL: at the end. */
	struct km_page *looked;
};

/* An engine's description of its slabs, for functions below. */
struct km_slab_kind {
	unsigned (*free_objects)(const struct km_page *slab);
	/* Off the list, lock held: nobody will find it. NULL: km_slabs_drop. */
	void (*unlist)(struct km_slabs *n, struct km_page *slab);
	/* Free one that is off the list. False: it is damaged, which was said, and stays. NULL: km_slab_free. */
	bool (*discard)(struct kmem_cache *cache, struct km_page *slab);
};

/* With n: each node's struct; each node's but `own`, the nearest to that first. Of a cache that was made whole. */
#define km_for_each_node(n, cache)                                                                 \
	for (unsigned i_##n = 0; i_##n < km_node_count && ((n) = (cache)->node[i_##n], true); i_##n++)
#define km_for_each_elsewhere(n, cache, own)                                                       \
	for (unsigned i_##n = 1;                                                                   \
	     i_##n < km_node_count && ((n) = (cache)->node[km_node_near(own, i_##n)], true); i_##n++)

/* Lock held, as for what follows. */
km_inline void km_slabs_list(struct km_slabs *n, struct km_page *slab, bool tail)
{
	km_debug(km_is_locked(&n->lock) && !(slab->flags & KM_SLAB_PARTIAL),
		 "a slab is listed once, under its node's lock");
	km_store(&slab->flags, (uint8_t)(slab->flags | KM_SLAB_PARTIAL));
	km_list_insert(&slab->list, tail ? n->partial.prev : &n->partial, tail ? &n->partial : n->partial.next);
	km_bump(&n->counts.partial, 1);
}

/* The slab in front of that one; NULL: it is the first. */
km_inline struct km_page *km_slabs_before(const struct km_slabs *n, const struct km_page *slab)
{
	const struct km_list *before = slab->list.prev;

	return before == &n->partial ? NULL : km_container_of(before, struct km_page, list);
}

km_inline void km_slabs_unlist(struct km_slabs *n, struct km_page *slab)
{
	km_debug(km_is_locked(&n->lock) && slab->flags & KM_SLAB_PARTIAL && n->counts.partial,
		 "a slab that leaves the list was on it");
	km_store(&slab->flags, (uint8_t)(slab->flags & ~KM_SLAB_PARTIAL));
	if (km_unlikely(n->looked == slab))
		n->looked = km_slabs_before(n, slab);
	km_list_del(&slab->list);
	km_bump(&n->counts.partial, -1);
	if (km_unlikely(n->packed == slab))
		km_store(&n->packed, NULL);
}

km_inline void km_slabs_came(struct km_slabs *n, const struct km_page *slab)
{
	km_bump(&n->counts.slabs, 1);
	km_bump(&n->counts.new_slabs, 1);
	km_bump(&n->counts.objects, slab->objects);
}

km_inline void km_slabs_went(struct km_slabs *n, const struct km_page *slab)
{
	km_debug(km_is_forked || (n->counts.slabs && n->counts.objects >= slab->objects),
		 "no more slabs go than came");
	km_bump(&n->counts.slabs, -1);
	km_bump(&n->counts.freed_slabs, 1);
	km_bump(&n->counts.objects, -slab->objects);
}

km_inline void km_slabs_drop(struct km_slabs *n, struct km_page *slab)
{
	km_slabs_unlist(n, slab);
	km_slabs_went(n, slab);
}

/* With __GFP_FULLEST: a slab of the list that has few free objects comes to its head, and stays chosen until it has
 * none, or more again. NULL: the list is empty. Lock held, for a look at so many slabs at most. */
#define KM_FULLEST_LOOKS 64u
typedef unsigned km_free_objects_fn(const struct km_page *slab);
struct km_page *km_slabs_fullest(struct km_slabs *n, km_free_objects_fn *free_objects) km_cold;
/* As engine.h has them; of slabs whose `inuse` is kept. */
km_free_objects_fn km_slab_free_objects;
void km_slabs_fullness(const struct kmem_cache *cache, const struct km_page *slab, struct km_fullness *fullness);
void km_slabs_partial(struct kmem_cache *cache, struct km_fullness *of_all);

/* The slab to look at, where the last look ended; NULL: the list is empty. Lock held. */
struct km_page *km_slabs_next(struct km_slabs *n);
/* Free all empty slabs; then those with few free objects come first. Returns how many. */
size_t km_slabs_shrink(struct kmem_cache *cache, struct km_slabs *n, const struct km_slab_kind *kind);
/* Free empty slabs beyond `keep` partial ones, among some: the next call goes on where this one ended. */
size_t km_slabs_reap(struct kmem_cache *cache, struct km_slabs *n, unsigned long keep, const struct km_slab_kind *kind);
/* Number of damages of all nodes' lists; check_slab: of a slab that is listed. */
int km_slabs_check(struct kmem_cache *cache, const struct km_slab_kind *kind,
		   int (*check_slab)(struct kmem_cache *cache, struct km_page *slab));
/* As the functions of engines (engine.h), of what stands in struct km_slabs; stats wants the counts alone. discard: of
 * slabs whose `inuse` is kept. */
int km_slabs_init(struct kmem_cache *cache, unsigned node);
void km_slabs_discard(struct kmem_cache *cache, struct km_page *slab);
void km_slabs_stats(struct kmem_cache *cache, struct kmem_cache_stats *stats);
void km_slabs_fork(struct kmem_cache *cache, bool before, bool child);

#endif
