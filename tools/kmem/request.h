/* A request to a running program, and its answer (request.c). */
#ifndef KMEM_COMMAND_REQUEST_H
#define KMEM_COMMAND_REQUEST_H

#include <stdbool.h>
#include <sys/types.h>

#include "cache/mailbox.h"

#define KMEM_ASK_MS	10000u	/* how long an answer is waited for, where nothing else is said */

/* One line that says why it was not done, and the status. */
typedef int kmem_why_not(pid_t pid, const struct km_mail_request *request, int error);

/* 0, or the status where one line on stderr says why. The report of a look (KM_MAIL_VALIDATE) goes to stdout, and the
 * status is 1 where there is a damage. */
int kmem_ask(const char *command, pid_t pid, const struct km_mail_request *request, unsigned wait_ms,
	     kmem_why_not *why_not);
/*
 * The same, of which nothing is said: 0, or an errno. What the process refuses is the errno that it gives; ETIMEDOUT:
 * it did not serve it in time; EPERM: its options refuse requests; EOPNOTSUPP: it has nobody who would serve this one;
 * EBUSY: somebody else asked at the same time; EIO: a look found damages; else that of info_errno.
 */
int kmem_ask_quietly(pid_t pid, const struct km_mail_request *request, unsigned wait_ms);
/* False: the process is gone, or another one: nothing is asked, or waited for any more. NULL: it goes on. */
extern bool (*kmem_ask_goes_on)(void);
/* A request of which nothing is said; where it is not served in time it stays. */
void kmem_tell(pid_t pid, const struct km_mail_request *request, unsigned wait_ms);
/* Milliseconds of --wait=SECONDS, or wrong usage. */
unsigned kmem_ask_wait(const char *command, const char *text);

#endif
