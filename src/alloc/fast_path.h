/*
 * fast_path.h: what the per-CPU front offers to the floors above: the hit as inlines, misses, bulk and draining.
 *
 * The concurrency argument. A hit runs inside one restartable sequence: it either commits with its last store on
 * the CPU whose shelf it read, or has done nothing. So nobody else changes a shelf's word, or the block under it, while
 * a sequence runs. The dangers one by one:
 *
 *	preemption, migration	abort the sequence, and an abort is a miss
 *	another CPU's drain	closes the shelf, then lets membarrier abort every sequence that saw it open
 *	a miss			works on a block that it has detached, which is its own. Detach and install look in C
 *				and commit by one sequence that compares what they saw (percpu/visit.h)
 *	another thread's miss	on this CPU, between look and commit: a value that came back is as good as one that
 *				stayed (percpu/visit.c). A drain between the two: the commit reads the offset again
 *	a signal handler	aborts the sequence that it struck. A miss sets km_thread_busy before it has a block in
 *				hand or takes a lock: a handler that finds it set enters no engine (slow_path.c); a
 *				handler that strikes before finds nothing half done
 *	fork			takes every lock first, so that no list is half changed and no shelf closed in the
 *				child; what other threads had in hand is lost there (docs/theory.md, section 8)
 *
 * Where a cache's shelf is, as one offset into every area, is stored four times; 0: closed to that reader:
 *
 *	shelf.front.open	what allocations see: 0 while somebody must be asked first
 *	shelf.front.back	what frees see: the same, or the charged or mixed shelf's
 *	shelf.inner		what a miss sees: 0 while the shelf is drained
 *	shelf.slot		where the words are, set when the cache is made; 0: its CPUs have no blocks
 */
#ifndef KM_ALLOC_FAST_PATH_H
#define KM_ALLOC_FAST_PATH_H

#include "slab/engine.h"
#include "page/obj_cgroups.h"
#include "base/bits.h"
#include "os/die.h"
#include "os/lock.h"
#include "percpu/rseq.h"
#include "accounting.h"
#include "validate.h"

/* The thread has no CPU to put things on: it may be one whose area is not alive yet, and can be now. */
void km_alloc_new_cpu(bool may_wait) km_cold;

/* The beginning of each miss. may_wait: system calls are allowed. */
km_inline void km_alloc_enter_thread(bool may_wait)
{
	km_thread_enter();
	if (km_unlikely(!km_thread_has_cpu()))
		km_alloc_new_cpu(may_wait);
}

/* The functions of higher floors that a miss calls, beside hooks, shapes and km_charge_ops-> Set once at start. */
extern km_hidden void (*km_alloc_tick)(void);	/* now and then, outside of locks, where system calls are allowed */
/*
 * Give memory back for a request about to fail: pages ran out, or (`only` not NULL) the cache `only` is at its limit.
 * The cached objects of `only` go back; without `only` those of one cache after the other until `bytes` are free. A
 * flush by another thread is waited for. Requires: no lock held, the caller may wait. True: worth another try. *tries:
 * number of tries, 0 at first; each try asks for twice as many pages as the try before, because other threads may take
 * the pages, and free pages need not lie side by side.
 */
extern km_hidden bool (*km_alloc_pressure)(struct kmem_cache *only, size_t bytes, unsigned *tries);
/* Does this allocation fail on purpose? bytes: that it asks for. NULL: none ever does. */
extern km_hidden bool (*km_alloc_fails)(const char *name, size_t bytes, gfp_t gfp);
/* Somebody sees each call, also those that would be hits (cache/trace_attach.c): a tracer that is attached to a probe
 * of them (tracer.h); a profile that is taken (alloc/profile_record.h). */
enum km_probing { KM_PROBING_TRACER = 1, KM_PROBING_PROFILE = 2 };
extern km_hidden uint32_t km_alloc_probing;
/* The hooks of caches meanwhile that have no others: the shape that looks at hooks passes the probes. */
extern km_hidden const struct km_hooks km_probe_hooks;
/* Where a call of kmalloc's or malloc's returns to that goes the long way then; the probe takes it. */
extern km_hidden km_tls uintptr_t km_alloc_site;
km_inline void km_alloc_note_site(uintptr_t site)
{
	if (km_unlikely(km_load(&km_alloc_probing) & KM_PROBING_TRACER))
		km_alloc_site = site;
}
km_inline uintptr_t km_alloc_take_site(uintptr_t own)
{
	uintptr_t site = km_alloc_site ?: own;

	km_alloc_site = 0;
	return site;
}
/* The cache got no slab. */
bool km_alloc_relieve(struct kmem_cache *cache, unsigned *tries);
/* Calls km_charge_ops->begin, in the middle of an allocation. False: nobody would pay, or km_thread_busy is set (a
 * handler), and it would wait. */
bool km_alloc_begin_charging(struct kmem_cache *cache, gfp_t gfp);

/* Where the engine is met often and for little: every 64th time. */
extern km_hidden km_tls uint8_t km_alloc_turn;
void km_alloc_tick_now(void);
km_inline void km_alloc_tick_rarely(void)
{
	if (km_unlikely(++km_alloc_turn % 64 == 0))
		km_alloc_tick_now();
}

/* __GFP_ZERO, of an object that a constructor has made: it can't be both. Returns it. */
void *km_constructed(const struct kmem_cache *cache, void *object) km_cold;
/* __GFP_ZERO, of an object that is there. */
km_inline void *km_cleared(const struct kmem_cache *cache, void *object)
{
	uint32_t bytes = cache->cleared;

	if (km_unlikely(!bytes))
		return km_constructed(cache, object);
	return __builtin_memset(object, 0, bytes);
}

/*
 * The ops of a layer (enum km_layer). A miss is a jump to the ops of the cache's top layer, whose calls return and fail
 * as the public functions do. The layers of a cache change when the cache is made, when observers come or go, when an
 * object is first charged, and when the cache is destroyed (layers.c).
 */
struct km_alloc_ops {
	void *(*alloc)(struct kmem_cache *cache, gfp_t gfp, int node);
	/* kmalloc's, where its one cache is of an engine that serves it by size; 0 < bytes < a page. Else NULL. */
	void *(*alloc_sized)(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node);
	void (*free)(struct kmem_cache *cache, void *object);
	/* The same past what lies ready on CPUs, to the object's slab; NULL: `free` goes there, or nothing else can. */
	void (*free_past)(struct kmem_cache *cache, void *object);
	/* Fill objects[0, left); objects[left, n) are filled already. Returns n, or 0 with no object kept. */
	int (*alloc_bulk)(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects);
	/* Free objects[0, n), the rest of a call that frees `all` objects. */
	void (*free_bulk)(struct kmem_cache *cache, size_t n, size_t all, void **objects);
	/* Where objects go back slab by slab, else NULL. NULLs are skipped; false: not now, nothing was done.
	 * give_last: of objects[0, n), the last and those of its slab that are near. Returns how many are left; n:
	 * not now. */
	bool (*give)(struct kmem_cache *cache, size_t n, void **objects);
	size_t (*give_last)(struct kmem_cache *cache, size_t n, void **objects);
	/* Objects may come from the cache's shelf, and go there, without passing by the shape. */
	bool pcs;
	/*
	 * Where objects are paid for, else NULL. begin: fill in what the others read of the cache, `charge` last, by a
	 * release; once, under a lock of the front's, before any of them. recharge: the object comes from `mixed`, and
	 * another pays for it, as *word says (word NULL: not looked up yet): it is charged to the objcg.
	 * recharge_bulk: the same of objects[0, n). It returns n where all are charged to the objcg, 0 where all went
	 * back and others may be tried, SIZE_MAX where all went back and the request fails.
	 */
	void (*begin)(struct kmem_cache *cache);
	void *(*recharge)(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *object, uint64_t *word);
	size_t (*recharge_bulk)(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, size_t n,
				void **objects);
};
/*
 * Slow-path frees of a twin's objects count themselves in `calls` while they run. Fast-path frees need no count,
 * because a fast path touches nothing after its commit. A twin without objects and without calls may be destroyed.
 * Requires: the caller holds an object of the twin until km_child_enter returns. Order: a thread aware of the free of
 * the last slab also sees the calls of all frees into the slab, and a thread aware of the end of a call also sees all
 * stores of the call.
 */
km_inline bool km_child_enter(struct kmem_cache *cache)
{
	if (km_likely(!cache->child_of))
		return false;
	km_add_both(&cache->calls, 1u);
	return true;
}
km_inline void km_child_leave(struct kmem_cache *cache, bool entered)
{
	if (km_unlikely(entered))
		km_add_both(&cache->calls, -1u);
}
km_inline void km_ops_free_past(const struct km_alloc_ops *ops, struct kmem_cache *cache, void *object)
{
	bool entered = km_child_enter(cache);

	(ops->free_past ?: ops->free)(cache, object);
	km_child_leave(cache, entered);
}
/* The free of a shape without fast path. */
void km_child_free(const struct km_alloc_ops *ops, struct kmem_cache *cache, void *object) km_cold;
km_inline void km_ops_free(const struct km_alloc_ops *ops, struct kmem_cache *cache, void *object)
{
	if (km_unlikely(cache->child_of != NULL))
		km_child_free(ops, cache, object);
	else
		ops->free(cache, object);
}
km_inline bool km_ops_charges(const struct km_alloc_ops *ops)
{
	return ops->recharge != NULL;
}
/* The ops of a layer, or of the next layer below that the cache has. Acquire pairs with km_layer_set_locked. */
km_inline const struct km_alloc_ops *km_layer(const struct kmem_cache *cache, enum km_layer layer)
{
	return km_load_acquire(&cache->layers[layer]);
}
/* The ops to which a layer passes requests on. */
km_inline const struct km_alloc_ops *km_layer_below(const struct kmem_cache *cache, enum km_layer layer)
{
	return km_load(&cache->layers[layer + 1]);
}
/* The top of the cache's layers. */
km_inline const struct km_alloc_ops *km_alloc_ops(const struct kmem_cache *cache)
{
	return km_layer(cache, (enum km_layer)0);
}
/* The shape that serves a request. The first that is to be paid for gives the cache its charging shape for good. */
const struct km_alloc_ops *km_ops_for_account(struct kmem_cache *cache, gfp_t gfp);
km_inline const struct km_alloc_ops *km_ops_for(struct kmem_cache *cache, gfp_t gfp)
{
	return km_likely(!(gfp & __GFP_ACCOUNT)) ? km_alloc_ops(cache) : km_ops_for_account(cache, gfp);
}

/* layers.c: every layer that depends on the cache's state alone is chosen anew. */
void km_layers_choose(struct kmem_cache *cache) km_cold;
/* A cache gets, or changes, one layer; NULL: the cache loses the layer. _locked: with km_drain_lock. */
void km_layer_set(struct kmem_cache *cache, enum km_layer layer, const struct km_alloc_ops *ops) km_cold;
void km_layer_set_locked(struct kmem_cache *cache, enum km_layer layer, const struct km_alloc_ops *ops) km_cold;
/*
 * `choose` returns the ops of the layer for a cache, or NULL for none. Called for caches that are made from now on, and
 * for caches whose observers change, with km_drain_lock held. False: the layer has a function already.
 */
typedef const struct km_alloc_ops *km_layer_fn(struct kmem_cache *cache);
bool km_layer_register(enum km_layer layer, km_layer_fn *choose) km_cold;

/*
 * Caches of other layouts whose objects are given out, and taken back, in the name of this one. While an object of one
 * may be out, a shape stands before the cache's own which looks whose object it is, and the cache has no public shelf.
 */
#define KM_SHADOWS_MOST 64u		/* of a cache: no two have the same flags */
struct km_shadows {
	struct kmem_cache *first;	/* by next_sibling; none goes before the cache does */
	struct kmem_cache *serving;	/* new objects are this one's, while `calls` says so */
	uint32_t calls;			/* its lowest bit; and two for each call that may have seen it */
	bool out;			/* an object of a sibling may be out: the cache has the layer SHADOW */
};

/* An object that is freed by the cache's name may be another cache's. */
km_inline bool km_alloc_has_out(const struct kmem_cache *cache)
{
	const struct km_shadows *shadows = km_load_acquire(&cache->shadows);

	return km_unlikely(shadows != NULL) && km_load(&shadows->out);
}

/* The first of its siblings, by next_sibling. Acquire pairs with who makes it: it is made. */
km_inline struct kmem_cache *km_alloc_shadows(const struct kmem_cache *cache)
{
	const struct km_shadows *shadows = km_load_acquire(&cache->shadows);

	return shadows ? km_load_acquire(&shadows->first) : NULL;
}

/* From now on these see each object; NULL: nobody does. */
void km_alloc_watch(struct kmem_cache *cache, const struct km_hooks *hooks) km_cold;
void km_alloc_bury(struct kmem_cache *cache) km_cold;	/* it was destroyed: each call is misuse */

/*
 * sampled_ops.c: the next object of the cache, if it can be one, is to come from the pool of guarded objects
 * (page/guard_range.h). km_alloc_sample: from now on; false: not of this cache, or not now. see_frees: from now on no
 * free of the cache passes by unseen.
 */
bool km_alloc_sample(struct kmem_cache *cache) km_cold;
void km_alloc_see_frees(struct kmem_cache *cache) km_cold;
/* A door that knows the bytes that are asked for, and on whose long way they are said: kmalloc, malloc. Misses of sizes
 * above `most` go that way; `usual`: what it is else. */
enum km_door { KM_DOOR_KMALLOC, KM_DOOR_MALLOC, KM_DOORS };
extern km_hidden struct km_direct { size_t most[KM_DOORS], usual[KM_DOORS]; } km_direct;
void km_alloc_want_sizes(bool wanted) km_cold;
/* A miss of such a door, for so many bytes of an object of its cache. */
struct km_asked { const struct kmem_cache *cache; uint32_t bytes, align; };
extern km_hidden km_tls struct km_asked km_asked;
void *km_alloc_asked(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node);

/* Requests that are no hit. They return and fail as the public functions do. */
void *km_alloc_miss(struct kmem_cache *cache, gfp_t gfp);
void *km_alloc_miss_node(struct kmem_cache *cache, gfp_t gfp, int node);
void *km_charged_miss(struct kmem_cache *cache, gfp_t gfp);	/* nor one of km_charged_alloc */
void km_free_miss(struct kmem_cache *cache, void *object);
/* The same of km_ops_chain, whose every hit comes by. */
extern km_hidden const struct km_alloc_ops km_ops_chain;
void km_free_chained(struct kmem_cache *cache, void *object);
/* Misses, as km_alloc_miss and those beside it, without asking who pays. */
void *km_plain_alloc(struct kmem_cache *cache, gfp_t gfp, int node);
void km_plain_free(struct kmem_cache *cache, void *object);
bool km_plain_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects);
void km_plain_free_bulk(struct kmem_cache *cache, size_t n, void **objects);
/* Of kmalloc's one cache, if it has. False: not the ordinary way, or it is no block of kmalloc's; nothing was done. */
bool km_free_sized(struct kmem_cache *cache, void *object);
/* Without a shelf (KM_PERCPU_NONE), the ordinary way: up to `want` objects, or none where this is no ordinary call. */
unsigned km_alloc_take(struct kmem_cache *cache, const struct km_request *request, void **objects, unsigned want);
/* The way back; the objects are not NULL. False: nothing was done. */
bool km_alloc_give(struct kmem_cache *cache, void **objects, size_t n);

/*
 * Bits by id: the caches that may have something ready which is charged to a group: a block of `charged`, or, of a
 * twin, anything. Bit 0 stands for all caches that km_hot.caches does not show, and stays.
 */
extern km_hidden uint64_t km_alloc_ready[KM_IDS / 64];
void km_alloc_set_ready(const struct kmem_cache *cache, bool ready);

/* Reclaim is to look at the cache again. Two CPUs that miss don't write the same line in turn. */
km_inline void km_alloc_touch(struct kmem_cache *cache)
{
	if (km_likely(km_load(&cache->touched)))
		return;
	km_store(&cache->touched, true);
	if (km_unlikely(cache->child_of != NULL))
		km_alloc_set_ready(cache, true);
}

/* Put a block on the shelf; what it displaces, or the block itself, goes to the engine. */
void km_alloc_install(struct kmem_cache *cache, void **sheaf);
/* Has this engine one block on a CPU, not two? A race may have left a partner there, of another limit: objects are not
 * moved between the two. */
km_inline bool km_alloc_lone(const struct kmem_cache *cache)
{
	return cache->engine->array.lone;
}

/*
 * A call that was no hit, but has or had what lies ready, so that it comes by no tick: was it made a miss from outside
 * (struct km_gate)? It has a tick, which looks for the request, and opens the ways, unless that one wants more ticks.
 * A call that may not wait does neither, nor does one of a handler that struck inside of an engine: another call will,
 * a free at the latest.
 */
void km_alloc_note_request(struct kmem_cache *cache, bool may_wait) km_cold;
km_inline void km_alloc_look(struct kmem_cache *cache, bool may_wait)
{
	if (km_way_is_shut(km_load(&km_rseq)) || km_way_is_shut(km_load(&cache->pcs.front.rseq)))
		km_alloc_note_request(cache, may_wait);
}

/* With KMEM_OPTIONS=stats:1 hits of an array are seen, where the engine counts them: its public shelf is closed. */
km_inline void km_alloc_hit(struct kmem_cache *cache, enum kmem_event event, size_t count)
{
	if (km_unlikely(km_layout_options.count_events) && cache->engine->hit)
		cache->engine->hit(cache, event, count);
}

/*
 * Which node a request means: by the system's number, or with __GFP_THISNODE alone the CPU's; where there is one node,
 * any. False: there is no such node, and it insists.
 */
bool km_request_resolve_node(struct km_request *request, int id);
/* Will any object do for a request that names this node? Then *gfp does not insist on a node any more. */
km_inline bool km_alloc_any_node(int id, gfp_t *gfp)
{
	if (km_likely(id == NUMA_NO_NODE))
		return true;
	if (id != km_only_node)
		return false;
	*gfp &= ~__GFP_THISNODE;
	return true;
}

/* Count a miss: often enough, and blocks grow. */
#define KM_MISS_POINTS	8u	/* the engine was needed */
#define KM_SWAP_POINTS	1u	/* the CPU's other block would do */
void km_alloc_note(struct kmem_cache *cache, unsigned points);

/* Bulk over one cache; objects are valid and not NULL. Returns n, or 0. */
int km_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects);
void km_free_bulk(struct kmem_cache *cache, size_t n, void **objects);

/* Frees that a signal handler left undone. With km_thread_busy set. */
void km_alloc_finish_deferred(struct kmem_cache *cache);
/* Take everything off the CPUs' shelves, finish what handlers left, and give it to the engine. */
void km_alloc_drain(struct kmem_cache *cache);
/* The same for several caches with one fence. False: the system refused it, and some is where it was; what is charged
 * is not spoken of. */
bool km_alloc_drain_all(struct kmem_cache **caches, size_t count);
/* The same for caches that nobody uses any more, as who destroys them says: all is taken, fence or not. */
void km_alloc_drain_unused(struct kmem_cache **caches, size_t count);
/* Take what lies on these CPUs' shelves only, with one fence, and one more where some of it is charged: threads were
 * there, and are no more. */
void km_alloc_leave_all(struct kmem_cache **caches, size_t count, const uint16_t *cpus, size_t cpu_count);
/* Does any of these CPUs' shelves hold something? A look, no more. */
bool km_alloc_lies_on(const struct kmem_cache *cache, const uint16_t *cpus, size_t cpu_count);
/* Of each CPU: how often reclaim looked since a miss there went to an engine. Misses set it to 0, reclaim counts. */
extern km_hidden uint8_t km_alloc_looks[KM_MAX_CPUS];
/* Let engines with a pace of their own trim their CPUs' blocks, with one fence. */
void km_alloc_trim_all(struct kmem_cache **caches, size_t count);
/* Set up the shelf of a new cache (hooks, engine and capacity are known). */
void km_alloc_open(struct kmem_cache *cache);
/* Let a block hold about `capacity` objects from now on, within the cache's bounds. */
void km_alloc_resize(struct kmem_cache *cache, unsigned capacity);
/* Blocks hold exactly `limit` objects from now on: those that are on CPUs when they next miss. */
void km_alloc_set_limit(struct kmem_cache *cache, unsigned limit);
/* Drain the shelves of caches that go, and take them down, with one fence for each of both; false: their words may
 * still be in use. */
bool km_alloc_close_all(struct kmem_cache **caches, size_t count);
/* gfp bits with which an object of the charged shelf will not do. */
#define KM_CHARGED_ODD (KMEM_GFP_ODD & ~__GFP_ACCOUNT)
void km_alloc_fork(bool before, bool child);
size_t km_alloc_pcs_objects(const struct kmem_cache *cache);
/* The shelves as this file and pcpu.h describe them, while nobody uses the cache: how much is wrong; each is said. */
int km_alloc_check(struct kmem_cache *cache);

/* A bad call, where gfp has bits that there are not. cache: its name, or NULL. Misses ask; so must all that is neither
 * hit nor miss: what stays in place, what comes out of a sheaf, what fails by its arguments. */
km_inline void km_alloc_check_gfp(const char *function, gfp_t gfp, const char *cache)
{
	if (km_unlikely(gfp & ~__GFP_BITS_MASK))
		km_misuse(KM_MISUSE_BAD_GFP, function, (void *)(uintptr_t)gfp, cache);
}

/* Say that an allocation failed; returns NULL with errno = error. __GFP_NOFAIL ends the process. */
void *km_alloc_failed(const char *name, size_t size, gfp_t gfp, int error) km_cold;
/* True if a failed request with these bits prints a line. */
bool km_gfp_tells(gfp_t gfp) km_cold;
/* Print the line, with the caller's reason. */
void km_alloc_tell_failed(const char *name, uint64_t bytes, gfp_t gfp, const char *reason, const char *suffix) km_cold;

/* alloc_nolock.c: an object that is had without waiting; bytes not 0: served by size. NULL with ENOMEM. And are the
 * bits those that such a call may have? */
void *km_alloc_nolock(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node);
bool km_alloc_is_nolock(gfp_t gfp);

/* Show the cache's id in `count` entries of a table of sizes while its shelf is open, 0 while it is not. */
void km_alloc_show_sizes(struct kmem_cache *cache, uint16_t *ids, size_t count);
/* The same where they are a part of another's, which may serve them as well. */
void km_alloc_show_part(struct kmem_cache *cache, uint16_t *ids, size_t count);
/* The same of a table whose hits look who pays, while frees put objects on the CPUs' charged blocks. */
void km_alloc_show_paid(struct kmem_cache *cache, uint16_t *ids, size_t count);

/* From now on hits find nothing in this table of sizes, and what caches show there is in `kept`, which had zeros; or as
 * before. Of one table at a time. Hits that are under way may end as they began. */
void km_alloc_shut_sizes(uint16_t *ids, uint16_t *kept, size_t count, bool now) km_cold;

/* Is it the owner's? word: what says who pays for it, its own or its page's in km_hot.owner; NULL: more than a look. */
km_inline bool km_alloc_is_owner(const struct kmem_cache *cache, const void *object, uintptr_t owner, uint64_t **word)
{
	uintptr_t offset = (uintptr_t)object - (uintptr_t)km_hot.arena, index = offset >> KM_PAGE_SHIFT;

	*word = NULL;
	if (km_unlikely(index >= km_load(&km_hot.pages)))
		return false;
	*word = &km_hot.owner[index];
	/* Acquire pairs with make_vector: it is filled in. */
	uint64_t seen = km_load_acquire(*word);
	if (km_likely(seen & KM_OWNER_VECTOR)) {
		*word = km_owner_in_vector(seen, offset & (KM_PAGE_SIZE - 1), km_load(&cache->owner_shift));
		seen = km_load(*word);
	}
	return seen == owner;
}

/* A request that is no hit of `charged` or `mixed` by its gfp. */
void *km_odd_alloc(struct kmem_cache *cache, gfp_t gfp);

/*
 * A cache whose objects are all paid for has no public shelf, but one of objects that are paid for already: a second
 * hit. As long as one owner pays for all, they are that owner's, whom the CPU's block names (own). Where several pay
 * each object may be another's, and an allocation looks whose (any): it is the caller's already, or is charged to the
 * caller's objcg in the place of its former owner. A freed object goes there by the first hit, either way. base, rseq:
 * area 0 and the thread's offset, as at the first hit.
 */
#ifdef KMEM_HAVE_RSEQ
km_inline void *km_charged_alloc_own(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, char *base,
				     intptr_t rseq)
{
	void *object = km_rseq_owned_pop(&cache->charged.front.open, base, rseq, (uintptr_t)objcg);

	return km_likely(object) ? object : km_charged_miss(cache, gfp);
}

km_inline void *km_charged_alloc_any(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, char *base,
				     intptr_t rseq)
{
	/* Where `mixed` is: blocks of several owners. */
	void *object = kmem_pcs_pop(&cache->charged.front.back, base, rseq);
	uint64_t *word;

	if (km_unlikely(!object))
		return km_charged_miss(cache, gfp);
	if (km_likely(km_alloc_is_owner(cache, object, (uintptr_t)objcg, &word)))
		return object;
	return km_layer(cache, KM_LAYER_CHARGE)->recharge(cache, gfp, objcg, object, word);
}
#endif

km_inline void *km_charged_alloc(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, intptr_t rseq)
{
#ifdef KMEM_HAVE_RSEQ
	/* slub and slob miss at each call: where nobody pays the sequence would be tried in vain. */
	if (!objcg)
		return km_charged_miss(cache, gfp);
	/* No km_load: so it is one instruction. */
	if (km_likely(!(gfp & cache->charged_odd)))
		return km_charged_alloc_own(cache, gfp, objcg, cache->pcs.front.percpu, rseq);
	if (km_unlikely(gfp & KM_CHARGED_ODD))
		return km_odd_alloc(cache, gfp);
	return km_charged_alloc_any(cache, gfp, objcg, cache->pcs.front.percpu, rseq);
#else
	return km_charged_miss(cache, gfp);
#endif
}

/* ... zeroed. */
km_inline void *km_charged_zalloc(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, intptr_t rseq)
{
	void *object = km_charged_alloc(cache, gfp & ~__GFP_ZERO, objcg, rseq);

	return km_likely(object) ? km_cleared(cache, object) : NULL;
}

/* An object of the cache whose id is ids[step], or NULL: a miss. Id 0 always misses. */
km_inline void *km_alloc_id(const uint16_t *ids, size_t step)
{
#ifdef KMEM_HAVE_RSEQ
	return km_rseq_pop_id(ids, step, km_hot.percpu, km_rseq);
#else
	(void)ids, (void)step;
	return NULL;
#endif
}

/* The same from a table of the file's own, declared km_ids_near: km_alloc_alloc_IDS(step). */
#ifdef KMEM_HAVE_RSEQ
#define KM_ALLOC_NEAR(ids)                                                                   \
	KM_RSEQ_POP_NEAR(ids)                                                                      \
	km_inline void *km_alloc_##ids(size_t step)                                          \
	{                                                                                          \
		return km_rseq_pop_##ids(step);                                                    \
	}
/*
 * ... of ids of caches whose objects are paid for, km_alloc_alloc_paid_IDS(step, objcg, &own): shown while frees put
 * objects on the CPUs' charged blocks. own: it is the objcg's, paid for; else it may be another's.
 */
#define KM_ALLOC_PAID_NEAR(ids)                                                              \
	KM_RSEQ_POP_PAID_NEAR(ids)                                                                 \
	km_inline void *km_alloc_paid_##ids(size_t step, const struct obj_cgroup *objcg, bool *own) \
	{                                                                                          \
		return km_rseq_pop_paid_##ids(step, (uintptr_t)objcg, own);                        \
	}
#else
#define km_ids_near
#define KM_ALLOC_PAID_NEAR(ids)                                                              \
	km_inline void *km_alloc_paid_##ids(size_t step, const struct obj_cgroup *objcg, bool *own) \
	{                                                                                          \
		return (void)step, (void)objcg, (void)own, NULL;                                   \
	}
#define KM_ALLOC_NEAR(ids)                                                                   \
	km_inline void *km_alloc_##ids(size_t step)                                          \
	{                                                                                          \
		return (void)step, NULL;                                                           \
	}
#endif

/* Free an object of the cache with this id. */
km_inline void km_free_of(uintptr_t id, void *object)
{
#ifdef KMEM_HAVE_RSEQ
	if (km_likely(km_rseq_push_id(&km_id_masks(id)->sheaf, id, km_hot.percpu, km_rseq, object)))
		return;
#endif
	km_free_miss(km_hot.caches[id], object);
}

/* The hit alone of what follows: false, and nothing was done, for any other reason as well. */
km_inline bool km_alloc_push_any(void *object)
{
#ifdef KMEM_HAVE_RSEQ
	uintptr_t id;

	return km_rseq_push_any(object, &id);
#else
	(void)object;
	return false;
#endif
}

/*
 * Free an object whatever its cache. All that is rare ends at the one conditional branch of the shelf: not ours, large,
 * not the start of an object. False: it is no object that its address proves, and nothing was done.
 */
km_inline bool km_free_any(void *object)
{
#ifdef KMEM_HAVE_RSEQ
	uintptr_t id;

	if (km_likely(km_rseq_push_any(object, &id)))
		return true;
	/* Asked again, so that the hit need not keep it. */
	struct kmem_cache *cache = km_load(&km_hot.caches[id]);
	if (km_unlikely(!cache))
		return false;
	const struct km_alloc_ops *ops = km_load(&cache->layers[0]);
	if (ops == &km_ops_chain) {
		if (km_unlikely(!km_id_valid(id, object)))
			return false;
		km_free_chained(cache, object);
		return true;
	}
	/* Its byte says that it is an object, too. */
	if (km_likely(ops == &km_ops_validated) && km_validated_claim(cache, object)) {
		km_validated_put(cache, object);
		return true;
	}
	if (km_unlikely(!km_id_valid(id, object)))
		return false;
	km_free_miss(cache, object);
	return true;
#else
	(void)object;
	return false;
#endif
}

#endif
