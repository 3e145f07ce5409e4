/*
 * fixture.h: the injector's view of the code under test: numbered drivers (a state, and an operation in the
 * state), adversaries that act in the middle, and a model that tells afterwards whether an object was lost or
 * allocated twice.
 */
#ifndef TESTS_RSEQ_FIXTURE_H
#define TESTS_RSEQ_FIXTURE_H

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "inject.h"

struct adversary {
	const char *name;
	void (*act)(void);
};

struct fixture {
	const char *name;
	/* Sets the fixture up; called once. Returns: false if this build has no such code. */
	bool (*start)(void);
	unsigned drivers;
	/* Build the driver's state; false: there is none, pass over. */
	bool (*prepare)(unsigned driver);
	void (*operate)(unsigned driver);
	/* Everything freed and counted. */
	void (*verify)(void);
	void (*describe)(unsigned driver, char *text, size_t bytes);
	const struct adversary *adversaries;
	unsigned adversary_count;
	/* True for a slow adversary. */
	bool (*is_dear)(const struct adversary *adversary);
};

/* ------------------------------------------------------------------ two CPUs */

static struct {
	int home, other;		/* other is -1 where there is one CPU only */
	bool moved;
} cpus = { .other = -1 };

static void go_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	need(sched_setaffinity(0, sizeof(set), &set) == 0, "sched_setaffinity(%d)", cpu);
	km_cpu_begin();
}

static void cpus_start(void)
{
	cpu_set_t set;

	need(sched_getaffinity(0, sizeof(set), &set) == 0, "sched_getaffinity");
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET(cpu, &set)) {
			cpus.other = cpu == cpus.home ? -1 : cpus.home;
			cpus.home = cpu;
		}
	for (int cpu = CPU_SETSIZE - 1; cpu > cpus.home; cpu--)
		if (CPU_ISSET(cpu, &set))
			cpus.other = cpu;
	go_to(cpus.home);
}

static void migrate(void)
{
	if (cpus.other < 0)
		return;
	go_to(cpus.moved ? cpus.home : cpus.other);
	cpus.moved = !cpus.moved;
}

static void come_home(void)
{
	if (cpus.moved)
		go_to(cpus.home);
	cpus.moved = false;
}

/* This process is the child of a fork in the middle: one thread, and a waiting parent. */
static volatile bool is_child;

/* ------------------------------------------------------------------ a second thread, for drains from elsewhere */

static struct {
	pthread_t thread;
	int wanted, done;		/* tasks; a thread that changes one wakes the waiter */
	void (*volatile task)(void);
} helper;

/*
 * Sleeps until the word is no longer `is`, at most `most`, or forever. A change wakes a sleeper that read the word
 * before.
 */
static void sleep_while(int *word, int is, const struct timespec *most)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, is, most);
}

static void count_one(int *word)
{
	__atomic_add_fetch(word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1);
}

static bool helper_is_idle(void)
{
	return __atomic_load_n(&helper.done, __ATOMIC_ACQUIRE) == __atomic_load_n(&helper.wanted, __ATOMIC_ACQUIRE);
}

static void *help(void *unused)
{
	if (cpus.other >= 0)
		go_to(cpus.other);
	for (;;) {
		while (helper_is_idle())
			sleep_while(&helper.wanted, helper.done, NULL);
		helper.task();
		count_one(&helper.done);
	}
	return unused;
}

static void wait_at_most(const struct timespec *most)
{
	do {
		int done = __atomic_load_n(&helper.done, __ATOMIC_ACQUIRE);

		if (done == helper.wanted)
			return;
		sleep_while(&helper.done, done, most);
	} while (!most);
}

/*
 * Lets the other thread run the task, and waits; only a little if the interrupted code, in the middle of a sequence,
 * may hold a lock needed by the other thread.
 */
static void elsewhere(void (*task)(void), bool to_the_end)
{
	const struct timespec little = { .tv_nsec = 1000000 };

	helper.task = task;
	count_one(&helper.wanted);
	wait_at_most(to_the_end ? NULL : &little);
}

static void wait_for_helper(void)
{
	if (!is_child)
		wait_at_most(NULL);
}

static void helper_start(void)
{
	need(pthread_create(&helper.thread, NULL, help, NULL) == 0, "pthread_create");
}

/* ------------------------------------------------------------------ fork */

/*
 * The child goes on with the interrupted operation, verifies its state, and exits 0; the parent waits for the exit,
 * and then goes on by itself.
 */
static void fork_now(void)
{
	pid_t child = fork();
	int status;

	need(child >= 0, "fork: %s", strerror(errno));
	if (!child) {
		is_child = true;
		alarm(580);
		return;
	}
	while (waitpid(child, &status, 0) < 0)
		need(errno == EINTR, "waitpid");
	need(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child of a fork: status %#x",
	     (unsigned)status);
}

#endif
