/*
 * events.h: cases that count. Each runs in turn on caches of its own, on the first CPU, and compares the count of every
 * event, named or not. On a hit that the scheduler interrupts, a sequence gives up and the slow path serves it: so a
 * case that fails while this thread was preempted is run again.
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

/* Since the last time, these events happened so often, and no others. */
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

/* tries: more than one only where a preemption may change the counts. */
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
