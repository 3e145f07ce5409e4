/*
 * partial.h: a node's counts, lock and list of partial slabs, for all engines with slabs, and loops over the
 * nodes. Invariant: whenever the lock is free, counts.partial slabs are on the list. With engines that use
 * km_slabs_list, exactly these slabs have KM_SLAB_PARTIAL.
 */
#ifndef KM_SLAB_PARTIAL_H
#define KM_SLAB_PARTIAL_H

#include "os/die.h"
#include "engine.h"

/* The first fields of an engine's struct for a node: counts, lock and partial slabs. */
struct km_slabs {
	struct km_node_counts counts;	/* guarded by `lock`, unless the engine says otherwise */
	struct km_lock lock;
	/* For __GFP_FULLEST. packed: the slab chosen for these requests, on the list; or NULL. packed_free: the slab's
	 * free objects at the last take. */
	unsigned packed_free;
	struct km_page *packed;
	struct km_list partial;
	/* Next slab to look at, towards the head of the list; NULL: the last slab. */
	struct km_page *looked;
};

/* An engine's functions for its slabs, called by the functions of this file. */
struct km_slab_kind {
	unsigned (*free_objects)(const struct km_page *slab);
	/* Takes a slab off the list. Requires: the lock. NULL: km_slabs_drop. */
	void (*unlist)(struct km_slabs *n, struct km_page *slab);
	/* Frees an unlisted slab. Returns: false if the slab is damaged (reported) and stays. NULL: km_slab_free. */
	bool (*discard)(struct kmem_cache *cache, struct km_page *slab);
};

/* Loops with n over the structs of all nodes; km_for_each_elsewhere: of all nodes but `own`, nearest first. Requires:
 * all nodes exist. */
#define km_for_each_node(n, cache)                                                                 \
	for (unsigned i_##n = 0; i_##n < km_node_count && ((n) = (cache)->state.node[i_##n], true); i_##n++)
#define km_for_each_elsewhere(n, cache, own)                                                       \
	for (unsigned i_##n = 1;                                                                   \
	     i_##n < km_node_count && ((n) = (cache)->state.node[km_node_near(own, i_##n)], true); i_##n++)

/* Puts a slab on the list. Requires: the lock, here and in the functions below. */
km_inline void km_slabs_list(struct km_slabs *n, struct km_page *slab, bool tail)
{
	km_debug(km_is_locked(&n->lock) && !(slab->flags & KM_SLAB_PARTIAL),
		 "a slab is listed once, under its node's lock");
	km_store(&slab->flags, (uint8_t)(slab->flags | KM_SLAB_PARTIAL));
	km_list_insert(&slab->list, tail ? n->partial.prev : &n->partial, tail ? &n->partial : n->partial.next);
	km_bump(&n->counts.partial, 1);
}

/* Returns the slab in front of `slab`; NULL: `slab` is the first. */
km_inline struct km_page *km_slabs_before(const struct km_slabs *n, const struct km_page *slab)
{
	const struct km_list *before = slab->list.prev;

	return before == &n->partial ? NULL : km_container_of(before, struct km_page, list);
}

km_inline void km_slabs_unlist(struct km_slabs *n, struct km_page *slab)
{
	km_debug(km_is_locked(&n->lock) && slab->flags & KM_SLAB_PARTIAL && n->counts.partial,
		 "a removed slab was on the list");
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
		 "at most the added slabs are removed");
	km_bump(&n->counts.slabs, -1);
	km_bump(&n->counts.freed_slabs, 1);
	km_bump(&n->counts.objects, -slab->objects);
}

km_inline void km_slabs_drop(struct km_slabs *n, struct km_page *slab)
{
	km_slabs_unlist(n, slab);
	km_slabs_went(n, slab);
}

/* For __GFP_FULLEST: chooses a slab with few free objects among the first KM_FULLEST_LOOKS, and moves the slab to
 * the head. The slab stays chosen until no object is free, or more objects are free than before. NULL: the list is
 * empty. */
#define KM_FULLEST_LOOKS 64u
typedef unsigned km_free_objects_fn(const struct km_page *slab);
struct km_page *km_slabs_fullest(struct km_slabs *n, km_free_objects_fn *free_objects) km_cold;
/* Returns: slab->objects - slab->inuse, for engines that count `inuse`. */
km_free_objects_fn km_slab_free_objects;
void km_slabs_fullness(const struct kmem_cache *cache, const struct km_page *slab, struct km_fullness *fullness);
void km_slabs_partial(struct kmem_cache *cache, struct km_fullness *of_all);

/* Returns the slab at which the last look ended; NULL: the list is empty. Requires: the lock. */
struct km_page *km_slabs_next(struct km_slabs *n);
/* Frees all empty slabs, then sorts slabs with few free objects to the front. Returns: number of freed slabs. */
size_t km_slabs_shrink(struct kmem_cache *cache, struct km_slabs *n, const struct km_slab_kind *kind);
/* Frees empty slabs of a bounded part of the list, while more than `keep` are listed. The next call goes on. */
size_t km_slabs_reap(struct kmem_cache *cache, struct km_slabs *n, unsigned long keep, const struct km_slab_kind *kind);
/* Checks the lists of all nodes. check_slab: returns the damages of one listed slab. Returns: the number of damages. */
int km_slabs_check(struct kmem_cache *cache, const struct km_slab_kind *kind,
		   int (*check_slab)(struct kmem_cache *cache, struct km_page *slab));
/* Functions of struct km_engine, for engines whose struct for a node is struct km_slabs. stats reads only counts.
 * discard requires a valid `inuse`. */
int km_slabs_init(struct kmem_cache *cache, unsigned node);
void km_slabs_discard(struct kmem_cache *cache, struct km_page *slab);
void km_slabs_stats(struct kmem_cache *cache, struct kmem_cache_stats *stats);
void km_slabs_fork(struct kmem_cache *cache, bool before, bool child);

#endif
