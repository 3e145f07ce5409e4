/*
 * thread.h: all thread-local variables of the library. struct km_thread has what slow paths note for this thread. The
 * other variables are variables of their own, because hits read them, or because the system writes to them.
 * Invariant: km_thread of a new thread is all zeros. A variable is written by its own thread and its signal handlers
 * alone, and an upper layer's part is written by this layer alone.
 */
#ifndef KM_BASE_THREAD_H
#define KM_BASE_THREAD_H

#include "cc.h"

#define KM_CTORS_NESTED		8u	/* constructors that may run inside of each other, in one thread */
#define KM_MEMCGS_HELD		8u
#define KM_THREAD_RANKS		64u

struct kmem_cache;
struct km_asked;
struct km_child_request;
struct mem_cgroup;
struct mem_cgroup_shrinker;
struct obj_cgroup;
struct rseq_area;
struct km_heard;
struct km_visit;

/* This thread is inside of the allocator. An allocation by an interrupting signal handler must not wait, because the
 * interrupted code may hold the lock. With the flag set, the handler's allocation is refused, or its free is deferred.
 * A thread must set the flag before it takes a lock, and must keep the flag set until the lock is free. Debug builds
 * check this for every lock. */
enum km_busy {
	KM_BUSY_NOT,
	KM_BUSY,
	KM_BUSY_IN_OPERATION,	/* the thread holds only the lock of a CPU's words (visit.h), and may fork as usual */
};

/* Value of the flag at km_busy_begin. A structure, not a number: the compiler then refuses code that keeps one bit. */
struct km_busy_was {
	uint8_t busy;		/* enum km_busy */
};

/* A fork under way in this thread (os/lock.c, cache/boot.c). */
struct km_thread_fork {
	/* Forks under way: a signal handler may fork inside of a fork. Inner forks take no lock. */
	unsigned depth;
	uint8_t kind;		/* enum km_fork_kind */
	/* This thread's fork takes locks. Another thread may have the same number: the child of a bare clone keeps
	 * its parent's number, and the numbers of a new PID namespace begin at 1. */
	bool takes_locks;
	bool gives_way;
	bool has_registry, has_start, has_all, has_observer;	/* locks of the outermost fork */
	unsigned has_files;	/* times this thread has locked libc's list of open FILEs */
	struct km_busy_was busy_before;
	uint64_t end_ms;
};

/* Charges that could not wait and left a group over high. The thread's next charge that may wait, to any group, is
 * slowed down for them (kernel: the thread, on its way back to user mode). The debt has no reference, because there may
 * be no next charge. take_owed finds the group by the objcg, whose address stays an objcg's for ever. If the objcg
 * leads to no group, or to a group of another number, the debt is dropped.
 */
struct km_owed {
	struct obj_cgroup *objcg;	/* of the last group; NULL: none */
	unsigned number;		/* of the last group */
	uint64_t bytes;
};

/* Sampling of this thread's allocations (ext/profile). */
struct km_profile_thread {
	int64_t left;			/* bytes to the next sample */
	uint32_t number;		/* number of the profile for these figures */
	uint64_t random;
};

struct km_thread {
	uint8_t busy;			/* enum km_busy */
	bool no_calls;			/* the current request may not call the system; locks spin (os/lock.h) */
	bool late;			/* frees of pages are deferred (page/deferred_free.h) */
	uint8_t turn;			/* misses, modulo 256: each 64th looks for work (alloc/fast_path.h) */
	bool helper;			/* a thread made by the library (os/os_thread.c) */
	bool in_their_malloc;		/* inside of the program's own posix_memalign (malloc/malloc_theirs.c) */
	/* This thread is in a callback of a group. Its allocations are charged as usual, but a refused charge takes no
	 * further step: a shrinker that made its caller shrink again would never end (memcg/pressure.c). */
	bool pressed;

	/* Number of this thread, perhaps with KM_LOCK_BORROWS, and the count of the thread's locks. One instruction
	 * takes a lock and writes the number, so a fork by a signal handler knows the locks of its thread at every
	 * instruction. */
	uint32_t self;
	unsigned locks_held;
	struct km_visit *visits;	/* visits with locks held, or about to be tried: the last first */
	struct km_heard *heard;		/* buffer for lines of a check for another party (os/die.h); NULL: none */
	struct km_thread_fork fork;

	/* Results and arguments of the current request, for functions without a parameter that leads to them. A request
	 * passes the alloc ops of each layer, whose arguments are those of a hit. An engine gets a constant request,
	 * and one line of alloc_failure.c serves all kinds of requests. A function that replaces a function of libc
	 * enters the library through the public malloc. Slab charge hooks are called below the engine. */
	bool slab_refused;		/* the cache's limit or its slab charge hooks refused the last slab */
	struct kmem_cache *slab_limited;	/* the cache whose own limit refused the slab; NULL: none */
	uintptr_t site;			/* caller of the current entry point; 0: not noted (alloc/fast_path.h) */
	uintptr_t class_site;		/* caller, for size classes by call site; 0: not noted (cache/cache.h) */
	const struct km_asked *asked;	/* the innermost request with known bytes (alloc/alloc_ops.h); NULL: none */
	struct km_child_request *child;	/* the innermost request to a child cache (memcg/child_cache.c); NULL: none */
	/* Caches whose constructors run, signal handlers included. The innermost constructor is last. */
	struct {
		unsigned count;
		const struct kmem_cache *cache[KM_CTORS_NESTED];
	} constructing;

	/* Accounting. */
	struct mem_cgroup *active;	/* set_active_memcg's group */
	/* Groups of this thread's calls; nested calls, in callbacks and handlers, use further places. */
	struct mem_cgroup *memcg_held[KM_MEMCGS_HELD];
	struct mem_cgroup_shrinker *shrinker;	/* the shrinker that runs in this thread; NULL: none */
	struct km_owed owed;
	uint64_t counter_atomics;	/* atomic instructions of counters; read by tests (memcg/counter.c) */

	struct km_profile_thread profile;
	uintptr_t stack_low;		/* lowest known address of the thread's stack; 0: not known (inspect/stack.c) */
	/* Nested vfork children that may run on this thread's rseq area, and the bytes registered before. A child must
	 * not register the area, because the area would then tell the parent the child's CPU, too (percpu/cpu.c). */
	struct {
		unsigned children;
		size_t bytes;
	} lent;
#ifdef KM_DEBUG
	uint8_t ranks[KM_THREAD_RANKS];	/* locks held, by rank; handlers on the thread's stack included */
#endif
};
extern km_hidden km_tls struct km_thread km_thread;

/* Charged hits. The objcg of this thread's charged objects; NULL: km_objcg_default. Every object of this thread is
 * charged. The last miss of a charged sheaf, because another objcg owns the sheaf (memcg/charged_sheaf.h). */
extern km_hidden km_tls struct obj_cgroup *km_objcg_here;
extern km_hidden km_tls bool km_account_here;
extern km_hidden km_tls struct km_charged_last km_charged_last;

/* Bulk frees: the cache of this thread's last array, usually the next array's cache, too (kmalloc/kfree_bulk.c). */
struct km_bulk_last {
	uint16_t id;
	struct kmem_cache *cache;
};
extern km_hidden km_tls struct km_bulk_last km_bulk_last;

/* rseq areas (percpu/cpu.c): for sequences of unregistered threads; without a CPU; and the library's own, where libc
 * registers none. */
extern km_hidden km_tls struct rseq_area km_dummy_area;
extern km_hidden km_tls struct rseq_area km_nowhere_area;
extern km_hidden km_tls union km_own_area km_own_area;

#endif
