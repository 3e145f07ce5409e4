/*
 * stderr.h: the descriptor for messages. Invariant: a line never goes to a file that the program opened as
 * descriptor 2 after closing standard error.
 */
#ifndef KM_OS_STDERR_H
#define KM_OS_STDERR_H

#include "base/cc.h"

/* Record the file of descriptor 2 as standard error. Context: the library's start. */
void km_stderr_start(void);
/* Returns: the descriptor for a line, now; -1: none. Descriptor 2, if 2 is still the file of the start, or if the
 * program has put another file there: a pipe, a terminal, a file with a second descriptor in the program, or any file
 * while the program keeps the former file. Else the duplicate of the former file: a process has a duplicate only if a
 * report on standard error was asked for (KMEM_STATS or KMEM_LEAKS is "-"). Without a duplicate the line is lost. A
 * child of fork has no duplicate: with or_log, a file opened for appending counts as the program's log there. 2 before
 * the start. Context: any; keeps errno. */
int km_stderr(bool or_log);
/* Close the duplicate in a child of fork. The child may become a daemon, and a reader of a pipe would wait for its end
 * as long as the child had the duplicate. */
void km_stderr_fork_child(void);

#endif
