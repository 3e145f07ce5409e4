/*
 * lock_of_a_sleeper.c: a thread that should make no system call, and finds a lock held for long, sleeps in the end,
 * because the holder may get no CPU before (SCHED_FIFO, one CPU). The lock records the sleeper, and the sleeper gets
 * the lock at its release. An endless spin is ended by the alarm.
 */
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "kit/check.h"
#include "os/lock.h"

static struct km_lock lock = KM_LOCK_INIT(KM_RANK_STOCK);
static bool had;

static void *want(void *unused)
{
	struct km_busy_was busy = km_busy_begin();
	bool calls = km_calls_begin(false);

	km_lock(&lock);
	had = true;
	km_unlock(&lock);
	km_calls_end(calls);
	km_busy_end(busy);
	return unused;
}

int main(void)
{
	struct km_busy_was busy = km_busy_begin();
	pthread_t thread;

	alarm(580);
	km_lock(&lock);
	NEED(!pthread_create(&thread, NULL, want, NULL));
	while (!(__atomic_load_n(&lock.state, __ATOMIC_ACQUIRE) & KM_LOCK_AWAITED))
		sched_yield();
	CHECK(!had);
	km_unlock(&lock);
	km_busy_end(busy);
	NEED(!pthread_join(thread, NULL));
	CHECK(had);
	return failures != 0;
}
