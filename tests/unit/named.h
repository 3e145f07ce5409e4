/*
 * named.h: catches the calls that name the library's mappings (--wrap=prctl in tests/flags). The calls go to the
 * kernel; on a kernel without names the library sees a success, and the test knows the names all the same.
 */
#ifndef TESTS_UNIT_NAMED_H
#define TESTS_UNIT_NAMED_H

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "kit/check.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA		0x53564d41
#define PR_SET_VMA_ANON_NAME	0
#endif

/* The named ranges, in the order of the calls. */
static struct named {
	uintptr_t start, end;
	const char *name;
} named[64];
static unsigned named_count;

int __real_prctl(int option, ...);

/* The kernel's rule: a range of whole pages; printable characters, without these five; at most 79 bytes. */
static bool taken_by_kernel(uintptr_t start, size_t bytes, const char *name)
{
	for (const char *at = name; *at; at++)
		if (!isprint((unsigned char)*at) || strchr("\\`$[]", *at))
			return false;
	return start % 4096 == 0 && bytes && strlen(name) < 80;
}

int __wrap_prctl(int option, ...)
{
	unsigned long words[4];
	va_list list;

	va_start(list, option);
	for (unsigned i = 0; i < 4; i++)
		words[i] = va_arg(list, unsigned long);
	va_end(list);
	if (option == PR_SET_VMA && words[0] == PR_SET_VMA_ANON_NAME) {
		const char *name = (const char *)words[3];

		NEED(taken_by_kernel(words[1], words[2], name));
		NEED(named_count < sizeof(named) / sizeof(named[0]));
		named[named_count++] = (struct named){ words[1], words[1] + words[2], name };
		__real_prctl(option, words[0], words[1], words[2], words[3]);
		return 0;
	}
	return __real_prctl(option, words[0], words[1], words[2], words[3]);
}

#endif
