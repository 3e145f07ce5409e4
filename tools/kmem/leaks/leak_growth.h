/*
 * leak_growth.h: what a process has more than some seconds ago.
 */
#ifndef KMEM_COMMAND_LEAK_GROWTH_H
#define KMEM_COMMAND_LEAK_GROWTH_H

#include "leaks/leaks.h"

/* Wait, and print: at most `most` lines of each kind. ages: live objects of a known age, of less than a second, a
 * minute, an hour, and more. The exit status; where it is not 0, one line was said. */
int growth_print(struct subject *subject, double seconds, size_t most, unsigned long *ages);

#endif
