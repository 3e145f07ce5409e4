/*
 * lock.h: ranked locks. Invariant: the rank enum *is* the lock order. A thread waits only for locks of rising rank
 * (equal ranks never together), and debug builds check the order. While a thread holds a lock, km_thread.busy is
 * set: a signal handler of the thread may run, and its hits work, but the handler takes no lock. A thread spins a
 * little, then sleeps on a futex. A sleeper wakes without help after 2 ms, later after 64 ms, so that a GFP_NOWAIT
 * caller may unlock without the system call of a wake.
 */
#ifndef KM_OS_LOCK_H
#define KM_OS_LOCK_H

#include "base/atomic.h"
#include "base/cc.h"
#include "die.h"

enum km_rank {
	KM_RANK_RECLAIM = 1,	/* reclaim (cache/reclaim.c) */
	KM_RANK_RESIDENT,	/* making memory resident: one thread at a time (page/commit_ahead.c) */
	KM_RANK_REGISTRY,	/* the list of caches */
	KM_RANK_DRAIN,		/* closing per-CPU sheaves for a drain */
	KM_RANK_MEMCG,		/* the tree of groups */
	KM_RANK_LOOK,		/* looks at a node's partial slabs (slab/sheaf_holes.c) */
	KM_RANK_NODE,		/* slabs of a cache on a node */
	KM_RANK_BARN,		/* barn: full and empty sheaves of a cache */
	KM_RANK_GRACE,		/* grace periods of kfree_rcu */
	KM_RANK_WAITING,	/* objects of kfree_rcu waiting on a CPU */
	KM_RANK_GROWTH,		/* run of pages of a CPU for growing blocks (kmalloc/realloc_run.c) */
	KM_RANK_READY,		/* counts of cached large blocks (kmalloc/large_cache.c) */
	KM_RANK_TAKEN,		/* pages taken to be made resident (page/commit_ahead.c) */
	KM_RANK_NODUMP,		/* blocks for SLAB_NODUMP (page/nodump.c) */
	KM_RANK_ADDR_REUSE,	/* pages kept for address reuse */
	KM_RANK_PURGE,		/* free pages on no list while the system takes the pages back */
	KM_RANK_ZONE,		/* free pages of a node */
	KM_RANK_GROW,		/* ranges of pages, and their committed lengths */
	KM_RANK_BIG,		/* table of huge blocks, and their regions (page/huge.c) */
	KM_RANK_PRIVATE,	/* slabs and large blocks of private groups */
	KM_RANK_METADATA,	/* metadata */
	KM_RANK_STOCK,		/* stocks of a CPU: bytes charged and not used */
	KM_RANK_POOL,		/* reserves of mempools */
	KM_NR_RANKS
};

struct km_lock {
	uint32_t state;		/* 0: free; else the holder's thread number, and three bits */
	uint32_t rank;
};
#define KM_LOCK_AWAITED	0x80000000u	/* a thread may sleep until the unlock, which must wake it */
#define KM_LOCK_OF_FORK	0x40000000u	/* the holder is in fork: its own calls pass the lock meanwhile */
#define KM_LOCK_BORROWS	0x10000000u	/* the holder's unlock, of any kind, ends loans of priority (lock.c) */

uint32_t km_self_find(void);
km_inline uint32_t km_lock_self(void)
{
	return km_likely(km_thread.self) ? km_thread.self : km_self_find();
}

/* In debug builds: set in a child of fork, where the work of the parent's other threads is not counted. */
extern km_hidden bool km_is_forked;

/* Only the rank checker reads the rank of a static lock. Other builds initialise static locks to zeros. Zeros take no
 * part of the library's file, which a process maps in stretches of 64 KiB. */
#ifdef KM_DEBUG
#define KM_LOCK_INIT(lock_rank) { 0, (lock_rank) }
#define KM_LOCK_SLEEPER km_lock_always_wakes
#else
#define KM_LOCK_INIT(lock_rank) { 0, 0 }
#define KM_LOCK_SLEEPER false
#endif

/* Returns: true if a caller inside the library had set the flag, so that handlers were kept out already. */
km_inline bool km_was_busy(struct km_busy_was was)
{
	return was.busy != KM_BUSY_NOT;
}

void km_busy_check(void);
km_inline struct km_busy_was km_busy_begin(void)
{
	struct km_busy_was was = { km_thread.busy };

	km_thread.busy = KM_BUSY;
	__atomic_signal_fence(__ATOMIC_ACQ_REL);
	return was;
}

km_inline void km_busy_end(struct km_busy_was was)
{
#ifdef KM_DEBUG
	if (!km_was_busy(was))
		km_busy_check();
#endif
	__atomic_signal_fence(__ATOMIC_ACQ_REL);
	km_thread.busy = was.busy;
}

/* km_busy_begin, with km_busy_end at the end of the block or at a return. The scopes of calls and locks below do the
 * same. */
km_inline void km_busy_leave(struct km_busy_was *was)
{
	km_busy_end(*was);
}
#define km_busy_scope(was) struct km_busy_was was km_scoped(km_busy_leave) = km_busy_begin()

/* Clears km_thread.busy. Requires: km_busy_begin found the flag clear. */
km_inline void km_busy_end_clear(void)
{
	km_busy_end((struct km_busy_was) { KM_BUSY_NOT });
}

/* This thread must not call the system now (GFP_NOWAIT, GFP_ATOMIC). Locks spin instead of a sleep, for a bounded time
 * (lock.c). An unlock wakes no sleeper (sleepers have timeouts), but ends a real-time thread's loan of priority. Meant
 * for frees, because a free must succeed; an allocation uses km_lock_may. */
km_inline bool km_calls_begin(bool allowed)
{
	bool was = km_thread.no_calls;

	km_thread.no_calls |= !allowed;
	return was;
}

km_inline void km_calls_end(bool was)
{
	km_thread.no_calls = was;
}

km_inline void km_calls_leave(bool *was)
{
	km_calls_end(*was);
}
#define km_calls_scope(was, allowed) bool was km_scoped(km_calls_leave) = km_calls_begin(allowed)

void km_lock_wait(struct km_lock *lock, uint32_t as);
void km_lock_wake(struct km_lock *lock, uint32_t was);
void km_unlock_lent(struct km_lock *lock);
/* For tests of debug builds: each unlock behaves as if a thread slept for the lock. */
extern bool km_lock_always_wakes;

/* Events for the rank checker. A try never waits, so a handler may try a lock held by the interrupted code. */
enum km_lock_note { KM_LOCK_GIVEN, KM_LOCK_TAKEN, KM_LOCK_TRIED };
void km_lock_check(const struct km_lock *lock, enum km_lock_note note);
/* For tests that call lower layers directly, without handlers: threads need not be busy. */
extern bool km_lock_unstruck;
/* Set in the child of a fork by a signal handler that interrupted the allocator. */
extern km_hidden bool km_locks_let_go;

km_inline void km_lock_init(struct km_lock *lock, enum km_rank rank)
{
	km_debug(rank && rank < KM_NR_RANKS, "a lock has a rank");
	lock->state = 0;
	lock->rank = rank;
}

/* Set the rank of a lock initialised by zeros. */
km_inline void km_lock_rank(struct km_lock *lock, enum km_rank rank)
{
	uint32_t none = 0;

	if (km_unlikely(!km_load(&lock->rank)))
		km_cas_acquire(&lock->rank, &none, (uint32_t)rank);
}

km_inline void km_lock_note(const struct km_lock *lock, enum km_lock_note note)
{
#ifdef KM_DEBUG
	km_lock_check(lock, note);
#endif
	km_thread.locks_held += note == KM_LOCK_GIVEN ? -1u : 1u;
}

/* Returns: true if a fork of this thread holds the lock. Between the fork handlers the thread allocates as always: it
 * passes the lock. */
bool km_lock_passes(const struct km_lock *lock);
/* Returns: true if a fork holds the lock until its end. */
km_inline bool km_lock_stays(const struct km_lock *lock)
{
	return km_unlikely(km_load(&lock->state) & KM_LOCK_OF_FORK);
}

/* Acquire pairs with the release in km_unlock. */
km_inline bool km_trylock(struct km_lock *lock)
{
	uint32_t free = 0;

	if ((km_load(&lock->state) || !km_cas_acquire(&lock->state, &free, km_lock_self())) && !km_lock_passes(lock))
		return false;
	km_lock_note(lock, KM_LOCK_TRIED);
	return true;
}

km_inline void km_lock(struct km_lock *lock)
{
	uint32_t free = 0, self = km_lock_self();

	if (km_unlikely(!km_cas_acquire(&lock->state, &free, self)))
		km_lock_wait(lock, self);
	km_lock_note(lock, KM_LOCK_TAKEN);
}

km_inline void km_unlock(struct km_lock *lock)
{
	km_lock_note(lock, KM_LOCK_GIVEN);
	if (km_lock_stays(lock))
		return;
	uint32_t was = km_swap_release(&lock->state, 0u);
	if (km_unlikely(was & (KM_LOCK_AWAITED | KM_LOCK_BORROWS)) || KM_LOCK_SLEEPER)
		km_lock_wake(lock, was);
}

km_inline void km_lock_leave(struct km_lock **lock)
{
	km_unlock(*lock);
}
#define km_lock_scope(lock) \
	km_lock(lock); \
	struct km_lock *locked_here km_scoped(km_lock_leave) = (lock)
/* The same, with the thread busy until the lock is free. */
#define km_busy_lock_scope(lock) \
	km_busy_scope(busy_here); \
	km_lock_scope(lock)
/* Scope of a lock with begin and leave functions without arguments. */
#define KM_LOCKED_SCOPE(begin, leave) \
	begin(); \
	const char locked_here km_scoped(leave) = 0

/* Unlock without the atomic exchange (13 cycles on Zen 5) if no thread seems to wait. A thread that starts to sleep
 * between the load and the store gets no wake. But the system checks the state before the sleep, and finds the store
 * done, unless this thread was interrupted between the two. Then the sleeper sleeps until its timeout. For a lock taken
 * often and held for a short time. */
km_inline void km_unlock_quick(struct km_lock *lock)
{
	const uint32_t not_quick = KM_LOCK_AWAITED | KM_LOCK_BORROWS | KM_LOCK_OF_FORK;

	if (km_unlikely(km_load(&lock->state) & not_quick) || KM_LOCK_SLEEPER) {
		km_unlock(lock);
		return;
	}
	km_lock_note(lock, KM_LOCK_GIVEN);
	km_store_release(&lock->state, 0u);
}

km_inline void km_lock_quick_leave(struct km_lock **lock)
{
	km_unlock_quick(*lock);
}
#define km_lock_quick_scope(lock) \
	km_lock(lock); \
	struct km_lock *locked_here km_scoped(km_lock_quick_leave) = (lock)

/* Returns: true if any thread holds the lock, for assertions. In the child of a handler's fork the answer is always
 * true: all locks were released there, under the code that the handler interrupted. */
km_inline bool km_is_locked(const struct km_lock *lock)
{
	return km_load(&lock->state) != 0 || km_locks_let_go;
}

/* Wait at most about `ms` milliseconds. Returns: false without the lock. For locks held while a user's function
 * runs. */
bool km_lock_within(struct km_lock *lock, unsigned ms);

/* Spin a little, without a sleep or a system call. Returns: false without the lock. */
bool km_lock_nowait(struct km_lock *lock);
km_inline void km_unlock_nowait(struct km_lock *lock)
{
	if (km_unlikely(km_load(&lock->state) & (KM_LOCK_BORROWS | KM_LOCK_OF_FORK))) {
		km_unlock_lent(lock);
		return;
	}
	km_lock_note(lock, KM_LOCK_GIVEN);
	km_store_release(&lock->state, 0u);
}

/* Around fork all locks are held at once, many locks of one rank, and a handler may hold a lock out of order, taken
 * without a wait: the rank checker ignores these locks. km_unlock_fork leaves a lock of another thread. */
void km_unlock_fork(struct km_lock *lock);

/* Begin and end a nested fork: a fork by a handler that interrupted the allocator. The thread's own locks stay as they
 * are, also in the child, where the interrupted code goes on under these locks. The fork waits for locks of other
 * threads for a bounded total time, because their holders may wait for a lock of this thread. */
void km_locks_fork_nested(void);
void km_locks_fork_end(bool child);
bool km_fork_is_nested(void);
/* Returns: true if this fork holds the lock, or may read and change the data under the lock. Requires:
 * km_lock_around_fork has tried the lock. */
bool km_fork_has(const struct km_lock *lock);
/* A nested fork waits for libc's list of open FILEs. The list may be locked by another fork, and the other fork may
 * wait for a lock of the nested fork's thread. Then the other fork gives way: the other fork takes no more locks, gives
 * back all its locks and the list, lets the nested fork pass, and begins again. */
void km_fork_behind_files(bool waits);
bool km_fork_gives_way(void);
void km_fork_let_pass(void);
/* Returns: true if this thread, or code interrupted by this handler, has the lock. */
bool km_lock_is_own(const struct km_lock *lock);

/* Fork handler for one lock. In the child no thread waits, so the function only marks the lock free. */
void km_lock_around_fork(struct km_lock *lock, bool before, bool child);

/* Take the lock: with a wait if the caller may wait, else by km_lock_nowait. */
km_inline bool km_lock_may(struct km_lock *lock, bool may_wait)
{
	if (may_wait) {
		km_lock(lock);
		return true;
	}
	if (!km_lock_nowait(lock))
		return false;
	km_lock_note(lock, KM_LOCK_TAKEN);
	return true;
}

km_inline void km_unlock_may(struct km_lock *lock, bool may_wait)
{
	if (may_wait)
		km_unlock_quick(lock);
	else
		km_unlock_nowait(lock);
}

#endif
