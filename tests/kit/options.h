/*
 * options.h: the options of a program that a test runs next. Whoever replaces KMEM_OPTIONS by it keeps those of
 * TEST_OPTIONS: they stand behind, and hold.
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
