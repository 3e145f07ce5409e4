/*
 * stop_watchdog.c: defers SIGSTOP while this process holds the threads of a target stopped. No handler can catch
 * SIGSTOP, and the target would stay stopped as long as this process. A watchdog process, outside the process group,
 * detects the stop and sends SIGCONT. Invariant: this process stops after the last thread is resumed, unless another
 * process sent SIGCONT meanwhile. The watchdog never outlives this process.
 *
 * Limits: a debugger that holds this process, or a frozen cgroup with both processes, keeps the target stopped.
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

#define LOOK_MS		20	/* milliseconds between two checks; a stop lasts about 3 */

/* Memory shared by both processes. */
static struct halted {
	uint32_t standing;		/* the target is stopped */
	uint32_t owed;			/* the watchdog cut a SIGSTOP short */
} *halted;
static int bell = -1;			/* socket: wakes the watchdog; closed with this process */
static pid_t watcher;
static struct sigaction before;		/* SIGCONT's former action */

/* Returns: the state letter of /proc/PID/stat. The letter follows the name, and the name ends at the last ')'. */
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

/* Runs the watchdog. State T: stopped by a signal; state t: held by a debugger, ignored here. */
_Noreturn static void watch(int rung, pid_t whom)
{
	struct pollfd bell_rung = { .fd = rung, .events = POLLIN };
	char path[64], rings[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)whom);
	for (;;) {
		const bool standing = __atomic_load_n(&halted->standing, __ATOMIC_ACQUIRE);
		const int got = poll(&bell_rung, 1, standing ? LOOK_MS : -1);

		if (got > 0 && read(rung, rings, sizeof(rings)) <= 0)
			_exit(0);
		if (got || !__atomic_load_n(&halted->standing, __ATOMIC_ACQUIRE) || getppid() != whom ||
		    state_in(path) != 'T')
			continue;
		/* Release: pairs with the acquire in halted_end. */
		__atomic_store_n(&halted->owed, 1u, __ATOMIC_RELEASE);
		/* Another SIGCONT may have come before `owed` was set: note_go_on then had nothing to clear. */
		if (state_in(path) == 'T')
			kill(whom, SIGCONT);
		else
			__atomic_store_n(&halted->owed, 0u, __ATOMIC_RELAXED);
	}
}

/* Kills and reaps the watchdog: in a container, the adopting parent may never reap it. With SIGCHLD ignored, the id
 * of an ended watchdog may belong to a new process, so the kill requires a child still running. */
static void end_watcher(void)
{
	if (waitpid(watcher, NULL, WNOHANG))
		return;
	kill(watcher, SIGKILL);
	waitpid(watcher, NULL, 0);
}

/* Starts the watchdog, with no open file but the bell, all signals blocked and no terminal. The watchdog keeps no
 * pipe open, and no group signal stops the watchdog. Without a watchdog, a SIGSTOP is not deferred. */
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

/* Handles SIGCONT: cancels the owed stop if the sender is not the watchdog. */
static void note_go_on(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	if (info->si_pid != watcher)
		__atomic_store_n(&halted->owed, 0u, __ATOMIC_RELAXED);
}

void halted_begin(void)
{
	const struct sigaction noted = { .sa_sigaction = note_go_on, .sa_flags = SA_SIGINFO | SA_RESTART };

	if (!halted)
		start();
	if (bell < 0 || watcher < 0)
		return;
	sigaction(SIGCONT, &noted, &before);
	__atomic_store_n(&halted->standing, 1u, __ATOMIC_RELEASE);
	/* A failed send is harmless: the socket is full of earlier rings, or the watchdog has ended. */
	send(bell, "", 1, MSG_NOSIGNAL);
}

void halted_end(void)
{
	if (bell < 0 || watcher < 0)
		return;
	__atomic_store_n(&halted->standing, 0u, __ATOMIC_RELEASE);
	/* Acquire: pairs with the release in watch, before watch's SIGCONT. */
	const bool owed = __atomic_load_n(&halted->owed, __ATOMIC_ACQUIRE);
	sigaction(SIGCONT, &before, NULL);
	__atomic_store_n(&halted->owed, 0u, __ATOMIC_RELAXED);
	if (owed)
		kill(getpid(), SIGSTOP);
}
