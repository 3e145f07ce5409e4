/*
 * lock.h: ranked locks. The rank enum *is* the lock order: a thread waits for locks of rising rank only (equal
 * ranks never together), which debug builds check. Meanwhile km_thread_busy is set: a signal handler of this thread
 * runs, and its hits work, but it takes no lock. A thread spins a little, then sleeps on a futex; a sleeper wakes by
 * itself after 2 ms, later 64, so that a GFP_NOWAIT caller may leave without the wake's system call.
 */
#ifndef KM_OS_LOCK_H
#define KM_OS_LOCK_H

#include "base/atomic.h"
#include "base/cc.h"
#include "die.h"

enum km_rank {
	KM_RANK_RECLAIM = 1,	/* giving back what lies ready, or free */
	KM_RANK_RESIDENT,	/* free memory that is made resident */
	KM_RANK_REGISTRY,	/* the list of caches */
	KM_RANK_DRAIN,		/* closing shelves */
	KM_RANK_MEMCG,		/* the tree of groups */
	KM_RANK_LOOK,		/* looks for pages of a node's slabs in which nobody has anything */
	KM_RANK_NODE,		/* a cache's slabs on a node */
	KM_RANK_BARN,		/* a cache's full and empty shelf blocks */
	KM_RANK_GRACE,		/* the grace period that is under way */
	KM_RANK_WAITING,	/* what waits on a CPU for the next one */
	KM_RANK_GROWTH,		/* a CPU's pages for blocks that grow */
	KM_RANK_READY,		/* what may lie ready, in all */
	KM_RANK_TAKEN,		/* free pages that were taken for it */
	KM_RANK_NODUMP,		/* pages that are left out of core dumps */
	KM_RANK_OWN,		/* pages that are kept for a name */
	KM_RANK_PURGE,		/* free pages that are on no list while the system takes them back */
	KM_RANK_ZONE,		/* a node's free pages */
	KM_RANK_GROW,		/* ranges of pages, and how far they are committed */
	KM_RANK_BIG,		/* mappings of their own */
	KM_RANK_PRIVATE,	/* what a private group has */
	KM_RANK_META,		/* our own memory */
	KM_RANK_STOCK,		/* a CPU's stocks of what is charged and not used */
	KM_RANK_POOL,		/* the reserves of mempools */
	KM_NR_RANKS
};

struct km_lock {
	uint32_t state;		/* 0: free; else the holder's number, and three bits */
	uint32_t rank;
};
#define KM_LOCK_AWAITED	0x80000000u	/* a thread may sleep for the lock */
#define KM_LOCK_OF_FORK	0x40000000u	/* the holder forks: the holder's own calls pass meanwhile */
#define KM_LOCK_BORROWS	0x10000000u	/* the holder's unlock, of any kind, ends loans of priority (lock.c) */

/*
 * The number of this thread, perhaps with KM_LOCK_BORROWS, and how many locks the thread has. One instruction takes a
 * lock and writes the number: a fork by a signal handler knows the locks of the same thread at every instruction.
 */
extern km_hidden km_tls uint32_t km_self;
extern km_hidden km_tls unsigned km_locks_held;
uint32_t km_self_find(void);
km_inline uint32_t km_lock_self(void)
{
	return km_likely(km_self) ? km_self : km_self_find();
}

/* Of debug builds: this is a child of fork, where what other threads had in hand was not counted yet. */
extern km_hidden bool km_is_forked;

/* Nobody but the checker reads the rank of a lock that stands for ever: elsewhere it is zeros, and what it lies in is
 * no part of the library's file, of which a process has stretches of 64 KiB. */
#ifdef KM_DEBUG
#define KM_LOCK_INIT(lock_rank) { 0, (lock_rank) }
#define KM_LOCK_SLEEPER km_lock_always_wakes
#else
#define KM_LOCK_INIT(lock_rank) { 0, 0 }
#define KM_LOCK_SLEEPER false
#endif

/*
 * This thread is inside of the allocator. A signal handler that strikes it there and allocates must wait for nothing,
 * for it may be the code that it struck that holds the lock: with the flag set it is refused instead, or its free is
 * left for later. So a thread that holds a lock has the flag set from before it takes it until after it gives it back;
 * debug builds check that of every lock.
 */
extern km_hidden km_tls uint8_t km_thread_busy;
enum km_busy {
	KM_BUSY_NOT,
	KM_BUSY,
	KM_BUSY_IN_VERB,	/* all it holds is the lock of a CPU's slot (visit.h): it may fork as anybody */
};

/* The flag as km_busy_begin found it. It is no number: the compiler refuses a place that would keep one bit of it. */
struct km_busy_was {
	uint8_t busy;		/* enum km_busy */
};

/* A caller of ours had the flag set, whichever: for this call handlers were kept out already. */
km_inline bool km_was_busy(struct km_busy_was was)
{
	return was.busy != KM_BUSY_NOT;
}

void km_busy_check(void);
km_inline struct km_busy_was km_busy_begin(void)
{
	struct km_busy_was was = { km_thread_busy };

	km_thread_busy = KM_BUSY;
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
	km_thread_busy = was.busy;
}

/* km_busy_begin; the end of the block, or a return, is the km_busy_end. The same form with calls and locks below. */
km_inline void km_busy_leave(struct km_busy_was *was)
{
	km_busy_end(*was);
}
#define km_busy_scope(was) struct km_busy_was was km_scoped(km_busy_leave) = km_busy_begin()

/* The end of a km_busy_begin that found the flag clear, as its caller knows. */
km_inline void km_busy_end_clear(void)
{
	km_busy_end((struct km_busy_was) { KM_BUSY_NOT });
}

/*
 * This thread must not call the system now (GFP_NOWAIT, GFP_ATOMIC). Locks spin instead of a sleep, for a bounded time
 * (lock.c). An unlock wakes no sleeper (sleepers have timeouts), but ends a real-time thread's loan of priority. Meant
 * for frees, because a free must succeed; an allocation uses km_lock_may.
 */
extern km_hidden km_tls bool km_no_calls;
km_inline bool km_calls_begin(bool allowed)
{
	bool was = km_no_calls;

	km_no_calls |= !allowed;
	return was;
}

km_inline void km_calls_end(bool was)
{
	km_no_calls = was;
}

km_inline void km_calls_leave(bool *was)
{
	km_calls_end(*was);
}
#define km_calls_scope(was, allowed) bool was km_scoped(km_calls_leave) = km_calls_begin(allowed)

void km_lock_wait(struct km_lock *lock, uint32_t as);
void km_lock_wake(struct km_lock *lock, uint32_t was);
void km_unlock_lent(struct km_lock *lock);
/* For a test of debug builds: each lock is given back as if a thread slept for it. */
extern bool km_lock_always_wakes;

/* The events that the rank checker is told. A thread that only tried has not waited: a handler may try what its victim
 * holds. */
enum km_lock_note { KM_LOCK_GIVEN, KM_LOCK_TAKEN, KM_LOCK_TRIED };
void km_lock_check(const struct km_lock *lock, enum km_lock_note note);
/* A test that calls the floors beneath directly, and has no handlers: its threads need not be busy. */
extern bool km_lock_unstruck;
/* This is the child of a fork by a handler that struck inside of the allocator. */
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
	km_locks_held += note == KM_LOCK_GIVEN ? -1u : 1u;
}

/* A fork of this thread has the lock: between the handlers of fork the thread allocates as always. */
bool km_lock_passes(const struct km_lock *lock);
/* A fork has the lock, and keeps the lock. */
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
/* A lock that is taken and given back by functions without arguments. */
#define KM_LOCKED_SCOPE(begin, leave) \
	begin(); \
	const char locked_here km_scoped(leave) = 0

/*
 * Without the atomic exchange, 13 cycles on Zen 5, where nobody seems to wait. A thread that comes to sleep between the
 * look and the store is not woken. But before it sleeps the system looks at the state, and finds the store done, unless
 * this thread was interrupted in between: then it sleeps out its time. For a lock that is taken often and held for a
 * short time.
 */
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

/* Somebody holds it: for assertions of who must. In the child of a handler's fork nobody can tell: all were let go of,
 * under the code that the handler interrupted. */
km_inline bool km_is_locked(const struct km_lock *lock)
{
	return km_load(&lock->state) != 0 || km_locks_let_go;
}

/* Wait about `ms` milliseconds at most; false: it is not ours. For locks under which a user's function runs. */
bool km_lock_within(struct km_lock *lock, unsigned ms);

/* For callers that may not sleep or call the system: spin a little, then say no. */
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

/*
 * A fork by a handler that struck inside of the allocator: the thread's own locks are left as they are, in the child as
 * well, where the code that was struck goes on under them. Those of others are waited for, but for a bounded time in
 * all, because their holders may wait for what this thread has.
 */
void km_locks_fork_nested(void);
void km_locks_fork_end(bool child);
bool km_fork_is_nested(void);
/* This fork may walk what the lock guards: asked after km_lock_around_fork has tried to take it. */
bool km_fork_has(const struct km_lock *lock);
/*
 * A nested fork waits for libc's list of open FILEs. The list may be locked by another fork, and the other fork may
 * wait for a lock of the nested fork's thread. Then the other fork gives way: the other fork takes no more locks,
 * gives back all its locks and the list, lets the nested fork pass, and begins again.
 */
void km_fork_behind_files(bool waits);
bool km_fork_gives_way(void);
void km_fork_let_pass(void);
/* This thread has it, or code that a handler struck under it. */
bool km_lock_is_own(const struct km_lock *lock);

/* The part of a fork handler for one lock: in the child, where nobody waits, it only says that it is free. */
void km_lock_around_fork(struct km_lock *lock, bool before, bool child);

/* Take it as the caller may: waiting, or not. */
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
