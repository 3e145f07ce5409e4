/*
 * nested_fork_locks.c: the CPUs' locks taken by a handler's fork are free after the fork: also if another thread
 * waits for one meanwhile, if another thread forks as well and each fork releases its own locks, and if another
 * thread's fork waits for a lock of the interrupted code. A thread whose number equals the forking thread's does not
 * pass, and keeps no lock in the child. Disciplines: all
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/rcu.h>
#include <kmem/stats.h>

#include "kit/cases.h"
#include "kit/cpus.h"
#include "kit/inside.h"
#include "kit/sleeps.h"

#include "cache/cache.h"
#include "page/zone.h"
#include "os/lock.h"

#define BLOCK		((size_t)3 << 19)	/* of whole pages, and too large to be cached */
#define MOST_WAITS	50u			/* waits for a free lock: each is 64 ms at most */

static bool forked;		/* the fork is over */
static unsigned waits;		/* since then */
static int waiter_id;
static bool waiter_done;
static void (*come_by)(void);
static pthread_t first, other;

void __real_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms)
{
	if (__atomic_load_n(&forked, __ATOMIC_ACQUIRE))
		NEED(__atomic_add_fetch(&waits, 1u, __ATOMIC_RELAXED) < MOST_WAITS, "a lock without a holder is held");
	__real_km_os_wait(word, value, ms);
}

/* ------------------------------------------------------------------ other threads */

static void *block;
static struct kmem_rcu_head *asked;
static void (*when_over)(struct kmem_rcu_head *head);

static void call(struct kmem_rcu_head *head, void (*function)(struct kmem_rcu_head *head))
{
	asked = head;
	when_over = function;
}

static void nothing(void)
{
}

static const struct kmem_rcu test_rcu = { .call = call, .synchronize = nothing, .barrier = nothing };

static void free_block(void)
{
	kfree(block);
}

static void free_later(void)
{
	kmem_free_rcu(block, 0);
}

/* ------------------------------------------------------------------ forks */

static void fork_and_wait(void)
{
	int status;
	pid_t child = fork();

	if (!child)
		_exit(0);
	NEED(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* As in a handler that interrupts the allocator. */
static void nested_fork(void)
{
	struct km_busy_was was = km_busy_begin();

	fork_and_wait();
	km_busy_end(was);
}

static void *in_thread(void *arg)
{
	go_to_cpu(cpu_at(0));
	__atomic_store_n(&waiter_id, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	come_by();
	__atomic_store_n(&waiter_done, true, __ATOMIC_RELEASE);
	return arg;
}

/*
 * The other thread waits for a lock of the fork, or has ended; a fork always ends, with or without all locks.
 */
static void let_it_come(void)
{
	NEED(pthread_create(&other, NULL, in_thread, NULL) == 0);
	for (bool slept = false; !slept && !__atomic_load_n(&waiter_done, __ATOMIC_ACQUIRE); usleep(100)) {
		int id = __atomic_load_n(&waiter_id, __ATOMIC_ACQUIRE);

		slept = id && come_by != nested_fork && sleeps(id);
	}
}

/* The last part of a fork's beginning: all locks are held. */
static void at_fork(bool before, bool child)
{
	(void)child;
	if (before && pthread_equal(pthread_self(), first))
		let_it_come();
}

static void begin(void (*what)(void))
{
	go_to_cpu(cpu_at(0));
	first = pthread_self();
	come_by = what;
	/* This CPU has what they need. */
	kfree(kmalloc(BLOCK, GFP_KERNEL));
	NEED((block = kmalloc(BLOCK, GFP_KERNEL)));
	km_mempool_fork = at_fork;
}

static void end(void)
{
	km_mempool_fork = NULL;
	__atomic_store_n(&forked, true, __ATOMIC_RELEASE);
	NEED(pthread_join(other, NULL) == 0);
	kfree(kmalloc(BLOCK, GFP_KERNEL));
}

static void comes_for_pages(void)
{
	begin(free_block);
	nested_fork();
	end();
	NEED(kmem_check_all() == 0);
}

static void comes_with_an_object(void)
{
	NEED(kmem_set_rcu(&test_rcu) == 0);
	kmem_free_rcu(kmalloc(100, GFP_KERNEL), 0);
	begin(free_later);
	block = kmalloc(100, GFP_KERNEL);
	nested_fork();
	end();
	kmem_free_rcu(kmalloc(100, GFP_KERNEL), 0);
}

static void forks_as_well(void)
{
	NEED(kmem_set_rcu(&test_rcu) == 0);
	kmem_free_rcu(kmalloc(100, GFP_KERNEL), 0);
	begin(nested_fork);
	fork_and_wait();
	end();
	kmem_free_rcu(kmalloc(100, GFP_KERNEL), 0);
	kfree(block);
}

/* ------------------------------------------------------------------ the fork that gives way */

static bool locked;

static void *fork_at_lock(void *arg)
{
	while (!__atomic_load_n(&locked, __ATOMIC_ACQUIRE))
		usleep(100);
	fork_and_wait();
	return arg;
}

/* The other fork has libc's list of open FILEs, and waits for a lock of this thread: the handler's fork waits for the
 * list. */
static void gives_way(void)
{
	struct km_lock *lock = &km_arena.zone[0].lock;

	kfree(kmalloc(BLOCK, GFP_KERNEL));
	NEED(pthread_create(&other, NULL, fork_at_lock, NULL) == 0);
	struct km_busy_was was = km_busy_begin();
	km_lock(lock);
	__atomic_store_n(&locked, true, __ATOMIC_RELEASE);
	while (!(__atomic_load_n(&lock->state, __ATOMIC_RELAXED) & KM_LOCK_AWAITED))
		usleep(100);
	fork_and_wait();
	km_unlock(lock);
	km_busy_end(was);
	NEED(pthread_join(other, NULL) == 0);
	NEED(kmem_check_all() == 0);
}

/* Both numbers are valid in their context: a child of clone has its parent's, and may have another PID namespace. */
static bool passed;

static void try_lock(void)
{
	struct km_busy_was was = km_busy_begin();

	passed = km_trylock(&km_arena.zone[0].lock);
	if (passed)
		km_unlock(&km_arena.zone[0].lock);
	km_busy_end(was);
}

static void *try_with_number(void *number)
{
	km_thread.self = *(uint32_t *)number;
	try_lock();
	return NULL;
}

static void of_one_number(void)
{
	struct km_lock lock = KM_LOCK_INIT(KM_RANK_ZONE);
	uint32_t number = km_lock_self();
	pthread_t thread;

	km_boot_fork_prepare();
	NEED(!pthread_create(&thread, NULL, try_with_number, &number) && !pthread_join(thread, NULL));
	NEED(!passed, "another thread with the number of the one that forks passes its locks");
	try_lock();
	NEED(passed);
	km_boot_fork_parent();
	lock.state = number;
	INSIDE(km_lock_around_fork(&lock, false, true));
	NEED(!lock.state);
}

static const struct test_case cases[] = {
	{ "another thread has the same number", of_one_number },
	{ "a fork gives way to a handler's", gives_way },
	{ "another thread comes for pages", comes_for_pages },
	{ "another thread comes with an object", comes_with_an_object },
	{ "another thread forks as well", forks_as_well },
};

int main(void)
{
	return run_cases(cases, sizeof(cases) / sizeof(cases[0]), "nested forks");
}
