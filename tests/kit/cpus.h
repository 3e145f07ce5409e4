/*
 * cpus.h: on which CPU a thread is. CPUs are counted as the process may use them when it first asks, so that a thread
 * that is tied to one finds the others.
 */
#ifndef TESTS_KIT_CPUS_H
#define TESTS_KIT_CPUS_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#include "check.h"

static inline const cpu_set_t *all_cpus(void)
{
	static cpu_set_t all;

	if (!CPU_COUNT(&all))
		NEED(sched_getaffinity(0, sizeof(all), &all) == 0);
	return &all;
}

/* The n-th of them, from 0, or -1. */
static inline int cpu_at(int n)
{
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, all_cpus()) && n-- == 0)
			return cpu;
	return -1;
}

/* From here on this thread runs there only; false: it may not. */
static inline bool go_to_cpu(int cpu)
{
	cpu_set_t one;

	all_cpus();
	CPU_ZERO(&one);
	if (cpu >= 0)
		CPU_SET((size_t)cpu, &one);
	return sched_setaffinity(0, sizeof(one), &one) == 0;
}

/* What this thread frees on its CPU lies there, and can be counted. */
static inline void stay_here(void)
{
	NEED(go_to_cpu(sched_getcpu()));
}

static inline void go_anywhere(void)
{
	NEED(sched_setaffinity(0, sizeof(cpu_set_t), all_cpus()) == 0);
}

struct on_cpu {
	void (*run)(void *arg);
	void *arg;
	int n;
};

static inline void *on_cpu_main(void *arg)
{
	struct on_cpu *on = arg;

	go_to_cpu(cpu_at(on->n));
	on->run(on->arg);
	return NULL;
}

/* Run it on the n-th CPU, in a thread of its own. */
static inline void run_on_cpu(int n, void (*run)(void *arg), void *arg)
{
	struct on_cpu on = { run, arg, n };
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, on_cpu_main, &on) == 0);
	NEED(pthread_join(thread, NULL) == 0);
}

#endif
