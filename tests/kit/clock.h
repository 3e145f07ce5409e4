/*
 * clock.h: replaces the program's clock_gettime: CLOCK_MONOTONIC_COARSE, the library's clock, moves only by ahead_ms,
 * however long a step takes. Other clocks are the system's.
 */
#ifndef TESTS_KIT_CLOCK_H
#define TESTS_KIT_CLOCK_H

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CLOCK_BEGINS_S	1000

static long ahead_ms __attribute__((unused));

int clock_gettime(clockid_t id, struct timespec *time)
{
	if (id != CLOCK_MONOTONIC_COARSE)
		return (int)syscall(SYS_clock_gettime, id, time);
	long now_ms = __atomic_load_n(&ahead_ms, __ATOMIC_RELAXED);

	time->tv_sec = CLOCK_BEGINS_S + now_ms / 1000;
	time->tv_nsec = now_ms % 1000 * 1000000;
	return 0;
}

#endif
