/*
 * stderr.h: where lines go. A program may close descriptor 2, and what it opens next is 2: a line must not land there.
 */
#ifndef KM_PORT_STDERR_H
#define KM_PORT_STDERR_H

#include "cc.h"

/* The file of descriptor 2 now counts as standard error from here on. At the library's start. */
void km_stderr_start(void);
/*
 * Returns the descriptor for lines, now; -1: none. Descriptor 2, where 2 is still the file of the start, or where the
 * program has put another file there: a pipe, a terminal, a file with a second descriptor in the program, or any file
 * while the program keeps the former file. Else the duplicate of the former file: a process has a duplicate only if a
 * report on standard error was asked for (KMEM_STATS or KMEM_LEAKS is "-"), else the line is lost. A child of fork has
 * no duplicate: with or_log, a file opened for appending counts as the program's log there. 2 before the start. Any
 * context; keeps errno.
 */
int km_stderr(bool or_log);
/*
 * A child of fork gives its duplicate up: it may become a daemon, and who reads from a pipe until its last writer is
 * gone would wait for it.
 */
void km_stderr_fork_child(void);

#endif
