/*
 * check.h: how a test fails. NEED: nothing that follows makes sense without it; it says so and ends the process with
 * status 1. CHECK and CHECK_EQUAL say so and go on; main returns `failures != 0`. What the reader should know besides
 * may follow, as printf has it. A line is written at once and in one piece, from the stack: also behind a filter, in
 * a handler, and where there is no memory.
 */
#ifndef TESTS_KIT_CHECK_H
#define TESTS_KIT_CHECK_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "descriptors.h"

/* Where it is said: standard error where a handler fails, or where what is said is compared. */
#ifndef CHECK_FD
#define CHECK_FD 1
#endif

static unsigned failures __attribute__((unused));
/* Lines of a case that may be run again are kept until it is through (events.h). */
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
 * The same pointer, of which the compiler knows no more where it is from, how much lies there, and who else has it. Of
 * what an allocator returned it knows that: it may put off, or leave out, a write that the library is to find.
 */
#define HELD(p) ({ __typeof__(p) held_ = (p); __asm__ volatile("" : "+r"(held_) : : "memory"); held_; })

#endif
