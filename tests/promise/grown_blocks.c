/*
 * grown_blocks.c: blocks of pages that grow. A block moved by realloc grows in place up to twice its pages, with any
 * allocations meanwhile. The next block uses the rest without the shared lock. The cached rests are bounded,
 * uncharged, and go back by age, on demand, and before a request fails. A child of fork has them, too.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

#include <kmem/memcg.h>

#include "kit/cpus.h"
#include "kit/api.h"
#include "kmalloc/realloc_run.h"
#include "page/zone.h"
#include "os/os.h"

#define FIRST	20000ul
#define STEP	4096ul
#define LAST	(2ul << 20)

static void *other[1024];
static void (*tick)(void);

/* The thread stays on one CPU, and nothing ages by itself. */
static void begin(void)
{
	stay_here();
	kmem_shrink_all();
	tick = km_alloc_tick;
	km_alloc_tick = NULL;
}

/*
 * Grows a block page by page; crowded: with another allocation at each step. Returns: how often the
 * block moved.
 */
static unsigned grow(size_t last, bool crowded)
{
	unsigned moves = 0, others = 0;
	size_t size = FIRST;
	char *p = kvrealloc(kvmalloc(100, GFP_KERNEL), size, GFP_KERNEL);

	NEED(p);
	memset(p, 0x5a, size);
	while (size < last) {
		char *q = kvrealloc(p, size + STEP, GFP_KERNEL);

		NEED(q && all(q + size - STEP, 0x5a, STEP) && ksize(q) >= size + STEP);
		memset(q + size, 0x5a, STEP);
		size += STEP;
		moves += q != p;
		p = q;
		if (crowded)
			NEED((other[others++] = kmalloc(12288, GFP_KERNEL)));
	}
	NEED(all(p, 0x5a, size) && kmem_check_all() == 0);
	kvfree(p);
	while (others)
		kfree(other[--others]);
	return moves;
}

static void moves_as_it_doubles(void)
{
	if (slob)
		return;
	begin();
	/* Pages 5 to 512: the size doubles 7 times. */
	unsigned moves = grow(LAST, true);
	NEED(moves <= 10);
	/* The rest of the last block is long enough after some rounds. */
	for (int i = 0; i < 10; i++)
		NEED(grow(LAST, false) <= 10);
	NEED(grow(LAST, true) == 0 && grow(LAST, false) == 0);
	NEED(km_growth_count() && km_growth_count() <= km_growth_pages());
}

static uint32_t holds;

/* Another thread has the lock of the free pages until this one is done. */
static void *hold(void *arg)
{
	struct km_busy_was was = km_busy_begin();

	km_lock(&km_arena.zone[0].lock);
	km_store_release(&holds, 1u);
	while (km_load_acquire(&holds) == 1)
		usleep(100);
	km_unlock(&km_arena.zone[0].lock);
	km_busy_end(was);
	return arg;
}

static void without_the_lock(void)
{
	pthread_t thread;

	if (slob)
		return;
	begin();
	for (int i = 0; i < 10; i++)
		grow(LAST, false);
	char *p = kvmalloc(1, GFP_KERNEL);
	NEED(p);
	alarm(580);
	NEED(pthread_create(&thread, NULL, hold, NULL) == 0);
	while (!km_load_acquire(&holds))
		usleep(100);
	for (size_t size = FIRST; size <= LAST; size += STEP)
		NEED((p = kvrealloc(p, size, GFP_KERNEL)));
	p = kvrealloc(p, LAST / 4, GFP_KERNEL);
	NEED(p);
	kvfree(p);
	km_store_release(&holds, 2u);
	NEED(pthread_join(thread, NULL) == 0);
	alarm(0);
	NEED(kmem_check_all() == 0);
}

/* The counters match the cached pages and the resident memory. */
static void counted(void)
{
	struct kmem_stats before, during, after;

	begin();
	kmem_get_stats(&before);
	char *p = kvrealloc(kvmalloc(FIRST, GFP_KERNEL), 100000, GFP_KERNEL);
	NEED(p && ksize(p) >= 100000);
	memset(HELD(p), 0xff, ksize(p));
	kmem_get_stats(&during);
	NEED(during.large_blocks == before.large_blocks + 1);
	NEED(during.large_bytes == before.large_bytes + ksize(p));
	/* Zeros where they are asked for. */
	kvfree(p);
	p = kvzalloc(FIRST, GFP_KERNEL);
	for (size_t size = FIRST; size < 150000; size += 10000) {
		p = kvrealloc(p, size, GFP_KERNEL | __GFP_ZERO);
		NEED(p && all(p, 0, ksize(p)));
	}
	kvfree(p);
	kmem_get_stats(&during);
	NEED(during.large_blocks == before.large_blocks && during.large_bytes == before.large_bytes);
	kmem_shrink_all();
	kmem_get_stats(&after);
	NEED(after.pages_used <= before.pages_used && km_growth_count() == 0 && km_growth_pages() == 0);
}

static size_t bound(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return stats.pages_used / 16 + 256 + 2048;
}

static void *grow_elsewhere(void *arg)
{
	go_to_cpu((int)(intptr_t)arg);
	for (int i = 0; i < 20; i++) {
		char *p = NULL;

		for (size_t size = 10000; size < 4000000; size += size / 2)
			NEED((p = kvrealloc(p, size, GFP_KERNEL)));
		kvfree(p);
	}
	return NULL;
}

/* The bound holds for all CPUs, and for blocks of all sizes. */
static void bounded(void)
{
	pthread_t thread[8];
	static void *many[64];

	begin();
	for (size_t i = 0; i < 8; i++)
		NEED(pthread_create(&thread[i], NULL, grow_elsewhere, (void *)i) == 0);
	for (size_t i = 0; i < 8; i++)
		NEED(pthread_join(thread[i], NULL) == 0);
	NEED(km_growth_count() <= km_growth_pages() && km_growth_pages() <= bound());
	for (size_t i = 0; i < 64; i++)
		NEED((many[i] = kvrealloc(kvmalloc(FIRST, GFP_KERNEL), 500000, GFP_KERNEL)));
	for (size_t i = 64; i--;)
		kvfree(many[i]);
	NEED(km_growth_count() <= km_growth_pages() && km_growth_pages() <= bound());
	NEED(kmem_check_all() == 0);
}

/* No block grew for the decay time, and a tick runs. */
static void by_age(void)
{
	begin();
	for (int i = 0; i < 10; i++)
		grow(LAST, false);
	NEED(slob || km_growth_pages() >= LAST / 4096);
	km_alloc_tick = tick;
	for (int i = 0; km_growth_pages(); i++) {
		NEED(i < 5000);
		usleep(1000);
		kfree(kmalloc(2 << 20, GFP_KERNEL));
	}
}

static bool refuse(const char *call)
{
	return !strncmp(call, "commit", 6) || !strncmp(call, "map", 3) || !strncmp(call, "reserve", 7);
}

/* No page is free, and none to be had. */
static void before_failure(void)
{
	static void *held[1 << 16];
	size_t count = 0;

	if (slob)
		return;
	begin();
	for (int i = 0; i < 10; i++)
		grow(LAST, false);
	size_t most = km_growth_count();
	NEED(most >= LAST / 4096);
	km_os_fault = refuse;
	while ((held[count] = kmalloc(69632, GFP_NOWAIT | __GFP_NOWARN)))
		NEED(++count < 1 << 16);
	/* A request that may not wait gets the cached rests of this CPU; a request that may wait gets all. */
	NEED(km_growth_count() < 16);
	while (count)
		kfree(held[--count]);
	grow(LAST / 2, false);
	NEED(km_growth_count() >= 16);
	while ((held[count] = kmalloc(69632, GFP_KERNEL | __GFP_NOWARN)))
		NEED(++count < 1 << 16);
	NEED(km_growth_count() == 0);
	km_os_fault = NULL;
	while (count)
		kfree(held[--count]);
	NEED(kmem_check_all() == 0);
}

/* Freed pages of a group are uncharged, and a group is charged for cached pages at use. */
static void charged(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "grown", 0);

	NEED(group);
	begin();
	for (int i = 0; i < 10; i++) {
		char *p;

		grow(LAST, false);
		{
			MEMCG_SCOPE_ALL(group);
			p = kvmalloc(FIRST, GFP_KERNEL);
			for (size_t size = FIRST; size < 500000; size += STEP) {
				NEED((p = kvrealloc(p, size, GFP_KERNEL)));
				mem_cgroup_drain(group);
				NEED(slob || size <= 40000 || mem_cgroup_current(group) == ksize(p));
			}
		}
		kvfree(p);
		mem_cgroup_drain(group);
		NEED(mem_cgroup_current(group) == 0);
	}
	mem_cgroup_put(group);
	NEED(kmem_check_all() == 0);
}

/* A program that grows one block caches little, and never more than the program had in use. */
static void once(void)
{
	begin();
	char *p = kvrealloc(kvmalloc(100, GFP_KERNEL), LAST, GFP_KERNEL);
	NEED(p);
	kvfree(p);
	NEED(km_growth_count() <= 400);
}

static bool stop;

static void *grow_until(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		grow_elsewhere(arg);
	return NULL;
}

/* A fork may come while another thread grows a block. */
static void after_fork(void)
{
	pthread_t thread[2];

	for (size_t i = 0; i < 2; i++)
		NEED(pthread_create(&thread[i], NULL, grow_until, (void *)i) == 0);
	for (int i = 0; i < 50; i++) {
		int status;
		pid_t child = fork();

		NEED(child >= 0);
		if (!child) {
			alarm(580);
			for (size_t cpu = 0; cpu < 2; cpu++)
				grow_elsewhere((void *)cpu);
			kmem_shrink_all();
			NEED(km_growth_count() == 0 && kmem_check_all() == 0);
			_exit(0);
		}
		NEED(waitpid(child, &status, 0) == child && status == 0);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (size_t i = 0; i < 2; i++)
		NEED(pthread_join(thread[i], NULL) == 0);
}

static const struct test_case cases[] = {
	{ "moves as it doubles", moves_as_it_doubles },
	{ "without the lock", without_the_lock },
	{ "once", once },
	{ "counted", counted },
	{ "bounded", bounded },
	{ "by age", by_age },
	{ "before failure", before_failure },
	{ "charged", charged },
	{ "after fork", after_fork },
};

API_MAIN(cases)
