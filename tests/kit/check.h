/* check.h: how a test of our own parts fails: NEED ends it, CHECK goes on and counts. */
#ifndef TESTS_UNIT_CHECK_H
#define TESTS_UNIT_CHECK_H

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static unsigned failures __attribute__((unused));

#define NEED(truth)                                                                                \
	do {                                                                                       \
		if (!(truth)) {                                                                    \
			printf("FAIL line %d: %s (errno %d)\n", __LINE__, #truth, errno);          \
			fflush(stdout);                                                            \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)
#define CHECK(truth)                                                                               \
	do {                                                                                       \
		if (!(truth)) {                                                                    \
			printf("FAIL line %d: %s\n", __LINE__, #truth);                            \
			failures++;                                                                \
		}                                                                                  \
	} while (0)

#endif
