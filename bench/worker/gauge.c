/*
 * The gauge of `kmem bench`: the frequencies of the time-stamp counter and of a core. For each input line the gauge
 * prints one line: GHz of the counter, and the time-stamp cycles of a dependent multiplication, as the median over many
 * short windows, which shows a neighbour. (Additions of constants take no time on some processors, with any clock.) The
 * gauge ends with its input.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "frame/bench.h"

#define WINDOWS 41u		/* of about half a millisecond each */
#define STEPS 400000u
#define UNROLLED 4u

/* The next multiplication waits for this result, on every processor. */
static inline uint64_t step(uint64_t product)
{
#if defined(__x86_64__)
	__asm__ __volatile__("imul %0, %0" : "+r"(product));
#else
	__asm__ __volatile__("mul %0, %0, %0" : "+r"(product));
#endif
	return product;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double ratio(void)
{
	double window[WINDOWS];

	for (unsigned int i = 0; i < WINDOWS; i++) {
		uint64_t start = clock_start(), product = 3;

		for (unsigned int k = 0; k < STEPS / UNROLLED; k++)
			product = step(step(step(step(product))));
		window[i] = (double)(clock_stop() - start) / STEPS;
	}
	qsort(window, WINDOWS, sizeof(*window), compare);
	return window[WINDOWS / 2];
}

static double ghz(void)
{
	uint64_t ticks = clock_start(), ns = now_ns();
	struct timespec wait = { 0, 100000000 };

	nanosleep(&wait, NULL);
	return (double)(clock_stop() - ticks) / (double)(now_ns() - ns);
}

int main(void)
{
	for (int c; (c = getchar()) != EOF;)
		if (c == '\n') {
			double hz = ghz();

			printf("%.6f %.6f\n", hz, ratio());
			fflush(stdout);
		}
	return 0;
}
