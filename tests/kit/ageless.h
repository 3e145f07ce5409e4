/*
 * ageless.h: switches off the release of free memory by age, for tests of free memory or of calls releasing memory.
 * These tests must give the same result however long a step takes.
 */
#ifndef TESTS_KIT_AGELESS_H
#define TESTS_KIT_AGELESS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Executes this program again, in its place, with decay:3600000, unless KMEM_OPTIONS sets decay. Without /proc the
 * program continues unchanged.
 */
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
