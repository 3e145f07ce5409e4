/*
 * request.c: sends a request to a running program and waits for the answer. The request is written into the process's
 * mailbox (kmem/record.h), and the program's next miss serves the request. A program with hits only is forced
 * onto the slow path (force_slow.c).
 * Invariant: the command writes only to the mailbox and to the words of force_slow.c, at addresses from the process's
 * own record. All writes go to the memory in which the record was read, even if the process has called exec() since.
 * A request not served in time, or interrupted by a signal, is withdrawn; another command's request is never touched.
 * Commands take turns: each command locks the file of the process's memory (/proc/PID/mem) for the whole exchange.
 */
#define _GNU_SOURCE
#include "request.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "info/info.h"
#include "info/info_print.h"
#include "command.h"
#include "force_slow.h"

#define MOST_WAIT_S	3600
#define STEP_US		2000u

/* Outcome of a request. */
enum answer {
	ANSWER_DONE,
	ANSWER_REFUSED,			/* reason: asking->error */
	ANSWER_UNREADABLE,		/* reason: asking->target.result */
	ANSWER_UNWRITABLE,		/* the mailbox is readable, but not writable */
	ANSWER_OLDER, ANSWER_OFF, ANSWER_LEAN,	/* no mailbox; control:0; no code to serve requests */
	ANSWER_OTHER_MAIL, ANSWER_NO_REPORT,
	ANSWER_CLASH,			/* the mailbox holds another command's request or answer */
	ANSWER_BUSY,			/* another command holds the lock */
	ANSWER_LATE,
	ANSWERS
};

struct asking {
	const char *command;		/* subcommand, for error messages */
	kmem_why_not *why_not;
	struct target target;
	pid_t pid;
	char *mail;			/* mailbox's address in the process */
	const char *report;		/* report's address in the process; NULL: no report */
	struct gate gate;
	bool may_stop;			/* the process may be stopped for a moment (force_slow.c) */
	bool worked;			/* without an answer: the process ran since the request */
	uint32_t number;
	struct kmem_mail_request request;
	unsigned wait_ms;
	uint64_t end_ms;		/* end of the wait, CLOCK_MONOTONIC */
	int error;
	struct kmem_mail_report read;	/* report of KMEM_MAIL_VALIDATE */
};

bool (*kmem_ask_goes_on)(void);

#define PLACE(asking, member) ((asking)->mail + offsetof(struct kmem_mail, member))

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Finds the mailbox of the libkmem copy in use, if the process has several copies. */
static enum answer find_mail(struct asking *asking)
{
	static struct info_root roots[INFO_MAX_ROOTS];
	const struct rec_root *record = &roots[0].record;

	if (!target_bind(&asking->target))
		return ANSWER_UNREADABLE;
	/* The process id may have been reused. The caller's check must run after target_bind. */
	if (kmem_ask_goes_on && !kmem_ask_goes_on())
		return ANSWER_LATE;
	if (!target_roots_in_use(&asking->target, roots))
		return ANSWER_UNREADABLE;
	/* No time limit for reading: the remaining reads are a few words, and the user chose the wait. */
	asking->target.budget.end_ms = UINT64_MAX;
	if (layout_has(&roots[0].layout, "root.mail_report"))
		asking->report = (const char *)(uintptr_t)record->mail_report;
	if (!layout_has(&roots[0].layout, "root.mail root.control"))
		return ANSWER_OLDER;
	if (record->control == KMEM_CONTROL_OFF)
		return ANSWER_OFF;
	if (record->control != KMEM_CONTROL_ON || !record->mail)
		return ANSWER_LEAN;
	asking->mail = (char *)(uintptr_t)record->mail;
	gate_find(&asking->gate, &asking->target, &roots[0]);
	asking->gate.may_stop = asking->may_stop;
	return ANSWER_DONE;
}

/* ------------------------------------------------------------------ signals */

/* Signals with the default action (end the command) are delayed until the request is withdrawn. A second signal ends
 * the command at once. Signals with another handler stay as they are. */
static const int ends[] = { SIGHUP, SIGINT, SIGTERM };
static volatile sig_atomic_t ended_by;	/* number of the delayed signal; 0: none */

static void note_end(int number)
{
	ended_by = number;
}

static void put_ends_off(void)
{
	const struct sigaction later = { .sa_handler = note_end, .sa_flags = (int)SA_RESETHAND };
	struct sigaction now;

	for (size_t i = 0; i < KMEM_COUNT(ends); i++)
		if (!sigaction(ends[i], NULL, &now) && now.sa_handler == SIG_DFL)
			sigaction(ends[i], &later, NULL);
}

static void let_ends_in(void)
{
	struct sigaction now;

	for (size_t i = 0; i < KMEM_COUNT(ends); i++)
		if (!sigaction(ends[i], NULL, &now) && now.sa_handler == note_end)
			signal(ends[i], SIG_DFL);
	if (ended_by)
		raise(ended_by);
}

/* ------------------------------------------------------------------ a request */

static bool is_over(const struct asking *asking)
{
	return ended_by || now_ms() >= asking->end_ms || (kmem_ask_goes_on && !kmem_ask_goes_on());
}

/* Locks the process's memory file, then starts the wait anew. The kernel drops the lock of a command at its end.
 * Commands with another mount of /proc do not see the lock, so two requests may clash; the same holds if flock fails
 * for a reason other than EWOULDBLOCK. Returns: false if the wait is over first. */
static bool take_turn(struct asking *asking)
{
	asking->end_ms = now_ms() + asking->wait_ms;
	while (flock(asking->target.memory, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
		if (is_over(asking))
			return false;
		usleep(STEP_US);
	}
	/* The wait for the lock does not count: the program gets the whole time for the answer. */
	asking->end_ms = now_ms() + asking->wait_ms;
	asking->gate.work = target_work(asking->target.pid);
	return true;
}

/* Writes the request, then its number, into the mailbox. Returns: false after a failed write. */
static bool ask(struct asking *asking, const struct kmem_mail *before)
{
	asking->number = (uint32_t)now_ms() * 2654435761u ^ (uint32_t)getpid() << 16;
	if (asking->number == before->answered || asking->number == before->asked)
		asking->number++;
	return target_write(&asking->target, PLACE(asking, request), &asking->request, sizeof(asking->request)) &&
	       target_write(&asking->target, PLACE(asking, asked), &asking->number, sizeof(asking->number));
}

static enum answer judge(struct asking *asking, const struct kmem_mail *mail)
{
	if (memcmp(&mail->done, &asking->request, sizeof(mail->done)))
		return ANSWER_CLASH;
	asking->error = -mail->result;
	return mail->result ? ANSWER_REFUSED : ANSWER_DONE;
}

static enum answer wait_for_answer(struct asking *asking)
{
	const uint32_t nothing = KMEM_MAIL_NOTHING;
	struct kmem_mail mail;

	for (;;) {
		if (!target_read(&asking->target, &mail, asking->mail, sizeof(mail)))
			return ANSWER_UNREADABLE;
		if (mail.answered == asking->number)
			return judge(asking, &mail);
		if (mail.asked != asking->number)
			return ANSWER_CLASH;
		if (is_over(asking))
			break;
		gate_shut_if_due(&asking->gate, &asking->target, now_ms());
		usleep(STEP_US);
	}
	/* No answer: withdraw the request. The command becomes KMEM_MAIL_NOTHING before the old number is restored,
	 * because a miss may serve the mailbox just now and answer the old number a second time. */
	target_write(&asking->target, PLACE(asking, request.command), &nothing, sizeof(nothing));
	target_write(&asking->target, PLACE(asking, asked), &mail.answered, sizeof(mail.answered));
	gate_open(&asking->gate, &asking->target);
	if (target_read(&asking->target, &mail, asking->mail, sizeof(mail)) && mail.answered == asking->number &&
	    mail.done.command != KMEM_MAIL_NOTHING)
		return judge(asking, &mail);
	asking->worked = gate_saw_work(&asking->gate, &asking->target);
	return ANSWER_LATE;
}

static enum answer read_report(struct asking *asking)
{
	if (!target_read(&asking->target, &asking->read, asking->report, sizeof(asking->read)))
		return ANSWER_UNREADABLE;
	return asking->read.number != asking->number || asking->read.length > sizeof(asking->read.text) ?
	       ANSWER_CLASH : ANSWER_DONE;
}

static enum answer ask_and_wait(struct asking *asking)
{
	const bool looks = asking->request.command == KMEM_MAIL_VALIDATE;
	enum answer answer = find_mail(asking);
	struct kmem_mail before;

	if (answer)
		return answer;
	if (!take_turn(asking))
		return kmem_ask_goes_on && !kmem_ask_goes_on() ? ANSWER_LATE : ANSWER_BUSY;
	if (!target_read(&asking->target, &before, asking->mail, sizeof(before)))
		return ANSWER_UNREADABLE;
	if (before.version != KMEM_MAIL_VERSION)
		return ANSWER_OTHER_MAIL;
	if (looks && !asking->report)
		return ANSWER_NO_REPORT;
	put_ends_off();
	if (ask(asking, &before))
		answer = wait_for_answer(asking);
	else
		answer = asking->target.result == INFO_TORN ? ANSWER_UNWRITABLE : ANSWER_UNREADABLE;
	let_ends_in();
	return answer || !looks ? answer : read_report(asking);
}

static enum answer exchange(struct asking *asking)
{
	enum answer answer = ask_and_wait(asking);

	target_let_go(&asking->target);
	return answer;
}

/* ------------------------------------------------------------------ what is said */

/* Prints the most likely reason for a missing answer. Returns: 1. */
static int complain_late(const struct asking *asking)
{
	const unsigned seconds = asking->wait_ms / 1000;
	const char *command = asking->command;
	const int pid = asking->pid;
	unsigned long ours, others;

	if (kmem_ask_goes_on && !kmem_ask_goes_on())
		return kmem_failed(1, command, "%d: the process has ended, or runs another program now", pid);
	if (strchr("Tt", target_state(asking->target.pid)))
		return kmem_failed(1, command, "%d: no answer in %u s: the process is stopped; SIGCONT continues "
					       "it", pid, seconds);
	if (asking->gate.stop_error)
		return kmem_failed(1, command, "%d: no answer in %u s: the process has only fast-path hits, and "
					       "cannot be stopped for a moment: "
					       "%s", pid, seconds, asking->gate.stop_error == ETIMEDOUT ?
				   "one of its threads waits in the kernel" : asking->gate.stop_error == EPERM ?
				   "another program traces it, or ptrace rights are "
				   "missing" : strerror(asking->gate.stop_error));
	if ((others = info_elsewhere(pid, &ours)))
		return kmem_failed(1, command, "%d: no answer in %u s: the process hardly uses libkmem (%s are other "
					       "mappings, %s are libkmem's)", pid, seconds, BYTES(others),
				   BYTES(ours));
	if (!asking->worked)
		return kmem_failed(1, command, "%d: no answer in %u s: the process slept, and answers at its next "
					       "allocation or free: send a request to the process, or use a longer "
					       "--wait", pid, seconds);
	if (!asking->gate.there.shut)
		return kmem_failed(1, command, "%d: no answer in %u s: all its allocations are cached objects: try "
					       "again, or use a longer --wait", pid, seconds);
	return kmem_failed(1, command, "%d: no answer in %u s: the process ran, but neither allocated nor freed "
				       "through libkmem: try again later, or use a longer --wait", pid, seconds);
}

static int complain(const struct asking *asking, enum answer answer)
{
	const char *command = asking->command, *version = asking->target.version;
	const int pid = asking->pid;

	switch (answer) {
	case ANSWER_REFUSED:
		return asking->why_not(pid, &asking->request, asking->error);
	case ANSWER_UNWRITABLE:
		return kmem_failed(1, command, "%d: the mailbox of the process can be read, but not written", pid);
	case ANSWER_OLDER:
		return kmem_failed(1, command, "%d: runs libkmem %s, which serves no requests", pid, version);
	case ANSWER_OFF:
		return kmem_failed(1, command, "%d: runs with KMEM_OPTIONS=control:0, and serves no requests", pid);
	case ANSWER_LEAN:
		return kmem_failed(1, command, "%d: is linked without debugging; link with -Wl,-u,km_debugging", pid);
	case ANSWER_OTHER_MAIL:
		return kmem_failed(1, command, "%d: its mailbox has another version: use the kmem of the same "
					       "libkmem", pid);
	case ANSWER_NO_REPORT:
		return kmem_failed(1, command, "%d: runs libkmem %s, which cannot validate caches on request", pid,
				   version);
	case ANSWER_CLASH:
		return kmem_failed(1, command, "%d: another command sent a request at the same time: try again", pid);
	case ANSWER_BUSY:
		return kmem_failed(1, command, "%d: another command waits for an answer: try again, or use a longer "
					       "--wait",
				   pid);
	case ANSWER_LATE:
		return complain_late(asking);
	default:
		if (asking->target.result == INFO_GONE && asking->mail)
			return kmem_failed(1, command, "%d: the process has ended, or runs another program now", pid);
		return info_complain(command, pid, asking->target.result, version);
	}
}

/* Prints the report of KMEM_MAIL_VALIDATE with unprintable characters replaced, then the number of damages.
 * Returns: 1 for damages or a failed write, else 0. */
static int tell_report(const struct asking *asking)
{
	char text[sizeof(asking->read.text) + 1], *line = text, *end;

	memcpy(text, asking->read.text, asking->read.length);
	text[asking->read.length] = '\0';
	while ((end = strchr(line, '\n'))) {
		*end = '\0';
		info_printable(line, line, (size_t)(end - line) + 1);
		puts(line);
		line = end + 1;
	}
	info_printable(line, line, strlen(line) + 1);
	fputs(line, stdout);
	printf("%s: %u damages\n", asking->request.cache, asking->read.damages);
	if (fflush(stdout) || ferror(stdout))
		return kmem_failed(1, asking->command, "writing: %s", strerror(errno));
	return asking->read.damages != 0;
}

int kmem_ask(const char *command, pid_t pid, const struct kmem_mail_request *request, unsigned wait_ms,
	     kmem_why_not *why_not)
{
	struct asking asking = {
		.command = command, .why_not = why_not,
		.target = { .pid = target_thread(pid) }, .pid = pid, .wait_ms = wait_ms, .request = *request,
		.may_stop = true,
	};
	enum answer answer = exchange(&asking);

	if (answer)
		return complain(&asking, answer);
	return request->command == KMEM_MAIL_VALIDATE ? tell_report(&asking) : 0;
}

int kmem_ask_quietly(pid_t pid, const struct kmem_mail_request *request, unsigned wait_ms)
{
	static const int errors[ANSWERS] = {
		[ANSWER_UNWRITABLE] = EFAULT,
		[ANSWER_OLDER] = EOPNOTSUPP, [ANSWER_OFF] = EPERM, [ANSWER_LEAN] = EOPNOTSUPP,
		[ANSWER_OTHER_MAIL] = EPROTO, [ANSWER_NO_REPORT] = EOPNOTSUPP, [ANSWER_CLASH] = EBUSY,
		[ANSWER_BUSY] = EBUSY, [ANSWER_LATE] = ETIMEDOUT,
	};
	struct asking asking = {
		.target = { .pid = target_thread(pid) }, .pid = pid, .wait_ms = wait_ms, .request = *request,
		.may_stop = true,
	};
	enum answer answer = exchange(&asking);

	if (answer == ANSWER_REFUSED)
		return asking.error > 0 && asking.error < 4096 ? asking.error : EPROTO;
	if (answer == ANSWER_UNREADABLE)
		return info_errno(asking.target.result);
	if (!answer && request->command == KMEM_MAIL_VALIDATE)
		return asking.read.damages ? EIO : 0;
	return errors[answer];
}

void kmem_tell(pid_t pid, const struct kmem_mail_request *request, unsigned wait_ms)
{
	struct asking asking = {
		.target = { .pid = target_thread(pid) }, .pid = pid, .wait_ms = wait_ms, .request = *request,
	};
	struct kmem_mail mail;

	if (find_mail(&asking) == ANSWER_DONE && take_turn(&asking) &&
	    target_read(&asking.target, &mail, asking.mail, sizeof(mail)) &&
	    mail.version == KMEM_MAIL_VERSION && ask(&asking, &mail))
		while (target_read(&asking.target, &mail, asking.mail, sizeof(mail)) &&
		       mail.asked == asking.number && mail.answered != asking.number && !is_over(&asking)) {
			gate_shut_if_due(&asking.gate, &asking.target, now_ms());
			usleep(STEP_US);
		}
	target_let_go(&asking.target);
}

unsigned kmem_ask_wait(const char *command, const char *text)
{
	char *end;
	long seconds = strtol(text, &end, 10);

	if (!*text || *end || seconds < 1 || seconds > MOST_WAIT_S)
		kmem_usage(command, "--wait: '%s' is not a number of seconds from 1 to %d", text, MOST_WAIT_S);
	return (unsigned)seconds * 1000;
}
