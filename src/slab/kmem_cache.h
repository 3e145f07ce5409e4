/*
 * kmem_cache.h: struct kmem_cache in parts: the fields of a hit, the layout of objects, the form of slabs, tunables,
 * state, and the state of accounting and of extensions.
 * Invariant: the fields that a hit reads lie in the first two cache lines.
 */
#ifndef KM_SLAB_KMEM_CACHE_H
#define KM_SLAB_KMEM_CACHE_H

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "base/cc.h"
#include "base/list.h"
#include "os/die.h"
#include "percpu/cpu_freelist.h"
#include "percpu/node.h"
#include "percpu/pcpu.h"

#define KM_NAME_BYTES	32u

struct km_alloc_ops;
struct km_engine;
struct km_hooks;
struct km_quarantine;
struct km_shadows;
struct km_slab_charge;
struct obj_cgroup;

/* Event counters of a cache (enum kmem_event). Written by slow paths only, so all CPUs may share the cache line. */
struct km_events {
	uint64_t count[KMEM_NR_EVENTS];
};

/* The layers of a cache, from top to bottom. A new layer needs one line here and one folder (alloc/layers.c).
 * Every cache has BASE. Layers between CHARGE and OBSERVE run at each allocation and free. */
enum km_layer {
	KM_LAYER_SHADOW,	/* a debug shadow cache serves requests (ext/debug/debug_shadow.c) */
	KM_LAYER_CHARGE,	/* objects are charged (charge.c), or one object is guarded (sampled_ops.c) */
	KM_LAYER_ADDED,		/* registered by a program that is linked with the archive */
	KM_LAYER_OBSERVE,	/* hooks, checks, injected failures, probes and profiles (alloc/observed_ops.c) */
	KM_LAYER_VALIDATE,	/* an allocation state map validates frees (alloc/validate.c) */
	KM_LAYER_BASE,		/* per-CPU sheaves, a freelist, or the engine alone (*_ops.c) */
	KM_LAYERS
};

/* Numbers of slabs allocated and freed since the start. */
struct km_retired {
	size_t new_slabs, freed_slabs;
};

/* Cache line 0: fields read by a hit of the plain fast path. */
struct km_cache_fast {
	struct km_pcs pcs;
	/* Id in the page map; KM_MAP_DESC: no id. Under rseq also the number of the cache's word in a per-CPU area. */
	uint16_t id;
	uint16_t capacity;		/* initial capacity of a sheaf, in objects; 0: no sheaves */
	struct km_chain chain;		/* with KM_PERCPU_FREELIST: per-CPU words of the CPUs' slabs */
};

/* Line 1: layout of slabs and objects; constant after creation but for `traits` and `dead`. */
struct km_cache_layout {
	uint32_t size;			/* bytes from one object to the next */
	uint32_t object_size;		/* bytes requested by the user */
	uint32_t reciprocal;		/* index in slab = offset * reciprocal >> 32; see layout.c */
	uint32_t objects;		/* objects in a slab of `order` */
	uint32_t freeptr;		/* offset of the free pointer in a free object, in bytes */
	uint32_t usable;		/* usable bytes of each object; 0: differs by object (kmalloc/lookup.c) */
	uint8_t order, min_order;
	bool tail_bits;			/* engine sheaf: the free bits lie behind the objects, not in page
					 * descriptors */
	bool checked;			/* each free is validated by the engine */
	uint8_t traits;			/* enum km_cache_trait */
	bool dead;
	uint8_t freelist;		/* engine slab: place of a slab's free indices (enum slab_freelist) */
	uint8_t live_shift;		/* shift from address to byte in the allocation state map; 0: no map */
	slab_flags_t flags;
	uint32_t cleared;		/* bytes cleared for __GFP_ZERO; 0: the cache has a constructor */
	const struct km_engine *engine;
};

enum km_cache_trait {
	KM_CACHE_MERGEABLE = 1,	/* a creation with the same layout may get this cache (merging) */
	KM_CACHE_DENSE = 2,	/* engine sheaf: slab orders are chosen for little waste */
	KM_CACHE_SINGLY = 4,	/* engine sheaf: no bulk requests are expected, so sheaves may be small */
	KM_CACHE_SIZE_PART = 8,	/* the cache's entries of the table of sizes lie among another cache's, and stay 0 */
	KM_CACHE_SIZE_CHARGED = 16,	/* the cache's table of sizes is the one for charged hits */
};

/* State of the extensions. Observers, validation and hardening come first, because their paths read one line. */
struct km_cache_ext {
	const struct km_hooks *hooks;	/* hooks of observers; NULL: none. Hooks close the inline fast path */
	uintptr_t live;			/* address of the allocation state map for address 0; 0: look up each object's
					 * byte */
	uint32_t live_id;		/* id in the page map of pages with validated objects; a value that no page has
					 * where there is no map */
	/* Hardening (alloc/harden.h). parts: any hardening at free. wiped: clear at free. zeroed: clear at allocation.
	 * canary: offset of the canary in an object, 0: none. quarantine: freed objects waiting for reuse. */
	bool parts, wiped, zeroed;
	bool comes_in_parts, goes_in_parts;	/* km_parts_comes is needed (zeroed, canary); km_parts_goes is needed
						 * (canary, quarantine) */
	bool comes_slowly;		/* an allocation needs the slow path: comes_in_parts, or part of the map lies
					 * beyond the first range */
	bool seen;			/* a layer observes each allocation and each free */
	uint32_t canary;
	bool may_have_canary;
	struct km_quarantine *quarantine;
	struct kmem_cache **copies;	/* copies of a kmalloc or malloc cache, by call site (random_classes.c);
					 * NULL: none yet */
	uint32_t left;			/* debugged cache: bytes of the left red zone of each object */
	slab_flags_t carried;		/* debug flags of newly allocated objects (KM_DEBUG_FLAGS) */
	uint32_t useroffset, usersize;	/* bytes of an object that usercopy may read and write */
	/* Guarded objects (alloc/sampled_ops.c). sample_calls: number of calls until the cache gets its plain alloc ops
	 * back. guarded: live guarded objects. sample_due: an object is still to be guarded. */
	uint32_t sample_calls, guarded;
	bool sample_due;
	/* Debugging that is switched at run time. */
	struct km_shadows *shadows;	/* debug shadow caches; NULL: none, and never any (alloc/fast_path.h) */
	struct kmem_cache *shadow_of;	/* for a debug shadow cache, the cache with the usual layout; else NULL */
	struct kmem_cache *next_shadow;
};

/* The form of a new slab; constant after creation. */
struct km_cache_form {
	void (*ctor)(void *object);
	uint16_t colours, colour_bytes;	/* engine slab: number of colours, 0: one; bytes from one colour to the next */
	uint32_t first;			/* offset of a slab's first object without colour, in bytes */
	uint32_t slab_tail;		/* bytes used by the engine at the end of each slab */
	uint32_t slab_pages;		/* pages of a slab of `order`, or of a block of a whole_pages engine */
	uint32_t align;
};

/* Tunables, and the limit. */
struct km_cache_tune {
	unsigned long min_partial;
	uint16_t busy_capacity;		/* largest capacity of a sheaf after many misses, in objects */
	uint16_t max_capacity;		/* largest capacity of a sheaf under bulk requests, in objects */
	uint16_t batchcount, shared;	/* engine slab: objects moved at once; batches in a node's shared array */
	uint32_t pad;			/* pad of new sheaves (percpu/pcpu.h); 0 where a mask states the capacity */
	uint16_t defrag_ratio;		/* share of misses that may search partial slabs of other nodes, of 1024 */
	bool own_min_partial;		/* min_partial was set explicitly: rules must not change min_partial */
	bool leads;			/* some cache is, or was, tuned with this cache */
	uint64_t limit;			/* most bytes of slabs; UINT64_MAX: no limit */
	struct kmem_cache *tuned_with;	/* the leader: cache whose tunables are copied at creation and at each change;
					 * or NULL */
};

/* Fields written at run time, by slow paths. */
struct km_cache_state {
	void *deferred;			/* objects freed by signal handlers and not yet given to the engine, linked at
					 * freeptr */
	uint16_t misses;		/* miss points (alloc/slow_path.c) since the last reclaim look; a racy hint */
	bool touched;			/* a miss occurred since the last reclaim look */
	bool going;			/* being destroyed: no slab of the cache may start to wait (kfree_rcu.c) */
	uint8_t idle_looks;
	bool swept;			/* drained by the last sweep */
	uint8_t spared, spared_next;	/* sweeps for which the cache is spared: still, and at the next time */
	uint32_t defrag_looks;
	uint32_t percpu_offset, percpu_bytes;	/* the engine's part of a per-CPU area, in bytes */
	uint32_t word;			/* offset of word `id` in a per-CPU area; 0: none */
	void *node[KM_MAX_NODES];	/* the engine's struct for each memory node */
	struct km_events *events;
	uint64_t slab_bytes;		/* bytes of the cache's slabs */
	size_t wanted_at;		/* km_slab_clock at the last request that the per-CPU sheaves could not serve */
	size_t reserved_pages;		/* pages committed in advance by kmem_reserve */
	struct km_retired past;		/* slab counts inherited from destroyed caches (cache/create.c) */
	struct km_ratelimit refusals;	/* rate limit of lines about the cache's own limit (alloc/alloc_failure.c) */
};

/* The cache in the registry, and in a table of sizes. */
struct km_cache_registry {
	struct km_list all;		/* link in the registry */
	struct kmem_cache *next_named;	/* next cache in the registry with the same hash of the name */
	struct kmem_cache **named_by;	/* pointer to this cache in the registry's hash; NULL: a child cache */
	uint16_t *size_ids;		/* this cache's entries in a table of sizes: its id, or 0 while unpublished */
	uint32_t size_count;
	int references;			/* users of the cache, more than one with merging */
	char name[KM_NAME_BYTES];
};

/* The state of a cache's charges: objects with a charge, charged objcgs, owners of charged sheaves. The transitions:
 * memcg/charge_state.c. The order counts. Below ONE, the owner word of a free object must be 0. */
enum km_charging {
	KM_CHARGING_NONE = 0,		/* no object is charged */
	KM_CHARGING_PARENT = 1,		/* bit of the states below: some group has, or had, a child cache */
	KM_CHARGING_SOME = 2,		/* objects may be charged: by __GFP_ACCOUNT or kmem_cache_charge */
	KM_CHARGING_CHECKED = 4,	/* from here on each object is charged; each free is checked */
	KM_CHARGING_ONE = 6,		/* one objcg for all objects, named by `objcg`; with a second objcg DUE */
	KM_CHARGING_ONE_OWNED = 8,	/* one objcg for all objects, named by `objcg`; with a second objcg OWNED */
	KM_CHARGING_DUE = 10,		/* several objcgs; MIXED as soon as a call may wait */
	KM_CHARGING_OWNED = 12,		/* several objcgs; each charged sheaf has one of them as owner */
	KM_CHARGING_MIXED = 14,		/* several objcgs, also on one charged sheaf (`mixed`) */
};

/* Accounting: the per-CPU sheaves of charged objects, beside `fast.pcs` (percpu/owned_sheaf.h), and the state of the
 * charges. Hits find `mixed` by the offset charged.front.back. */
struct km_cache_memcg {
	struct km_pcs charged;
	uint32_t charge;		/* bytes charged for each object, with its owner word; 0: not yet known */
	uint32_t charged_sheaves;	/* sheaves of `charged` on all CPUs, including those being made */
	uint32_t owner_shift;		/* shift from object to objcg entry of the page (page/obj_cgroups.h) */
	gfp_t charged_odd;		/* gfp bits that rule out a pop of `charged`; all bits in state MIXED */
	uint32_t charging;		/* state of the charges (enum km_charging); changed with km_drain_lock held */
	uint32_t calls;			/* child cache: number of slow-path frees in progress (alloc/fast_path.h) */
	struct km_pcs mixed;		/* the same per-CPU words as `charged`, for sheaves of many owners. slot 0: not
					 * open */
	/* The objcg charged for all objects so far, or one of the values below. These values are odd, so no objcg has
	 * such an address. Never 0, because an owner of 0 means a sheaf without an objcg. */
	uint64_t objcg;
#define KM_OBJCGS_DIFFER ((uint64_t)1)	/* objects are charged to several objcgs, named by their owner words; as the
					 * owner of a sheaf: mixed */
#define KM_OBJCG_UNKNOWN ((uint64_t)3)	/* no object was ever allocated */
#define KM_OBJCG_NOBODY	((uint64_t)5)	/* all allocated objects are uncharged */
	const struct km_slab_charge *slab_charge;	/* slab charge hooks; NULL: none */
	void *kept_by;			/* private data of the slab charge hooks (struct km_child) */
	unsigned group;			/* child cache: number of the group (kmem info); 0: none, or a spare */
	bool handed_on;			/* child cache reused after a released group, whose late frees may still run */
	bool orphan;			/* child cache of a group without a reference: only frees are left */
	bool word_is_charged;		/* the per-CPU word with the number `id` belongs to `charged`, and the owner
					 * word follows; else to `fast.pcs` */
	struct km_list child_list;	/* child caches, spares first; valid with KM_CHARGING_PARENT; guarded by the
					 * registry lock */
	struct kmem_cache *child_of;	/* parent of a child cache (memcg/child_cache.c); else NULL */
};

struct kmem_cache {
	struct km_cache_fast fast;
	struct km_cache_layout layout km_aligned(64);
	/* Alloc ops by layer. A layer absent from this cache has the ops of the next layer below. */
	const struct km_alloc_ops *layers[KM_LAYERS];
	struct km_cache_ext ext;
	struct km_cache_form form;
	struct km_cache_tune tune;
	struct km_cache_state state;
	struct km_cache_memcg memcg km_aligned(64);
	struct km_cache_registry registry;
};

km_inline bool km_cache_is(const struct kmem_cache *cache, enum km_cache_trait trait)
{
	return km_load(&cache->layout.traits) & trait;
}

_Static_assert(offsetof(struct kmem_cache, fast.pcs.front) == 0, "the inline header reads it there");
_Static_assert(offsetof(struct kmem_cache, layout.size) == 64, "a hit reads one line");
_Static_assert(sizeof(struct kmem_cache) <= 768, "records of up to 768 bytes fit at more places");

#endif
