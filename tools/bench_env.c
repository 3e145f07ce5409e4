/*
 * The environment block: what machine, system and build the figures belong to, and whether the
 * machine was quiet. The clock ratio is a dependent multiplication in time-stamp cycles, before and after; a
 * median over many short windows, so that a neighbour shows in it. (Additions of constants take no time on some
 * processors, whatever the clock.)
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

#define CLOCK_WINDOWS 41u	/* of about half a millisecond each */
#define CLOCK_STEPS 400000u

/* The next one waits for this one's result, on every processor. */
static inline uint64_t clock_step(uint64_t product)
{
#if defined(__x86_64__)
	__asm__ __volatile__("imul %0, %0" : "+r"(product));
#else
	__asm__ __volatile__("mul %0, %0, %0" : "+r"(product));
#endif
	return product;
}

static uint64_t clock_ticks(void)
{
#if defined(__x86_64__)
	uint32_t low, high, aux;

	__asm__ __volatile__("rdtscp\n\tlfence" : "=a"(low), "=d"(high), "=c"(aux)::"memory");
	return (uint64_t)high << 32 | low;
#else
	uint64_t ticks;

	__asm__ __volatile__("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks)::"memory");
	return ticks;
#endif
}

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double clock_ratio(void)
{
	double window[CLOCK_WINDOWS];

	for (unsigned int i = 0; i < CLOCK_WINDOWS; i++) {
		uint64_t start = clock_ticks(), product = 3;

		for (unsigned int k = 0; k < CLOCK_STEPS / 4; k++)
			product = clock_step(clock_step(clock_step(clock_step(product))));
		window[i] = (double)(clock_ticks() - start) / CLOCK_STEPS;
	}
	qsort(window, CLOCK_WINDOWS, sizeof(*window), bench_compare);
	return window[CLOCK_WINDOWS / 2];
}

static double clock_ghz(void)
{
	uint64_t ticks = clock_ticks(), ns = clock_ns();
	struct timespec wait = { 0, 100000000 };

	nanosleep(&wait, NULL);
	return (double)(clock_ticks() - ticks) / (double)(clock_ns() - ns);
}

/* The rest of the first line of `file` that begins with key, after its colon. */
static void read_field(const char *file, const char *key, char *out, size_t bytes)
{
	FILE *in = fopen(file, "r");
	char line[512], *value;

	while (in && fgets(line, sizeof(line), in)) {
		if (strncmp(line, key, strlen(key)) || !(value = strchr(line, ':')))
			continue;
		for (value++; isspace((unsigned char)*value); value++)
			;
		value[strcspn(value, "\n")] = '\0';
		snprintf(out, bytes, "%s", value);
		break;
	}
	if (in)
		fclose(in);
}

static void read_commit(char *out, size_t bytes)
{
	char *command = bench_format("git -C '%s' describe --always --dirty 2>/dev/null",
				     bench.root);
	FILE *in = popen(command, "r");

	snprintf(out, bytes, "unknown");
	if (!in)
		return;
	if (fgets(out, (int)bytes, in))
		out[strcspn(out, "\n")] = '\0';
	else
		snprintf(out, bytes, "unknown");
	pclose(in);
}

void bench_env_before(struct environment *environment)
{
	struct utsname system;
	time_t now = time(NULL);

	snprintf(environment->cpu, sizeof(environment->cpu), "unknown");
	read_field("/proc/cpuinfo", "model name", environment->cpu, sizeof(environment->cpu));
	environment->cores = sysconf(_SC_NPROCESSORS_ONLN);
	if (!uname(&system))
		snprintf(environment->kernel, sizeof(environment->kernel), "%.60s %.60s %.60s",
			 system.sysname, system.release, system.machine);
	snprintf(environment->libc, sizeof(environment->libc), "unknown");
	confstr(_CS_GNU_LIBC_VERSION, environment->libc, sizeof(environment->libc));
	strftime(environment->date, sizeof(environment->date), "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
	read_commit(environment->commit, sizeof(environment->commit));
	environment->discipline = "none";
	environment->tsc_ghz = clock_ghz();
	environment->clock_before = clock_ratio();
}

void bench_env_after(struct environment *environment)
{
	double a = environment->clock_before, b;

	environment->clock_after = b = clock_ratio();
	environment->noisy = (a > b ? a / b : b / a) > 1.1;
}
