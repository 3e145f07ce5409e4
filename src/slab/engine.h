/*
 * engine.h: what a cache is; what an engine implements, and may call: layout, slabs, the bytes around an object that is
 * debugged, and the hooks of those who look at each object.
 *
 * Glossary. Object: what users get. Slab: a run of pages cut into objects of one cache. Order: a slab is
 * 2^order pages. Partial: a slab with objects both taken and free, on its node's list. Shelf: a CPU's stack of
 * ready objects (percpu/pcpu.h). Block: the memory of one stack. Sheaf: the kernel's word for a block in the engine
 * of that name. Barn: a node's full and empty blocks. Main, partner: the two blocks of a CPU. Take, give: objects
 * leave a slab, come back. Refill, spill: a block gets objects from, gives them to, the engine. Front: what meets
 * a request first. Miss: a request that no sequence of the front served.
 */
#ifndef KM_SLAB_ENGINE_H
#define KM_SLAB_ENGINE_H

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "page/arena.h"
#include "percpu/cpu_freelist.h"
#include "os/die.h"
#include "base/fields.h"
#include "percpu/id_table.h"
#include "base/list.h"
#include "os/lock.h"
#include "percpu/node.h"
#include "percpu/pcpu.h"
#include "os/sanitizer.h"
#include "slab/engines.h"

#define KM_NAME_BYTES	32u

enum km_front {
	KM_PERCPU_NONE,	/* no shelf: every call is the engine's alloc or free */
	KM_PERCPU_SHEAVES,	/* blocks of pointers; a miss goes to refill and spill */
	KM_PERCPU_FREELIST,	/* a chain through the objects of the CPU's slab (percpu/cpu_freelist_hit.h) */
};

struct km_engine;
struct km_alloc_ops;
struct km_hooks;
struct km_quarantine;
struct km_slab_charge;
struct km_shadows;
struct obj_cgroup;

/* Events that the engine counts, summed over CPUs when read; slow path only, so a shared line will do. */
struct km_events {
	uint64_t count[KMEM_NR_EVENTS];
};

/*
 * The layers that stand before the objects of a cache, from the top to the bottom; a new layer is one line here, and
 * one folder (alloc/layers.c). Every cache has BASE. Layers between CHARGE and OBSERVE see each object come and go.
 */
enum km_layer {
	KM_LAYER_SHADOW,	/* a debug shadow cache serves requests (ext/debug/debug_shadow.c) */
	KM_LAYER_CHARGE,	/* objects are charged (charge.c), or one object is guarded (sampled_ops.c) */
	KM_LAYER_ADDED,		/* registered by a program that is linked with the archive */
	KM_LAYER_OBSERVE,	/* hooks, checks, failures on purpose, probes and profiles (alloc/observed_ops.c) */
	KM_LAYER_VALIDATE,	/* an allocation state map validates frees (alloc/validate.c) */
	KM_LAYER_BASE,		/* per-CPU sheaves, a freelist, or the engine alone (*_ops.c) */
	KM_LAYERS
};

/* Slabs that caches got and gave back, ever. */
struct km_retired {
	size_t new_slabs, freed_slabs;
};

struct kmem_cache {
	/* Line 0: all that a plain hit reads. */
	struct km_pcs pcs;
	uint16_t id;			/* in the page map; KM_MAP_DESC: has none. Under rseq also where the
					 * shelf's word is: word id of an area. */
	uint16_t capacity;		/* objects a block holds at first; 0: no shelf */
	struct km_chain chain;		/* CHAIN: where each CPU's slab is */

	/* Line 1: a slab, and where an object's bytes are; constant after creation. */
	uint32_t size km_aligned(64);	/* bytes from one object to the next */
	uint32_t object_size;		/* bytes the user asked for */
	uint32_t reciprocal;		/* index in slab = offset * reciprocal >> 32; see layout.c */
	uint32_t objects;		/* per slab of `order` */
	uint32_t freeptr;		/* where the free pointer is, in a free object */
	uint32_t usable;		/* bytes that a user has of each object; 0: ask of each (kmalloc/lookup.c) */
	uint8_t order, min_order;
	bool tail_bits;			/* sheaf: the free bits lie behind the objects, not in descriptors */
	bool checked;			/* validate each free */
	bool mergeable;
	bool dead;
	uint8_t freelist;		/* slab: where a slab's indices lie (enum slab_freelist) */
	uint8_t live_shift;		/* each object is proved (page/alloc_map.h): which byte is its; 0: not so */
	slab_flags_t flags;
	uint32_t cleared;		/* bytes that __GFP_ZERO makes zeros; 0: has a constructor */
	const struct km_engine *engine;
	/* The ops of each layer; of a layer that the cache does not have, the ops of the next layer below. */
	const struct km_alloc_ops *layers[KM_LAYERS];
	const struct km_hooks *hooks;	/* watchers; NULL: none. With hooks the public shelf is closed. */
	uintptr_t live;			/* live_shift: where the bytes are; 0: have those of each looked for */
	uint32_t live_id;		/* the id that its pages have in the map; none of a map: it has none */
	/* ... with parts beside (alloc/harden.h): any of the others; what is freed is made zeros, or what is handed
	 * out; where the canary is, 0: none; what waits before it may be handed out again. */
	bool parts, wiped, zeroed;
	bool comes_in_parts, goes_in_parts;	/* more than zeros when it is freed is to be done */
	bool comes_slowly;		/* as it comes, or it may lie beyond the first range */
	bool seen;			/* each object is seen as it comes and goes */
	uint32_t canary;
	bool may_have_canary;
	struct km_quarantine *quarantine;
	struct kmem_cache **copies;	/* kmalloc's and malloc's, by call site (random_classes.c); NULL: none yet */
	void (*ctor)(void *object);
	uint16_t colours, colour_bytes;	/* slab: places where a slab's first object may be; 0: one */
	uint32_t left;			/* debugged: bytes of the red zone in front of each object */
	uint32_t first;			/* where a slab's first object is, but for its colour */
	uint32_t slab_tail;		/* the engine's bytes at the end of each slab */
	uint32_t align;
	/* Written seldom, here where there is room: records lie at more places where they are no longer than 768. */
	struct km_retired past;		/* of caches that are gone and counted as this one (cache/create.c) */
	struct kmem_cache *child_of;	/* its slabs are a private group's (memcg/child_cache.c); NULL: no twin */
	struct kmem_cache *tuned_with;	/* tuned as that is when it is made, and whenever that is; NULL: by itself */

	/* Written while running. */
	unsigned long min_partial km_aligned(64);
	void *deferred;			/* frees that a signal handler could not finish, linked by freeptr */
	uint16_t busy_capacity;		/* objects a block holds at most, where the cache misses often */
	uint16_t max_capacity;		/* ... where it is used in bulk */
	uint16_t misses;		/* points of alloc/slow_path.c since reclaim last looked; racy, a hint */
	bool touched;			/* missed since reclaim last looked */
	bool wanted;			/* a request went past the shelves since the last sweep */
	bool own_min_partial;		/* somebody wrote it: no rule changes it */
	uint8_t idle_looks;
	uint16_t defrag_ratio;		/* of 1024 looks at other nodes' partial slabs, so many are allowed */
	uint32_t defrag_looks;
	/* Calls until it has its plain shape again, where an object of it is to be guarded (alloc/sampled_ops.c); how
	 * many guarded ones are out; whether one is still to come. */
	uint32_t sample_calls, guarded;
	bool sample_due;
	uint16_t batchcount, shared;	/* slab: objects moved at once; batches in a node's shared array */
	uint32_t pad;			/* of blocks that are made now (percpu/pcpu.h); 0 where capacities are masks' */
	uint32_t percpu_offset, percpu_bytes;	/* the engine's words in each CPU's area */
	void *node[KM_MAX_NODES];	/* the engine's, one per memory node */
	struct km_events *events;
	struct km_list all;		/* in the registry */
	struct kmem_cache *next_named;	/* ... and there by the hash of its name */
	struct kmem_cache **named_by;	/* what points to it there; NULL: it is a twin */
	uint16_t *size_ids;		/* this cache's run in a table of sizes, which shows its id or 0 */
	uint32_t size_count;
	bool dense;			/* sheaf: slabs are as large as it takes to leave little over */
	bool size_part;			/* ... a part of another's run, which shows nothing there */
	bool size_paid;			/* ... in a table of those whose hits look who pays */
	bool singly;			/* sheaf: nobody asks for many at once, so its blocks need not hold them */
	uint32_t word;			/* where word id is; 0: none */
	bool word_is_charged;		/* ... the word of `charged`, and its owner behind it; else that of `shelf` */
	int references;			/* aliases, where merging was asked for */
	uint32_t useroffset, usersize;
	char name[KM_NAME_BYTES];
	/* The objects here are paid for already; a shelf of its own beside the other (percpu/owned_sheaf.h).
	 * `front.back` is what hits see of `mixed`. */
	struct km_pcs charged km_aligned(64);
	uint32_t charge;		/* bytes that an object costs who pays for it; 0: nobody ever did */
	uint32_t charged_sheaves;	/* of `charged`, on all CPUs; or being made */
	uint32_t owner_shift;		/* an object's place among its page's owners (page/obj_cgroups.h) */
	gfp_t charged_odd;		/* what is no hit of `charged` by its gfp; all bits: `mixed` may be meant */
	bool charge_all;		/* each object is asked for who pays; else only where the call says so */
	bool children;			/* some private group has, or had, a twin of it */
	bool mixes;			/* where several pay, `mixed` is opened in the place of `charged` */
	uint8_t direct;			/* what goes past a CPU's block that is another's (memcg/charge.c) */
	struct km_pcs mixed;		/* the same blocks; each object is its owner word's. slot 0: not yet */
	/*
	 * The payer of every object that is out, if it is one objcg; else one of these numbers, which are no objcg's
	 * address. Never 0, which a CPU's block may say of its owner.
	 */
	uint64_t objcg;
#define KM_OBJCGS_DIFFER ((uint64_t)1)	/* an object's owner word says it; in the owner's place: of each its own */
#define KM_OBJCG_UNKNOWN ((uint64_t)3)	/* no object is out, or ever was */
#define KM_OBJCG_NOBODY	((uint64_t)5)	/* of those that are out */
	/* Slabs of it, as they come and go. */
	uint64_t slab_bytes, limit;	/* there are; there may be */
	const struct km_slab_charge *slab_charge;	/* NULL: nobody is asked */
	void *kept_by;			/* the keeper's */
	unsigned group;			/* a twin's: the number of its group (kmem info); 0: no twin, or nobody's */
	bool handed_on;			/* a twin that was another group's, of whose last free nobody knows the end */
	bool orphan;			/* a twin whose group has no reference: emptied as its objects are freed */
	uint32_t calls;			/* of a twin: slow-path frees under way (alloc/fast_path.h) */
	struct km_list child_list;	/* if `twins`: those there are, spares first; under the registry's lock */
	bool leads;			/* some cache is, or was, tuned with this one */
	size_t reserved_pages;		/* committed ahead for it: kmem_reserve */
	bool going;			/* it is being destroyed: none of its slabs begins to wait (kfree_rcu.c) */
	uint32_t slab_pages;		/* of a slab of the usual order, or of a block of whole_pages */
	/* Debugging that comes and goes while the cache is used. */
	struct km_shadows *shadows;	/* NULL: it has none, and never had (alloc/fast_path.h) */
	struct kmem_cache *shadow_of;	/* its objects are that cache's, in another layout; NULL: it is no sibling */
	struct kmem_cache *next_shadow;
	slab_flags_t carried;		/* of KM_DEBUG_FLAGS: what an object that is allocated now carries */
	struct km_ratelimit refusals;	/* lines about the cache's own limit (alloc/alloc_failure.c) */
};
_Static_assert(offsetof(struct kmem_cache, pcs.front) == 0, "the inline header reads it there");
_Static_assert(offsetof(struct kmem_cache, size) == 64, "a hit reads one line");

/* The rights of a request, from its gfp bits and where it came from. */
struct km_request {
	gfp_t gfp;
	int node;		/* NUMA_NO_NODE, or the wanted one of ours; with __GFP_THISNODE only that */
	bool may_wait;		/* system calls and sleeping locks are allowed */
	/* kmalloc's, where the engine serves it by size (shared_pages): bytes and alignment. 0: the cache's. */
	uint32_t bytes, align;
	struct kmem_cache *ready;	/* kmalloc/large.c: the class that the block is to be of; NULL: none */
};

/* May a call with these bits sleep, and make system calls? */
km_inline bool km_gfp_may_wait(gfp_t gfp)
{
	return (gfp & __GFP_DIRECT_RECLAIM) != 0;
}

km_inline struct km_request km_request_of(gfp_t gfp, int node)
{
	return (struct km_request){ gfp, node, km_gfp_may_wait(gfp), 0, 0, NULL };
}

/* The node to begin with. */
km_inline unsigned km_request_node(const struct km_request *request)
{
	return km_likely(request->node < 0) ? km_node_here() : (unsigned)request->node;
}

/* The same for km_pages_alloc: that one only, where the request insists. */
km_inline int km_request_place(const struct km_request *request)
{
	bool only = request->node >= 0 && request->gfp & __GFP_THISNODE;

	return only ? request->node | KM_NODE_ONLY : request->node;
}

/* Sockets for those who watch: called around the inner shelf. on_alloc may refuse (NULL: freed again; KM_LOST: it is
 * nobody's to give, and another is had). */
#define KM_LOST	((void *)-1)
struct km_hooks {
	void *(*on_alloc)(struct kmem_cache *cache, void *object, gfp_t gfp);
	/* False: the watcher keeps the object. */
	bool (*on_free)(struct kmem_cache *cache, void *object);
	/* The rest may be NULL. A slab is new, its objects are constructed; or it goes. */
	void (*slab_comes)(struct kmem_cache *cache, struct km_page *slab);
	void (*slab_goes)(struct kmem_cache *cache, struct km_page *slab);
	/* The object has so many bytes for its user from now on, no more than before; or more, if it can; how many are
	 * that? */
	void (*asked)(struct kmem_cache *cache, void *object, size_t bytes);
	bool (*grow)(struct kmem_cache *cache, void *object, size_t bytes);
	size_t (*bytes)(const struct kmem_cache *cache, const void *object);
	/* A bad call is about to be reported: all that is known of the object that p lies in. slab: the cache's. */
	void (*tell)(struct kmem_cache *cache, struct km_page *slab, const void *p, enum km_misuse what);
	/* ... and it was, and the process goes on: nothing was done. */
	void (*refused)(struct kmem_cache *cache, const void *p, const char *function);
	/* The engine found its own list of a slab damaged, at that object of it (NULL: nobody knows), and mended it:
	 * what was wrong, and what was done. It may end the process; under no lock. */
	void (*broken)(struct kmem_cache *cache, struct km_page *slab, void *object, const char *what, const char *fix);
	/* May it be on a list of free objects? Under the lock of that list. */
	bool (*may_be_free)(const struct kmem_cache *cache, const void *object);
	/* Check the cache's objects: number of damages, each told. Nobody else uses the cache. */
	int (*check)(struct kmem_cache *cache);
	/* The cache is destroyed, and the slab has objects that are out: it is looked at; if `tell`, they are named. */
	void (*remains)(struct kmem_cache *cache, struct km_page *slab, bool tell);
};

km_inline bool km_objcg_is_known(uint64_t objcg)
{
	return !(objcg & 1);
}

/* Each call asks who pays. Acquire pairs with the shape's `begin` (alloc/fast_path.h): what it filled in is there. */
km_inline bool km_is_charged(const struct kmem_cache *cache)
{
	return km_load_acquire(&cache->charge) != 0;
}

/* Each object is seen as it comes and goes: no shelf of what is paid for has any. */
km_inline bool km_is_seen(const struct kmem_cache *cache)
{
	return km_unlikely(km_load(&cache->seen));
}

/* Each free is looked at before anything is done for it that a bad one should not do. */
km_inline bool km_is_checked(const struct kmem_cache *cache)
{
	return km_unlikely(cache->checked) || km_unlikely(cache->live_shift);
}

/*
 * The functions that are asked before a cache gets pages for a slab, and see each slab come and go. With km_thread_busy
 * set, perhaps under locks of the cache; takes none of a rank below KM_RANK_PRIVATE.
 */
struct km_slab_charge {
	bool (*admit)(struct kmem_cache *cache, size_t bytes);
	void (*dismiss)(struct kmem_cache *cache, size_t bytes);	/* there were no pages after all */
	bool (*came)(struct kmem_cache *cache, struct km_page *slab, bool may_wait);	/* false: can't note it down */
	void (*goes)(struct kmem_cache *cache, struct km_page *slab);	/* and what was admitted for it */
};

/* How full a slab is; or all of a cache's that are partly used, which are so many. */
struct km_fullness {
	size_t slabs, objects, inuse;
	bool current;			/* allocations come from it now */
};

typedef int km_walk_fn(void *object, void *arg);

/*
 * How every engine's struct per node begins, so that `kmem info` can read it from outside of the process. Each figure
 * is kept under a lock of the engine's choice, or by atomic additions, and read without.
 */
#define KM_NOT_KEPT SIZE_MAX
struct km_node_counts {
	size_t slabs, objects;		/* there are */
	size_t taken;			/* objects that are out of the slabs: users', on shelves, in barns.
					 * KM_NOT_KEPT: to be counted slab by slab. */
	size_t partial;			/* slabs on the partial list */
	size_t free_slabs;		/* slab: wholly free ones, on a list of their own; others: 0 */
	size_t new_slabs, freed_slabs;	/* ever */
	size_t shared;			/* slab: objects in the shared array */
	/* Where objects that lie ready are counted; NULL: nowhere. sheaf: the barn's full blocks, and the node's
	 * blocks of other nodes. slab: the shared and the alien arrays. */
	const size_t *ready[2];
};

/* The part that engines add whose CPUs have blocks of objects (KM_PERCPU_SHEAVES). A hit is a verb of percpu/pcpu.h. */
struct km_array_engine {
	bool lone;			/* a CPU has one block, not two */
	/* `empty` (or NULL) in, a block with at least one object out; NULL: none, `empty` stays the caller's. */
	void **(*refill)(struct kmem_cache *cache, const struct km_request *request, void **empty);
	/* A full block in, a block with room out. NULL in: any empty one, or NULL. */
	void **(*spill)(struct kmem_cache *cache, void **full);
	/* Take a surplus block, whatever is in it. */
	void (*retire)(struct kmem_cache *cache, void **sheaf);
	/* Would it keep one more full block now? NULL: never. */
	bool (*has_room)(struct kmem_cache *cache);
	/* May another CPU have a block of what is paid for? NULL: always. */
	bool (*may_charge)(struct kmem_cache *cache);
	/*
	 * Of engines with a limit and a pace of their own; NULL: the front resizes blocks by load, and empties idle
	 * shelves. look: called every two seconds; true: some CPU's block should be trimmed. trim: with that CPU's
	 * shelf closed, its block in, the block to put back out (NULL: none; the block is the engine's now). tune: 0,
	 * or -errno and nothing is changed; the front then sets the limit.
	 */
	bool (*look)(struct kmem_cache *cache, uint64_t now_ms);
	void **(*trim)(struct kmem_cache *cache, unsigned cpu, void **sheaf);
	int (*tune)(struct kmem_cache *cache, unsigned limit, unsigned batchcount, unsigned shared);
};

/* The part that engines add whose CPUs own a slab each (KM_PERCPU_FREELIST). A hit is a verb of
 * percpu/cpu_freelist_hit.h. */
struct km_chain_engine {
	/* give, of objects[0, count), the last and those of its slab that are near; NULLs are skipped. Returns how many
	 * are left, at the front. */
	unsigned (*give_last)(struct kmem_cache *cache, void **objects, unsigned count);
	/* Take everything off every CPU (the front drains arrays). False: the system refused the fence; then it is
	 * taken only where nobody uses the cache any more (unused). */
	bool (*drain)(struct kmem_cache *cache, bool unused);
	/* From now on each CPU keeps so many free objects in partial slabs, taken to be half full: 0 or -EINVAL. */
	int (*set_cpu_partial)(struct kmem_cache *cache, unsigned long objects);
};

/*
 * The part that engines add which serve kmalloc by size, from one cache, in pages that all their caches share
 * (shared_pages). `alloc` of the table below looks at request->bytes and request->align there. Sizes are multiples of
 * KM_SIZED_UNIT.
 */
#define KM_SIZED_UNIT	((uint32_t)ARCH_KMALLOC_MINALIGN)
#define KM_SIZED_END	(KM_PAGE_SIZE - KM_SIZED_UNIT)	/* kmalloc from here on: whole pages */
struct km_sized_engine {
	/* Take a block of kmalloc's back; or what is wrong with p: then nothing was done. */
#define KM_NO_MISUSE	KM_NR_MISUSES
	enum km_misuse (*free)(struct kmem_cache *cache, void *p);
	/* Is p, in a page of the engine, a block of kmalloc's? Without a lock: whoever asks holds the block. */
	bool (*owns)(const struct km_page *page, const void *p);
	enum km_misuse (*mistake)(struct km_page *page, const void *p);	/* why not */
	size_t (*usable)(const void *p);	/* bytes that its user may use */
	const size_t *pages, *units;		/* pages with live blocks; units in those */
	/* How full is such a page, in units? Without a lock. */
	void (*fullness)(const struct km_page *page, struct km_fullness *fullness);
};

/* An engine: a few facts and the functions that the front and the cache floor call; behind them what its kind adds. */
struct km_engine {
	const char *name;
	enum km_front front;
	/* Pages belong to no cache, so that an object does not say whose it is: kfree takes kmalloc's blocks only,
	 * which have their size in front; give validates all it gets; nothing can be walked. */
	bool shared_pages;
	/* Free objects are linked by their words at freeptr: debugging looks for no poison there. */
	bool links_free;
	/* Objects are large blocks, one to a slab of slab_pages: kmalloc/large.c has them, large_cache.c those that lie
	 * ready. No page says SLAB, and none can be walked. */
	bool whole_pages;
	size_t node_bytes;		/* of its struct per node */

	/* Fill in order, objects, capacity, freeptr and what else the engine keeps there: 0 or -errno. */
	int (*layout)(struct kmem_cache *cache, const struct kmem_cache_args *args);
	int (*node_init)(struct kmem_cache *cache, unsigned node);	/* NULL: zeros will do */
	void (*node_fini)(struct kmem_cache *cache, unsigned node);	/* NULL: there is nothing to do */

	/* Any engine hands out and takes back pointers. take: how many it got. give: after validation;
	 * objects that fail it are reported and dropped; the array is clobbered. */
	unsigned (*take)(struct kmem_cache *cache, const struct km_request *request, void **objects,
			 unsigned want);
	void (*give)(struct kmem_cache *cache, void **objects, unsigned count);
	/* All but ARRAY: one object. With km_thread_busy set. NULL: it has none now. */
	void *(*alloc)(struct kmem_cache *cache, const struct km_request *request);
	void (*free)(struct kmem_cache *cache, void *object);
	/* Hits are counted here, with KMEM_OPTIONS=stats:1. NULL: they are not, and all are hits of an array. */
	void (*hit)(struct kmem_cache *cache, enum kmem_event event, size_t count);

	/* Give empty slabs back: all (shrink), or what is idle and beyond min_partial (reap; NULL: nothing lies idle).
	 * Return slabs. */
	size_t (*shrink)(struct kmem_cache *cache);
	size_t (*reap)(struct kmem_cache *cache);
	/* Nobody has used the cache for a while: all that lies ready goes home, and empty slabs go, of which one call
	 * sees some where there are many. NULL: shrink serves, which sorts them all under their lock. */
	size_t (*rest)(struct kmem_cache *cache);
	/* Give the memory of pages back in which nobody has anything, though their slab stays: all of it, where reap
	 * does so for what was so for a while. Returns pages. NULL: slabs keep theirs. */
	size_t (*hollow)(struct kmem_cache *cache);
	/* The memory that went that way is there again: of a cache that was reserved, which gives none. False: the
	 * system has none. NULL as the former. */
	bool (*fill)(struct kmem_cache *cache);
	/* Free a slab, whatever is in it, of whose objects none is on a shelf, or ready anywhere but in the slab. The
	 * rest of the cache is as it was. NULL: nobody keeps its slabs. */
	void (*discard)(struct kmem_cache *cache, struct km_page *slab);
	/* Is the object taken, as far as the slab knows? For walk, checks and stats. */
	bool (*is_taken)(struct kmem_cache *cache, struct km_page *slab, unsigned index);
	/* The same of 64 objects, from 64 * `word` on: a bit each, 0 beyond the last. It takes no lock and follows
	 * nothing out of the slab: for who holds the page (km_page_hold) while others allocate and free. NULL: nobody's
	 * objects are ever paid for. */
	uint64_t (*taken)(struct kmem_cache *cache, struct km_page *slab, unsigned word);
	void (*stats)(struct kmem_cache *cache, struct kmem_cache_stats *stats);
	/* How full is the slab, and are those of the cache that are partly used (as far as a bounded look can tell)?
	 * For who holds the slab's page, and has seen there that it is the cache's: it may leave that meanwhile, as its
	 * word says, and is not another's. No lock is waited for. NULL, as where pages are shared: nobody knows. */
	void (*fullness)(const struct kmem_cache *cache, const struct km_page *slab, struct km_fullness *fullness);
	void (*partial)(struct kmem_cache *cache, struct km_fullness *of_all);
	/* Check the node's lists: number of damages. */
	int (*check)(struct kmem_cache *cache);
	/* The lists that lead through objects, of a cache with hooks: each damage is told them (broken), and mended.
	 * Returns how many. NULL: there are none, or users can't reach them. */
	int (*mend)(struct kmem_cache *cache);
	/* Of engines with shared_pages: is it an object of that cache, as far as the page says, and not free? */
	bool (*has)(struct kmem_cache *cache, const void *object);
	void (*fork)(struct kmem_cache *cache, bool before, bool child);	/* NULL: no lock of its own */
	/* The same of what all its caches share; NULL: nothing. */
	int (*check_all)(void);
	void (*fork_all)(bool before, bool child);

	/* Events that the engine keeps by CPU, on top of cache->events; NULL: none. */
	unsigned long (*event)(struct kmem_cache *cache, enum kmem_event event);
	void (*clear_events)(struct kmem_cache *cache);

	/* Where the fields of its structs are that lead to objects which lie ready, and to events that it counts
	 * itself, for readers outside of the process (base/fields.h); NULL: there are none. */
	const struct km_field *fields;
	unsigned field_count;

	/* All NULL but those of its kind. */
	struct km_array_engine array;
	struct km_chain_engine chain;
	struct km_sized_engine sized;
};

#define KM_ENGINE_DECLARED(name) extern km_hidden const struct km_engine km_engine_##name;
KM_ENGINES(KM_ENGINE_DECLARED, )
extern km_hidden const struct km_engine km_engine_ready;	/* large_cache.c; no cache of a program's has it */

/* engines.c: the engine of a name, or NULL; one more, before the first cache is made (false: there is no room). */
const struct km_engine *km_engine_find(const char *name);
bool km_engine_add(const struct km_engine *engine);
/* The part of the one that serves kmalloc by size; NULL: there is none. */
const struct km_sized_engine *km_engine_sized(void);
/* check_all and fork_all of all engines. */
int km_engines_check(void);
void km_engines_fork(bool before, bool child);

/*
 * layout.c: own partial slabs have run out: may this request look at other nodes'? A node gives only where it has
 * more partial slabs than min_partial. Kernel: remote_node_defrag_ratio, get_any_partial.
 */
bool km_may_look_elsewhere(struct kmem_cache *cache, const struct km_request *request);

/* A sanitizer sees its objects, each with a red zone behind it, and behind that the free pointer. */
km_inline bool km_is_observed(const struct kmem_cache *cache)
{
	return km_unlikely(km_sanitizer.objects) && cache->object_size <= KM_OBSERVED_MOST;
}

/* Its objects are looked at as they come or go. Hooks that do nothing stand for a tracer, which comes and goes itself
 * (cache/trace_attach.c): for them a cache is made as without. */
km_inline bool km_is_hooked(const struct kmem_cache *cache)
{
	const struct km_hooks *hooks = km_load(&cache->hooks);

	return hooks && (hooks->on_alloc || hooks->on_free);
}

/*
 * Flags that change where an object's bytes are. Then a slot of a slab is, from low to high:
 *
 *	left red zone | object | right red zone | link | state, bytes asked for | two tracks | padding
 *	-left          0        object_size      freeptr  + 8                    + 16
 *
 * The left one, as long as the alignment, only with SLAB_RED_ZONE; the tracks only with SLAB_STORE_USER. Kernel: the
 * same, but for the state.
 */
#define KM_DEBUG_LAYOUT	(SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER)
#define KM_DEBUG_FLAGS	(KM_DEBUG_LAYOUT | SLAB_CONSISTENCY_CHECKS | SLAB_TRACE | SLAB_FAILSLAB)
#define KM_DEBUG_WORD	8u	/* the state, and the bytes asked for */
#define KM_DEBUG_TRACK	24u
#define KM_DEBUG_PAD	8u	/* at least */
/* In the place of the link while the engine has none there: no address. */
#define KM_DEBUG_NO_LINK 0x5a5a5a5a5a5a5a5aul
km_inline bool km_is_debugged(const struct kmem_cache *cache)
{
	return km_unlikely(cache->flags & KM_DEBUG_LAYOUT);
}

_Static_assert(KM_OBSERVED_MOST + KM_RED_ZONE + sizeof(size_t) <= KM_PAGE_SIZE << KM_MAX_ORDER, "it fits into a slab");

/* slob_cache.c: the page is new, and will be of many. */
void km_shared_page_comes(struct km_page *page) km_cold;
void km_slob_construct(struct kmem_cache *cache, void *object);
/* There: how many bytes the object has, while it lives. */
km_inline size_t *km_observed_word(const struct kmem_cache *cache, const void *object)
{
	return (size_t *)((char *)object + cache->freeptr);
}

/* ---- layout.c: what engines share about where bytes are. */
/* The alignment of an object of `size` bytes. */
uint32_t km_layout_align(slab_flags_t flags, uint32_t align, uint32_t size);
int km_layout_common(struct kmem_cache *cache, const struct kmem_cache_args *args);
/* Bytes of a debugged object's slot from the object on, its padding not rounded up. The same of a cache, whose link is
 * put there. */
uint32_t km_layout_debugged_bytes(uint32_t object_size, slab_flags_t flags);
uint32_t km_layout_debugged(struct kmem_cache *cache);
/* Some cache is, or was, debugged: for those who look at objects only then. */
extern km_hidden bool km_some_debugged;
#define KM_SLAB_MAX_OBJECTS	0x7fffu	/* Kernel: MAX_OBJS_PER_PAGE */
/* The kernel's choice of an order for slabs of at least `min_objects`. */
unsigned km_layout_order(uint32_t size, unsigned min_objects, unsigned max_order);
/* Of objects larger than a page: a higher one, up to `most`, as long as more than an eighth would be left over. */
unsigned km_layout_larger(uint32_t size, unsigned order, unsigned most);
uint32_t km_reciprocal(uint32_t size);

/* No free of the cache puts a pointer anywhere before the object's slab was asked for. */
km_inline bool km_sees_frees(const struct kmem_cache *cache)
{
	return cache->engine->front != KM_PERCPU_SHEAVES || km_is_checked(cache);
}

/* Index of an object in its slab, or -1 where p is not the start of one. */
km_inline int km_object_index(const struct kmem_cache *cache, const struct km_page *slab,
			      const void *slab_address, const void *p)
{
	uint32_t offset = (uint32_t)((const char *)p - (const char *)slab_address);
	uint32_t index = (uint32_t)((uint64_t)offset * cache->reciprocal >> 32);

	return index < slab->objects && index * cache->size == offset ? (int)index : -1;
}

/* Of the 64 objects from 64 * `word` on, a bit for each that a slab of so many has. */
km_inline uint64_t km_object_bits(unsigned objects, unsigned word)
{
	unsigned left = objects > word * 64 ? objects - word * 64 : 0;

	return left >= 64 ? UINT64_MAX : ((uint64_t)1 << left) - 1;
}

/* How an engine's bytes in a slab's descriptor begin, if its caches may have colours. */
struct km_coloured {
	uint32_t first;			/* bytes before the first object */
};

/* Draws a page's `engine`, which the engine's struct has to fit into. */
#define KM_ENGINE_PAGE(name, type)                                                                 \
	_Static_assert(sizeof(type) <= KM_PAGE_ENGINE_BYTES, "it fits into a descriptor");         \
	km_inline type *name(const struct km_page *page)                                           \
	{                                                                                          \
		return (type *)(uintptr_t)page->engine;                                            \
	}

KM_ENGINE_PAGE(km_coloured, struct km_coloured)

/* Where the first object of a slab is. */
km_inline char *km_slab_first(const struct kmem_cache *cache, const struct km_page *slab)
{
	return (char *)km_page_address(slab) +
	       (km_unlikely(cache->colours) ? km_load(&km_coloured(slab)->first) : cache->first);
}

/* The last slab that this thread wanted was refused by the cache's limit or its keeper, not for want of pages. */
extern km_hidden km_tls bool km_slab_refused;
/* The cache whose own limit refused the slab; NULL: not refused by a cache's limit. */
extern km_hidden km_tls struct kmem_cache *km_slab_limited;
/* A fresh slab of the cache: pages, descriptors and map set, counted; not on any list. */
struct km_page *km_slab_new(struct kmem_cache *cache, const struct km_request *request);
/* Its free is left to the next miss (cache->deferred), without a lock. */
void km_defer(struct kmem_cache *cache, void *object);
/* The same before its constructor runs, which is then up to the caller. */
struct km_page *km_slab_new_raw(struct kmem_cache *cache, const struct km_request *request);
/* It goes back; of SLAB_TYPESAFE_BY_RCU, after a grace period. */
void km_slab_free(struct kmem_cache *cache, struct km_page *slab);
/* Its second half: nobody finds it any more. With km_thread_busy set. */
void km_slab_release(struct kmem_cache *cache, struct km_page *slab);
/* cache/kfree_rcu.c, once the program has said what its RCU is. */
struct km_grace {
	/* For those who look from outside: the place of a struct km_rcu_waiting (cache/kfree_rcu.h) in each CPU's
	 * area, and the blocks that wait for the grace period that is under way. */
	const uint32_t *slot;
	struct km_rcu_block *const *pile;
	/* The slab is off all lists, and empty: it is released after a grace period. */
	void (*slab)(struct km_page *slab);
	/* Where system calls are allowed: what waits, and could not begin to, does. */
	void (*go)(void);
	/* Nobody uses the cache any more: wait for what is under way. Outside of locks, as the next. */
	void (*before_destroy)(struct kmem_cache *cache);
	/* Objects that kfree_rcu was given are free. */
	void (*wait)(void);
	/* For a request about to be refused: wait for the current grace period, a second at most. True: objects were
	 * freed. */
	bool (*relieve)(void);
	void (*fork)(bool before, bool child);
};
extern km_hidden const struct km_grace *km_grace;	/* NULL: it has not */
km_inline bool km_grace_relieves(void)
{
	return km_load_acquire(&km_grace) && km_grace->relieve();
}
/* True if empty slabs must stay: a reader may look at the objects, and no grace period would wait for the reader. The
 * slabs of a private group's twin stay as long as the group has a reference, because mem_cgroup_destroy_all frees all
 * objects of the group. `going` is read of the cache itself: twins and debug siblings are destroyed with the cache. */
km_inline bool km_slabs_stay(const struct kmem_cache *cache)
{
	if (km_likely(!(cache->flags & SLAB_TYPESAFE_BY_RCU)))
		return false;
	const struct kmem_cache *of = cache->child_of ?: cache;
	return !km_load_acquire(&km_grace) || (cache->slab_charge && !km_load(&cache->orphan)) ||
	       km_load(&(of->shadow_of ?: of)->going);
}
/* An empty block of pointers for the cache's shelves, its pad 0: its top. NULL: no memory. */
void **km_sheaf_new(const struct kmem_cache *cache, bool may_wait);
void km_sheaf_free(const struct kmem_cache *cache, void **sheaf);
/* The cache ends, and it does not: its watchers are told. */
void km_slab_remains(struct kmem_cache *cache, struct km_page *slab, bool tell);
/* Construct the objects of a fresh slab, and tell the cache's hooks of the slab. */
void km_slab_construct(struct kmem_cache *cache, struct km_page *slab);

/*
 * How many constructors may run within one another in a thread: an allocation by a constructor may run the constructor
 * of another cache. A request fails if the request needs a ninth constructor, or a slab of a cache whose constructor is
 * running. The second case is misuse, unless the request must not wait and so may be a signal handler's.
 * kmem_cache_alloc_nolock runs no constructor.
 */
#define KM_CTORS_NESTED	8u
bool km_may_construct(const struct kmem_cache *cache, bool tell);
/* Run the constructor over `count` objects, without the busy flag: constructors may allocate. Context: no lock is
 * held. */
void km_construct(const struct kmem_cache *cache, void *object, unsigned count);

/* The order in which a fresh slab's objects are handed out: by address, or, with random_order, one that nobody can
 * foretell: from any of them on, in steps of a number that has no factor in common with theirs. */
struct km_slab_order {
	uint32_t count, at, step;
};
struct km_slab_order km_slab_order(unsigned count);
km_inline unsigned km_order_next(struct km_slab_order *order)
{
	unsigned index = order->at;

	order->at += order->step;
	if (order->at >= order->count)
		order->at -= order->count;
	return index;
}
/* With random_order; else nothing is done. */
void km_order_shuffle(void **objects, unsigned count);

km_inline void km_count(struct kmem_cache *cache, enum kmem_event event)
{
	if (cache->events)
		km_add(&cache->events->count[event], 1ul);
}

/* Bytes of a block, minus one, before it counts as full: what capacity is now. */
km_inline uint32_t km_alloc_mask(const struct kmem_cache *cache)
{
	return km_load(&cache->pcs.inner.mask);
}

/* Objects that a block which is made now takes. */
km_inline unsigned km_alloc_capacity(const struct kmem_cache *cache)
{
	return km_mask_capacity(km_alloc_mask(cache)) - km_load(&cache->pad) / (unsigned)sizeof(void *);
}

/* Find the slab of an object and its index, or report the misuse and return NULL. */
struct km_page *km_slab_of(struct kmem_cache *cache, void *object, int *index, const char *function);

/* A bad call is about to be reported, of p in that slab: what its cache's watchers know is told before. */
void km_tell_of(struct km_page *slab, const void *p, enum km_misuse what) km_cold;
/* The same, and it is reported: the call, with the cache that it named. */
void km_refuse(struct km_page *slab, const void *p, enum km_misuse what, const char *function,
	       const char *cache) km_cold;

/* Of blocks linked by the word at `at`: one that was freed twice makes a circle of the list. It is cut, and the block
 * returned; NULL: there is none. */
void *km_cut_circle(void *head, size_t at) km_cold;

/* Set by options: slab_min_objects, slab_max_order; 0: the default. */
struct km_layout_options {
	unsigned min_objects, max_order, min_order;
	enum km_min_partial { KM_MIN_PARTIAL_HALF, KM_MIN_PARTIAL_SIZE, KM_MIN_PARTIAL_STATIC } rule;
	bool count_events;	/* count hits too, where the engine does */
	unsigned lookahead;	/* detached freelist: kernel 3 */
	enum km_bulk_free { KM_BULK_FREE_AUTO, KM_BULK_FREE_LOOKAHEAD, KM_BULK_FREE_GROUP } bulk_free;
	unsigned defrag_ratio;	/* percent, of new caches: kernel 100 */
};
extern km_hidden struct km_layout_options km_layout_options;
/* Kernel: stored times 10, and compared with 1024 possible values, so that 100 is not always. */
#define KM_DEFRAG_SCALE	10u
unsigned long km_min_partial_of(uint32_t size, enum km_min_partial rule);
extern km_hidden const char *const km_min_partial_names[3];	/* of the rules */
int km_min_partial_rule(const char *name);		/* -1: there is none such */

#endif
