/*
 * nolock_struck: a signal handler runs between any two instructions of the library, at breakpoints, and there
 * allocates and frees, with the nolock calls and with the ordinary calls, from the caches and sizes in use by the
 * interrupted code. No object is allocated twice, no call waits, no object is lost. The victim creates and destroys
 * caches, misses, refills, spills, shrinks, allocates in bulk, resizes and frees large blocks, has sheaves filled,
 * charges groups, and gives back idle memory. For each engine.
 *
 * The instructions are in 23 parts, every 23rd in one part. STRIKE_PARTS parts are struck, beginning with
 * STRIKE_SEED; with CHECK_LONG all parts, so each instruction on the victim's way. Disciplines: all.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <kmem/memcg.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "kit/api.h"
#include "os/lock.h"

#ifndef __x86_64__
int main(void)
{
	printf("its breakpoints are x86-64's\n");
	return 77;
}
#else

#include "kit/strike.h"

#define PARTS 23
static unsigned long struck, got, none, struck_busy;
static struct kmem_cache *shared;

/* The test sets the clock, so that code run by age is reached. */
static volatile time_t now = 1000;
int __wrap_clock_gettime(clockid_t id, struct timespec *time);
int __wrap_clock_gettime(clockid_t id, struct timespec *time)
{
	(void)id;
	*time = (struct timespec){ .tv_sec = now };
	return 0;
}

/* ------------------------------------------------------------------ objects with a mark of their owner */

#define OWNED 0x5a17c0de00000000ul
static uint64_t mark_of(void *p) { return OWNED ^ (uintptr_t)p; }

/* The end of an object is aligned to a word, or not. */
typedef volatile uint64_t __attribute__((aligned(1))) mark_place;

/* The marks are at both ends, so far as there is room. */
static void *begins(void *p, size_t bytes, bool zeros)
{
	mark_place *first = p, *last = (mark_place *)((char *)p + bytes - 8);

	if (!p)
		return NULL;
	NEED(*first != mark_of(p), "an object is given out twice");
	for (size_t i = 0; zeros && i < bytes / 8; i++)
		NEED(!first[i]);
	*first = *last = mark_of(p);
	return p;
}

static void *ends(void *p, size_t bytes)
{
	mark_place *first = p, *last = (mark_place *)((char *)p + bytes - 8);

	NEED(*first == mark_of(p) && *last == mark_of(p), "an object was written to by another");
	*first = *last = 0;
	return p;
}

/* ------------------------------------------------------------------ the handler */

#define KEPT 61
static struct { void *p; size_t bytes; } kept[KEPT];	/* bytes 0: of the cache */

static void free_one(unsigned i, unsigned how)
{
	size_t bytes = kept[i].bytes ?: 64;
	void *p = kept[i].p ? ends(kept[i].p, bytes) : NULL;

	kept[i].p = NULL;
	if (!p)
		return;
	if (!kept[i].bytes)
		how % 2 ? kmem_cache_free_nolock(shared, p) : kmem_cache_free(shared, p);
	else
		how % 2 ? kfree_nolock(p) : kfree(p);
}

static void keep(unsigned i, void *p, size_t bytes, bool zeros, int before)
{
	NEED(p ? errno == before : errno == ENOMEM, "errno %d, before %d", errno, before);
	errno = before;
	*(p ? &got : &none) += 1;
	kept[i].p = begins(p, bytes ?: 64, zeros);
	kept[i].bytes = bytes;
}

static void strike(void)
{
	static unsigned turn;
	static const size_t sizes[] = { 40, 64, 300, 2000, 8192 };
	unsigned i = turn++ % KEPT;
	size_t bytes = sizes[turn % 5];

	struck++;
	struck_busy += km_thread.busy != 0;
	free_one(i, turn / KEPT);
	switch (turn % 5) {
	case 0:
		keep(i, kmem_cache_alloc_nolock(shared, 0, NUMA_NO_NODE), 0, false, errno);
		break;
	case 1:
		keep(i, kmem_cache_alloc_nolock(shared, __GFP_ZERO, NUMA_NO_NODE), 0, true, errno);
		break;
	case 2:
		keep(i, kmem_cache_alloc(shared, GFP_NOWAIT), 0, false, errno);
		break;
	case 3:
		if (slob && bytes > 4000)
			bytes = 64;
		keep(i, kmalloc_nolock(bytes, turn & 8 ? __GFP_ZERO : 0, NUMA_NO_NODE), bytes, turn & 8, errno);
		break;
	default:
		keep(i, kmalloc(bytes, GFP_NOWAIT), bytes, false, errno);
	}
}

/* ------------------------------------------------------------------ where the handler runs */

/* Breakpoints met by the handler itself stay armed for the victim. */
static struct point *met[4096];
static size_t met_count;
static bool striking;

APART static void on_trap(int number, siginfo_t *info, void *arg)
{
	greg_t *ip = &((ucontext_t *)arg)->uc_mcontext.gregs[REG_RIP];
	int saved_errno = errno;
	bool plain;
	struct point *point = point_of_trap((uintptr_t)*ip, &plain);

	(void)number, (void)info;
	NEED(point, "a trap at %#lx", (unsigned long)*ip - (unsigned long)__ehdr_start);
	disarm(point);
	if (plain)
		--*ip;
	if (striking) {
		NEED(met_count < sizeof(met) / sizeof(*met));
		met[met_count++] = point;
		return;
	}
	striking = point->struck = true;
	strike();
	while (met_count)
		arm(met[--met_count]);
	striking = false;
	errno = saved_errno;
}

/* ------------------------------------------------------------------ the victim */

enum { COUNT = 400 };

static void one_by_one(void)
{
	void *objects[COUNT];

	for (int i = 0; i < COUNT; i++)
		objects[i] = begins(kmem_cache_alloc(shared, GFP_KERNEL), 64, false);
	for (int i = 0; i < COUNT; i++)
		kmem_cache_free(shared, ends(objects[i], 64));
}

static void sizes(void)
{
	static const size_t bytes[] = { 40, 300, 2000, 8192, 20000, 300, 64 };
	void *p[7];

	for (int i = 0; i < 7; i++)
		p[i] = begins(kmalloc(bytes[i], GFP_KERNEL), bytes[i], false);
	for (int i = 0; i < 7; i++)
		kfree(ends(p[i], bytes[i]));
	void *grown = kmalloc(300, GFP_KERNEL);
	grown = krealloc(grown, 2000, GFP_KERNEL);
	grown = krealloc(grown, 20000, GFP_KERNEL);
	kfree(grown);
}

static void in_bulk(void)
{
	void *objects[200];

	NEED(kmem_cache_alloc_bulk(shared, GFP_KERNEL, 200, objects));
	for (int i = 0; i < 200; i++)
		begins(objects[i], 64, false);
	for (int i = 0; i < 200; i++)
		ends(objects[i], 64);
	kmem_cache_free_bulk(shared, 200, objects);
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(shared, GFP_KERNEL, 10);
	NEED(sheaf);
	void *p = begins(kmem_cache_alloc_from_sheaf(shared, GFP_KERNEL, sheaf), 64, false);
	kmem_cache_return_sheaf(shared, GFP_KERNEL, sheaf);
	kmem_cache_free(shared, ends(p, 64));
}

static void come_and_go(void)
{
	/* Time for reclaim. */
	now += 3;
	struct kmem_cache *cache = kmem_cache_create("victim", 200, NULL, 0);

	NEED(cache);
	void *p = begins(kmem_cache_alloc(cache, GFP_KERNEL), 200, false);
	kmem_cache_free(cache, ends(p, 200));
	kmem_cache_shrink(cache);
	kmem_cache_destroy(cache);
	kmem_cache_shrink(shared);
}

static void groups(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "group", 0);
	void *p[10];

	NEED(group);
	for (int i = 0; i < 10; i++)
		p[i] = kmalloc_in(group, 300, GFP_KERNEL);
	for (int i = 0; i < 10; i++)
		kfree(p[i]);
	mem_cgroup_put(group);
}

/* A part of all instructions at a time: each breakpoint stops the victim at its first arrival. */
APART static void round_of(void (*work)(void), unsigned long part)
{
	for (size_t i = 0; i < point_count; i++)
		if (i % PARTS == part % PARTS)
			arm(&points[i]);
	work();
	for (size_t i = 0; i < point_count; i++)
		if (points[i].armed)
			disarm(&points[i]);
	for (unsigned i = 0; i < KEPT; i++)
		free_one(i, part);
}

static void by_parts(void (*work)(void))
{
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER };
	unsigned long rounds = number_of("STRIKE_PARTS", getenv("CHECK_LONG") ? PARTS : 3);
	unsigned long seed = number_of("STRIKE_SEED", 0);
	struct kmem_cache_stats stats;

	shared = make("shared", 64);
	work();
	find_points();
	NEED(!sigaction(SIGTRAP, &action, NULL));
	for (unsigned long i = 0; i < rounds; i++)
		round_of(work, seed + i);
	/* The next miss finishes the deferred frees of handlers. */
	kmem_cache_shrink(shared);
	kmem_shrink_all();
	kmem_cache_get_stats(shared, &stats);
	NEED(!stats.active_objects && !stats.total_slabs);
	NEED(kmem_check_all() == 0);
	printf("STRIKE_SEED=%lu STRIKE_PARTS=%lu: %lu of %zu instructions, %lu inside; %lu objects, %lu times none\n",
	       seed, rounds, struck, point_count, struck_busy, got, none);
	/* slob has one lock for all: few handlers run outside of the lock. */
	NEED(struck > 20 && got > (slob ? 2 : 10) && (struck_busy > 0 || slob));
}

static void struck_one_by_one(void) { by_parts(one_by_one); }
static void struck_sizes(void) { by_parts(sizes); }
static void struck_bulk(void) { by_parts(in_bulk); }
static void struck_caches(void) { by_parts(come_and_go); }
static void struck_groups(void)
{
	if (!slob)
		by_parts(groups);
}

static const struct test_case cases[] = {
	{ "one by one", struck_one_by_one }, { "sizes", struck_sizes }, { "bulk", struck_bulk },
	{ "caches", struck_caches }, { "groups", struck_groups },
};
API_MAIN(cases)
#endif
