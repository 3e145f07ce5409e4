/*
 * lock.c: the slow half of the locks, and the rank checker of debug builds. Invariant: a thread marks a lock as
 * awaited before any sleep, and takes the lock as awaited after a sleep. So only km_unlock_quick and km_unlock_nowait
 * may lose a wake.
 */
#include "lock.h"

#include "base/bits.h"
#include "die.h"
#include "os.h"

/* Spins of one try: enough for a critical section on another CPU, and few enough if the holder lost its CPU. */
#define SPINS 200
/* Tries of a thread without system calls, before the thread sleeps after all. If this thread is SCHED_FIFO and more
 * urgent than the holder, the holder may have no CPU while this thread runs. The tries take half a second of the
 * thread's own time, on some processors two seconds. Thirty threads on two CPUs needed as much by the clock
 * (tests/promise/nowait). In a process with real-time waiters the tries take a millisecond. */
#define MOST_ROUNDS 200000
#define REAL_TIME_ROUNDS 100
/* larger than each thread number of Linux, at most 4194304 */
#define NO_THREAD 0x20000000u
#define NUMBER(state) ((state) & ~(KM_LOCK_AWAITED | KM_LOCK_OF_FORK | KM_LOCK_BORROWS))

km_tls struct km_thread km_thread;

static bool real_time;		/* a thread of a real-time policy has waited for a lock */

/* Finds this thread's number. If libc knows none, the thread gets a number above all thread numbers. */
uint32_t km_self_find(void)
{
	static uint32_t unknown;
	uint32_t self = km_os_thread();

	km_debug(self < KM_LOCK_BORROWS, "the system's numbers of threads leave room for bits");
	self = self ?: NO_THREAD | (km_add(&unknown, 1u) & (KM_LOCK_BORROWS - 1));
	return km_thread.self = self | (km_load(&real_time) ? KM_LOCK_BORROWS : 0);
}

static bool try_for_a_while(struct km_lock *lock, uint32_t as)
{
	for (int i = 0; i < SPINS; i++) {
		uint32_t free = 0;

		if (!km_load(&lock->state) && km_cas_acquire(&lock->state, &free, as))
			return true;
		km_relax();
	}
	return km_lock_passes(lock);
}

/* Waiting threads of a real-time policy. A futex with priority inheritance lends the priority of a waiter to the thread
 * with the number in the futex. The word of a lock is no futex of this kind: the system would have to hand the lock
 * over. So each real-time waiter has a futex of its own, with the number of the lock's holder. The holder's unlock
 * gives back all futexes with this lock and this holder, also for GFP_NOWAIT: a holder with the lent priority could
 * keep the only CPU from the waiter. From the first real-time waiter on, threads take locks with KM_LOCK_BORROWS, and
 * no unlock is quick. A holder without the bit gets no loan (docs/design/real-time.md). */
#define LENDERS	32
#define LEND_MS	2
static struct lender {
	struct km_lock *lock;	/* lock that the waiter waits for; NULL: this entry is free */
	uint32_t holder;	/* futex word: number of the lock's holder */
} lenders[LENDERS];

/* Returns: whether this thread lends its priority when it waits. A real-time thread does; from the first on, a thread
 * with locks does so, too, because a real-time thread may wait for these locks. */
static bool must_lend(uint32_t as)
{
	if (km_os_is_real_time())
		km_store(&real_time, true);
	else if (!km_thread.locks_held && !(as & KM_LOCK_OF_FORK))
		return false;
	return km_load(&real_time);
}

/* Sleeps until the holder unlocks, and lends the holder this thread's priority. Returns: false without a sleep where
 * lending fails: the holder's unlock may be quick, all futexes are in use, the holder has ended, or the system
 * refuses. */
static bool lend(struct km_lock *lock, uint32_t state)
{
	struct km_lock *none;
	struct lender *lender = lenders;
	bool slept = true;

	/* After a fork by a handler, or without libc, the number belongs to a thread of the parent. */
	if (!(state & KM_LOCK_BORROWS) || !km_os_has_thread(NUMBER(state)))
		return false;
	while (none = NULL, !km_cas_acquire(&lender->lock, &none, lock))
		if (++lender == lenders + LENDERS)
			return false;
	km_store(&lender->holder, NUMBER(state));
	/* Release pairs with km_lock_wake: a later unlock finds the lender. An earlier unlock has changed the state. */
	if (km_cas_both(&lock->state, &state, state))
		slept = km_os_lend(&lender->holder, LEND_MS);
	km_store(&lender->holder, 0u);
	km_store_release(&lender->lock, NULL);
	return slept;
}

/* Sleeps for the lock. Afterwards the thread takes the lock as awaited, because others may sleep as well. A sleeper may
 * leave without the lock: the bit remains, and costs one needless wake. */
static bool sleep_for(struct km_lock *lock, uint32_t as, uint64_t end_ms)
{
	/* Sleep longer each time: a thousand threads that wake every 2 ms would leave the holder no CPU. */
	for (unsigned nap = 2;;) {
		uint32_t state = km_load(&lock->state);

		if (!state && km_cas_acquire(&lock->state, &state, as | KM_LOCK_AWAITED))
			return true;
		if (!state || (!(state & KM_LOCK_AWAITED) &&
			       !km_cas_acquire(&lock->state, &state, state | KM_LOCK_AWAITED)))
			continue;
		if (km_os_now_ms() >= end_ms)
			return false;
		state |= KM_LOCK_AWAITED;
		if (!must_lend(as) || !lend(lock, state))
			km_os_wait(&lock->state, state, nap);
		else if (try_for_a_while(lock, as | KM_LOCK_AWAITED))
			return true;
		nap = nap < 64 ? nap * 2 : nap;
	}
}

void km_lock_wait(struct km_lock *lock, uint32_t as)
{
	unsigned most = km_load(&real_time) ? REAL_TIME_ROUNDS : MOST_ROUNDS;

	for (unsigned rounds = km_thread.no_calls ? most : 1; rounds; rounds--)
		if (try_for_a_while(lock, as))
			return;
	sleep_for(lock, as, UINT64_MAX);
}

static bool wait_within(struct km_lock *lock, uint32_t as, unsigned ms)
{
	uint64_t end_ms = km_os_now_ms() + ms;

	return try_for_a_while(lock, as) || sleep_for(lock, as, end_ms);
}

bool km_lock_within(struct km_lock *lock, unsigned ms)
{
	if (!wait_within(lock, km_lock_self(), ms))
		return false;
	km_lock_note(lock, KM_LOCK_TAKEN);
	return true;
}

void km_lock_wake(struct km_lock *lock, uint32_t was)
{
	if (km_load(&real_time) && km_thread.self)
		km_thread.self |= KM_LOCK_BORROWS;
	if (!(was & KM_LOCK_AWAITED) && !KM_LOCK_SLEEPER)
		return;
	/* Acquire pairs with lend: the unlock has read what a waiter wrote. */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	for (unsigned i = 0; (was & KM_LOCK_BORROWS) && i < LENDERS; i++)
		if (km_load(&lenders[i].lock) == lock && NUMBER(km_load(&lenders[i].holder)) == NUMBER(was))
			km_os_lend_end(&lenders[i].holder);
	if (!km_thread.no_calls)
		km_os_wake(&lock->state);
}

void km_unlock_lent(struct km_lock *lock)
{
	km_calls_scope(calls, false);

	km_unlock(lock);
}

bool km_lock_nowait(struct km_lock *lock)
{
	return try_for_a_while(lock, km_lock_self());
}

/* ------------------------------------------------------------------ holders, and forks */

/* ms that a fork waits for all locks together, and for each lock. */
#define FORK_MS		200
#define FORK_LOCK_MS	50

#ifdef KM_DEBUG
bool km_is_forked;
#endif
/* Lets one thread at a time make a nested fork: the second fork waits, or goes on without the lock. */
static struct km_lock nesting = KM_LOCK_INIT(KM_RANK_RECLAIM);
/* Number of nested forks (by a handler inside of the allocator) in wait for libc's list of open FILEs. */
static uint32_t nested_behind_files;
enum km_fork_kind { NORMAL, NESTED, NESTED_WITHOUT };

static bool is_had(const struct km_lock *lock, uint32_t by)
{
	return !((km_load(&lock->state) ^ by) & ~(KM_LOCK_AWAITED | KM_LOCK_BORROWS));
}

bool km_lock_is_own(const struct km_lock *lock)
{
	return km_thread.self && is_had(lock, km_thread.self);
}

bool km_lock_passes(const struct km_lock *lock)
{
	return km_thread.fork.takes_locks && is_had(lock, km_thread.self | KM_LOCK_OF_FORK);
}

void km_unlock_fork(struct km_lock *lock)
{
	if (km_lock_passes(lock))
		km_lock_wake(lock, km_swap_release(&lock->state, 0u));
}

void km_locks_fork_nested(void)
{
	km_debug(km_thread.busy, "a fork by a signal handler inside of the allocator is nested");
	km_thread.fork.end_ms = km_os_now_ms() + FORK_MS;
	km_thread.fork.takes_locks = true;
	km_thread.fork.kind = wait_within(&nesting, km_lock_self() | KM_LOCK_OF_FORK, FORK_LOCK_MS) ? NESTED :
												       NESTED_WITHOUT;
}

void km_locks_fork_end(bool child)
{
#ifdef KM_DEBUG
	km_is_forked |= child;
#endif
	if (child) {
		nesting.state = 0;
		__builtin_memset(lenders, 0, sizeof(lenders));
	} else if (km_thread.fork.kind == NESTED) {
		km_unlock_fork(&nesting);
	}
	/* After a nested fork the interrupted code goes on under locks with the former thread number: keep the
	 * number. */
	if (child && km_thread.fork.kind == NORMAL)
		km_thread.self = 0;
	km_thread.fork.kind = NORMAL;
	km_thread.fork.takes_locks = false;
}

bool km_fork_is_nested(void)
{
	return km_thread.fork.kind != NORMAL;
}

bool km_fork_has(const struct km_lock *lock)
{
	return (km_thread.fork.kind == NORMAL && !km_thread.fork.gives_way) || km_lock_passes(lock);
}

void km_fork_behind_files(bool waits)
{
	km_add(&nested_behind_files, waits ? 1u : -1u);
}

bool km_fork_gives_way(void)
{
	return km_thread.fork.gives_way;
}

/* In a child the count may include threads of the parent, so the wait is bounded. */
void km_fork_let_pass(void)
{
	const uint64_t end_ms = km_os_now_ms() + FORK_MS;
	uint32_t forks;

	km_debug(km_thread.fork.gives_way, "a yielding fork lets other threads pass");
	km_thread.fork.gives_way = false;
	while ((forks = km_load(&nested_behind_files)) && km_os_now_ms() < end_ms)
		km_os_wait(&nested_behind_files, forks, 1);
}

static void take_in_fork(struct km_lock *lock)
{
	uint32_t free = 0, as = km_lock_self() | KM_LOCK_OF_FORK;

	if (km_thread.fork.gives_way || km_cas_acquire(&lock->state, &free, as))
		return;
	while (!km_thread.fork.gives_way && !wait_within(lock, as, FORK_LOCK_MS))
		km_thread.fork.gives_way = km_load(&nested_behind_files);
}

static void take_in_nested_fork(struct km_lock *lock)
{
	uint64_t now = km_os_now_ms(), left = now < km_thread.fork.end_ms ? km_thread.fork.end_ms - now : 0;

	if (km_thread.fork.kind == NESTED && !km_lock_is_own(lock))
		wait_within(lock, km_lock_self() | KM_LOCK_OF_FORK, (unsigned)km_min(left, (uint64_t)FORK_LOCK_MS));
}

void km_lock_around_fork(struct km_lock *lock, bool before, bool child)
{
	if (child) {
		if (km_thread.fork.kind == NORMAL || !km_lock_is_own(lock))
			lock->state = 0;
	} else if (!before) {
		km_unlock_fork(lock);
	} else if (km_thread.fork.kind != NORMAL) {
		take_in_nested_fork(lock);
	} else {
		km_debug(!km_thread.locks_held, "a fork waits for no lock of its own thread");
		km_thread.fork.takes_locks = true;
		take_in_fork(lock);
	}
}

#ifdef KM_DEBUG
bool km_lock_unstruck, km_locks_let_go, km_lock_always_wakes;

_Static_assert(KM_NR_RANKS <= KM_THREAD_RANKS, "km_thread counts the locks of each rank");

void km_lock_check(const struct km_lock *lock, enum km_lock_note note)
{
	/* Handlers must be kept out: a handler would wait for this very thread. */
	km_debug(km_thread.busy || km_lock_unstruck, "a thread keeps signal handlers out before it locks");
	if (note == KM_LOCK_GIVEN) {
		km_debug(km_thread.ranks[lock->rank], "a lock is released by its holder");
		km_thread.ranks[lock->rank]--;
		return;
	}
	for (unsigned rank = lock->rank; note == KM_LOCK_TAKEN && rank < KM_NR_RANKS; rank++)
		km_debug(!km_thread.ranks[rank], "a thread waits for locks of rising rank");
	km_thread.ranks[lock->rank]++;
}

void km_busy_check(void)
{
	for (unsigned rank = 0; rank < KM_NR_RANKS; rank++)
		km_debug(!km_thread.ranks[rank] || km_lock_unstruck,
			 "a thread releases all locks before it admits signal handlers");
}
#endif
