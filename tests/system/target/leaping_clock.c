/*
 * leaping_clock.c: a preload that simulates a machine busy elsewhere: the coarse clock, used by the library only,
 * leaps by CLOCK_LEAP_MS at one read in CLOCK_LEAP_ONE_IN, at any point of the test. CLOCK_SEED selects the reads. No
 * process leaps further than half an hour: times of an hour stay valid.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_MS	1800000u

static uint64_t looks, leapt_ms;
static int (*next)(clockid_t id, struct timespec *time);

/* libc's: some tests allow no system call. */
__attribute__((constructor)) static void find_next(void)
{
	void *found = dlsym(RTLD_NEXT, "clock_gettime");

	__atomic_store_n((void **)&next, found, __ATOMIC_RELEASE);
}

static uint64_t told(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

static uint64_t mixed(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

int clock_gettime(clockid_t id, struct timespec *time)
{
	int (*real)(clockid_t id, struct timespec *time) = __atomic_load_n(&next, __ATOMIC_ACQUIRE);
	int result = real ? real(id, time) : (int)syscall(SYS_clock_gettime, id, time);

	if (result || id != CLOCK_MONOTONIC_COARSE)
		return result;
	static uint64_t seed, one_in, leap_ms;
	if (!__atomic_load_n(&one_in, __ATOMIC_ACQUIRE)) {
		seed = told("CLOCK_SEED", 1);
		leap_ms = told("CLOCK_LEAP_MS", 1500);
		__atomic_store_n(&one_in, told("CLOCK_LEAP_ONE_IN", 4), __ATOMIC_RELEASE);
	}
	uint64_t look = __atomic_fetch_add(&looks, 1, __ATOMIC_RELAXED);
	uint64_t ahead = __atomic_load_n(&leapt_ms, __ATOMIC_RELAXED);
	if (ahead < MOST_MS && mixed(seed << 32 ^ look) % one_in == 0)
		ahead = __atomic_add_fetch(&leapt_ms, leap_ms, __ATOMIC_RELAXED);
	time->tv_sec += (time_t)(ahead / 1000);
	time->tv_nsec += (long)(ahead % 1000) * 1000000;
	if (time->tv_nsec >= 1000000000) {
		time->tv_nsec -= 1000000000;
		time->tv_sec++;
	}
	return 0;
}
