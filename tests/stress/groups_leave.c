/*
 * groups_leave.c: groups go offline while two threads free what they had: by objects of several sizes, at three depths,
 * also private ones. Nothing is uncharged that was not charged, and in the end nothing is charged. Arguments: groups.
 * Disciplines: all.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <kmem/stats.h>

#include "kit/groups.h"

enum { THREADS = 2, OBJECTS = 200, DEPTH = 3 };
static const size_t sizes[] = { 64, 1000, 12000, 40000 };
static void *object[THREADS][OBJECTS];
static atomic_uint turn, working;
static atomic_bool stop;

static void *free_all(void *arg)
{
	const uintptr_t me = (uintptr_t)arg;

	for (unsigned seen = 0; !stop;) {
		if (turn == seen) {
			sched_yield();
			continue;
		}
		seen = turn;
		for (int i = 0; i < OBJECTS; i++)
			kfree(object[me][i]);
		working--;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const unsigned groups = argc > 1 ? (unsigned)atoi(argv[1]) : 1500;
	struct mem_cgroup *above[DEPTH] = { mem_cgroup_root() };
	pthread_t thread[THREADS];

	for (int i = 1; i < DEPTH; i++)
		above[i] = group_below(above[i - 1], "above");
	for (uintptr_t i = 0; i < THREADS; i++)
		NEED(pthread_create(&thread[i], NULL, free_all, (void *)i) == 0);
	for (unsigned n = 0; n < groups; n++) {
		struct mem_cgroup *group = group_of(above[n % DEPTH], "tenant", n % 5 ? 0 : MEM_CGROUP_PRIVATE);

		mem_cgroup_set_mode(MEM_CGROUP_DRAIN, n / 100 % 2);
		for (unsigned i = 0; i < THREADS * OBJECTS; i++)
			NEED(object[i / OBJECTS][i % OBJECTS] = kmalloc_in(group, sizes[(n + i) % 4], GFP_KERNEL));
		working = THREADS;
		turn++;
		for (volatile unsigned i = 0; i < n % 50 * 1000; i++)
			;
		mem_cgroup_put(group);
		/* The private group's caches go, as far as no free is under way. */
		for (int i = 0; n % 10 == 0 && working && i < 20; i++)
			kmem_shrink_all();
		while (working)
			sched_yield();
		if (n % 16 == 0)
			mem_cgroup_drain(mem_cgroup_root());
	}
	stop = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	CHECK(drained(above[1]) == 0 && kmem_check_all() == 0);
	return failures != 0;
}
