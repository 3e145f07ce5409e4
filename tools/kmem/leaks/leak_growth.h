/*
 * leak_growth.h: growth of a process's memory over some seconds.
 */
#ifndef KMEM_COMMAND_LEAK_GROWTH_H
#define KMEM_COMMAND_LEAK_GROWTH_H

#include "leaks/leaks.h"

/* Wait for `seconds`, and print the growth: at most `most` lines of each kind. ages: counts of live objects with
 * with known age: below a second, a minute, an hour, and more. Returns: the exit status; not 0 after one line
 * on stderr. */
int growth_print(struct subject *subject, double seconds, size_t most, unsigned long *ages);

#endif
