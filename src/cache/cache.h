/*
 * cache.h: caches and kmalloc as users know them, for the layers above: boot, registry, sizes, large blocks.
 */
#ifndef KM_CACHE_H
#define KM_CACHE_H

#include <kmem/memcg.h>

#include "alloc/fast_path.h"
#include "alloc/profile_record.h"
#include "page/guard_range.h"
#include "os/sanitizer.h"
#include "option_text.h"

/* ---- boot.c */

/* Start the library unless it has started; cheap afterwards. Returns: false if there is no memory to start with. */
bool km_boot_slow(void);
extern km_hidden bool km_ready;
km_inline bool km_boot(void)
{
	return km_likely(km_load_acquire(&km_ready)) || km_boot_slow();
}

/* mempool.c: fork handler of the pools' locks; NULL until a pool exists. */
extern km_hidden void (*km_mempool_fork)(bool before, bool child);

/* The fork handlers, for code that copies the process by another call. */
void km_boot_fork_prepare(void);
void km_boot_fork_parent(void);
void km_boot_fork_child(void);
/* Returns: whether this process is a copy made without the fork handlers. A lock of another thread stays locked. */
bool km_boot_is_stray(void);
/* Returns: whether this process is a child of libc's vfork or clone with the memory and the rseq area of its
 * parent. The kernel aborts none of the child's sequences. */
bool km_boot_is_borrower(void);

/* ---- options.c */

struct km_options {
	const struct km_engine *engine;	/* the default engine */
	const char *percpu;		/* wanted discipline, or "auto": the best available */
	const char *index;		/* index of the per-CPU areas: "cpu", "cid", "auto" */
	bool merge, check, huge;
	bool check_sizes;		/* report frees with a wrong size (kmalloc/sized_free.c) */
	bool sanitize;			/* option sanitize: report each object to a sanitizer in the process */
	bool control;			/* serve requests of other processes (mailbox.h) */
	bool account;			/* charge every object and every block */
	bool account_malloc;		/* charge malloc to the thread's group, from the start */
	bool observed;			/* user `observer` may read the statistics, without the right to trace */
	unsigned observer;
	bool observer_thread;		/* a thread answers the observers */
	struct km_guard_options guard;
	uint64_t profile;		/* mean bytes between two samples of a profile from the start; 0: no profile */
	uint64_t reserve;		/* bytes committed ahead at all times */
	uint64_t limit;			/* limit in bytes of the group charged for the process; 0: none */
	char group[MEMCG_NAME_MAX];	/* name of that group; empty: the program's name */
	unsigned decay_ms;
	unsigned nodes;			/* number of nodes to pretend, for tests; 0: the machine's nodes */
};
extern km_hidden struct km_options km_options;
extern km_hidden bool km_memcg_modes[MEM_CGROUP_NR_MODES];	/* whether each mode is on (enum mem_cgroup_mode) */
void km_options_read(void);

/* ---- cache_ids.c. Context: registry locked. */

/* Assign an id of the page map, and under rseq the cache's per-CPU word. Returns: KM_MAP_DESC: the cache gets no id. */
uint16_t km_id_get(struct kmem_cache *cache);
void km_id_fill(struct kmem_cache *cache);
/* Free the id and the word. fenced: no thread uses the word any more; otherwise the word stays taken. */
void km_id_put(struct kmem_cache *cache, bool fenced);
/* Purge the pages of the tables by id above the highest id in use. The entries then read as never used. */
void km_ids_trim(void);

/* ---- create.c: the registry */

/* Arguments of creation reserved for the library. */
struct km_creation {
	struct kmem_cache_args args;
	bool internal;			/* a cache of kmalloc or malloc: any alignment, no warnings */
	bool dense;			/* many objects are expected: large slabs must waste little */
	bool singly;			/* no bulk requests are expected (KM_CACHE_SINGLY) */
	bool canary;			/* a canary may follow each object, also in caches of kmalloc or malloc */
	const struct km_engine *engine;	/* engine of the cache; NULL: chosen by args */
	struct kmem_cache *child_of;	/* makes a child cache of this cache, for a private group */
	struct kmem_cache *tuned_with;	/* the leader, whose size, engine and tuning the new cache gets */
	struct kmem_cache *shadow_of;	/* the cache for which a debug shadow cache is made */
	const struct km_slab_charge *slab_charge;
	void *kept_by;
	int error;			/* result: -errno of a failure */
};
struct kmem_cache *km_cache_create(const char *name, uint32_t size, slab_flags_t flags, struct km_creation *creation);
/* Destroy a cache that never gave out an object. Waits for no grace period, because the caller may be a reader. */
void km_cache_discard(struct kmem_cache *cache);
/* Store a new cache at `at`, or discard the cache if another thread's cache is there. Release pairs with the acquire
 * loads of readers. Returns: whether the cache stays. */
bool km_cache_publish(struct kmem_cache **at, struct kmem_cache *cache);
/* Lock the registry, and set km_thread.busy, to make or remove caches. `rest` is called for each removed cache (NULL:
 * report objects, as kmem_cache_destroy), after the per-CPU sheaves are closed and their objects are back in the slabs.
 * A removal costs two fences for all caches, three if some are charged. */
void km_registry_lock(void);
bool km_registry_trylock(void);
void km_registry_unlock(void);
km_inline void km_registry_leave(const char *held)
{
	km_registry_unlock();
}
#define km_registry_scope() KM_LOCKED_SCOPE(km_registry_lock, km_registry_leave)
struct kmem_cache *km_cache_create_locked(const char *name, uint32_t size, slab_flags_t flags,
					  struct km_creation *creation);
void km_cache_rename(struct kmem_cache *child, const char *name);
void km_caches_remove(struct kmem_cache **caches, size_t count, void (*rest)(struct kmem_cache *cache));
int km_registry_each(int (*visit)(struct kmem_cache *cache, void *arg), void *arg);
/* Lock the registry for a visit of all caches; the holder may call again. *within: the thread held the registry
 * before. */
bool km_registry_hold(void);
void km_registry_let_go(const bool *within);
#define km_registry_hold_scope(within) const bool within km_scoped(km_registry_let_go) = km_registry_hold()
bool km_registry_is_mine(void);	/* this thread has the lock: for a visit, or by km_registry_lock */
/* Visit all caches with the registry locked. km_registry_visit_within returns false if the lock is not free within `ms`
 * milliseconds. */
int km_registry_visit(int (*visit)(struct kmem_cache *cache, void *arg), void *arg);
/* Visit the caches whose bits are set in km_alloc_ready. Context: registry locked. */
void km_registry_visit_ready(int (*visit)(struct kmem_cache *cache, void *arg), void *arg);
bool km_registry_visit_within(int (*visit)(struct kmem_cache *cache, void *arg), void *arg, unsigned ms);
/* Visits all caches in rounds, up to `most` caches in a call, then calls `then`, with the registry locked. left: caches
 * still to be visited in this round. If visit returns non-zero, the call ends, and the next call starts at this cache.
 * Returns: false if the lock is taken. */
struct km_round {
	size_t left;
	struct km_list *next;
};
#define KM_PRINTERS 4u	/* printers that may unlock the registry in between; one more keeps it locked */
enum {
	KM_ROUND_REAP, KM_ROUND_LOOK, KM_ROUND_SWEEP, KM_ROUND_GUARD, KM_ROUND_PRINT,
	KM_ROUNDS = KM_ROUND_PRINT + KM_PRINTERS + 1
};
extern struct km_round km_rounds[KM_ROUNDS];
bool km_registry_try_some(struct km_round *round, size_t most,
			  int (*visit)(struct kmem_cache *cache, void *arg), void *arg, void (*then)(void *arg));
/* Visit all caches. Where visit returns non-zero, `then` is called with the registry unlocked, and the same cache is
 * visited again. With more than KM_PRINTERS printers, or inside a visit, the registry stays locked. */
void km_registry_visit_pieces(int (*visit)(struct kmem_cache *cache, void *arg), void (*then)(void *arg), void *arg);
/* Returns: false if the code interrupted by a forking handler, or another thread, is changing the list. */
bool km_registry_fork(bool before, bool child);
/* All caches, the oldest first; changed under the registry's lock. */
extern km_hidden struct km_caches {
	struct km_list all;
	unsigned count, shadows;	/* shadow caches among them */
} km_caches;
km_inline unsigned km_registry_count(void)
{
	return km_load(&km_caches.count);
}
/* Returns: the head of the hash chain of a name, linked by next_named. */
struct kmem_cache **km_registry_named(const char *name);

/* ---- retired_stats.c. Hand the slab counters of a removed cache to its heir. Context: registry locked. */
void km_retired_hand_down(const struct kmem_cache *cache, const struct kmem_cache_stats *stats);
/* Returns: the counters of destroyed caches that were the last of their name. */
const struct km_retired *km_retired_of_process(void);

/* ---- The hook of the observer (base/cc.h), the code that answers another process's request for statistics. */
struct km_observer_ops {
	void (*tick)(uint64_t now_ms);	/* called by a miss that may call the system */
	void (*end)(void);		/* called before a filter of system calls is installed */
	/* Keep the library's threads from objects until let_go. Returns: false if a thread holds an object now. */
	bool (*hold)(void);
	void (*let_go)(void);
	bool (*fork_prepare)(void);
	void (*fork_done)(bool child, bool prepared);
};
extern km_hidden const struct km_observer_ops *km_observer_ops;

/* ---- tune.c */

/* Returns: whether the cache is `leader` or is tuned with `leader`, directly or through other caches. */
km_inline bool km_tuned_with(const struct kmem_cache *cache, const struct kmem_cache *leader)
{
	while (cache && cache != leader)
		cache = cache->tune.tuned_with;
	return cache != NULL;
}

/* Set min_partial and defrag_ratio: to the values of the cache that this cache is tuned with (tune.tuned_with), else of
 * the options. Context: registry locked. */
void km_cache_tune_partial(struct kmem_cache *cache);
/* Set the first and the busy capacity of the cache's sheaves, rounded up to the room of their memory. Returns: 0;
 * -EINVAL for 0; -ERANGE for more than the room of a sheaf; -EOPNOTSUPP for a cache without sheaves or with an exact
 * limit; -EAGAIN while another thread changes the cache's sheaves. */
int km_cache_set_capacity(struct kmem_cache *cache, unsigned capacity);
/* kmem_cache_tune for this cache alone, without its followers. */
int km_cache_tune_locked(struct kmem_cache *cache, unsigned limit, unsigned batchcount, unsigned shared);
/* Tune the cache as its leader is tuned now, whatever was set before. */
void km_cache_tune_again(struct kmem_cache *cache);

/* ---- kmalloc.c */

bool km_kmalloc_start(void);
/* Make the caches for __GFP_ACCOUNT. Called for every new group; only the first call acts. */
bool km_kmalloc_start_charged(void);
/* The one cache of kmalloc's blocks if the default engine serves kmalloc by size; otherwise NULL. */
extern km_hidden struct kmem_cache *km_kmalloc_sized;
/* Begin or end the recording of requested bytes for a cache of kmalloc: while observed, requests of the sizes of the
 * cache take the slow path. Other caches: no effect. Context: registry locked. */
void km_kmalloc_watch(struct kmem_cache *cache, bool observed);
bool km_kmalloc_is_observed(size_t size);	/* whether kmalloc requests of this size take the slow path for an
						 * observer */
extern km_hidden void (*km_malloc_watch)(struct kmem_cache *cache, bool observed);	/* as km_kmalloc_watch, for
											 * malloc's caches; NULL: no
											 * malloc in the program */
/* Returns: the cache that serves kmalloc of 0 < size <= KMALLOC_MAX_CACHE_SIZE. */
struct kmem_cache *km_kmalloc_cache(size_t size);
/* Returns: the cache for `gfp`: with __GFP_ACCOUNT the charged cache, once a group exists. */
struct kmem_cache *km_kmalloc_cache_by(size_t size, gfp_t gfp);
/* Returns: the cache of a slab object; NULL if `object` is not the start of one. */
struct kmem_cache *km_cache_of(const void *object);
struct kmem_cache *km_sized_owner(const void *p);
/* Free any pointer after the fast path missed. `function` is the function that the program called. */
void km_free_any_miss(const void *p, const char *function);
/* Returns: the cache validated by the page map and the address alone; NULL: ask the page descriptor. */
km_inline struct kmem_cache *km_quick_cache(const void *object)
{
	uintptr_t id = km_id_of(object);

	return km_id_valid(id, object) ? km_load(&km_hot.caches[id]) : NULL;
}
/* observed.c. Returns: the requested bytes of an object; 0: as the cache says. */
size_t km_observed_bytes(const struct kmem_cache *cache, const void *p) km_cold;
/* Returns: the usable bytes of an object. Surplus bytes from rounding count, if the cache keeps nothing there. */
km_inline size_t km_room_of(const struct kmem_cache *cache)
{
	return km_likely(cache->layout.cleared && !(cache->layout.flags & SLAB_TYPESAFE_BY_RCU)) ?
		       cache->layout.size : cache->layout.object_size;
}
/* Returns: the usable bytes, also if a sanitizer knows the requested bytes or a canary follows the object. */
km_inline size_t km_usable_of(const struct kmem_cache *cache, const void *p)
{
	if (km_unlikely(km_sanitizer.objects))
		return km_observed_bytes(cache, p) ?: cache->layout.object_size;
	return km_unlikely(cache->ext.canary) ? cache->ext.canary : km_room_of(cache);
}
/* Sets layout.usable of a new cache, the usable bytes of its objects. km_alloc_prove sets the field to 0 where frees
 * are validated. */
km_inline void km_settle_usable(struct kmem_cache *cache)
{
	const bool asked = cache->layout.live_shift || cache->ext.canary || km_sanitizer.objects;

	cache->layout.usable = asked ? 0 : (uint32_t)km_room_of(cache);
}
size_t km_usable_size(const void *p, const char *function);

/* ---- random_classes.c: only with KMEM_OPTIONS=random_caches */

/* Returns: the copy of `plain` that serves calls returning to `site`. */
struct kmem_cache *km_site_cache(struct kmem_cache *plain, uintptr_t site) km_cold;
/* Returns: the plain cache of a random copy of kmalloc or malloc; any other cache: itself. */
const struct kmem_cache *km_site_plain(const struct kmem_cache *cache);
/* Takes the return address of the current call, noted by the first function that knows the address; else `own`. */
km_inline uintptr_t km_site_take(uintptr_t own)
{
	uintptr_t site = km_thread.class_site ?: own;

	km_thread.class_site = 0;
	return site;
}

/* ---- sized_free.c */

/* Set if frees are validated, or some objects are observed: realloc takes the slow path, and sizes named by frees are
 * checked. */
extern km_hidden bool km_looks_closer;
/* Set when a shrink left an object longer than needed, for lack of memory for a shorter one. Never cleared. */
extern km_hidden bool km_left_longer;
/* Returns: km_usable_of for a cache with validated frees; 0 if the object is free, after a report. */
size_t km_bytes_if_out(const struct kmem_cache *cache, const void *p, const char *function) km_cold;

/* A free that names the requested bytes and alignment. */
struct km_sized {
	size_t size, align;		/* requested bytes, never 0, and alignment */
	bool resized;			/* a call may have shrunk the object in place */
	const char *function;
	const void *caller;		/* return address of the call in the program */
	/* Set by malloc: returns whether such a call could have got an object of `have` bytes. */
	bool (*serves)(const struct kmem_cache *cache, size_t have, const struct km_sized *call);
};
/* Returns: whether p may have been requested with this size; false after a report. */
bool km_size_fits(const void *p, const struct km_sized *call) km_cold;

/* ---- large.c: page-sized and larger blocks */

/* Allocate `bytes`, aligned to `align` (a power of two), zeroed if gfp says so. Returns: NULL on failure; if a limit
 * refused, request->gfp then has __GFP_NOWARN, because a refusal is not reported. */
void *km_large_alloc_request(size_t bytes, size_t align, struct km_request *request);
km_inline void *km_large_alloc(size_t bytes, size_t align, gfp_t gfp)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);

	return km_large_alloc_request(bytes, align, &request);
}
/* Returns: the objcg of the block that starts at p; 0: uncharged, no block, or a signal handler that can't wait. */
uint64_t km_large_owner(const void *p);
/* Charge an uncharged block to the active group. Returns: false if refused, or if p is no such block. */
bool km_large_charge(const void *p, gfp_t gfp);
/* Uncharge a large block: its bytes go back to its objcg. */
void km_large_uncharge(const void *p) km_cold;
/* Failure injection for large blocks is on: no block is cached, none grows in place, and each request asks the
 * injector. */
extern km_hidden bool km_large_fails;
/* Returns: the usable bytes of the large block that starts at p; 0 if there is none. km_large_look: SIZE_MAX, if
 * unknown in a signal handler that may have interrupted the holder of a lock. */
size_t km_large_bytes(const void *p);
size_t km_large_look(const void *p);
bool km_large_free(const void *p);
/* Allocate and free an uncharged block of whole pages, without a tick. Context: km_thread.busy set. */
void *km_large_get(size_t bytes, size_t align, const struct km_request *request);
void km_large_give(void *p);
/* Free in a signal handler inside the allocator; the next caller finishes. Returns: false if p seems to be no block. */
bool km_large_defer(void *p);
void km_large_finish_deferred(void);	/* frees the deferred blocks; km_thread.busy set */
/* With a sanitizer: returns the place of the requested bytes of the large block at p; NULL if p is none. */
size_t *km_large_asked(const void *p);
/* Resize in place; only separate mappings may move, if gfp allows system calls. __GFP_ZERO zeroes new bytes. Returns:
 * NULL if not possible. *refused (false before) is set with ENOMEM if the block's objcg refused the growth and would
 * have to be charged for another block, too. */
void *km_large_resize(void *p, size_t bytes, gfp_t gfp, bool *refused);
/* Returns: whether the objcg that would be charged seems to have room for the block without reclaim. */
bool km_large_may_have(size_t bytes, gfp_t gfp);
/* Allocate a block that can grow, of uncharged pages with arbitrary content. Returns: NULL if none is available. */
void *km_large_grown(size_t bytes);
/* Returns: the usable bytes of the block of pages at p; 0 for a mapping or a bad pointer. Takes no lock. */
size_t km_large_page_bytes(const void *p);
/* Add `pages`, as bytes, to the count of large blocks, for the runs of realloc_run.c. */
void km_large_count(size_t pages);
/* Blocks of whole pages, with the pages of realloc_run.c, without separate mappings. */
extern km_hidden struct km_large {
	size_t blocks, bytes;
} km_large;

/* Hooks of debugged large blocks. bytes: the whole block, larger than the requested bytes. */
struct km_block_hooks {
	void (*comes)(void *p, size_t asked, size_t bytes);
	void (*shrinks)(void *p, size_t asked, size_t bytes);
	/* Returns: false if the block is kept for now, or must not be freed. */
	bool (*goes)(void *p, size_t bytes);
	size_t (*asked)(const void *p, size_t bytes);
	/* Report the damages of all blocks. Returns: their number. */
	int (*check)(void);
	/* Free the kept blocks. Returns: false if there were none. */
	bool (*settle)(void);
};
/* NULL: large blocks are not debugged. Set before the first block is allocated. */
extern km_hidden const struct km_block_hooks *km_block_hooks;
/* Uncharge a freed block that debugging keeps (disown), and free the kept block later (let_go). */
void km_large_disown(void *p);
void km_large_let_go(void *p);

/* ---- observed.c: only where a sanitizer is in the process, or caches are debugged */

/* The hook of debugging (base/cc.h). */
struct km_debug_ops {
	/* Parse the text of KMEM_DEBUG, once, before any cache is made. */
	void (*read)(const char *text);
	/* Apply KMEM_LEAKS: caches record tracks, and leaks are printed at the end. */
	void (*track)(void);
	int (*print_leaks)(int fd);
	/* Called before libc frees all its memory (__libc_freeres): checks for leaks end here. */
	void (*over)(void);
	/* Returns: the flags for a new cache of this name, size and alignment, made with `flags`. */
	slab_flags_t (*flags)(const char *name, uint32_t size, uint32_t align, slab_flags_t flags);
	const struct km_hooks *hooks;
	/* Retire debug shadow caches whose objects may all be back. Context: registry locked. */
	void (*settle)(struct kmem_cache *cache);
	void (*settle_all)(void);
	/* Requests of other processes (mailbox.h). letters: parse the flags; false if a letter has no meaning.
	 * switch_flags: debug the cache with these flags; 0 or -errno. has_tracks: print_now has something to print;
	 * both with the registry locked. print_now: print the leaks, without a lock while writing. */
	bool (*letters)(const char *text, slab_flags_t *flags);
	int (*switch_flags)(struct kmem_cache *cache, slab_flags_t flags);
	bool (*has_tracks)(void);
	int (*print_now)(int fd);
	struct kmem_record_stack *const *stacks;	/* stacks by the number stored with objects */
};
extern km_hidden const struct km_debug_ops *km_debug_ops;

/* The hook of failure injection. */
struct km_failure_ops {
	/* Parse the text of KMEM_FAILSLAB, once, before any cache is made. */
	void (*read)(const char *text);
	/* Returns: whether allocations of a cache made with these flags may fail. */
	bool (*may_fail)(const char *name, slab_flags_t flags);
	/* Returns: whether this allocation fails. */
	bool (*fails)(const char *name, size_t bytes, gfp_t gfp);
};
extern km_hidden const struct km_failure_ops *km_failure_ops;

/* Check the engine's lists and the debug hooks' data. Returns: damages. Requires: no other thread uses the cache. */
km_inline int km_cache_check(struct kmem_cache *cache)
{
	const struct km_hooks *hooks = km_load(&cache->ext.hooks);
	int mended = hooks && cache->layout.engine->mend ? cache->layout.engine->mend(cache) : 0;
	int damages = cache->layout.engine->check(cache);

	if (damages && km_is_debugged(cache))
		km_misuse_of(KM_MISUSE_OVERWRITTEN, "kmem_cache_validate", cache, cache->registry.name, NULL,
			     cache->layout.flags & SLAB_STORE_USER);
	return mended + damages + (hooks && hooks->check ? hooks->check(cache) : 0);
}

/* The flags of a cache about to be made, as far as available, and its hooks; NULL: none. */
slab_flags_t km_observed_flags(const char *name, uint32_t size, slab_flags_t flags, const struct km_creation *creation);
const struct km_hooks *km_observed_hooks_of(const struct kmem_cache *cache);
/* Some cache of kmalloc or malloc records requested bytes. */
extern km_hidden bool km_observed_sizes;
/* Record the requested bytes of an object or block. Returns: p; NULL if p is NULL. */
void *km_observed_asked(void *p, size_t bytes) km_cold;
/* Raise the recorded bytes of an object that grows in place. Returns: false if the object has no room. */
bool km_observed_grow(void *p, size_t bytes, gfp_t gfp) km_cold;

/* ---- trace_attach.c */

/* Check whether a tracer came or went. Context: km_thread.busy set; no lock held except the lock of reclaim. */
void km_probes_look(void);

/* ---- reclaim.c */

void km_reclaim_start(void);
void km_reclaim_fork(bool before, bool child);
/* Run a part of a reclaim round: a few caches give back cached objects, as after a long idle time, and after the last
 * cache free pages go to the system. Begins a round if *its has none, or has another number. Does nothing if another
 * thread runs a part or holds the registry. *its is guarded by the lock of reclaim. Context: km_thread.busy set.
 * Returns: true when the round is complete. */
struct km_reclaim_round {
	bool begun, through;
	uint32_t number;
	uint64_t until;			/* value of reclaim.visited at the end of this round */
};
bool km_reclaim_part(struct km_reclaim_round *its, uint32_t number);
/* Reclaim the caches of a name. Context: registry locked. Returns: 0; -ENOENT; -EAGAIN if another thread reclaims. */
int km_reclaim_named(const char *name);
/* Release reserved address space beyond a limit in bytes; and cached huge blocks, beyond changed limits. */
void km_reclaim_fit(size_t limit);
void km_reclaim_limited(void);
/* Gives cached objects back as kmem_cache_shrink does, but slabs that stay keep all their pages resident. */
void km_cache_send_home(struct kmem_cache *cache);

#endif
