/* request.h: sends a request to a running libkmem process through the process's mailbox, and waits for the answer. */
#ifndef KMEM_COMMAND_REQUEST_H
#define KMEM_COMMAND_REQUEST_H

#include <kmem/record.h>
#include <stdbool.h>
#include <sys/types.h>

#define KMEM_ASK_MS	10000u	/* default wait for an answer, in milliseconds */

/* Prints one line about a refused request. `error`: errno from the process. Returns: the exit status. */
typedef int kmem_why_not(pid_t pid, const struct kmem_mail_request *request, int error);

/* Sends a request and waits at most `wait_ms` milliseconds for the answer; prints one line on stderr after a failure.
 * The report of KMEM_MAIL_VALIDATE goes to stdout.
 * Returns: the exit status: 0 for success, 1 also if KMEM_MAIL_VALIDATE found damage. */
int kmem_ask(const char *command, pid_t pid, const struct kmem_mail_request *request, unsigned wait_ms,
	     kmem_why_not *why_not);
/*
 * Sends a request like kmem_ask, but prints nothing.
 * Returns: 0 or an errno. A refused request: the errno given by the process. ETIMEDOUT: no answer in time.
 * EPERM: the process's options refuse requests. EOPNOTSUPP: the library is too old, or linked without debugging.
 * EPROTO: another version of the mailbox, or an invalid answer. EFAULT: the mailbox is read-only.
 * EBUSY: another command asked at the same time. EIO: KMEM_MAIL_VALIDATE found damage. Other errors: info_errno.
 */
int kmem_ask_quietly(pid_t pid, const struct kmem_mail_request *request, unsigned wait_ms);
/* Optional callback: false if the process ended or was replaced; then a request is not sent, and waiting stops.
 * NULL: no check. */
extern bool (*kmem_ask_goes_on)(void);
/* Sends a request, waits at most `wait_ms` milliseconds, and prints nothing. A request not served in time stays in
 * the mailbox. */
void kmem_tell(pid_t pid, const struct kmem_mail_request *request, unsigned wait_ms);
/* Returns: the value of --wait=SECONDS in milliseconds. Exits with 2 for invalid text. */
unsigned kmem_ask_wait(const char *command, const char *text);

#endif
