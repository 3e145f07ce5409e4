/*
 * A request to a running program: it is written into the process's mailbox (src/cache/mail.h), which the next miss
 * there serves, and the answer is waited for. Invariant: nothing but that mailbox is written to, at an address that the
 * process's own record names; what is not served in time is taken back.
 */
#define _GNU_SOURCE
#include "ask.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cache/root.h"
#include "info/info.h"
#include "kmem.h"

#define MOST_WAIT_S	3600
#define STEP_US		2000u

struct asking {
	const char *command;		/* the subcommand, for what it says */
	kmem_why_not *why_not;
	struct target target;
	pid_t pid;
	char *mail;			/* there */
	const char *report;		/* there; NULL: it has none */
	uint32_t number;
	struct km_mail_request request;
	unsigned wait_ms;
};

#define PLACE(asking, member) ((asking)->mail + offsetof(struct km_mail, member))

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int unreadable(const struct asking *asking)
{
	return info_complain(asking->command, asking->pid, asking->target.result, asking->target.version);
}

/* The mailbox of the copy that is in use; NULL: *status says why. */
static char *find_mail(struct asking *asking, int *status)
{
	static struct info_root roots[INFO_MAX_ROOTS];
	size_t count = target_roots_in_use(&asking->target, roots);
	const struct km_root *record = &roots[0].record;

	*status = 1;
	if (count && layout_has(&roots[0].layout, "root.mail_report"))
		asking->report = (const char *)(uintptr_t)record->mail_report;
	if (!count)
		*status = unreadable(asking);
	else if (!layout_has(&roots[0].layout, "root.mail root.control"))
		kmem_failed(1, asking->command, "%d: runs libkmem %s, which can't be asked", asking->pid,
			    asking->target.version);
	else if (record->control == KM_CONTROL_OFF)
		kmem_failed(1, asking->command, "%d: runs with KMEM_OPTIONS=control:0, and can't be asked",
			    asking->pid);
	else if (record->control != KM_CONTROL_ON || !record->mail)
		kmem_failed(1, asking->command, "%d: is linked without debugging (-Wl,-u,kmem_cache_validate)",
			    asking->pid);
	else
		return (char *)(uintptr_t)record->mail;
	return NULL;
}

/* False: it could not be written. */
static bool ask(struct asking *asking, const struct km_mail *before)
{
	asking->number = (uint32_t)now_ms() * 2654435761u ^ (uint32_t)getpid() << 16;
	if (asking->number == before->answered || asking->number == before->asked)
		asking->number++;
	return target_write(&asking->target, PLACE(asking, request), &asking->request, sizeof(asking->request)) &&
	       target_write(&asking->target, PLACE(asking, asked), &asking->number, sizeof(asking->number));
}

static int say(const struct asking *asking, const struct km_mail *mail)
{
	if (memcmp(&mail->done, &asking->request, sizeof(mail->done)))
		return kmem_failed(1, asking->command, "%d: somebody else asked at the same time: try again",
				   asking->pid);
	return mail->result ? asking->why_not(asking->pid, &asking->request, -mail->result) : 0;
}

/* Nobody answered: the request is taken back, unless it is served just now. */
static int give_up(struct asking *asking, const struct km_mail *mail)
{
	target_write(&asking->target, PLACE(asking, asked), &mail->answered, sizeof(mail->answered));
	return kmem_failed(1, asking->command,
			   "%d: no answer in %u s: it neither got nor gave back memory that was not ready. "
			   "Try again while it works, or with --wait", asking->pid, asking->wait_ms / 1000);
}

static int wait_for_answer(struct asking *asking)
{
	uint64_t end = now_ms() + asking->wait_ms;
	struct km_mail mail;

	for (;;) {
		if (!target_read(&asking->target, &mail, asking->mail, sizeof(mail)))
			return unreadable(asking);
		if (mail.answered == asking->number)
			return say(asking, &mail);
		if (now_ms() >= end)
			return give_up(asking, &mail);
		usleep(STEP_US);
	}
}

/* The report of a look: its lines, and how many damages there are. */
static int tell_report(struct asking *asking)
{
	static struct km_mail_report report;

	if (!target_read(&asking->target, &report, asking->report, sizeof(report)))
		return unreadable(asking);
	if (report.number != asking->number || report.length > sizeof(report.text))
		return kmem_failed(1, asking->command, "%d: somebody else asked at the same time: try again",
				   asking->pid);
	fwrite(report.text, 1, report.length, stdout);
	printf("%s: %u damages\n", asking->request.cache, report.damages);
	if (fflush(stdout) || ferror(stdout))
		return kmem_failed(1, asking->command, "writing: %s", strerror(errno));
	return report.damages != 0;
}

int kmem_ask(const char *command, pid_t pid, const struct km_mail_request *request, unsigned wait_ms,
	     kmem_why_not *why_not)
{
	const bool looks = request->command == KM_MAIL_VALIDATE;
	struct asking asking = {
		.command = command, .why_not = why_not,
		.target = { .pid = target_thread(pid) }, .pid = pid, .wait_ms = wait_ms, .request = *request,
	};
	struct km_mail before;
	int status;

	asking.mail = find_mail(&asking, &status);
	if (!asking.mail)
		return status;
	if (!target_read(&asking.target, &before, asking.mail, sizeof(before)))
		return unreadable(&asking);
	if (before.version != KM_MAIL_VERSION)
		return kmem_failed(1, command, "%d: its mailbox is another: use the kmem that came with it", pid);
	if (looks && !asking.report)
		return kmem_failed(1, command, "%d: runs libkmem %s, which can't look for damages for others", pid,
				   asking.target.version);
	if (!ask(&asking, &before))
		return unreadable(&asking);
	status = wait_for_answer(&asking);
	return status || !looks ? status : tell_report(&asking);
}

void kmem_tell(pid_t pid, const struct km_mail_request *request, unsigned wait_ms)
{
	static struct info_root roots[INFO_MAX_ROOTS];
	struct asking asking = { .target = { .pid = target_thread(pid) }, .pid = pid, .request = *request };
	uint64_t end = now_ms() + wait_ms;
	struct km_mail mail;

	if (!target_roots_in_use(&asking.target, roots) || !roots[0].record.mail)
		return;
	asking.mail = (char *)(uintptr_t)roots[0].record.mail;
	if (!target_read(&asking.target, &mail, asking.mail, sizeof(mail)) || !ask(&asking, &mail))
		return;
	while (target_read(&asking.target, &mail, asking.mail, sizeof(mail)) && mail.answered != asking.number &&
	       now_ms() < end)
		usleep(STEP_US);
}

unsigned kmem_ask_wait(const char *command, const char *text)
{
	char *end;
	long seconds = strtol(text, &end, 10);

	if (!*text || *end || seconds < 1 || seconds > MOST_WAIT_S)
		kmem_usage(command, "--wait: '%s' is no number of seconds from 1 to %d", text, MOST_WAIT_S);
	return (unsigned)seconds * 1000;
}
