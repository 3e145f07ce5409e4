/*
 * lock_of_a_sleeper.c: a thread that is to make no system call, and finds a lock taken for long, sleeps at last: the
 * holder may be one that gets no CPU before it does (SCHED_FIFO, one CPU). It says so in the lock, and has it as soon
 * as it is given back. Where it spins for ever the alarm ends the test.
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
