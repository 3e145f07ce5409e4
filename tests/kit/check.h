/*
 * check.h: reports of test failures. NEED: prints a line and ends the process with status 1, because the following
 * steps need the condition. CHECK and CHECK_EQUAL print a line and continue; main returns `failures != 0`. Further
 * arguments, as of printf, add details. A line is one write from the stack, so checks also work behind a seccomp
 * filter, in a handler, and without memory.
 */
#ifndef TESTS_KIT_CHECK_H
#define TESTS_KIT_CHECK_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "descriptors.h"

/* The descriptor of the reports: standard error if a handler fails, or if the output is compared. */
#ifndef CHECK_FD
#define CHECK_FD 1
#endif

static unsigned failures __attribute__((unused));
/* Lines of a case that may run again, kept until the end of the case (events.h). */
static struct {
	char *text;
	size_t bytes;
} check_kept;

__attribute__((format(printf, 4, 5), unused)) static void check_failed(const char *file, int line, const char *what,
								       const char *format, ...)
{
	char text[512];
	va_list more;
	int length = snprintf(text, sizeof(text) - 1, "FAIL %s:%d: %s (errno %d)", file, line, what, errno);

	va_start(more, format);
	if (length > 0 && (size_t)length < sizeof(text) - 1)
		vsnprintf(text + length, sizeof(text) - 1 - (size_t)length, format, more);
	va_end(more);
	strcat(text, "\n");
	failures++;
	if (check_kept.text) {
		strncat(check_kept.text, text, check_kept.bytes - strlen(check_kept.text) - 1);
		return;
	}
	if (CHECK_FD == STDOUT_FILENO)
		fflush(stdout);
	(void)!write(CHECK_FD, text, strlen(text));
}

#define NEED(truth, ...)                                                                           \
	do {                                                                                       \
		if (!(truth)) {                                                                    \
			check_failed(__FILE__, __LINE__, #truth, " " __VA_ARGS__);                 \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)
#define CHECK(truth, ...)                                                                          \
	do {                                                                                       \
		if (!(truth))                                                                      \
			check_failed(__FILE__, __LINE__, #truth, " " __VA_ARGS__);                 \
	} while (0)
#define CHECK_EQUAL(a, b)                                                                          \
	do {                                                                                       \
		unsigned long a_ = (unsigned long)(a), b_ = (unsigned long)(b);                    \
		if (a_ != b_)                                                                      \
			check_failed(__FILE__, __LINE__, #a, " is %lu, not %lu", a_, b_);          \
	} while (0)
/*
 * HELD - the same pointer without the compiler's knowledge of origin, size and aliases. With this knowledge of an
 * allocator's result, the compiler may delay or drop a write that the library must detect.
 */
#define HELD(p) ({ __typeof__(p) held_ = (p); __asm__ volatile("" : "+r"(held_) : : "memory"); held_; })

#endif
