/*
 * clock.h: a clock that the test moves on: the library's time is the system's and so many milliseconds more. The test
 * is linked with --wrap=clock_gettime (flags.mk).
 */
#ifndef TESTS_KIT_CLOCK_H
#define TESTS_KIT_CLOCK_H

#include <time.h>

static long ahead_ms;

int __real_clock_gettime(clockid_t id, struct timespec *time);
int __wrap_clock_gettime(clockid_t id, struct timespec *time);
int __wrap_clock_gettime(clockid_t id, struct timespec *time)
{
	int result = __real_clock_gettime(id, time);

	time->tv_sec += ahead_ms / 1000;
	time->tv_nsec += ahead_ms % 1000 * 1000000;
	if (time->tv_nsec >= 1000000000) {
		time->tv_nsec -= 1000000000;
		time->tv_sec++;
	}
	return result;
}

#endif
