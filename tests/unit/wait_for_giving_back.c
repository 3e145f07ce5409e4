/*
 * wait_for_giving_back.c: a thread that needs memory while another releases memory waits for the other, if it may
 * wait, and gets the memory: its request does not fail. The other thread is stopped where its memory is on no list:
 * in the system call that releases pages, under the registry's lock, in a flush of all caches. The other goes on when
 * the second thread sleeps, or has failed. The same for a forking thread, because its child would miss the memory
 * forever. With hardened: own_addresses:0, because here pages go from one name to another.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "kit/clock.h"
#include "page/arena.h"
#include "os/os.h"
#include "kit/inside.h"
#include "kit/sleeps.h"

#define LARGEST	(KM_PAGE_SIZE << KM_MAX_ORDER)
#define BLOCK	((size_t)1 << 19)	/* less than the bound of free resident pages: the block's pages stay
					 * until demand */

static struct {
	pthread_t thread;
	void *(*get)(void);
	void *got;
	int id;
	bool done, slept;
} second;

static void *run_second(void *unused)
{
	__atomic_store_n(&second.id, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	second.got = second.get();
	__atomic_store_n(&second.done, true, __ATOMIC_RELEASE);
	return unused;
}

/*
 * Called by the first thread in the middle of its work: lets the second run until a wait, or until its
 * result.
 */
static void let_second_run(void *(*get)(void))
{
	second.get = get;
	second.done = second.slept = false;
	second.id = 0;
	NEED(pthread_create(&second.thread, NULL, run_second, NULL) == 0);
	while (!__atomic_load_n(&second.done, __ATOMIC_ACQUIRE) && !second.slept) {
		int id = __atomic_load_n(&second.id, __ATOMIC_ACQUIRE);

		second.slept = id && sleeps(id);
		usleep(100);
	}
}

/* Checks the second thread's end: with a wait, and with memory. */
static void *end_second(void)
{
	pthread_join(second.thread, NULL);
	NEED(second.slept);
	NEED(second.got);
	return second.got;
}

static const char *armed;	/* the next call of this name lets the second run */
static bool refusing;		/* refuses all requests for memory */
static void *(*wanted)(void);

static bool refuse(const char *call)
{
	if (armed && strcmp(call, armed) == 0) {
		armed = NULL;
		let_second_run(wanted);
	}
	if (!refusing)
		return false;
	return strncmp(call, "commit", 6) == 0 || strcmp(call, "map") == 0 || strcmp(call, "reserve") == 0;
}

static struct kmem_cache *work, *ready;

/* From here on there is nothing but what comes back. */
static void exhaust(void)
{
	km_os_fault = refuse;
	refusing = true;
	for (unsigned order = KM_MAX_ORDER + 1; order-- > 0;)
		INSIDE(while (km_pages_alloc(order, NUMA_NO_NODE, false, NULL)) {});
	while (kmem_cache_alloc(work, GFP_NOWAIT))
		;
}

static void *get_block(void)
{
	return kmalloc(BLOCK, GFP_KERNEL | __GFP_NOWARN);
}

static void *get_page(void)
{
	return kmem_cache_alloc(work, GFP_KERNEL | __GFP_NOWARN);
}

/* The only free block is with the system. */
static void while_purged(void)
{
	void *block = get_block();

	NEED(block);
	memset(block, 1, BLOCK);
	exhaust();
	NEED(!get_block());
	kfree(block);
	wanted = get_block;
	armed = "purge";
	kmem_shrink_all();
	NEED(!armed);
	end_second();
}

/* Pages neither used nor free; and a block whose mapping should be gone. */
static size_t missing(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return stats.arena_committed_bytes / KM_PAGE_SIZE - stats.pages_used - stats.pages_free_dirty -
	       stats.pages_free_clean;
}

static size_t missed;
static void *gone;

static void *fork_now(void)
{
	unsigned char resident[1];
	int status;
	pid_t child = fork();

	if (!child)
		_exit(missing() != missed || (gone && !mincore(gone, KM_PAGE_SIZE, resident)));
	NEED(child > 0 && waitpid(child, &status, 0) == child);
	return status ? NULL : &missed;
}

static void while_forked(void)
{
	void *block = get_block(), *mapping = kvmalloc(2 * LARGEST, GFP_KERNEL);

	NEED(block && mapping);
	memset(block, 1, BLOCK);
	kfree(block);
	missed = missing();
	wanted = fork_now;
	armed = "purge";
	km_os_fault = refuse;
	kmem_shrink_all();
	NEED(!armed);
	end_second();
	armed = "unmap";
	gone = mapping;
	kfree(mapping);
	NEED(!armed);
	end_second();
}

static int hold_registry(struct kmem_cache *cache, void *arg)
{
	if (cache == arg)
		let_second_run(get_page);
	return 0;
}

/* Objects cached in an idle cache, and in no other. */
static void cache_blocks(void)
{
	void *objects[64];
	unsigned count = 0;

	while (count < 64 && (objects[count] = kmem_cache_alloc(ready, GFP_KERNEL)))
		count++;
	exhaust();
	while (count)
		kmem_cache_free(ready, objects[--count]);
	exhaust();
}

/* A visitor of all caches keeps them from a flush. */
static void while_looked_at(void)
{
	struct kmem_cache_stats stats;

	cache_blocks();
	kmem_cache_get_stats(ready, &stats);
	if (!stats.total_slabs) {
		printf("nothing lies ready here\n");
		return;
	}
	kmem_for_each_cache(hold_registry, ready);
	end_second();
}

/* And a second request for this flush gets the first one's result. */
static void *get_page_while_first(void)
{
	void *page = get_page();

	NEED(page);
	return page;
}

static void *first_asks(void *unused)
{
	return get_page_while_first() ? unused : NULL;
}

static int hold_both(struct kmem_cache *cache, void *arg)
{
	pthread_t *first = arg;

	if (cache == ready) {
		NEED(pthread_create(first, NULL, first_asks, NULL) == 0);
		let_second_run(get_page);
	}
	return 0;
}

static void while_flushed(void)
{
	struct kmem_cache_stats stats;
	pthread_t first;

	cache_blocks();
	kmem_cache_get_stats(ready, &stats);
	if (!stats.total_slabs)
		return;
	kmem_for_each_cache(hold_both, &first);
	pthread_join(first, NULL);
	end_second();
}

static void run(const char *name, void (*test)(void))
{
	int status;

	fflush(stdout);
	pid_t child = fork();
	NEED(child >= 0);
	if (!child) {
		test();
		fflush(stdout);
		_exit(0);
	}
	NEED(waitpid(child, &status, 0) == child);
	if (status) {
		printf("FAIL %s (status %#x)\n", name, (unsigned)status);
		failures++;
	}
}

int main(void)
{
	NEED(slab_is_available());
	km_arena_set(false, 3600000);
	work = kmem_cache_create("work", 4096, NULL, 0);
	ready = kmem_cache_create("ready", 4096, NULL, 0);
	NEED(work && ready);
	run("while purged", while_purged);
	run("while forked", while_forked);
	run("while looked at", while_looked_at);
	run("while flushed", while_flushed);
	return failures != 0;
}
