/*
 * real_time_waiters.c: a waiting thread of a real-time policy lends its priority to the lock's holder until the
 * unlock: for each kind of unlock, through a chain of locks, to a forking thread, and in the child of a fork. The
 * system shows the holder's priority. Where lending fails the waiter sleeps as ordinary threads do: a holder with a
 * lock older than the first real-time waiter, more waiters than can lend at once, a holder that has ended, a system
 * that refuses, a confined program.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <kmem/kmem.h>

#include "kit/cases.h"
#include "kit/sleeps.h"
#include "os/lock.h"

#define MANY		40	/* more than lend at once */
#define FOR_EVER	4000000u

struct lasting {
	pthread_t thread;
	int id;
	bool had;
};

static struct km_lock lock = KM_LOCK_INIT(KM_RANK_NODE), inner = KM_LOCK_INIT(KM_RANK_STOCK);
static void (*give_back)(struct km_lock *of);
static bool told, refuses, for_ever;
static void *want(void *of);
static void *(*wants)(void *of) = want;
static unsigned lends;

bool __real_km_os_lend(uint32_t *word, unsigned ms);
bool __wrap_km_os_lend(uint32_t *word, unsigned ms);
bool __wrap_km_os_lend(uint32_t *word, unsigned ms)
{
	__atomic_add_fetch(&lends, 1u, __ATOMIC_RELAXED);
	return !refuses && __real_km_os_lend(word, for_ever ? FOR_EVER : ms);
}

static bool is(const bool *flag)
{
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static void set(bool *flag)
{
	__atomic_store_n(flag, true, __ATOMIC_RELEASE);
}

static void until(const bool *flag)
{
	while (!is(flag))
		usleep(200);
}

static bool is_awaited(const struct km_lock *of)
{
	return __atomic_load_n(&of->state, __ATOMIC_ACQUIRE) & KM_LOCK_AWAITED;
}

/* Returns: the priority; real-time threads have values below zero. */
static int priority(const struct lasting *of)
{
	char path[64], text[512] = "";
	int is = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", of->id);
	NEED(km_os_read(path, text, sizeof(text)) > 0);
	const char *at = strrchr(text, ')');
	/* The third field is behind the name, the priority is the eighteenth. */
	for (unsigned field = 2; at && field < 18; field++)
		at = strchr(at + 1, ' ');
	NEED(at && sscanf(at, "%d", &is) == 1);
	return is;
}

static void until_boosted(const struct lasting *of, bool boosted)
{
	while ((priority(of) < 0) != boosted)
		usleep(200);
}

static void start(struct lasting *of, void *(*what)(void *of), int real_time)
{
	struct sched_param parameters = { .sched_priority = real_time };
	pthread_attr_t attr;

	*of = (struct lasting){ 0 };
	NEED(!pthread_attr_init(&attr) && !pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED));
	if (real_time)
		NEED(!pthread_attr_setschedpolicy(&attr, SCHED_FIFO) &&
		     !pthread_attr_setschedparam(&attr, &parameters));
	NEED(!pthread_create(&of->thread, &attr, what, of));
	while (!__atomic_load_n(&of->id, __ATOMIC_ACQUIRE))
		usleep(200);
}

static void begin(struct lasting *of)
{
	__atomic_store_n(&of->id, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
}

static void end(struct lasting *of)
{
	NEED(!pthread_join(of->thread, NULL));
}

static void *want(void *arg)
{
	struct lasting *of = arg;
	struct km_busy_was busy = km_busy_begin();

	begin(of);
	km_lock(&lock);
	set(&of->had);
	km_unlock(&lock);
	km_busy_end(busy);
	return NULL;
}

/* A purge in a request with GFP_NOWAIT: the thread spins, and lends in the end. */
static void *want_without_calls(void *arg)
{
	bool calls = km_calls_begin(false);

	want(arg);
	km_calls_end(calls);
	return NULL;
}

/* The first real-time waiter: no other thread has unlocked before, and nothing is lent. */
static void wait_once(void)
{
	struct km_busy_was busy = km_busy_begin();
	struct lasting waiter;

	km_lock(&lock);
	start(&waiter, want, 10);
	while (!sleeps(waiter.id))
		usleep(200);
	CHECK(!lends && is_awaited(&lock) && !is(&waiter.had));
	km_unlock(&lock);
	end(&waiter);
	km_busy_end(busy);
}

static void take_inner(struct lasting *of)
{
	km_lock(&inner);
	set(&of->had);
	until(&told);
	give_back(&inner);
}

static void *hold_inner(void *arg)
{
	struct km_busy_was busy = km_busy_begin();

	begin(arg);
	take_inner(arg);
	km_busy_end(busy);
	return NULL;
}

static void *hold(void *arg)
{
	struct lasting *of = arg;
	struct km_busy_was busy = km_busy_begin();

	begin(of);
	km_lock(&lock);
	set(&of->had);
	until(&told);
	give_back(&lock);
	/* The thread's end would end a loan as well. */
	until_boosted(of, false);
	km_busy_end(busy);
	return NULL;
}

/* ------------------------------------------------------------------ each kind of unlock */

/* The waiter's time is for ever: the unlock ends the loan. */
static void lent_until(void *(*holds)(void *of), void (*gives)(struct km_lock *of))
{
	struct lasting holder, waiter;

	for_ever = true;
	told = false;
	give_back = gives;
	start(&holder, holds, 0);
	until(&holder.had);
	/*
	 * No unlock can miss a waiter that arrives in the middle: the lock's state tells the holder from the start to
	 * look for waiters.
	 */
	CHECK(priority(&holder) >= 0 && __atomic_load_n(&lock.state, __ATOMIC_RELAXED) & KM_LOCK_BORROWS);
	start(&waiter, wants, 10);
	until_boosted(&holder, true);
	CHECK(!is(&waiter.had));
	set(&told);
	until(&waiter.had);
	end(&waiter);
	end(&holder);
}

static void by_unlock(void)
{
	wait_once();
	lent_until(hold, km_unlock);
}

static void by_quick_unlock(void)
{
	wait_once();
	lent_until(hold, km_unlock_quick);
}

static void by_nowait_unlock(void)
{
	wait_once();
	lent_until(hold, km_unlock_nowait);
}

static void unlock_without_calls(struct km_lock *of)
{
	bool calls = km_calls_begin(false);

	km_unlock(of);
	km_calls_end(calls);
}

static void without_calls(void)
{
	wait_once();
	lent_until(hold, unlock_without_calls);
}

static void by_a_waiter_without_calls(void)
{
	wait_once();
	wants = want_without_calls;
	lent_until(hold, km_unlock);
}

static void *fork_with(void *arg)
{
	struct lasting *of = arg;

	begin(of);
	km_lock_around_fork(&lock, true, false);
	set(&of->had);
	until(&told);
	km_lock_around_fork(&lock, false, false);
	until_boosted(of, false);
	return NULL;
}

static void by_fork(void)
{
	wait_once();
	lent_until(fork_with, NULL);
}

/* The holder keeps running with its own priority. */
static bool unlocked, seen;

static void unlock_and_stay(struct km_lock *of)
{
	km_unlock(of);
	set(&unlocked);
	until(&seen);
}

static void no_longer_than_held(void)
{
	struct lasting holder, waiter;

	wait_once();
	for_ever = true;
	give_back = unlock_and_stay;
	start(&holder, hold, 0);
	until(&holder.had);
	start(&waiter, want, 10);
	until_boosted(&holder, true);
	set(&told);
	until(&unlocked);
	CHECK(priority(&holder) >= 0);
	until(&waiter.had);
	set(&seen);
	end(&waiter);
	end(&holder);
}

/* A thread older than the first real-time waiter gets loans after an unlock for a waiter. */
static void *hold_twice(void *arg)
{
	struct lasting *of = arg;
	struct km_busy_was busy = km_busy_begin();

	begin(of);
	km_lock(&lock);
	until(&unlocked);
	km_unlock_quick(&lock);
	km_busy_end(busy);
	until(&seen);
	return hold(arg);
}

static void by_a_former_thread(void)
{
	struct lasting holder, waiter, later;

	for_ever = true;
	give_back = km_unlock_quick;
	start(&holder, hold_twice, 0);
	while (!__atomic_load_n(&lock.state, __ATOMIC_ACQUIRE))
		usleep(200);
	start(&waiter, want, 10);
	while (!sleeps(waiter.id))
		usleep(200);
	CHECK(!lends && priority(&holder) >= 0);
	set(&unlocked);
	end(&waiter);
	set(&seen);
	until(&holder.had);
	start(&later, want, 10);
	until_boosted(&holder, true);
	set(&told);
	end(&later);
	end(&holder);
}

/* ------------------------------------------------------------------ chains */

static void *hold_and_want_inner(void *arg)
{
	struct lasting *of = arg;
	struct km_busy_was busy = km_busy_begin();

	begin(of);
	km_lock(&lock);
	take_inner(of);
	km_unlock(&lock);
	km_busy_end(busy);
	return NULL;
}

/* The ordinary thread in the middle sleeps already when the real-time thread comes, and lends an ordinary priority. */
static void by_a_chain(void)
{
	struct lasting last, middle, waiter;

	wait_once();
	for_ever = true;
	give_back = km_unlock;
	start(&last, hold_inner, 0);
	until(&last.had);
	start(&middle, hold_and_want_inner, 0);
	while (!is_awaited(&inner) || !sleeps(middle.id))
		usleep(200);
	CHECK(lends && priority(&last) >= 0);
	start(&waiter, want, 10);
	until_boosted(&middle, true);
	until_boosted(&last, true);
	CHECK(!is(&middle.had) && !is(&waiter.had));
	set(&told);
	until(&waiter.had);
	end(&waiter);
	end(&middle);
	end(&last);
}

/* ------------------------------------------------------------------ where lending fails */

static void in_the_child(void)
{
	lock.state = 0;
	lent_until(hold, km_unlock);
}

/* More than lend at once; a child of fork begins with none of them. */
static void many(void)
{
	struct lasting holder, waiters[MANY];

	kfree(kmalloc(100, GFP_KERNEL));
	wait_once();
	give_back = km_unlock;
	start(&holder, hold, 0);
	until(&holder.had);
	for_ever = true;
	for (int i = 0; i < MANY; i++)
		start(&waiters[i], want, 10 + i);
	for (int i = 0; i < MANY; i++)
		while (!sleeps(waiters[i].id))
			usleep(200);
	until_boosted(&holder, true);
	NEED(in_process(in_the_child) == 0);
	for_ever = false;
	set(&told);
	for (int i = 0; i < MANY; i++)
		end(&waiters[i]);
	end(&holder);
}

static void *hold_and_end(void *arg)
{
	struct lasting *of = arg;

	km_busy_begin();
	begin(of);
	km_lock(&lock);
	set(&of->had);
	until(&told);
	return NULL;
}

static void holder_ends(void)
{
	struct lasting holder, waiter;

	wait_once();
	for_ever = true;
	start(&holder, hold_and_end, 0);
	until(&holder.had);
	start(&waiter, want, 10);
	until_boosted(&holder, true);
	set(&told);
	end(&holder);
	/* The loan ended with the holder, although the test's loans have no limit of time. */
	CHECK(!is(&waiter.had));
	__atomic_store_n(&lock.state, 0u, __ATOMIC_RELEASE);
	end(&waiter);
	CHECK(waiter.had);
}

static void not_lent(int real_time)
{
	struct lasting holder, waiter;

	give_back = km_unlock;
	start(&holder, hold, 0);
	until(&holder.had);
	start(&waiter, want, real_time);
	while (!sleeps(waiter.id))
		usleep(200);
	CHECK(priority(&holder) >= 0 && !is(&waiter.had));
	set(&told);
	end(&waiter);
	end(&holder);
	CHECK(waiter.had);
}

static void refused(void)
{
	wait_once();
	refuses = true;
	not_lent(10);
	CHECK(lends);
}

static void by_an_ordinary_thread(void)
{
	not_lent(0);
	CHECK(!lends);
}

static void behind_a_filter(void)
{
	wait_once();
	km_os_shut();
	not_lent(10);
	CHECK(!lends);
}

static const struct test_case cases[] = {
	{ "until an unlock", by_unlock },
	{ "until a quick unlock", by_quick_unlock },
	{ "until an unlock for GFP_NOWAIT", by_nowait_unlock },
	{ "until an unlock without calls", without_calls },
	{ "by a waiter for GFP_NOWAIT", by_a_waiter_without_calls },
	{ "until a fork is over", by_fork },
	{ "no longer than the lock is held", no_longer_than_held },
	{ "to a thread that was there before", by_a_former_thread },
	{ "through a chain of locks", by_a_chain },
	{ "by many", many },
	{ "to a thread that ends", holder_ends },
	{ "where the system refuses", refused },
	{ "by an ordinary thread", by_an_ordinary_thread },
	{ "behind a filter", behind_a_filter },
};

int main(void)
{
	struct sched_param parameters = { .sched_priority = 10 };
	uint32_t no_thread = 0;

	if (sched_setscheduler(0, SCHED_FIFO, &parameters)) {
		printf("SCHED_FIFO is refused here (errno %d)\n", errno);
		return 77;
	}
	parameters.sched_priority = 0;
	NEED(!sched_setscheduler(0, SCHED_OTHER, &parameters));
	if (!__real_km_os_lend(&no_thread, 1)) {
		printf("the system has no futex with priority inheritance and the monotonic clock (Linux 5.14)\n");
		return 77;
	}
	return run_cases(cases, km_array_count(cases), "real-time waiters");
}
