/*
 * stderr.h: where lines go. A program may close descriptor 2, and what it opens next is 2: a line must not land there.
 */
#ifndef KM_PORT_STDERR_H
#define KM_PORT_STDERR_H

#include "cc.h"

/* What descriptor 2 is now counts as standard error from here on. At the library's start. */
void km_stderr_start(void);
/*
 * The descriptor that lines are written to, now; -1: there is none. It is standard error as the process began with it:
 * descriptor 2, or where that is another file by now, the duplicate kept from the start. Where neither is, a line may
 * go to descriptor 2 if the program itself has put its log there: a regular file that is appended to, or a pipe, a
 * socket or a device that is its standard output as well. Before the start it is 2. Any context; changes no errno.
 */
int km_stderr(bool or_log);
/*
 * A child of fork gives its duplicate up: it may become a daemon, and who reads from a pipe until its last writer is
 * gone would wait for it.
 */
void km_stderr_fork_child(void);

#endif
