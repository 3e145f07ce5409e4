/*
 * The processes that `kmem bench` starts, one at a time (workers, make, scripts/peers), and who asks it to stop. Each
 * child leads a process group of its own: a signal from the terminal comes to us alone, we end the child with all that
 * it started, and what was complete by then is printed. No child outlives us. (Ctrl-Z stops us alone: a worker that
 * stood still would be one that took long.)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

/* timeout(1) sends its signal twice, a terminal that goes and its shell do too: that is one wish, not two. */
#define SAME_MOMENT_MS 1000

static const int stop_signals[] = { SIGHUP, SIGINT, SIGTERM };
#define STOP_SIGNALS (sizeof(stop_signals) / sizeof(*stop_signals))

static volatile sig_atomic_t running;	/* leads the group of the child; 0: there is none */
static volatile sig_atomic_t stopped_by;	/* the first signal; 0: none came */
static const char *stop_reason;		/* of our own; NULL: there is none */

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

/* The first one lets the child clean up behind itself; who asks again does not want to wait for that. */
static void on_stop(int signal)
{
	static long long first_ms;
	int error = errno;

	if (!stopped_by) {
		stopped_by = signal;
		first_ms = now_ms();
		if (running)
			kill(-running, SIGTERM);
	} else if (now_ms() - first_ms > SAME_MOMENT_MS) {
		if (running)
			kill(-running, SIGKILL);
		_exit(bench_stop_status());
	}
	errno = error;
}

/* What our caller ignores (nohup, a shell's background job) stays ignored. */
void bench_catch_stop(void)
{
	struct sigaction ours = { .sa_handler = on_stop, .sa_flags = SA_RESTART }, before;

	for (size_t i = 0; i < STOP_SIGNALS; i++)
		sigaddset(&ours.sa_mask, stop_signals[i]);
	for (size_t i = 0; i < STOP_SIGNALS; i++)
		if (!sigaction(stop_signals[i], &ours, &before) && before.sa_handler == SIG_IGN)
			sigaction(stop_signals[i], &before, NULL);
}

void bench_stop(const char *why)
{
	stop_reason = why;
}

const char *bench_stopped(void)
{
	return stopped_by ? "interrupted" : stop_reason;
}

int bench_stop_status(void)
{
	return stopped_by ? 128 + stopped_by : 0;
}

/* Signals wait meanwhile: the handler knows the child, or the child was never started in vain. */
pid_t bench_fork(void)
{
	sigset_t stops, before;
	pid_t child;

	sigemptyset(&stops);
	for (size_t i = 0; i < STOP_SIGNALS; i++)
		sigaddset(&stops, stop_signals[i]);
	sigprocmask(SIG_BLOCK, &stops, &before);
	child = fork();
	if (!child) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		for (size_t i = 0; i < STOP_SIGNALS; i++)
			if (signal(stop_signals[i], SIG_DFL) == SIG_IGN)
				signal(stop_signals[i], SIG_IGN);
	} else if (child > 0) {
		setpgid(child, child);	/* whoever of us comes first */
		running = child;
		if (stopped_by)
			kill(-child, SIGTERM);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	return child;
}

/* As long as it is not reaped, its number is nobody else's: until then the handler may send to it. */
int bench_wait(pid_t child)
{
	siginfo_t ended;
	int status = -1;

	waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT);
	running = 0;
	waitpid(child, &status, 0);
	return status;
}
