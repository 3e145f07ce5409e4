/*
 * fork_waits_for_calls.c: what another thread has in hand while it calls the system is nobody's in the child of a
 * fork, for ever: pages that it is giving back, a mapping that it is freeing. So a fork waits for them. Each call of
 * the system is held here until the fork has begun; the child finds each committed page used or free, and nothing
 * mapped where the block was. Disciplines: all
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"

#define BLOCK	((size_t)1 << 19)	/* less than may be free and resident */
#define MAPPING	((size_t)40 << 20)
#define ROUNDS	5

int __real_madvise(void *p, size_t bytes, int advice);
int __real_munmap(void *p, size_t bytes);

static bool hold, held;	/* the other thread's next call; it has come to it */

/* Before the system has done it, until the fork has long begun: a fork that does not wait is through by then. */
static void hold_here(void)
{
	if (!__atomic_exchange_n(&hold, false, __ATOMIC_ACQ_REL))
		return;
	__atomic_store_n(&held, true, __ATOMIC_RELEASE);
	usleep(50000);
}

int __wrap_madvise(void *p, size_t bytes, int advice)
{
	if (advice == MADV_DONTNEED)
		hold_here();
	return __real_madvise(p, bytes, advice);
}

int __wrap_munmap(void *p, size_t bytes)
{
	if (bytes >= MAPPING)
		hold_here();
	return __real_munmap(p, bytes);
}

static void *purge(void *arg)
{
	(void)arg;
	kmem_shrink_all();
	return NULL;
}

static void *unmap(void *block)
{
	kvfree(block);
	return NULL;
}

static bool all_counted(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	/* The first two pages are never given out. */
	size_t pages = stats.pages_used + stats.pages_free_dirty + stats.pages_free_clean + 2;
	return pages == stats.arena_committed_bytes / 4096;
}

static bool is_mapped(char *block)
{
	unsigned char in_core;

	return mincore(block, 4096, &in_core) == 0 || errno != ENOMEM;
}

/* True if the child has nothing missing and nothing too much. */
static bool fork_during(void *(*act)(void *arg), void *arg)
{
	pthread_t thread;
	int status = -1;

	__atomic_store_n(&held, false, __ATOMIC_RELAXED);
	__atomic_store_n(&hold, true, __ATOMIC_RELEASE);
	CHECK(pthread_create(&thread, NULL, act, arg) == 0);
	while (!__atomic_load_n(&held, __ATOMIC_ACQUIRE))
		sched_yield();
	pid_t child = fork();
	if (!child)
		_exit((all_counted() ? 0 : 1) | (arg && is_mapped(arg) ? 2 : 0) | (kmem_check_all() ? 4 : 0));
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	pthread_join(thread, NULL);
	if (status)
		fprintf(stderr, "status %#x\n", (unsigned)status);
	return status == 0 && all_counted();
}

int main(void)
{
	alarm(100);
	for (int i = 0; i < ROUNDS; i++) {
		char *block = kmalloc(BLOCK, GFP_KERNEL);

		CHECK(block);
		memset(block, 1, BLOCK);
		kfree(block);
		CHECK(fork_during(purge, NULL));
		block = kvmalloc(MAPPING, GFP_KERNEL);
		CHECK(block);
		memset(block, 1, 1 << 20);
		CHECK(fork_during(unmap, block));
	}
	return failures != 0;
}
