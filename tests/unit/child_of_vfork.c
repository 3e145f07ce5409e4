/*
 * child_of_vfork.c: vfork in a program linked with libkmem only. While the child lives, the thread's rseq area is
 * unregistered, and says so; afterwards the area is the parent's again, also after a failed vfork, and also for a
 * thread not yet registered, where the library registers threads. If the kernel refuses to unregister, the child gets
 * a copy of the memory. The same behind clone, for a child that shares memory and thread area and lets the parent
 * wait; other children of clone are libc's. Disciplines: all
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>

#include "cache/cache.h"
#include "os/die.h"
#include "os/os.h"
#include "percpu/pcpu.h"
#include "kit/refuse.h"
#include "kit/check.h"
#include "kit/options.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static struct kmem_cache *cache;

static bool rseq(void)
{
	return km_percpu.discipline == KM_DISCIPLINE_RSEQ;
}

/* The CPU number in this thread's area. */
static int said_cpu(void)
{
	return *(volatile int *)((char *)__builtin_thread_pointer() + km_thread_rseq + 4);
}

static bool says_the_truth(void)
{
	unsigned cpu, again;

	do {
		syscall(SYS_getcpu, &cpu, NULL, NULL);
		int said = said_cpu();
		syscall(SYS_getcpu, &again, NULL, NULL);
		if (cpu == again)
			return said == (int)cpu;
	} while (true);
}

static void wait_for(pid_t child)
{
	int status;

	NEED(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void allocate(void)
{
	void *objects[100];

	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 100, objects));
	kmem_cache_free_bulk(cache, 100, objects);
	kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
}

static volatile int seen;

static void lent(void)
{
	allocate();
	for (int i = 0; i < 20; i++) {
		pid_t child = vfork();

		if (!child) {
			allocate();
			seen = rseq() ? said_cpu() : -1;
			_exit(0);
		}
		NEED(seen < 0);
		NEED(!rseq() || says_the_truth());
		wait_for(child);
		seen = 5;
		allocate();
	}
}

static void *in_thread(void *arg)
{
	lent();
	return arg;
}

static bool refuse(const char *call)
{
	return strcmp(call, "rseq unregister") == 0;
}

static int is_held;

/* Held until a child made without waiting would exist. */
static void *hold_a_lock(void *arg)
{
	km_registry_lock();
	__atomic_store_n(&is_held, 1, __ATOMIC_RELEASE);
	usleep(100000);
	km_registry_unlock();
	return arg;
}

/*
 * The child has a copy: its writes are not visible. The child is registered as after a fork, and holds no lock of
 * another thread of its parent.
 */
static void not_lent(void)
{
	pthread_t holder;

	if (!rseq())
		return;
	NEED(pthread_create(&holder, NULL, hold_a_lock, NULL) == 0);
	while (!__atomic_load_n(&is_held, __ATOMIC_ACQUIRE))
		sched_yield();
	km_os_fault = refuse;
	pid_t child = vfork();

	if (!child) {
		alarm(580);
		kmem_cache_destroy(kmem_cache_create("child's", 64, NULL, 0));
		allocate();
		seen = 6;
		_exit(!says_the_truth() || km_thread_is_lent());
	}
	km_os_fault = NULL;
	NEED(pthread_join(holder, NULL) == 0);
	NEED(seen == 5);
	wait_for(child);
	NEED(says_the_truth());
	allocate();
}

/* ------------------------------------------------------------------ clone */

static char stack[1 << 16] __attribute__((aligned(16)));

static int in_clone(void *arg)
{
	/* A stack is aligned where a function begins, and the caller's registers are there. */
	NEED(((uintptr_t)__builtin_frame_address(0) & 15) == 0);
	allocate();
	seen = rseq() ? said_cpu() : -1;
	return (int)(uintptr_t)arg;
}

static int only_ends(void *arg)
{
	return arg != NULL;
}

static void cloned(void)
{
	int status;

	for (int i = 0; i < 20; i++) {
		int flags = CLONE_VM | CLONE_VFORK | CLONE_PARENT_SETTID | SIGCHLD;
		pid_t told = 0, child = clone(in_clone, stack + sizeof(stack), flags, (void *)7, &told);

		NEED(child > 0 && told == child && seen < 0);
		NEED(!rseq() || says_the_truth());
		NEED(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
		seen = 5;
		allocate();
	}
	/* A child with memory of its own. */
	pid_t child = clone(in_clone, stack + sizeof(stack), SIGCHLD, (void *)8);
	NEED(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 8);
	NEED(seen == 5);
	errno = 0;
	NEED(clone(in_clone, NULL, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL) == -1 && errno == EINVAL);
	errno = 0;
	NEED(clone(NULL, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL) == -1 && errno == EINVAL);
	NEED(!rseq() || says_the_truth());
}

/* The system refuses to unregister the area: one line reports this. */
static void not_lent_to_clone(void)
{
	struct km_heard heard = { .bytes = 0 };
	char text[200] = "";

	if (!rseq())
		return;
	heard.text = text;
	heard.bytes = sizeof(text) - 1;
	km_thread.heard = &heard;
	km_os_fault = refuse;
	pid_t child = clone(only_ends, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
	km_os_fault = NULL;
	km_thread.heard = NULL;
	wait_for(child);
	NEED(strstr(text, "clone: rseq cannot be unregistered"));
	allocate();
}

/* A child that confines itself does not confine its parent, although the two share memory. */
static void confined(void)
{
	pid_t child = vfork();

	if (!child) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		_exit(0);
	}
	wait_for(child);
	NEED(!km_os_is_shut());
	NEED(!rseq() || says_the_truth());
}

/* A process created by such a child is an ordinary process. */
static void forks(void)
{
	pid_t child = vfork();

	if (!child) {
		child = fork();
		if (!child) {
			allocate();
			NEED(!rseq() || says_the_truth());
			prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
			_exit(!km_os_is_shut());
		}
		allocate();
		NEED(!rseq() || said_cpu() < 0);
		int status;
		_exit(waitpid(child, &status, 0) != child || status != 0);
	}
	wait_for(child);
	NEED(!rseq() || says_the_truth());
	NEED(!km_os_is_shut());
}

/* A system without a new child: errno, and the area is registered again. */
static void no_child(void)
{
	if (!refuse_call(SYS_clone, EAGAIN))
		return;
	errno = 0;
	NEED(vfork() == -1 && errno == EAGAIN);
	NEED(!rseq() || says_the_truth());
	allocate();
}

/* The child and its own child leave the thread unregistered if the parent has not registered the thread. */
static void *not_yet(void *arg)
{
	NEED(said_cpu() < 0);
	pid_t child = vfork();

	if (!child) {
		child = vfork();
		if (!child) {
			allocate();
			_exit(said_cpu() >= 0);
		}
		allocate();
		seen = said_cpu();
		_exit(waitpid(child, NULL, 0) != child);
	}
	NEED(seen < 0 && said_cpu() < 0);
	wait_for(child);
	seen = 5;
	lent();
	return arg;
}

/* Again, with a libc without registration of threads, by a tunable read at the program's start. */
static void registered_by_us(char **argv)
{
	pthread_t thread;

	if (km_percpu.own_registration) {
		NEED(pthread_create(&thread, NULL, not_yet, NULL) == 0 && pthread_join(thread, NULL) == 0);
	} else if (rseq() && !getenv("GLIBC_TUNABLES")) {
		pid_t child = fork();

		if (!child) {
			setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
			set_options("percpu:rseq");
			execv("/proc/self/exe", argv);
			_exit(127);
		}
		wait_for(child);
	}
}

int main(int argc, char **argv)
{
	(void)argc;
	pthread_t thread;

	cache = kmem_cache_create("vfork", 200, NULL, 0);
	NEED(cache);
	seen = 5;
	lent();
	NEED(pthread_create(&thread, NULL, in_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
	registered_by_us(argv);
	not_lent();
	cloned();
	not_lent_to_clone();
	confined();
	forks();
	no_child();
	return 0;
}
