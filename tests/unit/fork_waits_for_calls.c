/*
 * fork_waits_for_calls.c: memory in the hands of another thread during a system call (pages being released, a mapping
 * being freed) would be lost in the child of a fork forever. So a fork waits for these calls. The test holds each
 * system call until the fork has begun; the child finds each committed page used or free, and no mapping at the
 * block's place. A fork by a handler that interrupts the allocator waits, too, for work under a lock, and then for a
 * bounded time: the fork waits for a call that ends while the fork sleeps, and not for a call that never ends.
 * Disciplines: all
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
#include "kit/clock.h"

#include "kit/inside.h"
#include "os/os.h"

#define BLOCK	((size_t)1 << 19)	/* less than may be free and resident */
#define MAPPING	((size_t)40 << 20)
#define ROUNDS	5

int __real_madvise(void *p, size_t bytes, int advice);
int __real_munmap(void *p, size_t bytes);

static bool hold, held;	/* hold the other thread's next call; the call is held */
static bool nested;	/* the fork is a handler's */
static bool over;	/* the other thread may go on; the other thread has ended */
static bool through;
static bool never;	/* ... or not before the fork is */
static __thread bool forks;

/*
 * Before the system's action, until the fork has long begun: a fork that does not wait would have ended by then.
 */
static void hold_here(void)
{
	if (!__atomic_exchange_n(&hold, false, __ATOMIC_ACQ_REL))
		return;
	__atomic_store_n(&held, true, __ATOMIC_RELEASE);
	for (int i = 0; i < 50 || nested; i++) {
		if (nested && __atomic_load_n(&over, __ATOMIC_ACQUIRE))
			return;
		usleep(1000);
	}
}

void __real_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms)
{
	if (!nested || !forks || never) {
		if (never && forks)
			ahead_ms += ms;
		__real_km_os_wait(word, value, ms);
		return;
	}
	/* Now the fork sleeps. */
	__atomic_store_n(&over, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&through, __ATOMIC_ACQUIRE))
		usleep(1000);
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
	__atomic_store_n(&through, true, __ATOMIC_RELEASE);
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
	__atomic_store_n(&over, false, __ATOMIC_RELAXED);
	__atomic_store_n(&through, false, __ATOMIC_RELAXED);
	__atomic_store_n(&hold, true, __ATOMIC_RELEASE);
	CHECK(pthread_create(&thread, NULL, act, arg) == 0);
	while (!__atomic_load_n(&held, __ATOMIC_ACQUIRE))
		sched_yield();
	/* The state found by a handler that interrupts the allocator. */
	struct km_busy_was was = nested ? km_busy_begin() : (struct km_busy_was) { KM_BUSY_NOT };
	forks = true;
	pid_t child = fork();
	forks = false;
	if (nested)
		km_busy_end(was);
	if (!child && never)
		_exit(0);
	if (!child)
		_exit((all_counted() ? 0 : 1) | (arg && is_mapped(arg) ? 2 : 0) | (kmem_check_all() ? 4 : 0));
	__atomic_store_n(&over, true, __ATOMIC_RELEASE);
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	pthread_join(thread, NULL);
	if (status)
		fprintf(stderr, "status %#x\n", (unsigned)status);
	return status == 0 && all_counted();
}

static bool fork_during_purge(void)
{
	char *block = kmalloc(BLOCK, GFP_KERNEL);

	CHECK(block);
	memset(block, 1, BLOCK);
	kfree(block);
	return fork_during(purge, NULL);
}

/* Under the library's locks: they stay this thread's in the child, where the interrupted code goes on. */
static int fork_here(struct kmem_cache *cache, void *arg)
{
	int status = -1, *pid = arg;

	(void)cache;
	*pid = fork();
	CHECK(*pid >= 0 && (!*pid || (waitpid(*pid, &status, 0) == *pid && status == 0)));
	return 1;
}

static void fork_under_locks(void)
{
	int pid = -1;

	kmem_for_each_cache(fork_here, &pid);
	void *p = kmalloc(100, GFP_KERNEL);
	CHECK(p);
	kfree(p);
	kmem_shrink_all();
	CHECK(kmem_check_all() == 0);
	if (!pid)
		_exit(failures != 0);
}

int main(void)
{
	alarm(580);
	for (int i = 0; i < ROUNDS; i++) {
		nested = true;
		CHECK(fork_during_purge());
		never = true;
		CHECK(fork_during_purge());
		nested = never = false;
		fork_under_locks();
		CHECK(fork_during_purge());
		char *block = kvmalloc(MAPPING, GFP_KERNEL);
		CHECK(block);
		memset(block, 1, 1 << 20);
		CHECK(fork_during(unmap, block));
	}
	return failures != 0;
}
