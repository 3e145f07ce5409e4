/* sleeps.h: tells whether another thread of this process sleeps. A test waits for the sleep. */
#ifndef TESTS_KIT_SLEEPS_H
#define TESTS_KIT_SLEEPS_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "os/os.h"

/* id: the thread's gettid(). */
static bool sleeps(int id)
{
	char path[64], text[256] = "";

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", id);
	if (km_os_read(path, text, sizeof(text)) <= 0)
		return false;
	const char *state = strrchr(text, ')');
	return state && state[2] == 'S';
}

#endif
