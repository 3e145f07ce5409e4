/*
 * stderr.h: where lines go. A program may close descriptor 2, and what it opens next is 2: a line must not land there.
 */
#ifndef KM_PORT_STDERR_H
#define KM_PORT_STDERR_H

#include "cc.h"

/* The file of descriptor 2 now counts as standard error from here on. At the library's start. */
void km_stderr_start(void);
/*
 * The descriptor that lines are written to, now; -1: there is none. Descriptor 2, where it is the file that it was at
 * the start, or where the program has put another one there: a pipe or a terminal, or a file that it has by another
 * descriptor as well, or having kept the former one. Else the duplicate of the former one: a process has a duplicate
 * only where a report on standard error was asked for (KMEM_STATS or KMEM_LEAKS is "-"), else the line is lost. A
 * child of fork has no duplicate: there a file that is appended to counts as the program's log, if one is wanted
 * (or_log). Before the start it is 2. Any context; changes no errno.
 */
int km_stderr(bool or_log);
/*
 * A child of fork gives its duplicate up: it may become a daemon, and who reads from a pipe until its last writer is
 * gone would wait for it.
 */
void km_stderr_fork_child(void);

#endif
