/*
 * options.h: sets KMEM_OPTIONS for the next program of a test. The options of TEST_OPTIONS follow, and therefore take
 * precedence.
 */
#ifndef TESTS_KIT_OPTIONS_H
#define TESTS_KIT_OPTIONS_H

#include <stdio.h>
#include <stdlib.h>

static inline void set_options(const char *options)
{
	const char *more = getenv("TEST_OPTIONS");
	char all[512];

	snprintf(all, sizeof(all), "%s%s%s", options, more ? "," : "", more ? more : "");
	setenv("KMEM_OPTIONS", all, 1);
}

#endif
