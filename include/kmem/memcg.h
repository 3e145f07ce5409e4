/*
 * <kmem/memcg.h>: memory groups, after the kernel's memory cgroups. Groups form a tree. An allocation for a group is
 * charged to the group and to every group above it. Each group may have limits.
 *
 * Sections, in order of need: 1 groups, 2 the active group, 3 limits, 4 events, 5 reclaim, 6 charges by hand, 7
 * numbers and texts, 8 modes. Names and meanings are those of the kernel's memory cgroups
 * (Documentation/admin-guide/cgroup-v2.rst, Linux 7.x). A sentence that begins with "Kernel:" states a difference.
 * All sizes are bytes. The header compiles alone, as C11 and as C++17.
 *
 * Groups count bytes, not pages: for an object of a cache its size in the slab, and 8 bytes for its objcg pointer. A
 * group's `current` is the number of charged bytes: allocated objects, and charges cached in per-CPU stocks and
 * sheaves. On each CPU the cached charges are at most 8 KiB in a group's byte stock, 64 pages in its page stock, and
 * for each cache 64 KiB (256 KiB of large blocks), or two objects, in sheaves. Near a limit the bounds are lower.
 * mem_cgroup_drain releases all cached charges. A charge that may wait does the same before it is refused. A charge
 * that may not wait (GFP_NOWAIT) may therefore be refused early, by the size of the cached charges.
 * The limit `max` is exact: only charges that must not fail (__GFP_NOFAIL, __GFP_HIGH, GFP_ATOMIC) raise `current`
 * above max.
 *
 * Contexts, unless a function states otherwise: any thread, both sides of fork(); not from a signal handler. The
 * caller must hold a reference to every group that it passes, from mem_cgroup_create or mem_cgroup_get.
 *
 * A build of the library may lack groups. Such a library has none of the functions of this header, and the linker
 * reports them as undefined. `pkg-config --variable=parts kmem` prints the built parts (packaging/README.md).
 */
#ifndef KMEM_MEMCG_H
#define KMEM_MEMCG_H

#include <kmem/kmem.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mem_cgroup;

#define MEMCG_NO_LIMIT	UINT64_MAX	/* default of max and high; the texts print "max" */
#define MEMCG_NAME_MAX	64		/* bytes of a name with its NUL; longer names are cut */
#define MEMCG_DEPTH_MAX	64		/* depth of a group in the tree, without the root */

/* ---------------------------------------------------------------- 1. Groups

	struct mem_cgroup *tenant = mem_cgroup_create(NULL, "tenant", 0);
	mem_cgroup_set_max(tenant, 64 << 20);
	{
		MEMCG_SCOPE(tenant);
		p = kmem_cache_alloc(points, GFP_KERNEL_ACCOUNT);	charged to tenant
	}
	mem_cgroup_put(tenant);		remaining objects are charged to the parent
*/

/*
 * mem_cgroup_create - create a group below `parent`; NULL: below the root.
 * KMEM_OPTIONS, as `kmem run --limit` sets it, may create a group for the whole process. Then NULL and the root stand
 * for the process's group, here and in mem_cgroup_set_default. A thread with the root active charges the process's
 * group: a program can't leave its limit. Kernel: a cgroup namespace.
 * flags: 0, or MEM_CGROUP_PRIVATE (section 2a). Names may be equal. A slash or a control character in a name becomes
 * '_'.
 * Returns: the group, with a reference for the caller, or NULL with errno: ENOMEM; EINVAL (flags, no name, too deep);
 * ENOENT (the parent is offline).
 */
KMEM_API struct mem_cgroup *mem_cgroup_create(struct mem_cgroup *parent, const char *name, unsigned int flags);
/*
 * mem_cgroup_root - the root, which always exists. The root has no limits and counts nothing. A thread with the root
 * active is not charged.
 */
KMEM_API struct mem_cgroup *mem_cgroup_root(void);
/* mem_cgroup_get - take a reference. Returns: the argument; NULL is allowed. */
KMEM_API struct mem_cgroup *mem_cgroup_get(struct mem_cgroup *group);
/*
 * mem_cgroup_put - drop a reference. The last put takes the group offline and destroys the group; the parent is
 * charged for remaining allocations. A thread with the group still active, charging the group, gets one line (a
 * misuse), until 256 other groups have been destroyed. A second put of the group gets the line until 64 have. NULL
 * and the root do nothing.
 */
KMEM_API void mem_cgroup_put(struct mem_cgroup *group);
/*
 * mem_cgroup_offline - take a group offline: its charges become charges of the parent, at once and without a visit to
 * any object. Later charges of threads with the group active go to the parent, too. The group keeps its name and its
 * events; its `current` is 0.
 * Returns: 0; -EBUSY: groups below are online (kernel: the same for rmdir), or the group is the root; -ENOENT: the
 * group is offline already.
 */
KMEM_API int mem_cgroup_offline(struct mem_cgroup *group);
/* mem_cgroup_online - true until the group is taken offline. */
KMEM_API bool mem_cgroup_online(const struct mem_cgroup *group);
/*
 * mem_cgroup_name - the name: whole characters of UTF-8 within MEMCG_NAME_MAX - 1 bytes. '/' and control characters
 * appear as '_', other characters that are not printable as '?'.
 */
KMEM_API const char *mem_cgroup_name(const struct mem_cgroup *group);
/*
 * mem_cgroup_parent - the group above, NULL for the root. The call takes no reference: the result is valid as long as
 * the caller's reference to `group`.
 */
KMEM_API struct mem_cgroup *mem_cgroup_parent(const struct mem_cgroup *group);

/* ---------------------------------------------------------------- 2. The active group */

/*
 * set_active_memcg - set the group that this thread's accounted allocations are charged to. NULL: as before the first
 * call; then the process's default group is charged, if there is one.
 * Returns: the group that was active before. The caller must restore the former group at the end of the scope: calls
 * nest. Accounted are requests with __GFP_ACCOUNT (GFP_KERNEL_ACCOUNT), and all objects of a cache with SLAB_ACCOUNT.
 * A kmalloc with plain GFP_KERNEL is not charged, as in the kernel. MEMCG_SCOPE_ALL accounts all allocations;
 * kmalloc_in and kmem_cache_alloc_in are one accounted call. The call takes no reference (kernel: the same): the
 * caller's reference must outlast the scope. Context: also a signal handler, which must restore the previous group. A
 * handler that sets no group charges the group of the interrupted thread, also the one of a kmalloc_in (kernel:
 * interrupts have an active group of their own). In the child of fork() the forking thread's group stays active.
 */
KMEM_API struct mem_cgroup *set_active_memcg(struct mem_cgroup *group);
/* mem_cgroup_active - the active group of this thread; NULL if none is set. */
KMEM_API struct mem_cgroup *mem_cgroup_active(void);
/*
 * mem_cgroup_set_default - set the group that threads without an active group are charged to; NULL, the default:
 * none. The call takes a reference, and drops the reference to the former default group. No thread may be allocating
 * for the former default group at the time.
 */
KMEM_API void mem_cgroup_set_default(struct mem_cgroup *group);

/* For MEMCG_SCOPE. */
static inline void kmem_memcg_scope_end(struct mem_cgroup **before)
{
	set_active_memcg(*before);
}
#define KMEM_MEMCG_JOIN_(a, b) a##b
#define KMEM_MEMCG_JOIN(a, b) KMEM_MEMCG_JOIN_(a, b)
/* The group is active from here to the end of the block, however the block ends (except by longjmp). */
#define MEMCG_SCOPE(group)                                                                         \
	struct mem_cgroup *KMEM_MEMCG_JOIN(kmem_memcg_scope_, __LINE__)                            \
		__attribute__((cleanup(kmem_memcg_scope_end), unused)) = set_active_memcg(group)

/*
 * mem_cgroup_account_all - account all allocations of this thread, as if each call had __GFP_ACCOUNT: kmalloc,
 * objects of any cache, pages, mappings, and malloc if libkmem is the malloc of the process.
 * Returns: the former setting, to be restored by the caller.
 * A free by any thread is refunded. Objects of engine slob stay uncharged. The first call with true slows each later
 * allocation and free of any thread by some nanoseconds, for the life of the process, because each checks the objcg.
 * A program without a call has no such cost. In a visit of kmem_for_each_cache the first call changes nothing.
 * Context: not from a signal handler. Kernel: has no such scope.
 */
KMEM_API bool mem_cgroup_account_all(bool on);

/* For MEMCG_SCOPE_ALL. */
static inline void kmem_memcg_all_end(bool *before)
{
	mem_cgroup_account_all(*before);
}
/* MEMCG_SCOPE with mem_cgroup_account_all(true). */
#define MEMCG_SCOPE_ALL(group)                                                                     \
	MEMCG_SCOPE(group);                                                                        \
	bool KMEM_MEMCG_JOIN(kmem_memcg_all_, __LINE__)                                            \
		__attribute__((cleanup(kmem_memcg_all_end), unused)) = mem_cgroup_account_all(true)

/*
 * mem_cgroup_account_malloc - charge each block of malloc, calloc, realloc, the aligned functions and new to the
 * active group of its thread, or to the default group; false: stop charging. Without either group a block stays
 * uncharged.
 * The function may be called at any time. A block allocated before is never charged, and its free refunds nothing. A
 * charged block is refunded when any thread frees it, whatever the setting then. A realloc that moves a block charges
 * the caller's group. A block that stays in place stays charged to its group, with the growth. An uncharged block of
 * whole pages that grows is charged to the caller's group. Calls under way in other threads end as they began.
 * At a limit malloc returns NULL with ENOMEM, realloc keeps the old block, and new throws std::bad_alloc. kmalloc is
 * not affected: the gfp decides. KMEM_OPTIONS=account:malloc enables the charges from the start. While off, the
 * function costs nothing; while on, a pair of malloc and free takes some nanoseconds more, in threads without a group
 * too. If KMEM_OPTIONS=account:1, or kmem run --limit, created a group for the process, malloc is always charged, and
 * the call changes nothing. With a private group active a thread gets private blocks, including the blocks that libc
 * allocates for itself: mem_cgroup_destroy_all frees them.
 * Returns: 0, also if nothing changed; -EOPNOTSUPP: malloc is not the library's in this program, or its engine is
 * slob, whose objects are uncharged; -EBUSY in a visit of kmem_for_each_cache.
 * Context: not from a signal handler. Kernel: has no such function.
 */
KMEM_API int mem_cgroup_account_malloc(bool on);

/*
 * kmalloc_in, kmem_cache_alloc_in - allocate for a group, in one call. The effect is that of __GFP_ACCOUNT with the
 * group active, without the two calls of set_active_memcg. group NULL: the default group. Memory is freed as usual.
 * Returns: as kmalloc and kmem_cache_alloc; NULL with ENOMEM also at the group's limit.
 * Context: as kmalloc and kmem_cache_alloc, also in signal handlers. Kernel: has no such functions.
 */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(2) void *kmalloc_in(struct mem_cgroup *group, size_t size, gfp_t gfp);
KMEM_API KMEM_OBJECT_LIKE void *kmem_cache_alloc_in(struct kmem_cache *cache, struct mem_cgroup *group, gfp_t gfp);

/* ---------------------------------------------------------------- 2a. Private groups

 * Objects of a group with MEM_CGROUP_PRIVATE are in slabs of their own, without objects of other groups, and without
 * an objcg pointer for each object. For each cache used, the group has a child cache, created at the first use. All
 * statistics show the child cache as "cache:group". If another private group has the same name, the name is
 * "cache:group~17", for the 17th group of the process. A name above 31 bytes has the end of the group's name only:
 * "cache:oup~17". Objects are freed as usual, by the cache or by kfree. The group is charged for whole slabs, with
 * their free objects. Empty slabs and objects cached in sheaves are released before a charge is refused, and by
 * mem_cgroup_drain. These rules apply to accounted allocations: with __GFP_ACCOUNT, or from a cache with
 * SLAB_ACCOUNT. kmalloc's larger blocks are charged by the page, as for every group. With GFP_NOWAIT the first object
 * of a cache fails, because the child cache must be created. Objects of engine slob are uncharged. Kernel: none;
 * until 5.9 each group had child caches.
 *
 * Private groups are for tenants with a megabyte or more, for tenants that must share no page with another, and for
 * tenants whose end must not take time by objects. The least cost is the first object of each cache. For objects of
 * 24, 60, 100, 180, 250, 500, 1000 and 2000 bytes, 4 KiB in all, engine sheaf charges 100 KiB, because the first miss
 * fills a sheaf (slab: 35 KiB, slub: 79 KiB). The child caches occupy 40 KiB of metadata, which stay uncharged. Small
 * tenants, and thousands of tenants, should be plain groups. A plain group is charged 12 KiB for the same objects,
 * mostly cached in stocks.
 *
 * Once offline, a private group's charges, slabs included, are charges of the parent, and new objects are ordinary
 * objects of the parent. The next private group may take over an empty child cache. A child cache with
 * SLAB_TYPESAFE_BY_RCU is empty a grace period later. Without kmem_set_rcu such a child cache keeps its slabs,
 * charged to the parent, until the cache is destroyed: call mem_cgroup_destroy_all first, to free the slabs.
 */
#define MEM_CGROUP_PRIVATE	1u

/*
 * mem_cgroup_destroy_all - free all allocations of a private group at once. The time depends on the group's slabs and
 * blocks, not on its objects, and on the number of blocks above 4 MiB in the whole process, because the call scans
 * the table of these blocks. The registry of caches is locked meanwhile.
 * Afterwards the child caches are gone, or empty if another group used them before. After mem_cgroup_drain `current`
 * holds only the charges of groups below, charges by hand, and charges of kmem_cache_charge. The group may be used
 * again.
 * dtor, unless NULL, is called first for each object, with no lock held; then the time depends on the objects, too.
 * The argument is the cache named in the allocation, or NULL for a large block. dtor must not allocate for the group,
 * free an object of the group, or destroy caches.
 * Requires: no other thread uses the group's objects, is in a call that frees one, or allocates for the group.
 * Afterwards a pointer to an object is like a pointer into a destroyed cache: a free is a misuse, detected until the
 * memory is reused.
 * Returns: 0; -EINVAL: the group is not private.
 */
typedef void (*mem_cgroup_dtor)(struct kmem_cache *cache, void *object, void *arg);
KMEM_API int mem_cgroup_destroy_all(struct mem_cgroup *group, mem_cgroup_dtor dtor, void *arg);

/* ---------------------------------------------------------------- 3. Limits

 * max: hard limit. A charge beyond max drains the stocks, runs reclaim, and fails if the group is still above max.
 * high: a charge above high succeeds, reclaims, and is delayed. After a charge with GFP_NOWAIT, the thread's next
 * charge is delayed, for any group, if that charge may wait and no stock serves it (kernel: the thread is delayed on
 * its return to user mode). low, min: protection. Reclaim that begins above a group skips the group while the group's
 * `current` is at most the bound. low is ignored if nothing else is left to reclaim, min never. The protection of the
 * groups above bounds the protection of a group. If the groups of one parent claim more than the parent has, each
 * group gets a share.
 *
 * A new max below `current` applies at once. The call reclaims before it returns; in a callback the call only drains
 * unused charges. A new high applies from the next charge on.
 * Returns, for each set function: 0; -EINVAL for the root; -ENOENT if the group is offline, or destroyed.
 */
KMEM_API int mem_cgroup_set_max(struct mem_cgroup *group, uint64_t bytes);
KMEM_API int mem_cgroup_set_high(struct mem_cgroup *group, uint64_t bytes);
KMEM_API int mem_cgroup_set_low(struct mem_cgroup *group, uint64_t bytes);
KMEM_API int mem_cgroup_set_min(struct mem_cgroup *group, uint64_t bytes);
/* The limits in force, in bytes; for the root MEMCG_NO_LIMIT for max and high, else 0. */
KMEM_API uint64_t mem_cgroup_max(const struct mem_cgroup *group);
KMEM_API uint64_t mem_cgroup_high(const struct mem_cgroup *group);
KMEM_API uint64_t mem_cgroup_low(const struct mem_cgroup *group);
KMEM_API uint64_t mem_cgroup_min(const struct mem_cgroup *group);
/*
 * mem_cgroup_current - the bytes charged now, with all groups below. mem_cgroup_peak - the greatest `current` since
 * the start or the last mem_cgroup_reset_peak. Both include charges cached in stocks and sheaves (the bounds stand
 * above). A peak may exceed the greatest sum of allocated bytes, by at most these charges. A peak exceeds max only
 * if `current` did.
 */
KMEM_API uint64_t mem_cgroup_current(const struct mem_cgroup *group);
KMEM_API uint64_t mem_cgroup_peak(const struct mem_cgroup *group);
KMEM_API void mem_cgroup_reset_peak(struct mem_cgroup *group);
/*
 * mem_cgroup_failcnt - how often this group's max refused a charge (kernel: v1's failcnt). Every retry counts, also
 * if draining the stocks, or a charge smaller than a batch, then succeeded. MEMCG_MAX counts the cases without such a
 * success.
 */
KMEM_API uint64_t mem_cgroup_failcnt(const struct mem_cgroup *group);

/*
 * mem_cgroup_high_delay - the kernel's curve: the milliseconds that a charge of `bytes` waits if `current` is above
 * `high`. The delay grows with the square of the excess, in parts of high, up to 2 seconds from about 18 percent on.
 * The function is pure. A delay of 10 or less is skipped. Example: 110 MiB of 100, 64 pages: 639.
 */
KMEM_API unsigned int mem_cgroup_high_delay(uint64_t current, uint64_t high, uint64_t bytes);
/*
 * mem_cgroup_set_high_callback - set a callback that replaces the delay; NULL: sleep. `over` is the excess above high
 * in bytes, `delay_ms` the value of the curve.
 * Context of the callback: the charging thread, with no lock held. The callback may allocate and free. The former
 * callback may still be running in other threads when the call returns.
 */
typedef void (*mem_cgroup_high_callback)(struct mem_cgroup *group, uint64_t over, unsigned int delay_ms, void *arg);
KMEM_API void mem_cgroup_set_high_callback(struct mem_cgroup *group, mem_cgroup_high_callback callback, void *arg);

/* ---------------------------------------------------------------- 4. Events */

/*
 * The keys of the kernel's memory.events, in their order. Counters of a charge that meets a max:
 *	failcnt		each try that found no room
 *	MEMCG_MAX	each time that draining stocks and sheaves did not help, or that the charge may not wait: once
 *			before each reclaim (kernel: before the drain)
 *	MEMCG_OOM	each time that reclaim then freed nothing; not for a charge with __GFP_NORETRY or
 *			__GFP_RETRY_MAYFAIL, a charge from a callback, or a charge that may not wait
 * So oom <= max <= failcnt. A charge that succeeds in the end may have counted in all three.
 */
enum memcg_memory_event {
	MEMCG_LOW,		/* reclaimed although below its low */
	MEMCG_HIGH,		/* reclaimed and slowed down because above high */
	MEMCG_MAX,		/* a charge met max */
	MEMCG_OOM,		/* reclaim did not help: the out-of-memory callback is called, or the charge fails */
	MEMCG_OOM_KILL,		/* the callback made room */
	MEMCG_OOM_GROUP_KILL,	/* never */
	MEMCG_NR_MEMORY_EVENTS
};

/* mem_cgroup_events - the number of events in the group and in all groups below; 0 for the root. */
KMEM_API uint64_t mem_cgroup_events(const struct mem_cgroup *group, enum memcg_memory_event event);
/* mem_cgroup_events_local - the number of events in the group alone. */
KMEM_API uint64_t mem_cgroup_events_local(const struct mem_cgroup *group, enum memcg_memory_event event);
/*
 * mem_cgroup_eventfd - get an eventfd(2), readable after an event of `mask` (1 << MEMCG_HIGH | ...) is
 * counted for the group or below. The value of the eventfd is the number of events. Each group has one eventfd:
 * another call returns the same descriptor and adds to the mask. The group owns the descriptor and closes it at the
 * end.
 * Returns: the descriptor, or -1 with errno: as of eventfd(2); EINVAL for an empty mask, an unknown event, or the
 * root.
 * An event of a charge that may not call the system (GFP_NOWAIT) is reported by the next charge that may. In the
 * child of fork() the descriptor is closed, because events of the child are not the parent's. The child may call the
 * function again.
 */
KMEM_API int mem_cgroup_eventfd(struct mem_cgroup *group, unsigned int mask);

/* ---------------------------------------------------------------- 5. Reclaim */

/*
 * mem_cgroup_add_shrinker - register a callback to free memory of the group when reclaim runs for the group, or
 * for a group above. The callback frees about `bytes`, as far as possible, and returns the bytes freed; 0: nothing.
 * Shrinkers of a lower `priority` run first, equal priorities in the order of registration, each at most twice in one
 * reclaim. A charge made by a shrinker does not reclaim.
 * Context of the callback: any thread that needs memory, inside its allocation, and several threads at once if
 * several need memory. The library holds no lock, but the caller of the allocation may. A shrinker must not wait for
 * a lock if allocations for the group are made under the lock: its own thread may hold the lock. Such a shrinker
 * should try the lock, and return 0 if the lock is held (kernel: the same, SHRINK_STOP). A callback must return: no
 * longjmp, no exception and no cancellation may leave the callback. If a shrinker returns 0 to a thread while another
 * thread runs the shrinker, the first thread waits for the other, at most one second.
 * Returns: the shrinker, or NULL with errno: ENOMEM; ENOENT: the group is offline; EINVAL: the root, or no callback.
 * Kernel: shrinkers are global, with the group as an argument; `priority` there is the progress of a reclaim.
 */
typedef uint64_t (*mem_cgroup_shrink_callback)(struct mem_cgroup *group, uint64_t bytes, void *arg);
struct mem_cgroup_shrinker;
KMEM_API struct mem_cgroup_shrinker *mem_cgroup_add_shrinker(struct mem_cgroup *group, int priority,
							      mem_cgroup_shrink_callback shrink, void *arg);
/*
 * mem_cgroup_remove_shrinker - remove a shrinker. When the call returns, no call of the shrinker is running or will
 * run. A call from a shrinker is therefore a misuse, because the call would wait for its own end: one line, and by
 * default the end of the process; otherwise the shrinker stays. NULL does nothing. A group that goes offline keeps
 * its shrinkers, but never calls them: remove the shrinkers before the last reference is put.
 */
KMEM_API void mem_cgroup_remove_shrinker(struct mem_cgroup_shrinker *shrinker);
/*
 * mem_cgroup_set_oom_callback - set a callback that decides when the group's max, or the max of a group below without
 * a callback, is about to refuse a charge. The callback returns true: there is room now, try again (at most 16
 * times); false: refuse. NULL, the default: refuse. Context of the callback: as of a shrinker. The former callback
 * may still be running when the call returns.
 */
typedef bool (*mem_cgroup_oom_callback)(struct mem_cgroup *group, uint64_t bytes, void *arg);
KMEM_API void mem_cgroup_set_oom_callback(struct mem_cgroup *group, mem_cgroup_oom_callback callback, void *arg);
/*
 * mem_cgroup_reclaim - reclaim about `bytes` from the group and the groups below (kernel: memory.reclaim). Returns:
 * the bytes freed, as the shrinkers report.
 */
KMEM_API uint64_t mem_cgroup_reclaim(struct mem_cgroup *group, uint64_t bytes);
/*
 * mem_cgroup_drain - release the unused charges of the group and all groups below, on every CPU. Afterwards `current`
 * is the exact sum over allocated objects. Kernel: drain_all_stock.
 * While other threads allocate and free, a drain may miss one sheaf (64 or 256 KiB, or two objects), or one slab of a
 * private group, for each thread that is filling or emptying a sheaf. The thread may have lost its CPU there. For
 * this reason a charge drains three times before it is refused. The drain never misses bytes on their way between
 * stocks and counters, because these bytes move under the CPU's lock. Returns: the bytes released from stocks.
 */
KMEM_API uint64_t mem_cgroup_drain(struct mem_cgroup *group);

/* ---------------------------------------------------------------- 6. Charges by pointer, and by hand

 * Objects of caches with SLAB_ACCOUNT, and allocations with __GFP_ACCOUNT, are charged without these functions.
 */

/*
 * mem_cgroup_from_obj - the group that is charged for an object of a cache, or for a large block, at `object`.
 * Returns: the group, with a reference that the caller must put; NULL: uncharged, or a foreign pointer. Kernel:
 * mem_cgroup_from_slab_obj, without a reference.
 */
KMEM_API struct mem_cgroup *mem_cgroup_from_obj(const void *object);
/*
 * kmem_cache_charge - charge an uncharged object or large block to the active group.
 * Returns: true: the object is charged, was charged already, or no group is active; false: the group's limit refuses,
 * the slab can't record the objcg, the pointer is foreign or engine slob's, or the pointer is a large block and the
 * group is private.
 * From the first call on, or the first object with __GFP_ACCOUNT, each call of a cache without SLAB_ACCOUNT checks
 * the objcg, at a cost of some cycles. For kmalloc's caches this applies too; __GFP_ACCOUNT alone would allocate from
 * another cache. Kernel: for such caches true is returned, and nothing is charged.
 */
KMEM_API bool kmem_cache_charge(void *object, gfp_t gfp);

/*
 * mem_cgroup_charge, mem_cgroup_uncharge - charge and uncharge memory that is not the library's: mapped, read, or
 * another library's.
 * mem_cgroup_charge returns 0, or -ENOMEM after all measures that gfp allows. With GFP_KERNEL stocks are drained and
 * shrinkers called. With GFP_NOWAIT the charge fails at once, without a system call. A charge of 2^48 bytes or more
 * fails at once, too. The root is not charged.
 * The caller must uncharge exactly the charged bytes, from the same group, which may be offline by then.
 * mem_cgroup_uncharge never fails. Uncharging more than was charged is a misuse, detected when the bytes leave the
 * stocks. Kernel: obj_cgroup_charge, obj_cgroup_uncharge.
 * Context: also signal handlers; in a handler that interrupted the allocator as with GFP_NOWAIT.
 */
KMEM_API int mem_cgroup_charge(struct mem_cgroup *group, gfp_t gfp, uint64_t bytes);
KMEM_API void mem_cgroup_uncharge(struct mem_cgroup *group, uint64_t bytes);
/* mem_cgroup_margin - the bytes that may be charged now before a max refuses; MEMCG_NO_LIMIT without a max. */
KMEM_API uint64_t mem_cgroup_margin(const struct mem_cgroup *group);

/* ---------------------------------------------------------------- 7. Numbers and texts */

/*
 * mem_cgroup_walk - visit the group and all online groups below, a parent before its children, with no lock held;
 * NULL: all groups. `visit` may call any function, but must call mem_cgroup_get to keep the group. Returns: 0, or the
 * first value of `visit` other than 0, which ends the walk.
 */
KMEM_API int mem_cgroup_walk(struct mem_cgroup *group, int (*visit)(struct mem_cgroup *group, unsigned int depth,
								     void *arg), void *arg);
/*
 * mem_cgroup_walk_caches - visit each cache with objects charged to the group: the name of the cache, the number of
 * objects, and the charged bytes. Child caches of a private group count with whole slabs. Large blocks, and groups
 * below, are left out.
 * The walk empties the sheaves and scans all slabs of the process, once for 32 caches. The result is exact if no
 * other thread allocates meanwhile. The walk is slow: it takes time by all objects of charged caches, of all groups,
 * about 8 ms for a million (1 ms for objects of private groups). The walk locks the registry, and stops all CPUs for
 * two fences. No charge maintains counters by cache, so charges stay cheap. No lock is held in a visit.
 * Returns: as mem_cgroup_walk.
 */
typedef int (*mem_cgroup_visit_cache)(const char *cache, size_t objects, uint64_t bytes, void *arg);
KMEM_API int mem_cgroup_walk_caches(struct mem_cgroup *group, mem_cgroup_visit_cache visit, void *arg);

/*
 * mem_cgroup_write_current, mem_cgroup_write_stat, mem_cgroup_write_events, mem_cgroup_write_events_local - write the
 * text of the cgroup file of the same name. The kernel's keys come first, in the kernel's order, then the library's
 * keys.
 * stat: `kernel` is the charged bytes. `slab` and `slab_unreclaimable` are the result of mem_cgroup_walk_caches, with
 * groups below, and as slow. For each of many groups use current and events instead, at a microsecond each. The
 * library's keys are `stock`, the part of `kernel` in stocks of the group itself, and `dying`, the number of
 * destroyed groups with remaining objects charged here. For the root `kernel` is 0, and the slab keys are all bytes
 * charged, now or formerly, to any group below.
 * Returns: as snprintf: writes at most `bytes` bytes with the NUL, and returns the length of the whole text.
 */
KMEM_API size_t mem_cgroup_write_current(const struct mem_cgroup *group, char *text, size_t bytes);
KMEM_API size_t mem_cgroup_write_stat(const struct mem_cgroup *group, char *text, size_t bytes);
KMEM_API size_t mem_cgroup_write_events(const struct mem_cgroup *group, char *text, size_t bytes);
KMEM_API size_t mem_cgroup_write_events_local(const struct mem_cgroup *group, char *text, size_t bytes);

/* ---------------------------------------------------------------- 8. Modes */

enum mem_cgroup_mode {
	MEM_CGROUP_V1,		/* hierarchy v1: a second counter, updated at every charge of pages; else v2 */
	MEM_CGROUP_DRAIN,	/* a stock above a page is flushed, as before Linux 5.14; else kept */
	MEM_CGROUP_SHELF,	/* charged objects may be cached in sheaves; else each is charged through a stock */
	MEM_CGROUP_NR_MODES
};
/*
 * For comparison. The defaults are v2, keep and sheaf (KMEM_OPTIONS=memcg_hierarchy, memcg_refill, memcg_shelf).
 * Returns: 0; -EINVAL; -EBUSY: MEM_CGROUP_V1, and there are groups.
 */
KMEM_API int mem_cgroup_set_mode(enum mem_cgroup_mode mode, bool on);
KMEM_API bool mem_cgroup_mode(enum mem_cgroup_mode mode);
/* mem_cgroup_kmem - v1's second counter: the bytes charged in pages, with the byte stocks; 0 under v2. */
KMEM_API uint64_t mem_cgroup_kmem(const struct mem_cgroup *group);
/* mem_cgroup_atomics - the number of atomic operations on shared cache lines that this thread made for charges. */
KMEM_API uint64_t mem_cgroup_atomics(void);

#ifdef __cplusplus
}
#endif

#endif
