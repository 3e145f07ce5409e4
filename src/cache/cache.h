/*
 * cache.h: caches and kmalloc as users know them, for the floors above: boot, registry, sizes, large blocks.
 */
#ifndef KM_CACHE_H
#define KM_CACHE_H

#include <kmem/memcg.h>

#include "alloc/fast_path.h"
#include "alloc/profile_record.h"
#include "page/guard_range.h"
#include "os/sanitizer.h"

/* ---- boot.c */

/* Start the library if it has not been: cheap afterwards. False: no memory to start with. */
bool km_boot_slow(void);
extern km_hidden bool km_ready;
km_inline bool km_boot(void)
{
	return km_likely(km_load_acquire(&km_ready)) || km_boot_slow();
}

/* mempool.c: its locks, once there is a pool. */
extern km_hidden void (*km_mempool_fork)(bool before, bool child);

/* Our handlers of fork, for who copies the process by another call. */
void km_boot_fork_prepare(void);
void km_boot_fork_parent(void);
void km_boot_fork_child(void);
/* A copy of the process that they did not see, by _Fork or clone: what another thread had locked is locked for ever. */
bool km_boot_is_stray(void);
/* A child of libc's vfork or clone, with its parent's memory and rseq area: the kernel aborts none of its sequences. */
bool km_boot_is_borrower(void);

/* ---- options.c */

struct km_options {
	const struct km_engine *engine;	/* the default one */
	const char *percpu;		/* wanted discipline; NULL: the best there is */
	const char *index;		/* what areas go by: "cpu", "cid", "auto" */
	bool merge, check, huge;
	bool check_sizes;		/* find frees with a wrong size (kmalloc/sized_free.c) */
	bool sanitize;			/* a sanitizer that is there sees each object */
	bool control;			/* requests from outside are served (mailbox.h) */
	bool account;			/* every object and every block is to be paid for */
	bool account_malloc;		/* malloc's, by the thread's group, from the start */
	bool observed;			/* by processes of this user, without rights to trace */
	unsigned observer;
	bool observer_thread;		/* a thread answers them */
	struct km_guard_options guard;
	uint64_t profile;		/* mean bytes between samples of one that is taken from the start; 0: none */
	uint64_t reserve;		/* bytes that are committed ahead at all times */
	uint64_t limit;			/* of the group that pays for the process; 0: none */
	char group[MEMCG_NAME_MAX];	/* its name; empty: the program's */
	unsigned decay_ms;
	unsigned nodes;			/* to pretend; 0: the machine's */
	char percpu_text[16];
};
extern km_hidden struct km_options km_options;
extern km_hidden bool km_memcg_modes[MEM_CGROUP_NR_MODES];	/* by enum mem_cgroup_mode */
void km_options_read(void);
/* A program defines this whose variables are meant for another one, which reads them itself, as the command kmem
 * does: true, and this copy takes no notice of them. It is called at the start, and may not allocate. */
bool km_options_for_others(void) __attribute__((weak));
enum km_option_fit { KM_OPTION_FITS, KM_OPTION_BAD, KM_OPTION_UNKNOWN };
/* One option takes effect in this process. A value that is NULL fits none but help. */
enum km_option_fit km_option_apply(const char *key, const char *value);
/* Bytes, or with K, M, G or T (either case) powers of 1024, as 1.5G; false: it is no such number, or 0. */
bool km_parse_bytes(const char *text, uint64_t *bytes);

/* ---- cache_ids.c: with the registry's lock. KM_MAP_DESC: it has none. fenced: no thread goes by its word any more. */
uint16_t km_id_get(struct kmem_cache *cache);
void km_id_fill(struct kmem_cache *cache);
void km_id_put(struct kmem_cache *cache, bool fenced);
/* Purge the tables' pages for ids above the highest id in use: the entries read as if never used. */
void km_ids_trim(void);

/* ---- create.c: the registry */

/* Arguments of create that users can't give. */
struct km_creation {
	struct kmem_cache_args args;
	bool internal;			/* kmalloc and malloc sizes: any alignment, no warnings */
	bool dense;			/* there will be much of it: its slabs leave little over, if they are large */
	bool singly;			/* nobody asks for many of it at once */
	bool canary;			/* a canary may lie behind its objects, though they are kmalloc's or malloc's */
	const struct km_engine *engine;	/* NULL: by args */
	struct kmem_cache *child_of;	/* it is a private group's */
	struct kmem_cache *tuned_with;	/* its size and engine are that one's, too */
	struct kmem_cache *shadow_of;	/* it is debugged in that one's place */
	const struct km_slab_charge *slab_charge;
	void *kept_by;
};
struct kmem_cache *km_cache_create(const char *name, uint32_t size, slab_flags_t flags,
				   const struct km_creation *creation, int *error);
/* Destroy a cache of which nobody has had an object, in the middle of a request: it waits for no grace period, which
 * would not end where the caller is a reader, or the child of a fork. */
void km_cache_discard(struct kmem_cache *cache);
/* The registry's lock, with km_thread_busy set. Under it: make a cache; take some down, with what `rest` leaves in each
 * (NULL: as kmem_cache_destroy); its shelves are closed and what lay there is in its slabs by then. Two fences for all,
 * three where some are charged. */
void km_registry_lock(void);
bool km_registry_trylock(void);
void km_registry_unlock(void);
km_inline void km_registry_leave(const char *held)
{
	km_registry_unlock();
}
#define km_registry_scope() KM_LOCKED_SCOPE(km_registry_lock, km_registry_leave)
struct kmem_cache *km_cache_create_locked(const char *name, uint32_t size, slab_flags_t flags,
					  const struct km_creation *creation, int *error);
void km_cache_rename(struct kmem_cache *child, const char *name);
void km_caches_remove(struct kmem_cache **caches, size_t count, void (*rest)(struct kmem_cache *cache));
int km_registry_each(int (*visit)(struct kmem_cache *cache, void *arg), void *arg);
/* The registry's lock of one that visits all: it may be taken by who has it so already. Returns what lets go of it. */
bool km_registry_hold(void);
void km_registry_let_go(bool within);
km_inline void km_registry_hold_leave(const bool *within)
{
	km_registry_let_go(*within);
}
#define km_registry_hold_scope(within) \
	const bool within km_scoped(km_registry_hold_leave) = km_registry_hold()
bool km_registry_visiting(void);
/* Visit all with the registry held so; within: if that is to be had in `ms` milliseconds. */
int km_registry_visit(int (*visit)(struct kmem_cache *cache, void *arg), void *arg);
/* Visit those of which km_alloc_ready has the bits, with the registry held. */
void km_registry_visit_ready(int (*visit)(struct kmem_cache *cache, void *arg), void *arg);
bool km_registry_visit_within(int (*visit)(struct kmem_cache *cache, void *arg), void *arg, unsigned ms);
/*
 * Rounds over all caches, a few at a time: `left` of this one, and who is next. Visit up to `most` of them, in their
 * order, then call `then`, all with the registry locked; one for whom visit returns non-zero is visited next time, and
 * so are those behind it. False: the lock is taken.
 */
struct km_round {
	size_t left;
	struct km_list *next;
};
#define KM_PRINTERS 4u	/* and one that keeps the lock */
enum {
	KM_ROUND_REAP, KM_ROUND_LOOK, KM_ROUND_SWEEP, KM_ROUND_GUARD, KM_ROUND_PRINT,
	KM_ROUNDS = KM_ROUND_PRINT + KM_PRINTERS + 1
};
extern struct km_round km_rounds[KM_ROUNDS];
bool km_registry_try_some(struct km_round *round, size_t most,
			  int (*visit)(struct kmem_cache *cache, void *arg), void *arg, void (*then)(void *arg));
/*
 * Visit all in pieces: where visit returns non-zero `then` is called without the lock, and that one is visited again.
 * It may take its time: whoever reads what it writes may want the lock. Where KM_PRINTERS are at it already, and in a
 * visit: with the lock.
 */
void km_registry_visit_pieces(int (*visit)(struct kmem_cache *cache, void *arg), void (*then)(void *arg), void *arg);
/* False: the list is changing, because the victim of a handler that forks has the lock, or another thread still has. */
bool km_registry_fork(bool before, bool child);
unsigned km_registry_count(void);
unsigned km_registry_known(void);	/* without siblings */
/* Where list and count are, for readers outside of the process. */
void km_registry_expose(const struct km_list **caches, const unsigned **count);
/* Where the names of that hash begin, by next_named. */
struct kmem_cache **km_registry_named(const char *name);

/* ---- retired_stats.c: with the registry locked. A cache goes, which is on no list any more: its slabs are another
 * one's. */
void km_retired_hand_down(const struct kmem_cache *cache, const struct kmem_cache_stats *stats);
/* Those of caches that were the last of their name. */
const struct km_retired *km_retired_of_process(void);

/* ---- The hook of the observer (base/cc.h), which answers another process that asks for the numbers. */
struct km_observer_ops {
	void (*tick)(uint64_t now_ms);	/* a miss's, which may call the system */
	void (*end)(void);		/* before a filter of system calls */
	/* No thread of ours has the program's objects in hand in between. False: one has. */
	bool (*hold)(void);
	void (*let_go)(void);
	bool (*fork_prepare)(void);
	void (*fork_done)(bool child, bool prepared);
};
extern km_hidden const struct km_observer_ops *km_observer_ops;

/* ---- tune.c */

/* Is it that one, or tuned with it, be it by way of others? */
km_inline bool km_tuned_with(const struct kmem_cache *cache, const struct kmem_cache *leader)
{
	while (cache && cache != leader)
		cache = cache->tuned_with;
	return cache != NULL;
}

/* With the registry locked: min_partial and the share of looks at other nodes are its leader's, or as options say. */
void km_cache_tune_looks(struct kmem_cache *cache);
/* Blocks hold so many objects from now on, or as many more as their memory has room for: at first, and where the cache
 * misses often. 0; -EINVAL: none; -ERANGE: more than blocks have room for; -EOPNOTSUPP: it has no shelf, or one of an
 * exact limit; -EAGAIN: not yet, because another thread changes its shelves. */
int km_cache_set_capacity(struct kmem_cache *cache, unsigned capacity);
/* kmem_cache_tune, of that cache alone. */
int km_cache_tune_locked(struct kmem_cache *cache, unsigned limit, unsigned batchcount, unsigned shared);
/* The same: whatever was written to it, it is tuned as its leader is now. */
void km_cache_tune_again(struct kmem_cache *cache);

/* ---- kmalloc.c */

bool km_kmalloc_start(void);
/* The same for requests with __GFP_ACCOUNT: called when a group comes, does something only the first time. */
bool km_kmalloc_start_charged(void);
/* Where the default engine serves kmalloc by size: the one cache of all its blocks. Else NULL. */
extern km_hidden struct kmem_cache *km_kmalloc_sized;
/* Blocks of a cache of kmalloc's, or of malloc's where that is here, are told the bytes that were asked for, from now
 * on or not any more; other caches are passed over. With the registry locked. */
void km_kmalloc_watch(struct kmem_cache *cache, bool observed);
bool km_kmalloc_is_observed(size_t size);	/* are blocks of that size? */
extern km_hidden void (*km_malloc_watch)(struct kmem_cache *cache, bool observed);	/* NULL: there is no malloc */
/* The cache that serves kmalloc of 0 < size <= KMALLOC_MAX_CACHE_SIZE. */
struct kmem_cache *km_kmalloc_cache(size_t size);
/* The same as gfp says: with __GFP_ACCOUNT another, once there is a group. */
struct kmem_cache *km_kmalloc_cache_by(size_t size, gfp_t gfp);
/* Up to n blocks at once where it is by size, as far as that is easy; returns how many there are. */
size_t km_kmalloc_take(size_t size, gfp_t gfp, size_t n, void **objects);
/* The cache in whose slab the object is; NULL: in none, or it is no object's start. */
struct kmem_cache *km_cache_of(const void *object);
/* kmalloc's by-size cache if p is a block of it, else NULL. */
struct kmem_cache *km_sized_owner(const void *p);
/* Free whatever p is, having missed; `function` is who the caller called. */
void km_free_any_miss(const void *p, const char *function);
/* The cache that the page map and the address alone vouch for; NULL: ask the descriptor. */
km_inline struct kmem_cache *km_quick_cache(const void *object)
{
	uintptr_t id = km_id_of(object);

	return km_id_valid(id, object) ? km_load(&km_hot.caches[id]) : NULL;
}
/* observed.c: the bytes that were asked for of an object; 0: what the cache says. */
size_t km_observed_bytes(const struct kmem_cache *cache, const void *p) km_cold;
/* The bytes that the user has of an object: those that rounding up adds as well, where nothing of the cache's is kept
 * there. */
km_inline size_t km_room_of(const struct kmem_cache *cache)
{
	return km_likely(cache->cleared && !(cache->flags & SLAB_TYPESAFE_BY_RCU)) ? cache->size : cache->object_size;
}
/* ... where a sanitizer may be told of them, or a canary lies behind them. */
km_inline size_t km_usable_of(const struct kmem_cache *cache, const void *p)
{
	if (km_unlikely(km_sanitizer.objects))
		return km_observed_bytes(cache, p) ?: cache->object_size;
	return km_unlikely(cache->canary) ? cache->canary : km_room_of(cache);
}
/* All that is known when the cache is made; whoever proves its objects later (km_alloc_prove) makes it 0. */
km_inline void km_settle_usable(struct kmem_cache *cache)
{
	const bool asked = cache->live_shift || cache->canary || km_sanitizer.objects;

	cache->usable = asked ? 0 : (uint32_t)km_room_of(cache);
}
size_t km_usable_size(const void *p, const char *function);

/* ---- random_classes.c: only with KMEM_OPTIONS=random_caches */

/* The cache that serves a call which returns to `site`, in the place of that of its size. */
struct kmem_cache *km_site_cache(struct kmem_cache *plain, uintptr_t site) km_cold;
/* The cache of its size, of one of kmalloc's or malloc's; another: itself. */
const struct kmem_cache *km_site_plain(const struct kmem_cache *cache);
/* Where the call that is under way returns to, noted by the first function that knows; 0: none did. */
extern km_hidden km_tls uintptr_t km_site_noted;
km_inline uintptr_t km_site_take(uintptr_t own)
{
	uintptr_t site = km_site_noted ?: own;

	km_site_noted = 0;
	return site;
}

/* ---- sized_free.c */

/* No realloc is a hit, and sizes that frees name are looked at: frees are proved, or some objects are looked at. */
extern km_hidden bool km_looks_closer;
/* A block was left longer than it need be, as there was no memory for a shorter one. Never false again: which one
 * it was is not known. */
extern km_hidden bool km_left_longer;
/* Somebody has the object, as far as is known: its cache's frees are proved, or it is debugged. */
bool km_is_out(const struct kmem_cache *cache, const void *p);
/* km_usable_of, of such a cache; 0: nobody has it, which was said. */
size_t km_bytes_if_out(const struct kmem_cache *cache, const void *p, const char *function) km_cold;
/* The same of a block of whole pages, of so many bytes, where such are debugged: what was asked for. */
size_t km_asked_if_out(const void *p, size_t bytes, const char *function) km_cold;

/* A free that names the bytes. */
struct km_sized {
	size_t size, align;		/* 0 < size */
	bool resized;			/* a call may have shrunk it where it is */
	const char *function;
	const void *caller;		/* return address of the call in the program */
	/* Where the caller is malloc: may the object, of `have` bytes, be what such a call got? */
	bool (*serves)(const struct kmem_cache *cache, size_t have, const struct km_sized *call);
};
/* May p have been asked for so? False: it may not, which was said. */
bool km_size_fits(const void *p, const struct km_sized *call) km_cold;

/* guarded_object.c: the bytes of a guarded object, and its cache. */
size_t km_guarded_bytes(const void *p, const char *function) km_cold;
struct kmem_cache *km_guarded_cache(const void *p) km_cold;

/* ---- large.c: page-sized and larger blocks */

/* Room for `bytes`, aligned to `align` (a power of two); zeroed where gfp says so. NULL: none; where a limit
 * refused it, request->gfp has __GFP_NOWARN from then on, for that goes unsaid. */
void *km_large_alloc_request(size_t bytes, size_t align, struct km_request *request);
km_inline void *km_large_alloc(size_t bytes, size_t align, gfp_t gfp)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);

	return km_large_alloc_request(bytes, align, &request);
}
/* The payer of the block that starts at p; 0: nobody, or there is none, or a handler asks that must not wait. */
uint64_t km_large_owner(const void *p);
/* The active group pays for it from now on; nobody did. False: it may not, or p is no such block. */
bool km_large_charge(const void *p, gfp_t gfp);
/* Nobody does again, and what was charged is paid back. */
void km_large_uncharge(const void *p) km_cold;
/* Some may fail on purpose: none lies ready, none grows where it is, each is asked for. */
extern km_hidden bool km_large_fails;
/* Usable bytes of the large block that starts at p; 0: there is none. */
size_t km_large_bytes(const void *p);
size_t km_large_try_bytes(const void *p);	/* with km_thread_busy set by others; SIZE_MAX: can't tell */
bool km_large_free(const void *p);
/* For large_cache.c: a block of whole pages, and back, which nobody pays for. With km_thread_busy set, and without a
 * tick. */
void *km_large_get(size_t bytes, const struct km_request *request);
void km_large_give(void *p);
/* The same from a signal handler that struck inside of the allocator: done by whoever comes next. False: p is no
 * block, as far as can be told then. */
bool km_large_defer(void *p);
void km_large_finish_deferred(void);	/* with km_thread_busy set */
/* Where a sanitizer is: the bytes that were asked for of the block of whole pages at p; NULL: it is none. */
size_t *km_large_asked(const void *p);
/* Resize in place (never moves, but for mappings of their own where gfp lets the system be called); NULL: can't. With
 * __GFP_ZERO what comes reads as zeros. *refused, false before: whoever pays for it was refused the growth, and would
 * pay for another block as well, so there is none: ENOMEM. */
void *km_large_resize(void *p, size_t bytes, gfp_t gfp, bool *refused);
/* There is room for such a block at whoever would pay for it, as it looks, without a reclaim. */
bool km_large_may_have(size_t bytes, gfp_t gfp);
/* A block for so many bytes that grows, of pages that nobody pays for, which may have been written; NULL: none. */
void *km_large_grown(size_t bytes);
/* Usable bytes of the block of pages that starts at p; 0: there is none, but perhaps a mapping. Takes no lock. */
size_t km_large_page_bytes(const void *p);
/* Blocks, and what realloc_run.c has for them, have so many pages more. */
void km_large_count(size_t pages);
void km_large_get_stats(size_t *blocks, size_t *bytes);
/* Where those of whole pages are counted, with what realloc_run.c has, and without the mappings of their own. */
void km_large_expose(const size_t **blocks, const size_t **bytes);

/* Blocks of whole pages that are debugged. bytes: the whole block's, of which it has more than were asked for. */
struct km_block_hooks {
	void (*comes)(void *p, size_t asked, size_t bytes);
	void (*shrinks)(void *p, size_t asked, size_t bytes);
	/* False: it is kept for now, or may not go. */
	bool (*goes)(void *p, size_t bytes);
	size_t (*asked)(const void *p, size_t bytes);
	/* Damages of all of them, told. */
	int (*check)(void);
};
/* NULL: none is. Set before the first one comes. */
extern km_hidden const struct km_block_hooks *km_block_hooks;
/* One that is to be kept: nobody pays for it from here on. Then it goes. */
void km_large_disown(void *p);
void km_large_let_go(void *p);

/* ---- observed.c: only where a sanitizer is in the process, or caches are debugged */

/* The hook of debugging (base/cc.h). */
struct km_debug_ops {
	/* The text of KMEM_DEBUG, once, before any cache is made. */
	void (*read)(const char *text);
	/* The same of KMEM_LEAKS: caches have tracks, and in the end they are printed. */
	void (*track)(void);
	int (*print_leaks)(int fd);
	/* Called before libc frees all its memory (__libc_freeres): later allocations are no leaks of the program. */
	void (*over)(void);
	/* The flags of a cache of that name, size and alignment that is made with these. */
	slab_flags_t (*flags)(const char *name, uint32_t size, uint32_t align, slab_flags_t flags);
	const struct km_hooks *hooks;
	/* Objects of the cache's siblings may all be back; of all caches'. With the registry locked. */
	void (*settle)(struct kmem_cache *cache);
	void (*settle_all)(void);
	/* Requests from outside (mailbox.h). letters: the flags; false: a letter stands for nothing. switch_flags: the
	 * cache is debugged by these, 0 or -errno, with the registry locked. has_tracks: print_now has something to
	 * print; with the registry locked. print_now: the leaks, without a lock while it writes. */
	bool (*letters)(const char *text, slab_flags_t *flags);
	int (*switch_flags)(struct kmem_cache *cache, slab_flags_t flags);
	bool (*has_tracks)(void);
	int (*print_now)(int fd);
	struct km_debug_stack *const *stacks;	/* by number, as marks beside objects have them */
};
extern km_hidden const struct km_debug_ops *km_debug_ops;

/* The hook of allocations that fail on purpose. */
struct km_failure_ops {
	/* The text of KMEM_FAILSLAB, once, before any cache is made. */
	void (*read)(const char *text);
	/* May those of a cache that is made with these flags fail? */
	bool (*may_fail)(const char *name, slab_flags_t flags);
	/* Does this one? */
	bool (*fails)(const char *name, size_t bytes, gfp_t gfp);
};
extern km_hidden const struct km_failure_ops *km_failure_ops;
/* The words are such as KMEM_FAILSLAB has them. False: *bad, of so many bytes, is one that is none. */
#define KM_FAILING_WORD 256u
bool km_failing_fits(const char *text, char *bad);

/* Its engine's lists, and what its watchers see of its objects: number of damages. Nobody else uses it. */
km_inline int km_cache_check(struct kmem_cache *cache)
{
	const struct km_hooks *hooks = km_load(&cache->hooks);
	int mended = hooks && cache->engine->mend ? cache->engine->mend(cache) : 0;
	int damages = cache->engine->check(cache);

	if (damages && km_is_debugged(cache))
		km_misuse_of(KM_MISUSE_OVERWRITTEN, "kmem_cache_validate", cache, cache->name, NULL,
			     cache->flags & SLAB_STORE_USER);
	return mended + damages + (hooks && hooks->check ? hooks->check(cache) : 0);
}

/* A cache that is about to be made: its flags, as far as they can be had. Its hooks; NULL: none. */
slab_flags_t km_observed_flags(const char *name, uint32_t size, slab_flags_t flags, const struct km_creation *creation);
const struct km_hooks *km_observed_hooks_of(const struct kmem_cache *cache);
/* The bytes that are asked for of an object count, of some cache by size at least. */
extern km_hidden bool km_observed_sizes;
/* The object, or block, was asked for with so many bytes: it has no more. Returns p, which may be NULL. */
void *km_observed_asked(void *p, size_t bytes) km_cold;
/* It has room for so many, more than it has: they are its user's from now on. False: not so. */
bool km_observed_grow(void *p, size_t bytes, gfp_t gfp) km_cold;

/* ---- trace_attach.c */

/* A tracer may have come, or gone: a look. With km_thread_busy set, and no lock but that of reclaim. */
void km_probes_look(void);

/* ---- reclaim.c */

void km_reclaim_start(void);
void km_reclaim_fork(bool before, bool child);
/*
 * A part of a round in which all caches give back what lies ready, as where nobody came by for long; behind the last
 * one free pages go to the system. Begins one where *its is none, or has another number. True: it is through. A part
 * visits a few caches only; where another thread is at it, or has the registry, it does nothing. With km_thread_busy
 * set. Nobody else looks into *its, which that other thread may have, too.
 */
struct km_reclaim_round {
	bool begun, through;
	uint32_t number;
	uint64_t until;			/* so many caches were visited (reclaim.c) */
};
bool km_reclaim_part(struct km_reclaim_round *its, uint32_t number);
/* The same of the caches of that name, at once, with the registry locked: 0, -ENOENT, or -EAGAIN where another thread
 * gives back just then: nothing was done. */
int km_reclaim_named(const char *name);
/* Reserved address space goes back, but for what fits a limit of so many bytes. Busy. */
void km_reclaim_fit(size_t limit);
/* A limit has changed: reserved address space and parked blocks beyond the limits go back. Busy. */
void km_reclaim_limited(void);
/* As kmem_cache_shrink, but slabs that stay keep all of their pages. */
void km_cache_send_home(struct kmem_cache *cache);

#endif
