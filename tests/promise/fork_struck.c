/*
 * fork_struck: a breakpoint stops a thread at any instruction of the library, and another thread forks. The fork
 * ends, or waits for a lock of the stopped thread, and the stopped thread then goes on. The child, without the
 * stopped thread, allocates and frees by all functions, and finds every invariant kept. For each engine.
 *
 * The instructions are in 31 parts, every 31st in one part. STRIKE_PARTS parts are struck, beginning with
 * STRIKE_SEED; with CHECK_LONG all parts, so each instruction on the thread's way. Disciplines: all.
 */
#define _GNU_SOURCE
#include <kmem/memcg.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>

#include "kit/api.h"
#include "os/lock.h"
#include "os/os.h"

#ifndef __x86_64__
int main(void)
{
	printf("its breakpoints are x86-64's\n");
	return 77;
}
#else

#include "kit/strike.h"

#define PARTS 31u
#define COUNT 200

/* The test sets the clock, so that code run by age is reached. */
static volatile time_t now = 1000;
int __wrap_clock_gettime(clockid_t id, struct timespec *time);
int __wrap_clock_gettime(clockid_t id, struct timespec *time)
{
	(void)id;
	*time = (struct timespec){ .tv_sec = now };
	return 0;
}

/* ------------------------------------------------------------------ two threads */

enum { GOES_ON, STOPPED, FORKED, OVER };
static uint32_t state;		/* a futex */
static bool is_forking;		/* the fork has begun, and is not through */
static __thread bool forks, is_victim;
static struct kmem_cache *shared;
static unsigned long struck, waited, bad;

APART static void set_state(uint32_t to)
{
	__atomic_store_n(&state, to, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &state, FUTEX_WAKE_PRIVATE, 8, NULL, NULL, 0);
}

/* Does nothing if the stopped thread has just gone on by itself. */
APART static bool let_go(void)
{
	uint32_t was = STOPPED;

	if (!__atomic_compare_exchange_n(&state, &was, FORKED, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		return false;
	syscall(SYS_futex, &state, FUTEX_WAKE_PRIVATE, 8, NULL, NULL, 0);
	return true;
}

APART static void await_change(uint32_t from)
{
	while (__atomic_load_n(&state, __ATOMIC_SEQ_CST) == from)
		syscall(SYS_futex, &state, FUTEX_WAIT_PRIVATE, from, NULL, NULL, 0);
}

/* A waiting fork lets the stopped thread go on. */
void __real_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms)
{
	if (forks && let_go())
		waited++;
	__real_km_os_wait(word, value, ms);
}

/* The lock that the fork waited for is free: the fork is next. */
void __real_km_os_wake(uint32_t *word);
void __wrap_km_os_wake(uint32_t *word);
void __wrap_km_os_wake(uint32_t *word)
{
	__real_km_os_wake(word);
	if (!is_victim || !__atomic_load_n(&is_forking, __ATOMIC_SEQ_CST))
		return;
	set_state(STOPPED);
	if (__atomic_load_n(&is_forking, __ATOMIC_SEQ_CST))
		await_change(STOPPED);
	set_state(GOES_ON);
}

/* ------------------------------------------------------------------ the child */

static void use_all(unsigned count)
{
	static const size_t bytes[] = { 40, 300, 2000, 8192, 20000 };
	void *objects[COUNT];

	for (unsigned i = 0; i < count; i++)
		NEED((objects[i] = kmem_cache_alloc(shared, GFP_KERNEL)));
	for (unsigned i = 0; i < count; i++)
		kmem_cache_free(shared, objects[i]);
	NEED(kmem_cache_alloc_bulk(shared, GFP_KERNEL, count, objects));
	kmem_cache_free_bulk(shared, count, objects);
	for (unsigned i = 0; i < 5; i++)
		NEED((objects[i] = kmalloc(bytes[i], GFP_KERNEL)));
	for (unsigned i = 0; i < 5; i++)
		kfree(objects[i]);
}

static void come_and_go(const char *name)
{
	now += 3;
	struct kmem_cache *cache = kmem_cache_create(name, 200, NULL, 0);

	NEED(cache);
	kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
	kmem_cache_shrink(cache);
	kmem_cache_destroy(cache);
	kmem_cache_shrink(shared);
}

static void groups(void)
{
	struct mem_cgroup *group = slob ? NULL : mem_cgroup_create(NULL, "group", 0);
	void *p[10];

	if (slob)
		return;
	NEED(group);
	for (int i = 0; i < 10; i++)
		NEED((p[i] = kmalloc_in(group, 300, GFP_KERNEL)));
	for (int i = 0; i < 10; i++)
		kfree(p[i]);
	mem_cgroup_put(group);
}

/* Only the objects in the other thread's hands are lost to the child. */
static void in_child(void)
{
	alarm(580);
	use_all(60);
	come_and_go("child");
	groups();
	kmem_shrink_all();
	_exit(kmem_check_all() ? 3 : 0);
}

static void fork_once(void)
{
	int status;

	__atomic_store_n(&is_forking, true, __ATOMIC_SEQ_CST);
	forks = true;
	pid_t child = fork();
	forks = false;
	if (!child)
		in_child();
	__atomic_store_n(&is_forking, false, __ATOMIC_SEQ_CST);
	let_go();
	NEED(child > 0 && waitpid(child, &status, 0) == child);
	if (status && bad++ < 5)
		printf("strike %lu: the child ended with status %#x\n", struck, (unsigned)status);
}

static void *forker(void *unused)
{
	for (;;) {
		uint32_t was = __atomic_load_n(&state, __ATOMIC_SEQ_CST);

		if (was == OVER)
			return unused;
		if (was == STOPPED)
			fork_once();
		else
			await_change(was);
	}
}

/* ------------------------------------------------------------------ breakpoints */

/* The victim stops only while no fork is under way: a passing thread leaves the breakpoint for the victim. */
static struct point *met[4096];
static size_t met_count;
static uint32_t trap_lock;

/* The lock of a thread of the parent is free in the forked child. */
APART static void lock_traps(void)
{
	uint32_t self = (uint32_t)syscall(SYS_getpid), holder = 0;

	while (!__atomic_compare_exchange_n(&trap_lock, &holder, self, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		holder = holder == self ? 0 : holder;
}

APART static void note_met(struct point *point)
{
	if (met_count < sizeof(met) / sizeof(*met))
		met[met_count++] = point;
}

APART static void on_trap(int number, siginfo_t *info, void *arg)
{
	greg_t *ip = &((ucontext_t *)arg)->uc_mcontext.gregs[REG_RIP];
	int saved_errno = errno;
	bool plain;

	(void)number, (void)info;
	lock_traps();
	struct point *point = point_of_trap((uintptr_t)*ip, &plain);
	bool strikes = is_victim && point && !is_forking && __atomic_load_n(&state, __ATOMIC_SEQ_CST) == GOES_ON;
	if (point)
		disarm(point);
	/* Another thread has just disarmed the breakpoint: the instruction is restored. */
	if (plain || !point)
		--*ip;
	if (point && strikes)
		point->struck = true;
	else if (point)
		note_met(point);
	__atomic_store_n(&trap_lock, 0, __ATOMIC_RELEASE);
	if (strikes) {
		struck++;
		set_state(STOPPED);
		await_change(STOPPED);
		set_state(GOES_ON);
	}
	errno = saved_errno;
}

APART static void arm_part(unsigned long part, bool armed)
{
	for (size_t i = 0; i < point_count; i++)
		if (i % PARTS == part % PARTS && !points[i].struck && armed)
			arm(&points[i]);
		else if (points[i].armed && !armed)
			disarm(&points[i]);
	met_count = 0;
}

static void work(void)
{
	use_all(COUNT);
	come_and_go("victim");
	groups();
}

/* Twice: a breakpoint met while a fork was under way may stop the victim the second time. */
static void *victim(void *unused)
{
	unsigned long rounds = number_of("STRIKE_PARTS", getenv("CHECK_LONG") ? PARTS : 2);
	unsigned long seed = number_of("STRIKE_SEED", 0);

	is_victim = true;
	for (unsigned long i = 0; i < rounds; i++)
		for (int turn = 0; turn < 2; turn++) {
			arm_part(seed + i, true);
			work();
			arm_part(seed + i, false);
		}
	printf("STRIKE_SEED=%lu STRIKE_PARTS=%lu: %lu forks, %lu waited\n", seed, rounds, struck, waited);
	return unused;
}

static void struck_and_forked(void)
{
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER };
	pthread_t threads[2];

	shared = make("shared", 64);
	work();
	find_points();
	NEED(!sigaction(SIGTRAP, &action, NULL));
	NEED(!pthread_create(&threads[1], NULL, forker, NULL) && !pthread_create(&threads[0], NULL, victim, NULL));
	NEED(!pthread_join(threads[0], NULL));
	/* The last fork may not have ended yet. */
	while (__atomic_load_n(&state, __ATOMIC_SEQ_CST) != GOES_ON || is_forking)
		sched_yield();
	set_state(OVER);
	NEED(!pthread_join(threads[1], NULL));
	kmem_cache_shrink(shared);
	NEED(kmem_check_all() == 0 && struck > 30 && !bad);
	gone(shared);
}

static const struct test_case cases[] = { { "struck and forked", struck_and_forked } };
API_MAIN(cases)
#endif
