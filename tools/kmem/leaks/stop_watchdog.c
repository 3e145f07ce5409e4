/*
 * stop_watchdog.c: a stop of this process that no handler can put off, by SIGSTOP, while all threads of a program
 * stand still for it: they would stand until it goes on. Another process, which no signal to this one's group
 * reaches, sees it and has this one go on. Invariant: this process stops then all the same, behind the last thread
 * that was let go, unless somebody else had it go on meanwhile; the other process lives no longer than this one.
 *
 * A debugger that holds this process has them stand as long as it does; so has a cgroup that is frozen with both
 * processes in it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "leaks/stop_threads.h"
#include "base/atomic.h"

#define LOOK_MS		20	/* between looks at this process; threads stand still for some three */

/* What both processes see. */
static struct halted {
	uint32_t standing;		/* somebody stands still for this one */
	uint32_t owed;			/* a stop that was cut short */
} *halted;
static int bell = -1;			/* rung where somebody does; closed with this process */
static pid_t watcher;
static struct sigaction before;		/* what SIGCONT did */

/* The letter of /proc/PID/stat behind the name, which ends with the last parenthesis. */
static char state_in(const char *path)
{
	char text[512] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	const char *end = got > 0 ? strrchr(text, ')') : NULL;

	if (fd >= 0)
		close(fd);
	return end && end[1] ? end[2] : '?';
}

/* In the other process. One that a debugger holds has the letter t. */
_Noreturn static void watch(int rung, pid_t whom)
{
	struct pollfd bell_rung = { .fd = rung, .events = POLLIN };
	char path[64], rings[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)whom);
	for (;;) {
		const bool standing = km_load_acquire(&halted->standing);
		const int got = poll(&bell_rung, 1, standing ? LOOK_MS : -1);

		if (got > 0 && read(rung, rings, sizeof(rings)) <= 0)
			_exit(0);
		if (got || !km_load_acquire(&halted->standing) || getppid() != whom || state_in(path) != 'T')
			continue;
		/* Release pairs with halted_end. */
		km_store_release(&halted->owed, 1u);
		/* Another one may have been quicker: then note_go_on had nothing to note. */
		if (state_in(path) == 'T')
			kill(whom, SIGCONT);
		else
			km_store(&halted->owed, 0u);
	}
}

/* Its parent in a container may be one that looks for no children that it did not have. The number of one that has
 * ended may be another's where nobody waits for children (SIGCHLD is ignored). */
static void end_watcher(void)
{
	if (waitpid(watcher, NULL, WNOHANG))
		return;
	kill(watcher, SIGKILL);
	waitpid(watcher, NULL, 0);
}

/* It has no file of this process but the bell, no signal and no terminal: nobody waits for it, and it stops with
 * nobody. Without it a stop by SIGSTOP is as long as it is. */
static void start(void)
{
	const pid_t whom = getpid();
	sigset_t all, mask;
	int ends[2];

	void *shared = mmap(NULL, sizeof(*halted), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return;
	halted = shared;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends))
		return;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &mask);
	watcher = fork();
	if (!watcher) {
		prctl(PR_SET_NAME, "kmem-halted");
		setsid();
		kmem_close_all_but(ends[0]);
		watch(ends[0], whom);
	}
	sigprocmask(SIG_SETMASK, &mask, NULL);
	if (watcher > 0)
		atexit(end_watcher);
	close(ends[0]);
	bell = ends[1];
}

/* Somebody else has this process go on: it is not to stop any more. */
static void note_go_on(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	if (info->si_pid != watcher)
		km_store(&halted->owed, 0u);
}

void halted_begin(void)
{
	const struct sigaction noted = { .sa_sigaction = note_go_on, .sa_flags = SA_SIGINFO | SA_RESTART };

	if (!halted)
		start();
	if (bell < 0 || watcher < 0)
		return;
	sigaction(SIGCONT, &noted, &before);
	km_store_release(&halted->standing, 1u);
	/* Where it can't be rung it was rung before, or nobody is there any more to hear it. */
	send(bell, "", 1, MSG_NOSIGNAL);
}

void halted_end(void)
{
	if (bell < 0 || watcher < 0)
		return;
	km_store_release(&halted->standing, 0u);
	/* Acquire pairs with watch: it had this process go on before. */
	const bool owed = km_load_acquire(&halted->owed);
	sigaction(SIGCONT, &before, NULL);
	km_store(&halted->owed, 0u);
	if (owed)
		kill(getpid(), SIGSTOP);
}
