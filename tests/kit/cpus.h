/*
 * cpus.h: binds threads to CPUs. The CPUs are those allowed at the first use, so that a bound thread finds the
 * others.
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

/* Returns: the n-th allowed CPU, from 0, or -1. */
static inline int cpu_at(int n)
{
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, all_cpus()) && n-- == 0)
			return cpu;
	return -1;
}

/* Binds this thread to the CPU. Returns: false if the CPU is not allowed. */
static inline bool go_to_cpu(int cpu)
{
	cpu_set_t one;

	all_cpus();
	CPU_ZERO(&one);
	if (cpu >= 0)
		CPU_SET((size_t)cpu, &one);
	return sched_setaffinity(0, sizeof(one), &one) == 0;
}

/* Binds this thread to the current CPU: objects freed here stay cached on the CPU, and can be counted. */
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

/* Runs run(arg) on the n-th CPU, in a new thread. */
static inline void run_on_cpu(int n, void (*run)(void *arg), void *arg)
{
	struct on_cpu on = { run, arg, n };
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, on_cpu_main, &on) == 0);
	NEED(pthread_join(thread, NULL) == 0);
}

#endif
