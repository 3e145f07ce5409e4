/*
 * lock.c: the slow half of the locks, and the rank checker of debug builds. Invariant: state 2 is set
 * before any sleep, and a sleeper re-takes the lock as 2, so that no wake is lost but by choice.
 */
#include "lock.h"

#include "die.h"
#include "os.h"

/* Long enough for a critical section on another CPU, short enough where the holder lost its CPU. */
#define SPINS 200
/*
 * So often a thread spins that is to make no system call; then it sleeps after all. The holder may have no CPU as long
 * as this thread has one: where this one is SCHED_FIFO, and more urgent. It is half a second of this thread's own, on
 * some processors two: by the clock, thirty threads on two CPUs came to that (tests/promise/nowait).
 */
#define MOST_ROUNDS 200000

km_tls bool km_no_calls;
km_tls uint8_t km_front_busy;

void km_lock_wait(struct km_lock *lock)
{
	for (unsigned rounds = km_no_calls ? MOST_ROUNDS : 1; rounds; rounds--)
		if (km_lock_nowait(lock))
			return;
	/* Longer and longer: a thousand sleepers that all look every 2 ms leave the holder no CPU. */
	for (unsigned ms = 2; km_swap_acquire(&lock->state, 2u); ms = ms < 64 ? ms * 2 : ms)
		km_os_wait(&lock->state, 2, ms);
}

/* A sleeper that leaves may leave state 2 behind, and one wake that nobody needs. */
static bool wait_within(struct km_lock *lock, unsigned ms)
{
	uint64_t end = km_os_now_ms() + ms;

	if (!km_lock_nowait(lock))
		for (unsigned nap = 2; km_swap_acquire(&lock->state, 2u); nap = nap < 64 ? nap * 2 : nap) {
			if (km_os_now_ms() >= end)
				return false;
			km_os_wait(&lock->state, 2, nap);
		}
	return true;
}

bool km_lock_within(struct km_lock *lock, unsigned ms)
{
	if (!wait_within(lock, ms))
		return false;
	km_lock_note(lock, KM_LOCK_TAKEN);
	return true;
}

void km_lock_wake(struct km_lock *lock)
{
	if (!km_no_calls)
		km_os_wake(&lock->state);
}

bool km_lock_nowait(struct km_lock *lock)
{
	for (int i = 0; i < SPINS; i++) {
		uint32_t free = 0;

		if (!km_load(&lock->state) && km_cas_acquire(&lock->state, &free, 1u))
			return true;
		km_relax();
	}
	return false;
}

/* ------------------------------------------------------------------ whose they are, and forks */

/* For all locks of a fork together, and for each. */
#define FORK_MS		200
#define FORK_LOCK_MS	50

km_tls struct km_own_locks km_own_locks;
#ifdef KM_DEBUG
bool km_is_forked;
#endif
/* Nested forks of two threads: one waits for the other, or does without. */
static struct km_lock nesting = KM_LOCK_INIT(KM_RANK_RECLAIM);
static km_tls enum { NORMAL, NESTED, NESTED_WITHOUT } fork_kind;
static km_tls uint64_t fork_end_ms;

bool km_lock_is_own(const struct km_lock *lock)
{
	for (unsigned i = km_own_locks.count; i--;)
		if (km_own_locks.lock[i] == lock)
			return true;
	return false;
}

/* Where locks are given back in another order than the last first. */
void km_lock_forget(const struct km_lock *lock)
{
	unsigned count = km_own_locks.count;

	for (unsigned i = count; i--;)
		if (km_own_locks.lock[i] == lock) {
			km_own_locks.lock[i] = NULL;
			break;
		}
	while (count && !km_own_locks.lock[count - 1])
		count--;
	__atomic_signal_fence(__ATOMIC_ACQ_REL);
	km_own_locks.count = count;
}

void km_locks_fork_nested(void)
{
	km_debug(km_front_busy, "a fork is nested that a handler makes inside of the allocator");
	fork_end_ms = km_os_now_ms() + FORK_MS;
	fork_kind = wait_within(&nesting, FORK_LOCK_MS) ? NESTED : NESTED_WITHOUT;
}

void km_locks_fork_end(bool child)
{
#ifdef KM_DEBUG
	km_is_forked |= child;
#endif
	if (child)
		nesting.state = 0;
	else if (fork_kind == NESTED)
		km_unlock_fork(&nesting);
	fork_kind = NORMAL;
}

bool km_fork_is_nested(void)
{
	return fork_kind != NORMAL;
}

bool km_fork_has(const struct km_lock *lock)
{
	return fork_kind == NORMAL || (fork_kind == NESTED && km_load(&lock->rank) & KM_LOCK_OF_FORK);
}

static void around_nested_fork(struct km_lock *lock, bool before)
{
	uint64_t now = km_os_now_ms(), left = now < fork_end_ms ? fork_end_ms - now : 0;

	if (fork_kind == NESTED_WITHOUT || km_lock_is_own(lock))
		return;
	if (!before) {
		if (!km_fork_has(lock))
			return;
		km_store(&lock->rank, lock->rank & ~KM_LOCK_OF_FORK);
		km_unlock_fork(lock);
	} else if (wait_within(lock, (unsigned)(left < FORK_LOCK_MS ? left : FORK_LOCK_MS))) {
		km_store(&lock->rank, lock->rank | KM_LOCK_OF_FORK);
	}
}

void km_lock_around_fork(struct km_lock *lock, bool before, bool child)
{
	if (child) {
		lock->rank &= ~KM_LOCK_OF_FORK;
		if (!km_lock_is_own(lock))
			lock->state = 0;
	} else if (fork_kind != NORMAL) {
		around_nested_fork(lock, before);
	} else if (before) {
		km_debug(!km_lock_is_own(lock), "a fork waits for no lock of its own thread");
		km_lock_fork(lock);
	} else {
		km_unlock_fork(lock);
	}
}

#ifdef KM_DEBUG
bool km_lock_unstruck, km_locks_let_go, km_lock_always_wakes;
static km_tls uint8_t held[KM_NR_RANKS];	/* by this thread, and handlers that struck it */

void km_lock_check(const struct km_lock *lock, enum km_lock_note note)
{
	/* A handler that struck here would wait for this very thread. */
	km_debug(km_front_busy || km_lock_unstruck, "who takes a lock keeps signal handlers out");
	if (note == KM_LOCK_GIVEN) {
		km_debug(held[lock->rank], "a lock is given back by the thread that took it");
		held[lock->rank]--;
		return;
	}
	for (unsigned rank = lock->rank; note == KM_LOCK_TAKEN && rank < KM_NR_RANKS; rank++)
		km_debug(!held[rank], "a thread waits for locks of rising rank");
	held[lock->rank]++;
}

void km_busy_check(void)
{
	for (unsigned rank = 0; rank < KM_NR_RANKS; rank++)
		km_debug(!held[rank] || km_lock_unstruck, "who lets signal handlers in holds no lock");
}
#endif
