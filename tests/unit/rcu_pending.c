/*
 * rcu_pending: kmem_cache_destroy waits for what kfree_rcu was given, also where a grace period begins just then: what
 * waited has been collected, and nothing is under way yet. That thread is stopped there, until kmem_cache_destroy is
 * through, or sleeps.
 */
#define _GNU_SOURCE
#define KMEM_BARE
#include <pthread.h>
#include <sched.h>

#include <kmem/stats.h>

#include "cache/kfree_rcu.c"
#include "kit/check.h"
#include "kit/cpus.h"
#include "os/os.h"

void __real_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __real_km_os_wake(uint32_t *word);
void __wrap_km_os_wake(uint32_t *word);

/* The RCU: the test ends each grace period. */
static struct kmem_rcu_head *asked;
static void (*when_over)(struct kmem_rcu_head *head);

static void call(struct kmem_rcu_head *head, void (*function)(struct kmem_rcu_head *head))
{
	when_over = function;
	__atomic_store_n(&asked, head, __ATOMIC_RELEASE);
}

static void end_one(void)
{
	struct kmem_rcu_head *head;

	while (!(head = __atomic_exchange_n(&asked, NULL, __ATOMIC_ACQ_REL)))
		sched_yield();
	when_over(head);
}

static void nothing(void)
{
}

static const struct kmem_rcu test_rcu = { .call = call, .synchronize = nothing, .barrier = end_one };

static struct kmem_cache *one, *other;
static uint32_t *locked;			/* the lock of the CPU with the waiting object */
static int collects, collected, sleeps, destroyed;
static bool too_soon;
static __thread bool begins, destroys;

void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms)
{
	if (begins && word == locked)
		__atomic_store_n(&collects, 1, __ATOMIC_RELEASE);
	if (destroys && word == &rcu.lock.state)
		__atomic_store_n(&sleeps, 1, __ATOMIC_RELEASE);
	__real_km_os_wait(word, value, ms);
}

void __wrap_km_os_wake(uint32_t *word)
{
	if (begins && word == locked && !__atomic_exchange_n(&collected, 1, __ATOMIC_ACQ_REL)) {
		while (!__atomic_load_n(&sleeps, __ATOMIC_ACQUIRE) && !__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE))
			sched_yield();
		too_soon = __atomic_load_n(&destroyed, __ATOMIC_ACQUIRE);
	}
	__real_km_os_wake(word);
}

/* The first grace period ends here, and the next one begins. */
static void *begin_next(void *unused)
{
	begins = true;
	end_one();
	return unused;
}

static void *destroy(void *unused)
{
	destroys = true;
	while (!__atomic_load_n(&collected, __ATOMIC_ACQUIRE))
		sched_yield();
	kmem_cache_destroy(one);
	__atomic_store_n(&destroyed, 1, __ATOMIC_RELEASE);
	return unused;
}

int main(void)
{
	pthread_t beginner, destroyer;
	struct km_rcu_waiting *here;

	NEED(go_to_cpu(cpu_at(0)));
	NEED(kmem_set_rcu(&test_rcu) == 0);
	one = kmem_cache_create("one", 64, NULL, SLAB_NO_MERGE);
	other = kmem_cache_create("other", 64, NULL, SLAB_NO_MERGE);
	NEED(one && other);
	kmem_free_rcu(kmem_cache_alloc(other, GFP_KERNEL), 0);
	NEED(rcu.under_way);
	kmem_free_rcu(kmem_cache_alloc(one, GFP_KERNEL), 0);
	struct km_busy_was was = km_busy_begin();
	here = lock_here();
	NEED(here && here->told);
	locked = &here->lock.state;
	NEED(pthread_create(&beginner, NULL, begin_next, NULL) == 0);
	NEED(pthread_create(&destroyer, NULL, destroy, NULL) == 0);
	while (!__atomic_load_n(&collects, __ATOMIC_ACQUIRE))
		sched_yield();
	km_unlock(&here->lock);
	km_busy_end(was);
	pthread_join(beginner, NULL);
	CHECK(collected && !too_soon, "kmem_cache_destroy has not waited");
	pthread_join(destroyer, NULL);
	NEED(kmem_check_all() == 0);
	kmem_cache_destroy(other);
	return failures != 0;
}
