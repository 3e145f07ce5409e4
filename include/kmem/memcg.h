/*
 * <kmem/memcg.h>: who pays. Groups of memory in a tree; what is allocated in a group's name counts against it and
 * against every group above it, and each may have limits.
 *
 * In order of need: 1 groups, 2 the payer, 3 limits, 4 events, 5 reclaim, 6 charges by hand, 7 numbers and texts,
 * 8 modes. Names and meanings are those of the kernel's memory cgroups (Documentation/admin-guide/cgroup-v2.rst,
 * Linux 7.x); where ours differ, "Kernel:" says how. All sizes are bytes. Compiles alone, as C11 and as C++17.
 *
 * Counted are bytes, not pages: of a cache's object its size in the slab and 8 bytes for its owner. A group's
 * `current` counts what is charged: objects alive, and what lies ready in per-CPU stocks, which is at most 8 KiB a CPU
 * in a group's byte stock, 64 pages a CPU in its page stock, and what lies charged on shelves, at most 64 KiB (256 KiB
 * of large blocks), or two objects, a CPU and cache; near a limit less. mem_cgroup_drain takes all of it back, and so
 * does a charge that may wait, before it is refused; one that may not (GFP_NOWAIT) may be refused by as much early. The
 * limit `max` is exact: `current` never rises above it, but by charges that insist (__GFP_NOFAIL, __GFP_HIGH,
 * GFP_ATOMIC).
 *
 * Contexts, unless a function says otherwise: any thread, both sides of fork(); not from a signal handler.
 * A group that is passed in must be referenced by the caller, who got it from mem_cgroup_create or mem_cgroup_get.
 *
 * A build of the library may have no groups. That library lacks the functions of this header, and the linker says so;
 * `pkg-config --variable=parts kmem` prints which parts are built (packaging/README.md).
 */
#ifndef KMEM_MEMCG_H
#define KMEM_MEMCG_H

#include <kmem/kmem.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mem_cgroup;

#define MEMCG_NO_LIMIT	UINT64_MAX	/* what max and high are at first; the texts say "max" */
#define MEMCG_NAME_MAX	64		/* bytes of a name with its NUL; longer ones are cut */
#define MEMCG_DEPTH_MAX	64		/* groups above each other, the root not counted */

/* ---------------------------------------------------------------- 1. Groups

	struct mem_cgroup *tenant = mem_cgroup_create(NULL, "tenant", 0);
	mem_cgroup_set_max(tenant, 64 << 20);
	{
		MEMCG_SCOPE(tenant);
		p = kmem_cache_alloc(points, GFP_KERNEL_ACCOUNT);	tenant pays
	}
	mem_cgroup_put(tenant);		what is still allocated is its parent's from now on
*/

/*
 * mem_cgroup_create - a group below `parent`; NULL: below the root. Where KMEM_OPTIONS, as `kmem run --limit` sets it,
 * made a group for the whole process, NULL and the root mean that one, here and for mem_cgroup_set_default, and who has
 * the root active charges it: a program can't leave its limit. Kernel: a cgroup namespace. The caller has a reference.
 * flags: 0, or MEM_CGROUP_PRIVATE: section 2a. Returns NULL with errno: ENOMEM; EINVAL (flags, no name, too deep);
 * ENOENT (the parent is offline).
 * Names need not differ; a slash or a control character in one becomes '_'.
 */
KMEM_API struct mem_cgroup *mem_cgroup_create(struct mem_cgroup *parent, const char *name, unsigned int flags);
/* mem_cgroup_root - the root, which is always there. It has no limits and counts nothing, and a thread that has it
 * active is not charged. */
KMEM_API struct mem_cgroup *mem_cgroup_root(void);
/* mem_cgroup_get - one more reference; returns its argument. NULL is passed through. */
KMEM_API struct mem_cgroup *mem_cgroup_get(struct mem_cgroup *group);
/*
 * mem_cgroup_put - one reference less; the last takes the group offline first, and then it is gone. A thread that still
 * has it active and charges it is told so, in one line (a misuse), until 256 other groups have gone since; a thread
 * that puts it again, until 64 have. Its parent pays for what is still allocated. NULL and the root do nothing.
 */
KMEM_API void mem_cgroup_put(struct mem_cgroup *group);
/*
 * mem_cgroup_offline - close a group: what is charged to it is its parent's from now on, at once and without a visit
 * to any object; so are the charges of threads that still have it active. It keeps its name and its events, its
 * `current` is 0. 0; -EBUSY: there are groups online below it (kernel: rmdir says the same), or it is the root;
 * -ENOENT: it is offline already.
 */
KMEM_API int mem_cgroup_offline(struct mem_cgroup *group);
/* mem_cgroup_online - true until the group is taken offline. */
KMEM_API bool mem_cgroup_online(const struct mem_cgroup *group);
/* mem_cgroup_name - the name: whole characters of UTF-8 within MEMCG_NAME_MAX - 1 bytes, '/' and control characters as
 * '_', other characters that are not printable as '?'. */
KMEM_API const char *mem_cgroup_name(const struct mem_cgroup *group);
/* mem_cgroup_parent - the group above, NULL for the root. No reference: valid as long as the caller's on `group`. */
KMEM_API struct mem_cgroup *mem_cgroup_parent(const struct mem_cgroup *group);

/* ---------------------------------------------------------------- 2. The payer */

/*
 * set_active_memcg - from now on `group` pays for this thread's accounted allocations; NULL: as if never called: the
 * process's default group pays, if there is one. Returns what was active before, to be set again: calls nest.
 * Accounted is what is asked for with __GFP_ACCOUNT (GFP_KERNEL_ACCOUNT), and each object of a cache with
 * SLAB_ACCOUNT; of kmalloc with plain GFP_KERNEL nobody is charged a byte, as in the kernel. MEMCG_SCOPE_ALL accounts
 * all of it; kmalloc_in and kmem_cache_alloc_in are one accounted call. No reference is taken (kernel: the same): the
 * caller's must outlast it. May be called in a signal handler, which must set back what it found; one that sets nothing
 * allocates in the name of the group that it finds, as in kmalloc_in's (kernel: interrupts have a payer of their own).
 * In the child of fork() the forking thread's stays.
 */
KMEM_API struct mem_cgroup *set_active_memcg(struct mem_cgroup *group);
/* mem_cgroup_active - the group that is active in this thread; NULL where nothing was set. */
KMEM_API struct mem_cgroup *mem_cgroup_active(void);
/* mem_cgroup_set_default - let `group` pay where a thread has set nothing; NULL: nobody, as at first. Takes a
 * reference, and gives the former one's back: no thread may be allocating in its name then. */
KMEM_API void mem_cgroup_set_default(struct mem_cgroup *group);

/* For MEMCG_SCOPE. */
static inline void kmem_memcg_scope_end(struct mem_cgroup **before)
{
	set_active_memcg(*before);
}
#define KMEM_MEMCG_JOIN_(a, b) a##b
#define KMEM_MEMCG_JOIN(a, b) KMEM_MEMCG_JOIN_(a, b)
/* The group is active from here to the end of the block, however that is left (not by longjmp). */
#define MEMCG_SCOPE(group)                                                                         \
	struct mem_cgroup *KMEM_MEMCG_JOIN(kmem_memcg_scope_, __LINE__)                            \
		__attribute__((cleanup(kmem_memcg_scope_end), unused)) = set_active_memcg(group)

/*
 * mem_cgroup_account_all - from now on whatever this thread allocates is accounted, as if each call had __GFP_ACCOUNT:
 * kmalloc, objects of any cache, pages, mappings, and malloc where that is the library's. Returns what was set before,
 * to be set again. A free pays back wherever it happens. Engine slob's objects are nobody's. The first call
 * with true has a price for the whole process, for ever: each allocation and free, of any thread, asks who pays, some
 * nanoseconds more; a program that never calls it pays nothing. In a visit of kmem_for_each_cache that first call
 * changes nothing. Not from a signal handler. Kernel: has no such scope.
 */
KMEM_API bool mem_cgroup_account_all(bool on);

/* For MEMCG_SCOPE_ALL. */
static inline void kmem_memcg_all_end(bool *before)
{
	mem_cgroup_account_all(*before);
}
/* MEMCG_SCOPE, and all of it is accounted. */
#define MEMCG_SCOPE_ALL(group)                                                                     \
	MEMCG_SCOPE(group);                                                                        \
	bool KMEM_MEMCG_JOIN(kmem_memcg_all_, __LINE__)                                            \
		__attribute__((cleanup(kmem_memcg_all_end), unused)) = mem_cgroup_account_all(true)

/*
 * mem_cgroup_account_malloc - from now on each block of malloc, calloc, realloc, the aligned ones and new is charged to
 * the group that its thread has active, or to the default group; false: not any more. A thread that has none gets
 * blocks that nobody pays for. It may be called at any time, whatever is allocated: a block that was allocated before
 * is never charged, nor is anybody paid back for it at its free; one that was charged is paid back when it is freed, by
 * any thread, and however this is set then. realloc: a block that moves is charged to the caller's group; one that
 * stays in place stays its payer's, who pays for its growth; and one of whole pages that nobody pays for and that grows
 * is the caller's from then on. At a limit malloc is NULL with ENOMEM, realloc leaves the block as it is, new throws
 * std::bad_alloc. Calls that are under way in other threads end as they began. kmalloc is not concerned: its gfp says.
 * KMEM_OPTIONS=account:malloc: from the start. While it is off nothing is slower; while it is on a pair takes some
 * nanoseconds more, of threads without a group too. Where KMEM_OPTIONS=account:1, or kmem run --limit, made a group for
 * the process malloc is charged anyhow, and nothing changes.
 *
 * 0, also where it was so before; -EOPNOTSUPP: malloc is not the library's in this program, or its engine is slob,
 * whose objects are nobody's; -EBUSY in a visit of kmem_for_each_cache. A private group's thread gets private blocks,
 * also those that libc allocates for itself: mem_cgroup_destroy_all frees them. Not from a signal handler. Kernel: has
 * none such.
 */
KMEM_API int mem_cgroup_account_malloc(bool on);

/*
 * kmalloc, kmem_cache_alloc in the name of a group, for one call: as with __GFP_ACCOUNT while the group is active, but
 * without the two switches. NULL with ENOMEM as those, and where the group may not have more. group NULL: the default.
 * Freed as ever. In signal handlers as those. Kernel: has none such.
 */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(2) void *kmalloc_in(struct mem_cgroup *group, size_t size, gfp_t gfp);
KMEM_API KMEM_OBJECT_LIKE void *kmem_cache_alloc_in(struct kmem_cache *cache, struct mem_cgroup *group, gfp_t gfp);

/* ---------------------------------------------------------------- 2a. Private groups

 * Of a group that is made with MEM_CGROUP_PRIVATE the objects lie in slabs of their own: no other tenant's beside them,
 * no word for each that says whose it is. For each cache that is used in its name it has a cache of its own, a
 * twin, made at the first use and shown as "cache:group" by all statistics; where another private group has that name,
 * as "cache:group~17", the 17th group that ever was; and where that is longer than 31 bytes with the end of the group's
 * name, "cache:oup~17". Its objects are freed as ever, by the cache or by kfree.
 * The group is charged by the slab, whole, for what lies in it and what is free in it; empty slabs and what lies on
 * shelves are taken back before it is refused, and by mem_cgroup_drain. All this holds for what is charged at all: with
 * __GFP_ACCOUNT, or from a cache with SLAB_ACCOUNT; kmalloc's larger blocks are charged by the page as everywhere. With
 * GFP_NOWAIT the first object of a cache can't be had: it makes the twin. Engine slob's objects are nobody's. Kernel:
 * has none such; until 5.9 each group had caches of its own.
 *
 * For whom: tenants that have a megabyte or more, that must share no page with another, or whose end must not take time
 * by objects. Its least price is that of the first object of each cache: for objects of 24, 60, 100, 180,
 * 250, 500, 1000 and 2000 bytes, 4 KiB in all, it is charged 100 KiB by engine sheaf, which fills a shelf at the first
 * miss (slab: 35, slub: 79), and 40 KiB of our own memory, which nobody is charged, hold the twins. Small tenants, and
 * thousands of them, are plain groups: there the same is charged 12 KiB, of which most lies in stocks.
 *
 * Once offline, a private group's charges, slabs included, are charges of the parent, and new objects are
 * ordinary objects of the parent. The next private group may take over an empty twin. A twin of a cache with
 * SLAB_TYPESAFE_BY_RCU is empty a grace period later. Without kmem_set_rcu such a twin keeps its slabs, charged to the
 * parent, until the cache is destroyed: call mem_cgroup_destroy_all first, to free the slabs.
 */
#define MEM_CGROUP_PRIVATE	1u

/*
 * mem_cgroup_destroy_all - free everything that was allocated in the name of a private group, at once: in time that
 * goes by its slabs and blocks, not by its objects, and by the blocks above 4 MiB of the whole process, whose table it
 * looks through, with the registry of caches locked. Then its twins are gone, or empty where another group had them
 * before; after mem_cgroup_drain its `current` is what groups below and charges by hand and by kmem_cache_charge make,
 * and it can be used again. dtor, if not NULL, is called for each object before, with no lock held, and that takes time
 * by objects: with the cache that the object was asked of; NULL: for a large block. It must not allocate in the
 * group's name, nor free what is the group's, nor destroy caches. Meanwhile nobody else may use the group's objects, be
 * in a call that frees one, or allocate in its name. Afterwards a pointer to one is like one to an object of a cache
 * that was destroyed: to free it is a misuse that is found as long as its memory is not used again. 0; -EINVAL: the
 * group is not private.
 */
typedef void (*mem_cgroup_dtor)(struct kmem_cache *cache, void *object, void *arg);
KMEM_API int mem_cgroup_destroy_all(struct mem_cgroup *group, mem_cgroup_dtor dtor, void *arg);

/* ---------------------------------------------------------------- 3. Limits

 * max: nobody gets beyond; who would is refused after stocks were drained and reclaim did what it could. high: above
 * it a charge succeeds, reclaims, and is slowed down; for one with GFP_NOWAIT the thread's next is, to whatever group,
 * that may wait and no stock serves (kernel: the thread, on its return to user mode). low, min: as long as a group has
 * no more than that, reclaim that begins above it leaves it alone; low gives way where nothing else is left, min never.
 * Protection is limited by what the groups above have; where the groups of one parent claim more than it has, each
 * gets its share.
 *
 * set: 0; -EINVAL for the root; -ENOENT where the group is offline, or gone. A max below `current` is in force at once,
 * and reclaims what it can before it returns, but in a callback, where only what lies unused is drained; high with the
 * next charge.
 */
KMEM_API int mem_cgroup_set_max(struct mem_cgroup *group, uint64_t bytes);
KMEM_API int mem_cgroup_set_high(struct mem_cgroup *group, uint64_t bytes);
KMEM_API int mem_cgroup_set_low(struct mem_cgroup *group, uint64_t bytes);
KMEM_API int mem_cgroup_set_min(struct mem_cgroup *group, uint64_t bytes);
/* The values in force; of the root MEMCG_NO_LIMIT for max and high, else 0. */
KMEM_API uint64_t mem_cgroup_max(const struct mem_cgroup *group);
KMEM_API uint64_t mem_cgroup_high(const struct mem_cgroup *group);
KMEM_API uint64_t mem_cgroup_low(const struct mem_cgroup *group);
KMEM_API uint64_t mem_cgroup_min(const struct mem_cgroup *group);
/* Charged now, with all below; the most that it ever was; and begin again with that. Both with what lay in stocks and
 * on shelves then (the bounds stand above): a peak may be above all that was ever alive by as much, never above max but
 * where current was. */
KMEM_API uint64_t mem_cgroup_current(const struct mem_cgroup *group);
KMEM_API uint64_t mem_cgroup_peak(const struct mem_cgroup *group);
KMEM_API void mem_cgroup_reset_peak(struct mem_cgroup *group);
/* How often this group's max refused a charge, each further try counted again, also where draining the stocks, or
 * asking for less than a batch, then helped (kernel: v1's failcnt). MEMCG_MAX says how often that did not help. */
KMEM_API uint64_t mem_cgroup_failcnt(const struct mem_cgroup *group);

/*
 * mem_cgroup_high_delay - the kernel's curve: milliseconds that a charge of `bytes` waits where `current` is above
 * `high`: the square of the excess, in parts of high, a full 2 seconds from about 18 percent on. A pure function.
 * A delay of 10 or less is not waited. Example: 110 MiB of 100, 64 pages: 639.
 */
KMEM_API unsigned int mem_cgroup_high_delay(uint64_t current, uint64_t high, uint64_t bytes);
/*
 * mem_cgroup_set_high_callback - call this instead of sleeping; NULL: sleep. `over` bytes more than high, and what the
 * curve says. It runs in the thread that charged, with no lock held; it may allocate and free. The former one may still
 * be running in other threads when this returns.
 */
typedef void (*mem_cgroup_high_callback)(struct mem_cgroup *group, uint64_t over, unsigned int delay_ms, void *arg);
KMEM_API void mem_cgroup_set_high_callback(struct mem_cgroup *group, mem_cgroup_high_callback callback, void *arg);

/* ---------------------------------------------------------------- 4. Events */

/*
 * The keys of the kernel's memory.events, in their order. Counters of a charge that meets a max:
 *	failcnt		each try that found no room
 *	MEMCG_MAX	each time that draining stocks and shelves did not help, or that the charge may not wait: once
 *			before each reclaim (kernel: before it drains)
 *	MEMCG_OOM	each time that reclaim then freed nothing; not for a charge with __GFP_NORETRY or
 *			__GFP_RETRY_MAYFAIL, one that comes from a callback, or one that may not wait
 * So oom <= max <= failcnt. A charge that succeeds in the end may have counted in all three.
 */
enum memcg_memory_event {
	MEMCG_LOW,		/* reclaimed although below its low */
	MEMCG_HIGH,		/* reclaimed and slowed down because above high */
	MEMCG_MAX,		/* a charge met max */
	MEMCG_OOM,		/* reclaim did not help: the out-of-memory callback is asked, or the charge fails */
	MEMCG_OOM_KILL,		/* the callback said that it made room */
	MEMCG_OOM_GROUP_KILL,	/* never */
	MEMCG_NR_MEMORY_EVENTS
};

/* mem_cgroup_events - how often an event happened in the group and in all below it; 0 for the root. */
KMEM_API uint64_t mem_cgroup_events(const struct mem_cgroup *group, enum memcg_memory_event event);
/* mem_cgroup_events_local - how often it happened in the group alone. */
KMEM_API uint64_t mem_cgroup_events_local(const struct mem_cgroup *group, enum memcg_memory_event event);
/*
 * mem_cgroup_eventfd - a descriptor that becomes readable when an event of `mask` (1 << MEMCG_HIGH | ...) is counted
 * for the group or below it: an eventfd(2), whose value is the number of times. One for a group: another call gives
 * the same and adds to the mask. It belongs to the group, which closes it in the end. -1 with errno: as eventfd(2);
 * EINVAL for an empty mask or the root. An event of a charge that may not call the system (GFP_NOWAIT) is told with
 * the next that may. In the child of fork() it is closed, for what happens there is not the parent's: who wants one
 * there asks again.
 */
KMEM_API int mem_cgroup_eventfd(struct mem_cgroup *group, unsigned int mask);

/* ---------------------------------------------------------------- 5. Reclaim */

/*
 * mem_cgroup_add_shrinker - call this when memory of the group, or of one above it, is wanted back. It frees what it
 * can of about `bytes`, and returns how much that was; 0: nothing. Those of a lower `priority` are asked first, equal
 * ones in the order in which they came; each at most twice in one reclaim. A charge that it makes itself does not
 * reclaim. Context: the thread that needs memory, any one, inside of its allocation, and several at once where several
 * need some. The library holds no lock, but the caller of that allocation may: a shrinker that waits for a lock
 * under which anybody allocates in the name of the group waits for its own thread. It should try such a lock, and
 * return 0 where that is held (kernel: the same, SHRINK_STOP).
 * A thread that is given nothing while another one is in it waits for that one, a second at most.
 * NULL with errno: ENOMEM; ENOENT: the group is offline; EINVAL: the root, or no callback. Kernel: shrinkers are global
 * and see a group as an argument; `priority` is there how far a reclaim has got.
 */
typedef uint64_t (*mem_cgroup_shrink_callback)(struct mem_cgroup *group, uint64_t bytes, void *arg);
struct mem_cgroup_shrinker;
KMEM_API struct mem_cgroup_shrinker *mem_cgroup_add_shrinker(struct mem_cgroup *group, int priority,
							      mem_cgroup_shrink_callback shrink, void *arg);
/*
 * No call of it is running or will be when this returns. So a call from a shrinker, which would wait for itself, is a
 * misuse: one line, and by default the end of the process; else the shrinker stays. NULL does nothing. A group that
 * goes offline keeps its shrinkers, unasked: remove them before its last reference is put.
 */
KMEM_API void mem_cgroup_remove_shrinker(struct mem_cgroup_shrinker *shrinker);
/*
 * mem_cgroup_set_oom_callback - ask this when a charge is about to be refused by the group's max, or by that of one
 * below that has none of its own: true: there is room now, try again (16 times at most); false: refuse. NULL: refuse.
 * Context as of a shrinker; the former one may still be running when this returns.
 */
typedef bool (*mem_cgroup_oom_callback)(struct mem_cgroup *group, uint64_t bytes, void *arg);
KMEM_API void mem_cgroup_set_oom_callback(struct mem_cgroup *group, mem_cgroup_oom_callback callback, void *arg);
/* Reclaim about `bytes` from the group and those below (kernel: memory.reclaim). Returns the bytes that were freed, by
 * the shrinkers' word. */
KMEM_API uint64_t mem_cgroup_reclaim(struct mem_cgroup *group, uint64_t bytes);
/*
 * mem_cgroup_drain - take back what lies charged and unused, of the group and all below, on every CPU: then `current`
 * is the sum over what is alive, to the byte. Returns the bytes that came back out of stocks. Kernel: drain_all_stock.
 * While others allocate and free, a drain misses at most one shelf (64 or 256 KiB, or two objects), or one slab
 * of a private group, for each thread that is in the middle of filling or emptying one, also one that lost its CPU
 * there. An allocation that is refused drains three times because of that. Bytes on their way between stocks and
 * counters are not missed, because they are moved under the CPU's lock.
 */
KMEM_API uint64_t mem_cgroup_drain(struct mem_cgroup *group);

/* ---------------------------------------------------------------- 6. Charges by pointer, and by hand

 * Objects of caches with SLAB_ACCOUNT and what is allocated with __GFP_ACCOUNT pay by themselves.
 */

/*
 * mem_cgroup_from_obj - who pays for what lies at `object`, now: an object of a cache, or a large block; with a
 * reference, which the caller puts. NULL: nobody, or it is none of ours. Kernel: mem_cgroup_from_slab_obj, which takes
 * no reference.
 */
KMEM_API struct mem_cgroup *mem_cgroup_from_obj(const void *object);
/*
 * kmem_cache_charge - let the group that is active now pay for an object, or a large block, that was allocated without.
 * True: it does, or somebody does already, or there is no group active; false: it may not, or the object's slab can't
 * note it down, or it is none of ours, or engine slob's, or a large block and the group is private. From the first time
 * on, or the first object with __GFP_ACCOUNT, each call of a cache without SLAB_ACCOUNT asks who pays, which costs some
 * cycles: of kmalloc's as well, where __GFP_ACCOUNT alone would take from another cache. Kernel: of those it says true,
 * and charges nothing.
 */
KMEM_API bool kmem_cache_charge(void *object, gfp_t gfp);

/*
 * For memory that is not ours: mapped, read, another library's. charge: 0, or -ENOMEM, after all that gfp allows was
 * tried: with GFP_KERNEL stocks are drained and shrinkers called; with GFP_NOWAIT it fails at once, without a system
 * call; so do 2^48 bytes and more. The root is not charged. Uncharge exactly what was charged, to the same group, which
 * may be offline by then; it never fails; more than was charged is a misuse, which is seen when the bytes leave the
 * stocks. Kernel: obj_cgroup_charge, obj_cgroup_uncharge. May be called in a signal handler: where that struck inside
 * of the allocator it is as with GFP_NOWAIT.
 */
KMEM_API int mem_cgroup_charge(struct mem_cgroup *group, gfp_t gfp, uint64_t bytes);
KMEM_API void mem_cgroup_uncharge(struct mem_cgroup *group, uint64_t bytes);
/* mem_cgroup_margin - bytes that could be charged now before some max refuses; MEMCG_NO_LIMIT where there is none. */
KMEM_API uint64_t mem_cgroup_margin(const struct mem_cgroup *group);

/* ---------------------------------------------------------------- 7. Numbers and texts */

/* Visit the group and all online ones below it, a parent before its children, with no lock held; `visit` may do all
 * but keep the group without mem_cgroup_get. Ends early when it returns other than 0, and returns that. NULL: all. */
KMEM_API int mem_cgroup_walk(struct mem_cgroup *group, int (*visit)(struct mem_cgroup *group, unsigned int depth,
								     void *arg), void *arg);
/*
 * mem_cgroup_walk_caches - visit each cache that the group has objects of: its name, how many, and what is charged
 * for them; a private group's own caches with their slabs whole. Without large blocks, and without the groups below.
 * Shelves are emptied, and all slabs of the process are walked, once for 32 caches: exact where nobody
 * allocates meanwhile, and slow: it takes time by all objects of charged caches, whosever they are, about 8 ms for a
 * million (1 ms where they are private groups'), holds the registry, and stops all CPUs for two fences. Nothing is
 * counted by cache while running, so that a charge need not. Ends early as mem_cgroup_walk does. No lock is held in a
 * visit.
 */
typedef int (*mem_cgroup_visit_cache)(const char *cache, size_t objects, uint64_t bytes, void *arg);
KMEM_API int mem_cgroup_walk_caches(struct mem_cgroup *group, mem_cgroup_visit_cache visit, void *arg);

/*
 * The texts of the cgroup files with these names, as the kernel writes them, where it has them: its keys in its
 * order, then ours. Like snprintf: at most `bytes` with the NUL, and returns the length of it all. stat: `kernel` is
 * what is charged, `slab` and `slab_unreclaimable` what mem_cgroup_walk_caches finds, groups below included, as
 * slowly, so for each of many groups ask for current and events, which take a microsecond; ours: `stock`, of that in
 * stocks of the group itself; `dying`: gone groups of which something is out, charged here. Of the root `kernel` is 0,
 * and the slabs are all that is, or was, charged to anybody below.
 */
KMEM_API size_t mem_cgroup_write_current(const struct mem_cgroup *group, char *text, size_t bytes);
KMEM_API size_t mem_cgroup_write_stat(const struct mem_cgroup *group, char *text, size_t bytes);
KMEM_API size_t mem_cgroup_write_events(const struct mem_cgroup *group, char *text, size_t bytes);
KMEM_API size_t mem_cgroup_write_events_local(const struct mem_cgroup *group, char *text, size_t bytes);

/* ---------------------------------------------------------------- 8. Modes */

enum mem_cgroup_mode {
	MEM_CGROUP_V1,		/* hierarchy v1: a second counter, hit at every charge of pages; else v2 */
	MEM_CGROUP_DRAIN,	/* a stock that passes a page is flushed, as before Linux 5.14; else it is kept */
	MEM_CGROUP_SHELF,	/* charged objects may lie ready on shelves; else each is charged through a stock */
	MEM_CGROUP_NR_MODES
};
/* For comparison, by default v2, keep, shelf (KMEM_OPTIONS=memcg_hierarchy, memcg_refill, memcg_shelf). 0; -EINVAL;
 * -EBUSY: MEM_CGROUP_V1 and there are groups. */
KMEM_API int mem_cgroup_set_mode(enum mem_cgroup_mode mode, bool on);
KMEM_API bool mem_cgroup_mode(enum mem_cgroup_mode mode);
/* v1's second counter: what is charged at the level of pages, stocks of bytes included; 0 under v2. */
KMEM_API uint64_t mem_cgroup_kmem(const struct mem_cgroup *group);
/* Atomic operations that this thread made on lines that others share, for charges, since it began. */
KMEM_API uint64_t mem_cgroup_atomics(void);

#ifdef __cplusplus
}
#endif

#endif
