/*
 * ageless.h: a test that counts on what lies free, or on a call that gives it back, has nothing go back by age before,
 * however long a step of it takes.
 */
#ifndef TESTS_KIT_AGELESS_H
#define TESTS_KIT_AGELESS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Run this program again, in its place, unless its options say how free memory ages. Where there is no /proc it goes on
 * as it is. */
static inline void ageless(char **argv)
{
	const char *had = getenv("KMEM_OPTIONS") ?: "";
	char options[512];

	if (strstr(had, "decay:"))
		return;
	snprintf(options, sizeof(options), "%s%sdecay:3600000", had, *had ? "," : "");
	setenv("KMEM_OPTIONS", options, 1);
	execv("/proc/self/exe", argv);
}

#endif
