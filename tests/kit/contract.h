/*
 * contract.h: what the contract tests share. A case runs on caches of its own and compares the count of every event,
 * named or not. On a hit that the scheduler interrupts, a sequence gives up and the slow path serves it: so a case
 * that fails while this thread was preempted is run again.
 */
#ifndef TESTS_CONTRACT_H
#define TESTS_CONTRACT_H

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

static char contract_failure[1024];

__attribute__((format(printf, 2, 3))) static void contract_fail(int line, const char *format, ...)
{
	va_list arguments;
	size_t used = strlen(contract_failure);

	used += (size_t)snprintf(contract_failure + used, sizeof(contract_failure) - used,
				 "  line %d: ", line);
	if (used >= sizeof(contract_failure) - 1)
		return;
	va_start(arguments, format);
	vsnprintf(contract_failure + used, sizeof(contract_failure) - used, format, arguments);
	va_end(arguments);
	used = strlen(contract_failure);
	snprintf(contract_failure + used, sizeof(contract_failure) - used, "\n");
}

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			contract_fail(__LINE__, "%s", #condition);                                 \
	} while (0)
#define CHECK_EQUAL(a, b)                                                                          \
	do {                                                                                       \
		unsigned long a_ = (unsigned long)(a), b_ = (unsigned long)(b);                    \
		if (a_ != b_)                                                                      \
			contract_fail(__LINE__, "%s is %lu, not %lu", #a, a_, b_);                 \
	} while (0)

/* Since the last time, these events happened so often, and no others. */
static void contract_events(struct kmem_cache *cache, int line, const unsigned long *expected)
{
	for (int event = 0; event < KMEM_NR_EVENTS; event++) {
		unsigned long count = kmem_cache_event(cache, (enum kmem_event)event);

		if (count != expected[event])
			contract_fail(line, "%s %lu, not %lu",
				      kmem_event_name((enum kmem_event)event), count,
				      expected[event]);
	}
	kmem_cache_clear_events(cache);
}
#define EVENTS(cache, ...)                                                                         \
	contract_events((cache), __LINE__, (unsigned long[KMEM_NR_EVENTS]){ __VA_ARGS__ })

static long contract_preemptions(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nivcsw;
}

/* The CPU this process may use at place n among its own, or -1. */
static int contract_cpu(int n)
{
	static cpu_set_t allowed;

	if (!CPU_COUNT(&allowed))
		sched_getaffinity(0, sizeof(allowed), &allowed);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed) && n-- == 0)
			return cpu;
	return -1;
}

static void contract_pin(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

struct contract_case {
	const char *name;
	void (*run)(void);
};

/* tries: more than one only where a preemption may change the counts. */
static int contract_run(const struct contract_case *cases, size_t count, int tries)
{
	int failed = 0;

	contract_cpu(0);
	for (size_t i = 0; i < count; i++) {
		for (int left = tries; left; left--) {
			long before = contract_preemptions();

			contract_failure[0] = '\0';
			contract_pin(contract_cpu(0));
			cases[i].run();
			if (!contract_failure[0] || contract_preemptions() == before)
				break;
		}
		printf("%s %s\n%s", contract_failure[0] ? "FAIL" : "ok  ", cases[i].name,
		       contract_failure);
		failed += contract_failure[0] != '\0';
	}
	printf("%zu cases, %d failed\n", count, failed);
	return failed != 0;
}

#endif
