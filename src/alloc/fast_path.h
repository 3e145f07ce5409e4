/*
 * fast_path.h: what the fast path and the slow path offer to higher layers: inline allocation and free, misses, bulk
 * requests, drain. Invariant: a fast path either commits with its last store, on the CPU of the sheaf that was read,
 * or changes nothing.
 *
 * Concurrency. The fast path runs inside one restartable sequence. While a sequence runs, no other thread changes the
 * per-CPU word or the main sheaf. The dangers one by one:
 *
 *	preemption, migration	abort the sequence; an abort is a miss
 *	a drain by another CPU	closes the sheaves, then aborts by membarrier every sequence that saw the sheaves open
 *	a miss			works on a detached sheaf, owned by the thread. Detach and install look in C and
 *				commit by one sequence that compares the values seen (percpu/visit.h)
 *	a miss of another	on the same CPU, between look and commit: a value that came back is as good as an
 *	thread			unchanged value (percpu/visit.c). After a drain between the two, the commit reads the
 *				offset again
 *	a signal handler	aborts the interrupted sequence. A miss sets km_thread.busy before the miss holds a
 *				sheaf or takes a lock. A handler that finds km_thread.busy set enters no engine
 *				(slow_path.c); a handler that runs earlier finds nothing half done
 *	fork			takes every lock first: the child has no half-changed list and no closed sheaves.
 *				Sheaves held by other threads are lost in the child (docs/theory.md, section 8)
 *
 * A cache's per-CPU sheaves have one offset, the same in every area. The offset is stored four times; 0 means closed:
 *
 *	pcs.front.open	for allocations on the fast path: 0 while the slow path must run
 *	pcs.front.back	for frees on the fast path: as front.open, or the offset of the charged or mixed sheaves
 *	pcs.inner	for the slow path: 0 during a drain
 *	pcs.slot	the offset itself, set when the cache is made; 0: the cache has no per-CPU sheaves
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

/* Gives the thread a CPU if the thread's area was not online yet and can be now. */
void km_alloc_new_cpu(bool may_wait) km_cold;

/* Begins each miss: gives the thread a CPU with an online area. may_wait: system calls are allowed. */
km_inline void km_alloc_enter_thread(bool may_wait)
{
	km_thread_enter();
	if (km_unlikely(!km_thread_has_cpu()))
		km_alloc_new_cpu(may_wait);
}

/* Functions of higher folders that a miss calls, besides hooks, alloc ops and km_charge_ops. Set once at start. */
extern km_hidden void (*km_alloc_tick)(void);	/* periodic work; called outside of locks, system calls allowed */
/* Frees memory for a request about to fail, because pages ran out or because cache `only` is at its limit. Frees the
 * cached objects of `only`, or, if `only` is NULL, of one cache after the other until `bytes` are free. Waits for a
 * flush by another thread. *tries: number of tries, 0 at first. Each try asks for twice as many pages as the try
 * before, because other threads may take the pages, and free pages need not be adjacent. Requires: no lock held; the
 * caller may wait. Returns: true if another try is worthwhile. */
extern km_hidden bool (*km_alloc_pressure)(struct kmem_cache *only, size_t bytes, unsigned *tries);
/* Returns true if this allocation of `bytes` bytes must fail on purpose (failure injection). NULL: no injection. */
extern km_hidden bool (*km_alloc_fails)(const char *name, size_t bytes, gfp_t gfp);
/* Reasons to route each call, fast-path calls included, through the slow path (cache/trace_attach.c): a tracer is
 * attached to an allocation probe (tracer.h), or a profile is taken (alloc/profile_record.h). */
enum km_probing { KM_PROBING_TRACER = 1, KM_PROBING_PROFILE = 2 };
extern km_hidden uint32_t km_alloc_probing;
/* Hooks of a cache that has no other hooks while km_alloc_probing is set: so the cache has the layer OBSERVE, whose ops
 * run the probes. */
extern km_hidden const struct km_hooks km_probe_hooks;
/* Notes the return address of the current kmalloc or malloc call for the probe; called on the slow path. */
km_inline void km_alloc_note_site(uintptr_t site)
{
	if (km_unlikely(km_load(&km_alloc_probing) & KM_PROBING_TRACER))
		km_thread.site = site;
}
km_inline uintptr_t km_alloc_take_site(uintptr_t own)
{
	uintptr_t site = km_thread.site ?: own;

	km_thread.site = 0;
	return site;
}
/* Tries to free memory after the engine got no slab. Returns: true if another try is worthwhile. */
bool km_alloc_relieve(struct kmem_cache *cache, unsigned *tries);
/* Adds the layer CHARGE in an allocation with __GFP_ACCOUNT. Returns: false if the thread has no objcg, or is busy (a
 * signal handler), because the step may wait. */
bool km_alloc_begin_charging(struct kmem_cache *cache, gfp_t gfp);

/* km_alloc_tick_rarely: the tick of paths that enter the engine often: runs at every 64th call. */
void km_alloc_tick_now(void);
km_inline void km_alloc_tick_rarely(void)
{
	if (km_unlikely(++km_thread.turn % 64 == 0))
		km_alloc_tick_now();
}

/* Warns, once, that __GFP_ZERO is ignored for a cache with a constructor. Returns: the object. */
void *km_constructed(const struct kmem_cache *cache, void *object) km_cold;
/* Zeroes an allocated object for __GFP_ZERO. Returns: the object. */
km_inline void *km_cleared(const struct kmem_cache *cache, void *object)
{
	uint32_t bytes = cache->layout.cleared;

	if (km_unlikely(!bytes))
		return km_constructed(cache, object);
	return __builtin_memset(object, 0, bytes);
}

/* The ops of a layer (enum km_layer). A miss is a jump to the ops of the cache's top layer. The ops return and fail
 * as the public functions do. The layers of a cache change when the cache is made, when observers come or go, when an
 * object is first charged, and when the cache is destroyed (layers.c). */
struct km_alloc_ops {
	void *(*alloc)(struct kmem_cache *cache, gfp_t gfp, int node);
	/* Allocates a block of `bytes` bytes, less than a page, where one cache of the engine serves all sizes of
	 * kmalloc. Else NULL. */
	void *(*alloc_sized)(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node);
	void (*free)(struct kmem_cache *cache, void *object);
	/* Frees the object to its slab, without the sheaves. NULL: `free` does so, or the engine has no such way. */
	void (*free_past)(struct kmem_cache *cache, void *object);
	/* Fill objects[0, left); objects[left, n) are filled already. Returns n, or 0 with no object kept. */
	int (*alloc_bulk)(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects);
	/* Free objects[0, n), the rest of a call that frees `all` objects. */
	void (*free_bulk)(struct kmem_cache *cache, size_t n, size_t all, void **objects);
	/* give: frees objects slab by slab, skips NULLs; false: nothing was done, not possible now. give_last: of
	 * objects[0, n), frees the last object and nearby objects of the same slab; returns how many are left, n if
	 * not possible now. Both are NULL where the engine cannot free slab by slab. */
	bool (*give)(struct kmem_cache *cache, size_t n, void **objects);
	size_t (*give_last)(struct kmem_cache *cache, size_t n, void **objects);
	/* The fast path may use the cache's per-CPU sheaves while these ops are the top layer. */
	bool pcs;
	/* For charged objects, else NULL. recharge: transfers an object from the mixed sheaves to the objcg; *word
	 * names the objcg charged now (word NULL: not looked up yet). recharge_bulk: the same for objects[0, n);
	 * returns n if all objects are charged to the objcg, 0 if all were freed and other objects may be tried,
	 * SIZE_MAX if all were freed and the request must fail. */
	size_t (*recharge_bulk)(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, size_t n,
				void **objects);
	void *(*recharge)(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *object, uint64_t *word);
};
/*
 * Slow-path frees of a child cache's objects count themselves in `calls` while they run. Fast-path frees need no
 * count, because a fast path touches nothing after its commit. A child cache without objects and without calls may be
 * destroyed. Order: a thread that sees the free of the last slab also sees the calls of all frees into the slab. A
 * thread that sees the end of a call also sees all stores of the call.
 *
 * Requires: the caller holds an object of the child cache until km_child_enter returns. Returns: true if the call is
 * counted, false for a cache that is no child cache; the caller passes the result to km_child_leave.
 */
km_inline bool km_child_enter(struct kmem_cache *cache)
{
	if (km_likely(!cache->memcg.child_of))
		return false;
	km_add_both(&cache->memcg.calls, 1u);
	return true;
}
km_inline void km_child_leave(struct kmem_cache *cache, bool entered)
{
	if (km_unlikely(entered))
		km_add_both(&cache->memcg.calls, -1u);
}
km_inline void km_ops_free_past(const struct km_alloc_ops *ops, struct kmem_cache *cache, void *object)
{
	bool entered = km_child_enter(cache);

	(ops->free_past ?: ops->free)(cache, object);
	km_child_leave(cache, entered);
}
/* Frees an object of a child cache through the slow path, counted in `calls`. */
void km_child_free(const struct km_alloc_ops *ops, struct kmem_cache *cache, void *object) km_cold;
km_inline void km_ops_free(const struct km_alloc_ops *ops, struct kmem_cache *cache, void *object)
{
	if (km_unlikely(cache->memcg.child_of != NULL))
		km_child_free(ops, cache, object);
	else
		ops->free(cache, object);
}
km_inline bool km_ops_charges(const struct km_alloc_ops *ops)
{
	return ops->recharge != NULL;
}
/* Returns: the ops of a layer; if the cache does not have the layer, of the next layer below. Acquire pairs with
 * km_layer_set_locked. */
km_inline const struct km_alloc_ops *km_layer(const struct kmem_cache *cache, enum km_layer layer)
{
	return km_load_acquire(&cache->layers[layer]);
}
/* Returns: the ops to which a layer passes requests on. */
km_inline const struct km_alloc_ops *km_layer_below(const struct kmem_cache *cache, enum km_layer layer)
{
	return km_load(&cache->layers[layer + 1]);
}
/* Returns: the ops of the cache's top layer. */
km_inline const struct km_alloc_ops *km_alloc_ops(const struct kmem_cache *cache)
{
	return km_layer(cache, (enum km_layer)0);
}
/* Returns the ops that serve a request. The first request with __GFP_ACCOUNT adds the layer CHARGE to the cache for
 * good. */
const struct km_alloc_ops *km_ops_for_account(struct kmem_cache *cache, gfp_t gfp);
km_inline const struct km_alloc_ops *km_ops_for(struct kmem_cache *cache, gfp_t gfp)
{
	return km_likely(!(gfp & __GFP_ACCOUNT)) ? km_alloc_ops(cache) : km_ops_for_account(cache, gfp);
}

/* layers.c. Chooses anew each layer of a cache that a function of km_layer_fn decides. */
void km_layers_choose(struct kmem_cache *cache) km_cold;
/* Sets or replaces one layer of a cache; NULL removes the layer. _locked: the caller holds km_drain_lock. */
void km_layer_set(struct kmem_cache *cache, enum km_layer layer, const struct km_alloc_ops *ops) km_cold;
void km_layer_set_locked(struct kmem_cache *cache, enum km_layer layer, const struct km_alloc_ops *ops) km_cold;
/* `choose` returns the ops of the layer for a cache, or NULL for none. Called with km_drain_lock held, for new caches
 * and for caches whose observers change. Returns: false if the layer has a function already. */
typedef const struct km_alloc_ops *km_layer_fn(struct kmem_cache *cache);
bool km_layer_register(enum km_layer layer, km_layer_fn *choose) km_cold;

/* Debug shadow caches: caches of another layout, allocated from and freed to under the name of this cache. While an
 * object of a shadow cache may be allocated, the layer SHADOW finds the cache of each object, and this cache's sheaves
 * are closed to the fast path. */
#define KM_SHADOWS_MOST 64u		/* shadow caches of one cache: no two have the same flags */
struct km_shadows {
	struct kmem_cache *first;	/* shadow caches, linked by next_shadow; they live as long as the cache */
	struct kmem_cache *serving;	/* the shadow cache that serves allocations while bit 0 of `calls` is set */
	uint32_t calls;			/* bit 0: a shadow cache serves; plus 2 for each call in progress */
	bool out;			/* an object of a shadow cache may be allocated; the cache has layer SHADOW */
};

/* Returns true if an object freed under the cache's name may belong to a shadow cache. */
km_inline bool km_alloc_has_out(const struct kmem_cache *cache)
{
	const struct km_shadows *shadows = km_load_acquire(&cache->ext.shadows);

	return km_unlikely(shadows != NULL) && km_load(&shadows->out);
}

/* Returns: the first shadow cache, linked by next_shadow; NULL: none. Acquire pairs with the publication of a complete
 * shadow cache. */
km_inline struct kmem_cache *km_alloc_shadows(const struct kmem_cache *cache)
{
	const struct km_shadows *shadows = km_load_acquire(&cache->ext.shadows);

	return shadows ? km_load_acquire(&shadows->first) : NULL;
}

/* Sets the observers of each object from now on; NULL: no observers. */
void km_alloc_watch(struct kmem_cache *cache, const struct km_hooks *hooks) km_cold;
void km_alloc_bury(struct kmem_cache *cache) km_cold;	/* Marks a destroyed cache: each later call with it is reported
							 * as misuse. */

/* sampled_ops.c. km_alloc_sample: the cache's next suitable object shall be a guarded object. Returns: false if not
 * possible for this cache now. km_alloc_see_frees: from now on every free of the cache takes the slow path. */
bool km_alloc_sample(struct kmem_cache *cache) km_cold;
void km_alloc_see_frees(struct kmem_cache *cache) km_cold;
/* Entry points that know the requested bytes and note them on the slow path: kmalloc, malloc. Misses of more than
 * `most` bytes take the slow path with sizes; `usual`: the value of `most` without sampling. */
enum km_door { KM_DOOR_KMALLOC, KM_DOOR_MALLOC, KM_DOORS };
extern km_hidden struct km_direct { size_t most[KM_DOORS], usual[KM_DOORS]; } km_direct;
void km_alloc_want_sizes(bool wanted) km_cold;
void *km_alloc_asked(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node);

/* Serve a miss of the public function; results and failures are the public function's. */
void *km_alloc_miss(struct kmem_cache *cache, gfp_t gfp);
void *km_alloc_miss_node(struct kmem_cache *cache, gfp_t gfp, int node);
void *km_charged_miss(struct kmem_cache *cache, gfp_t gfp);	/* Allocates after km_charged_alloc has missed. */
void km_free_miss(struct kmem_cache *cache, void *object);
/* Ops of caches with a freelist by CPU: their fast path is in slow_path.c, so each call comes to km_alloc_miss or
 * km_free_miss. */
extern km_hidden const struct km_alloc_ops km_ops_chain;
void km_free_chained(struct kmem_cache *cache, void *object);
/* Allocate and free uncharged objects, below the layer CHARGE. */
void *km_plain_alloc(struct kmem_cache *cache, gfp_t gfp, int node);
void km_plain_free(struct kmem_cache *cache, void *object);
bool km_plain_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects);
void km_plain_free_bulk(struct kmem_cache *cache, size_t n, void **objects);
/* direct_ops.c: caches of KM_PERCPU_NONE. 0 or false: nothing was done, because the call is not an ordinary one.
 * km_free_sized: a block of kmalloc's single cache. take: up to `want` objects. give: n objects, none of them NULL. */
bool km_free_sized(struct kmem_cache *cache, void *object);
unsigned km_alloc_take(struct kmem_cache *cache, const struct km_request *request, void **objects, unsigned want);
bool km_alloc_give(struct kmem_cache *cache, void **objects, size_t n);

/* Bits by cache id: caches that may have cached objects charged to a group. For a child cache, any cached object
 * counts; else the charged sheaves do. Bit 0 stands for all caches without an entry in km_hot.caches, and stays set. */
extern km_hidden uint64_t km_alloc_ready[KM_IDS / 64];
void km_alloc_set_ready(const struct kmem_cache *cache, bool ready);

/* Marks the cache for the next look of reclaim. The load avoids stores to the same line by two CPUs in turn. */
km_inline void km_alloc_touch(struct kmem_cache *cache)
{
	if (km_likely(km_load(&cache->state.touched)))
		return;
	km_store(&cache->state.touched, true);
	if (km_unlikely(cache->memcg.child_of != NULL))
		km_alloc_set_ready(cache, true);
}

/* Makes a sheaf the CPU's main sheaf. A displaced spare, or after failures the sheaf itself, goes to the engine. */
void km_alloc_install(struct kmem_cache *cache, void **sheaf);
/* Returns: true if the engine has one sheaf on a CPU, not two. A race may have left a spare made under another limit;
 * then objects are not moved between the two. */
km_inline bool km_alloc_lone(const struct kmem_cache *cache)
{
	return cache->layout.engine->array.lone;
}

/* Serves requests from outside (struct kmem_gate) in a call that used cached objects and runs no tick. If a request
 * closed the fast-path gate, the call runs a tick and opens the gate, unless the request wants more ticks. A call
 * that may not wait, and a signal handler inside an engine, leave both to a later call, a free at the latest. */
void km_alloc_note_request(struct kmem_cache *cache, bool may_wait) km_cold;
km_inline void km_alloc_look(struct kmem_cache *cache, bool may_wait)
{
	if (km_way_is_shut(km_load(&km_rseq)) || km_way_is_shut(km_load(&cache->fast.pcs.front.rseq)))
		km_alloc_note_request(cache, may_wait);
}

/* Counts hits served by the slow path with KMEM_OPTIONS=stats:1, which closes the public sheaves. */
km_inline void km_alloc_hit(struct kmem_cache *cache, enum kmem_event event, size_t count)
{
	if (km_unlikely(km_layout_options.count_events) && cache->layout.engine->hit)
		cache->layout.engine->hit(cache, event, count);
}

/* Resolves the node of a request: `id` is the system's number. With __GFP_THISNODE and no id, the CPU's node; on a
 * machine with one node, any. Returns: false if the node does not exist and the request insists. */
bool km_request_resolve_node(struct km_request *request, int id);
/* Returns true if any object serves a request for node `id`; then removes __GFP_THISNODE from *gfp. */
km_inline bool km_alloc_any_node(int id, gfp_t *gfp)
{
	if (km_likely(id == NUMA_NO_NODE))
		return true;
	if (id != km_only_node)
		return false;
	*gfp &= ~__GFP_THISNODE;
	return true;
}

/* Adds points for a miss to the cache. With enough points the sheaves become larger. */
#define KM_MISS_POINTS	8u	/* points of a miss that entered the engine */
#define KM_SWAP_POINTS	1u	/* points of a miss that swapped main and spare */
void km_alloc_note(struct kmem_cache *cache, unsigned points);

/* Allocate and free many objects of one cache. Objects to be freed must be valid and not NULL. km_alloc_bulk returns n,
 * or 0. */
int km_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects);
void km_free_bulk(struct kmem_cache *cache, size_t n, void **objects);

/* Finishes the deferred frees of signal handlers. Requires: km_thread.busy is set. */
void km_alloc_finish_deferred(struct kmem_cache *cache);
/* Drains the cache: returns all cached objects and deferred frees to the engine. */
void km_alloc_drain(struct kmem_cache *cache);
/* Drains several caches with one fence. Returns: false if the system refused the fence and objects remain cached; the
 * result does not cover charged sheaves. */
bool km_alloc_drain_all(struct kmem_cache **caches, size_t count);
/* Drains caches that no thread uses, before they are destroyed. Takes all objects, with or without a fence. */
void km_alloc_drain_unused(struct kmem_cache **caches, size_t count);
/* Drains these CPUs only, on which threads have run and run no more: one fence; a second if there are charged
 * objects. */
void km_alloc_leave_all(struct kmem_cache **caches, size_t count, const uint16_t *cpus, size_t cpu_count);
/* Returns true if the cache has cached objects on one of these CPUs. The answer is a hint. */
bool km_alloc_lies_on(const struct kmem_cache *cache, const uint16_t *cpus, size_t cpu_count);
/* For each CPU the number of reclaims since a miss entered an engine there: a miss stores 0. */
extern km_hidden uint8_t km_alloc_looks[KM_MAX_CPUS];
/* Trims the sheaves on all CPUs, with one fence, for engines with a trim() of their own (slab). */
void km_alloc_trim_all(struct kmem_cache **caches, size_t count);
/* Sets up the per-CPU sheaves of a new cache. Requires: hooks, engine and capacity are set. */
void km_alloc_open(struct kmem_cache *cache);
/* Sets the sheaf capacity to about `capacity` objects, within the cache's bounds. */
void km_alloc_resize(struct kmem_cache *cache, unsigned capacity);
/* Sets the sheaf capacity to exactly `limit` objects. Sheaves on CPUs change at their next miss. */
void km_alloc_set_limit(struct kmem_cache *cache, unsigned limit);
/* Drains and removes the per-CPU sheaves of caches about to be destroyed. Returns: false if sequences may still use
 * their words, because no fence was possible. */
bool km_alloc_close_all(struct kmem_cache **caches, size_t count);
/* Bits of gfp with which a request cannot be served by an object of the charged sheaves. */
#define KM_CHARGED_ODD (KMEM_GFP_ODD & ~__GFP_ACCOUNT)
void km_alloc_fork(bool before, bool child);
size_t km_alloc_pcs_objects(const struct kmem_cache *cache);
/* Checks the sheaves of an idle cache, and prints each damage. Returns: the number of damages. */
int km_alloc_check(struct kmem_cache *cache);

/* Reports unknown bits in gfp as misuse. cache: name, or NULL. Each path outside of fast path and miss must call this
 * function: a resize in place, an object from a prefilled sheaf, a failure by arguments. */
km_inline void km_alloc_check_gfp(const char *function, gfp_t gfp, const char *cache)
{
	if (km_unlikely(gfp & ~__GFP_BITS_MASK))
		km_misuse(KM_MISUSE_BAD_GFP, function, (void *)(uintptr_t)gfp, cache);
}

/* Reports a failed allocation. Returns NULL with errno = error. With __GFP_NOFAIL the process ends. */
void *km_alloc_failed(const char *name, size_t size, gfp_t gfp, int error) km_cold;
/* Returns: true if a failed request with these gfp bits prints a line. */
bool km_gfp_tells(gfp_t gfp) km_cold;
/* Prints the line about a failed request, with the caller's reason. */
void km_alloc_tell_failed(const char *name, uint64_t bytes, gfp_t gfp, const char *reason, const char *suffix) km_cold;

/* alloc_nolock.c: allocates without waiting; bytes not 0: by size. Returns: NULL with ENOMEM on failure.
 * km_alloc_is_nolock: true if gfp has only bits allowed for such a call. */
void *km_alloc_nolock(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node);
bool km_alloc_is_nolock(gfp_t gfp);

/* Shows the cache's id in `count` entries of a table of sizes while the sheaves are open, 0 while closed. _part: a
 * part of another cache's entries, which that cache may serve as well. _charged: for a table of charged caches; ids
 * are shown while frees use the charged sheaves. */
void km_alloc_show_sizes(struct kmem_cache *cache, uint16_t *ids, size_t count);
void km_alloc_show_part(struct kmem_cache *cache, uint16_t *ids, size_t count);
void km_alloc_show_charged(struct kmem_cache *cache, uint16_t *ids, size_t count);

/* Hides a table of sizes from the fast path (now), or shows the table again. While hidden, caches write their ids to
 * `kept`, initially all 0. One table at a time. Fast paths in progress may end as they began. */
void km_alloc_shut_sizes(uint16_t *ids, uint16_t *kept, size_t count, bool now) km_cold;

/* Returns true if the object's owner word is `owner`. *word: the owner word of the object, or of its page in
 * km_hot.owner; NULL: the page is outside of the table. */
km_inline bool km_alloc_is_owner(const struct kmem_cache *cache, const void *object, uintptr_t owner, uint64_t **word)
{
	uintptr_t offset = (uintptr_t)object - (uintptr_t)km_hot.arena, index = offset >> KM_PAGE_SHIFT;

	*word = NULL;
	if (km_unlikely(index >= km_load(&km_hot.pages)))
		return false;
	*word = &km_hot.owner[index];
	/* Acquire pairs with make_vector, which fills the vector first. */
	uint64_t seen = km_load_acquire(*word);
	if (km_likely(seen & KM_OWNER_VECTOR)) {
		*word = km_owner_in_vector(seen, offset & (KM_PAGE_SIZE - 1), km_load(&cache->memcg.owner_shift));
		seen = km_load(*word);
	}
	return seen == owner;
}

/* Serves a request whose gfp rules out the charged and mixed sheaves. */
void *km_odd_alloc(struct kmem_cache *cache, gfp_t gfp);

/* A charged cache has no public sheaves, but sheaves of objects already charged, with a fast path of their own. While
 * one objcg is charged for all objects, the CPU's charged sheaf belongs to this objcg. With several objcgs, front.back
 * is the offset of the mixed sheaves, and an allocation reads the owner word of the object: if the object is charged to
 * another objcg, the charge moves to the caller's. Frees use the fast path of uncharged objects in both cases. */
km_inline void *km_charged_alloc(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, intptr_t rseq)
{
#ifdef KMEM_HAVE_RSEQ
	void *object;
	uint64_t *word;

	/* Without an objcg the pop of an owned sheaf always misses. */
	if (!objcg)
		return km_charged_miss(cache, gfp);
	/* A plain load, so that the compiler makes one instruction of load and test. */
	if (km_likely(!(gfp & cache->memcg.charged_odd))) {
		object = km_rseq_owned_pop(&cache->memcg.charged.front.open, cache->fast.pcs.front.percpu, rseq,
					   (uintptr_t)objcg);
		return km_likely(object) ? object : km_charged_miss(cache, gfp);
	}
	if (km_unlikely(gfp & KM_CHARGED_ODD))
		return km_odd_alloc(cache, gfp);
	object = kmem_pcs_pop(&cache->memcg.charged.front.back, cache->fast.pcs.front.percpu, rseq);
	if (km_unlikely(!object))
		return km_charged_miss(cache, gfp);
	if (km_likely(km_alloc_is_owner(cache, object, (uintptr_t)objcg, &word)))
		return object;
	return km_layer(cache, KM_LAYER_CHARGE)->recharge(cache, gfp, objcg, object, word);
#else
	return km_charged_miss(cache, gfp);
#endif
}

/* Allocates as km_charged_alloc, and zeroes the object. */
km_inline void *km_charged_zalloc(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, intptr_t rseq)
{
	void *object = km_charged_alloc(cache, gfp & ~__GFP_ZERO, objcg, rseq);

	return km_likely(object) ? km_cleared(cache, object) : NULL;
}

/* Allocates an object of the cache with id ids[step]. Returns: NULL for a miss. Id 0 always misses. */
km_inline void *km_alloc_id(const uint16_t *ids, size_t step)
{
#ifdef KMEM_HAVE_RSEQ
	return km_rseq_pop_id(ids, step, km_hot.percpu, km_rseq);
#else
	(void)ids, (void)step;
	return NULL;
#endif
}

/* km_alloc_IDS(step) allocates as km_alloc_id does, from a table IDS of the same file, declared km_ids_near. */
#ifndef KMEM_HAVE_RSEQ
#define km_ids_near
#define KM_RSEQ_POP_NEAR(ids) km_inline void *km_rseq_pop_##ids(size_t step km_unused) { return NULL; }
#define KM_RSEQ_POP_OWNED_NEAR(ids)                                                                \
	km_inline void *km_rseq_pop_owned_##ids(size_t step km_unused, uintptr_t objcg km_unused, bool *own km_unused) \
	{                                                                                          \
		return NULL;                                                                       \
	}
#endif
#define KM_ALLOC_NEAR(ids)                                                                         \
	KM_RSEQ_POP_NEAR(ids)                                                                      \
	km_inline void *km_alloc_##ids(size_t step)                                                \
	{                                                                                          \
		return km_rseq_pop_##ids(step);                                                    \
	}
/* km_alloc_owned_IDS(step, objcg, &own) allocates from a table IDS of charged caches. *own: true if the object is
 * charged to the objcg; else the object may be charged to another objcg. */
#define KM_ALLOC_OWNED_NEAR(ids)                                                                   \
	KM_RSEQ_POP_OWNED_NEAR(ids)                                                                \
	km_inline void *km_alloc_owned_##ids(size_t step, const struct obj_cgroup *objcg, bool *own) \
	{                                                                                          \
		return km_rseq_pop_owned_##ids(step, (uintptr_t)objcg, own);                       \
	}

/* Frees an object of the cache with this id, without a check of the address. */
km_inline void km_free_of(uintptr_t id, void *object)
{
#ifdef KMEM_HAVE_RSEQ
	if (km_likely(km_rseq_push_id(&km_id_masks(id)->sheaf, id, km_hot.percpu, km_rseq, object)))
		return;
#endif
	km_free_miss(km_hot.caches[id], object);
}

/* Frees an object of any cache by the fast path alone. Returns: false if nothing was done, for any reason. */
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

/* Frees an object of any cache. All rare cases end at the one conditional branch of the sheaf: a foreign pointer, a
 * large block, a pointer into an object. Returns: false if nothing was done, because the address does not prove an
 * object. */
km_inline bool km_free_any(void *object)
{
#ifdef KMEM_HAVE_RSEQ
	uintptr_t id;

	if (km_likely(km_rseq_push_any(object, &id)))
		return true;
	/* Loads the cache again, so that the fast path before needs no register for the cache. */
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
	/* The object's byte in the allocation state map proves an object, too. */
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
