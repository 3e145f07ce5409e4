/*
 * stop.c: a process stands still: each thread is seized, which stops nothing, then all are interrupted. Invariant: who
 * was stopped here goes on by stop_end, with the signal that it was about to get; if this process ends before, the
 * system lets them go on.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

#include "info/info.h"
#include "kmem.h"
#include "leaks/stop.h"

#define MAX_THREADS	65536u
#define MAX_LOOKS	64u		/* at the list of threads, for those that began meanwhile */
#define WAIT_NS		2000000000ull	/* for all to stand still */
#define BUSY_NS		20000000000ull	/* where one wants a CPU: for it to get one */
#define ALARM_US	50000
#define STILL_SECONDS	2u		/* for a read while all stand still: whoever answers may be one of them */
#define READ_SECONDS	30u

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool is_known(const struct stop *stop, pid_t id)
{
	for (size_t i = stop->count; i-- > 0;)
		if (stop->threads[i].id == id)
			return true;
	return false;
}

/* For the handler of the alarm. */
static pid_t seized[MAX_THREADS];
static volatile sig_atomic_t seized_count;
/* The first of them are of earlier stops: they were killed before they could be let go, by exec for one, and are ours
 * until their end is looked at. */
static sig_atomic_t ending;

/* One that has ended is passed over; of another that can't be seized errno says why. */
static bool seize(struct stop *stop, pid_t id)
{
	if (ptrace(PTRACE_SEIZE, id, NULL, NULL) != 0)
		return errno == ESRCH;
	stop->threads = kmem_grow(stop->threads, stop->count, &stop->room, sizeof(*stop->threads));
	stop->threads[stop->count++] = (struct stop_thread){ .id = id };
	if (seized_count < (sig_atomic_t)MAX_THREADS) {
		seized[seized_count] = id;
		seized_count = seized_count + 1;
	}
	return true;
}

/* The threads that are not seized yet; how many, or -1. */
static int seize_new(pid_t pid, struct stop *stop)
{
	char path[64];
	struct dirent *entry;
	int found = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *threads = opendir(path);
	if (!threads)
		return -1;
	while (found >= 0 && (entry = readdir(threads))) {
		pid_t id = atoi(entry->d_name);

		if (id <= 0 || is_known(stop, id) || stop->count >= MAX_THREADS)
			continue;
		if (seize(stop, id))
			found++;
		else if (!target_has_ended(id))	/* a first thread that has ended stays in the list */
			found = -1;
	}
	int error = errno;
	closedir(threads);
	errno = error;
	return found;
}

static bool read_registers(struct stop_thread *thread)
{
	struct user_regs_struct registers = { 0 };
	struct iovec general = { &registers, sizeof(registers) };
	struct iovec vectors = { NULL, 0 };

	if (ptrace(PTRACE_GETREGSET, thread->id, (void *)NT_PRSTATUS, &general) != 0)
		return false;
#if defined(__x86_64__)
	thread->stack = registers.rsp;
#elif defined(__aarch64__)
	thread->stack = registers.sp;
#endif
	size_t bytes = sizeof(registers) < sizeof(thread->words) ? sizeof(registers) : sizeof(thread->words);
	memcpy(thread->words, &registers, bytes);
	vectors = (struct iovec){ (char *)thread->words + bytes, sizeof(thread->words) - bytes };
	ptrace(PTRACE_GETREGSET, thread->id, (void *)NT_PRFPREG, &vectors);
	return true;
}

/* Does it wait in the kernel, or is it gone? Else it only wants a CPU. */
static bool is_in_kernel(pid_t id)
{
	char path[64], state = 'D', line[512];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)id);
	FILE *file = fopen(path, "re");
	if (file && fgets(line, sizeof(line), file) && strrchr(line, ')'))
		sscanf(strrchr(line, ')') + 1, " %c", &state);
	if (file)
		fclose(file);
	return state == 'D';
}

/*
 * It stands still, or has ended. False: until `end` it does neither: it waits in the kernel, as the caller of vfork.
 * One that wants a CPU, on a machine that has none to spare, is waited for longer.
 */
static bool wait_for(struct stop_thread *thread, uint64_t end)
{
	int status;

	while (waitpid(thread->id, &status, __WALL) < 0)
		if (errno != EINTR)
			return true;
		else if (now_ns() > end && (is_in_kernel(thread->id) || now_ns() > end + BUSY_NS))
			return false;
	if (!WIFSTOPPED(status))
		return true;
	thread->stopped = true;
	if (status >> 16 != PTRACE_EVENT_STOP)
		thread->signal = WSTOPSIG(status);
	return true;
}

/*
 * A thread that calls exec holds a lock that a seize waits for, until the process's others are gone: those that are
 * ours to wait for go when their end is looked at. A wait for ends takes what it finds of a thread that was traced to a
 * stop as well, so each is looked at first: what was taken here wait_for would wait for in vain.
 */
static void wake(int signal)
{
	const int how = WEXITED | WNOHANG | __WALL;
	int error = errno;

	(void)signal;
	for (sig_atomic_t i = 0; i < seized_count; i++) {
		siginfo_t info = { .si_pid = 0 };

		if (waitid(P_PID, (id_t)seized[i], &info, how | WNOWAIT) == 0 && info.si_pid &&
		    (info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED))
			waitid(P_PID, (id_t)seized[i], &info, how);
	}
	errno = error;
}

/* From now on a wait is interrupted again and again; or no longer. */
static void set_alarm(bool on)
{
	struct sigaction action = { .sa_handler = wake };
	struct itimerval timer = { { 0, on ? ALARM_US : 0 }, { 0, on ? ALARM_US : 0 } };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

/* All that are seized, from number `from` on: false: one of them does not stand still. */
static bool interrupt_from(struct stop *stop, size_t from)
{
	const uint64_t end = stop->begun_ns + WAIT_NS;
	bool all = true;

	for (size_t i = from; i < stop->count; i++)
		ptrace(PTRACE_INTERRUPT, stop->threads[i].id, NULL, NULL);
	for (size_t i = from; all && i < stop->count; i++)
		all = wait_for(&stop->threads[i], end);
	if (!all)
		errno = ETIMEDOUT;
	return all;
}

bool stop_begin(pid_t pid, struct stop *stop)
{
	size_t done = 0;
	int found;

	*stop = (struct stop){ .begun_ns = 0 };
	info_read_seconds = STILL_SECONDS;
	errno = 0;
	seized_count = ending;
	set_alarm(true);
	found = seize_new(pid, stop);
	stop->begun_ns = now_ns();
	/* A thread may begin another one until all stand still. */
	for (unsigned look = 0; found > 0 && look < MAX_LOOKS; look++) {
		bool all = interrupt_from(stop, done);

		done = stop->count;
		found = all ? seize_new(pid, stop) : -1;
	}
	int error = errno;
	set_alarm(false);
	for (size_t i = 0; i < stop->count; i++)
		if (stop->threads[i].stopped)
			read_registers(&stop->threads[i]);
	if (found == 0 && stop->count)
		return true;
	stop_end(stop);
	stop_clear(stop);
	errno = found == 0 || !error ? ESRCH : error;
	return false;
}

void stop_end(struct stop *stop)
{
	/* No alarm is on: the handler's list is ours. */
	for (size_t i = 0; i < stop->count; i++) {
		const struct stop_thread *thread = &stop->threads[i];

		if (thread->stopped &&
		    ptrace(PTRACE_DETACH, thread->id, NULL, (void *)(intptr_t)thread->signal) != 0 &&
		    ending < (sig_atomic_t)MAX_THREADS)
			seized[ending++] = thread->id;
	}
	stop->ns = now_ns() - stop->begun_ns;
	info_read_seconds = READ_SECONDS;
}

void stop_clear(struct stop *stop)
{
	free(stop->threads);
	*stop = (struct stop){ .count = 0 };
}
