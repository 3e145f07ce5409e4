/*
 * events.h: cases with event counts. Each case runs in turn on its own caches, on the first CPU, and compares the
 * count of every event, named or not. The scheduler may interrupt a hit: the sequence aborts, and the slow path
 * serves the call. A failed case is therefore run again after a preemption of the thread.
 */
#ifndef TESTS_KIT_EVENTS_H
#define TESTS_KIT_EVENTS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "cases.h"
#include "cpus.h"

/* Compares the counts of all events since the last call with `expected`, 0 for events without a value. */
static void expect_events(struct kmem_cache *cache, int line, const unsigned long *expected)
{
	for (int event = 0; event < KMEM_NR_EVENTS; event++) {
		unsigned long count = kmem_cache_event(cache, (enum kmem_event)event);

		if (count != expected[event])
			check_failed(__FILE__, line, kmem_event_name((enum kmem_event)event), " %lu, not %lu",
				     count, expected[event]);
	}
	kmem_cache_clear_events(cache);
}
#define EVENTS(cache, ...)                                                                         \
	expect_events((cache), __LINE__, (unsigned long[KMEM_NR_EVENTS]){ __VA_ARGS__ })

static long preemptions(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nivcsw;
}

/* tries: more than 1 only if a preemption may change the counts. */
static int run_in_turn(const struct test_case *cases, size_t count, int tries)
{
	static char text[1024];
	int failed = 0;

	check_kept.text = text;
	check_kept.bytes = sizeof(text);
	for (size_t i = 0; i < count; i++) {
		for (int left = tries; left; left--) {
			long before = preemptions();

			text[0] = '\0';
			go_to_cpu(cpu_at(0));
			cases[i].run();
			if (!text[0] || preemptions() == before)
				break;
		}
		printf("%s %s\n%s", text[0] ? "FAIL" : "ok  ", cases[i].name, text);
		failed += text[0] != '\0';
	}
	check_kept.text = NULL;
	printf("%zu cases, %d failed\n", count, failed);
	return failed != 0;
}

#endif
