/*
 * malloc_vfork.c: vfork behaves as libc's vfork: the parent waits, learns of a failed exec, no handlers of
 * pthread_atfork run, and a lock held across the call does no harm. The child may allocate and free, POSIX or not,
 * in the parent's memory, while other threads allocate and the child moves from CPU to CPU; the state is valid
 * afterwards. Disciplines: all
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit/cpus.h"
#include "kit/malloc.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define THREADS	2
#define ROUNDS	200
#define KEPT	300

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int handlers, failed;
static int stop;

static void in_atfork(void)
{
	handlers++;
}

static void wait_for(pid_t child, int wanted)
{
	int status = -1;

	NEED(child > 0);
	NEED(waitpid(child, &status, 0) == child);
	NEED(WIFEXITED(status) && WEXITSTATUS(status) == wanted, "(status %x)", (unsigned)status);
}

/* The child shares the parent's variable: busybox, for example, learns of a failed exec this way. */
static void test_failed_exec(void)
{
	pid_t child = vfork();

	if (!child) {
		execl("/no/such/program", "program", (char *)NULL);
		failed = errno;
		_exit(127);
	}
	NEED(failed == ENOENT, "(%d)", failed);
	wait_for(child, 127);
	failed = 0;
	child = vfork();
	if (!child) {
		execl("/bin/true", "true", (char *)NULL);
		failed = 1;
		_exit(127);
	}
	NEED(!failed);
	wait_for(child, 0);
}

static void test_lock(void)
{
	pthread_mutex_lock(&lock);
	pid_t child = vfork();

	if (!child) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(127);
	}
	pthread_mutex_unlock(&lock);
	wait_for(child, 0);
	NEED(handlers == 0);
}

/* ------------------------------------------------------------------ allocations */

static char *kept[KEPT];

static size_t bytes_of(int i)
{
	return i % 50 == 0 ? 40000 + (size_t)i : 16 + (size_t)i * 7 % 2000;
}

static void *allocating(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		char *mine[50];
		int n = (int)(rand_r(&seed) % 50);

		for (int i = 0; i < n; i++) {
			mine[i] = malloc(bytes_of(i));
			NEED(mine[i]);
			fill(mine[i], bytes_of(i), (unsigned)i);
		}
		for (int i = 0; i < n; i++) {
			NEED(is_filled(mine[i], bytes_of(i), (unsigned)i));
			free(mine[i]);
		}
	}
	return NULL;
}

/* Half of what is kept is replaced. */
static void in_child(int round, int cpus)
{
	for (int i = round % 2; i < KEPT; i += 2) {
		if (i % 20 < 2)
			go_to_cpu((round + i) % cpus);	/* fails where the process may not use the CPU */
		if (!is_filled(kept[i], bytes_of(i), (unsigned)i))
			_exit(1);
		free(kept[i]);
		kept[i] = malloc(bytes_of(i));
		if (!kept[i])
			_exit(2);
		fill(kept[i], bytes_of(i), (unsigned)i);
	}
	/* A vfork in a child of vfork. */
	if (round % 8 == 0) {
		pid_t child = vfork();

		if (!child) {
			free(malloc(100));
			_exit(9);
		}
		int status;
		if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 9)
			_exit(3);
		free(malloc(100));
	}
	_exit(7);
}

static void test_allocations(void)
{
	int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t threads[THREADS];

	for (int i = 0; i < KEPT; i++) {
		kept[i] = malloc(bytes_of(i));
		NEED(kept[i]);
		fill(kept[i], bytes_of(i), (unsigned)i);
	}
	for (long i = 0; i < THREADS; i++)
		NEED(pthread_create(&threads[i], NULL, allocating, (void *)(i + 1)) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		pid_t child = vfork();

		if (!child)
			in_child(round, cpus);
		wait_for(child, 7);
		for (int i = 0; i < KEPT; i++)
			NEED(is_filled(kept[i], bytes_of(i), (unsigned)i), "(round %d, block %d)", round, i);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		NEED(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < KEPT; i++)
		free(kept[i]);
}

int main(void)
{
	check_ours();
	alarm(580);
	NEED(pthread_atfork(in_atfork, in_atfork, in_atfork) == 0);
	test_failed_exec();
	test_lock();
	test_allocations();
	NEED(handlers == 0);
	return 0;
}
