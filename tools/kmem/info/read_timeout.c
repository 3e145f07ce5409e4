/*
 * read_timeout.c: end the command if a read or write of another process's memory never returns. Such an access waits
 * for the backing of the memory: a FUSE server, or a handler of page faults (userfaultfd), may never answer.
 * Invariant: no command waits for ever. If no access has finished for half a minute, the command prints one line,
 * lets stopped processes go on, and ends. A command for many processes skips the silent process instead.
 *
 * Kernel: only a fatal signal wakes a thread in this wait; a signal with a handler does not.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "info/info.h"
#include "command.h"

#define LOAD(x)	__atomic_load_n(&(x), __ATOMIC_RELAXED)

unsigned info_read_seconds = 30;
void (*info_before_the_end)(void);

static uint64_t begun, done;	/* numbers of reads and writes */
static pid_t latest;		/* target of the latest access */
static bool writes;		/* the latest access is a write */
static uint64_t left;		/* reads that took too long and were left to their threads */

_Noreturn static void give_up(void)
{
	if (info_before_the_end)
		info_before_the_end();
	fflush(stdout);
	kmem_failed(1, "", "%d: a %s its memory does not end (userfaultfd, or a file of FUSE)",
		    (int)LOAD(latest), LOAD(writes) ? "write to" : "read of");
	_exit(1);
}

/* Count the seconds without a finished access. Ticks are counted, not clock time: this process may have been
 * stopped. */
static void *watch(void *unused)
{
	const struct timespec tick = { .tv_sec = 1 };
	uint64_t before = 0;

	for (unsigned waits = 0;; nanosleep(&tick, NULL)) {
		uint64_t now = __atomic_load_n(&done, __ATOMIC_ACQUIRE);

		waits = now == before && LOAD(begun) > now + LOAD(left) ? waits + 1 : 0;
		before = now;
		if (waits > LOAD(info_read_seconds))
			give_up();
	}
	return unused;
}

/* Start the watching thread. If the start fails, only the user can end a wait (Ctrl-C). */
static void start_watch(void)
{
	sigset_t all, before;
	pthread_t watcher;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_create(&watcher, NULL, watch, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void access_begins(pid_t pid, bool write)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, start_watch);
	__atomic_store_n(&latest, pid, __ATOMIC_RELAXED);
	__atomic_store_n(&writes, write, __ATOMIC_RELAXED);
	__atomic_fetch_add(&begun, 1, __ATOMIC_RELAXED);
}

void info_read_begins(pid_t pid)
{
	access_begins(pid, false);
}

void info_write_begins(pid_t pid)
{
	access_begins(pid, true);
}

void info_access_ends(void)
{
	__atomic_fetch_add(&done, 1, __ATOMIC_ACQ_REL);
}

/* ------------------------------------------------------------------ one of many */

#define LEFT_SECONDS	10	/* longer than the budget of 5 s for one of many processes */
#define MOST_LEFT	64	/* silent processes to remember, and not to read again */

/* Arguments and results of a thread for one process. A thread left behind keeps the job. */
struct job {
	pid_t pid;
	bool with_memory;
	struct snapshot snapshot;
	struct info_memory memory;
	enum info_result result;
};

static void *read_one(void *arg)
{
	struct job *job = arg;

	job->result = job->with_memory ? info_of_process_and_memory(job->pid, &job->snapshot, &job->memory) :
		      info_of_process(job->pid, &job->snapshot);
	return job;
}

static enum info_result waits_for_ever(void)
{
	info_invalid_why = "a read of its memory does not end";
	return INFO_INVALID;
}

enum info_result info_apart(pid_t pid, struct snapshot *snapshot, struct info_memory *memory)
{
	static pid_t pids[MOST_LEFT];
	struct job *job;
	struct timespec end;
	pthread_t thread;

	for (uint64_t i = 0; i < left && i < MOST_LEFT; i++)
		if (pids[i] == pid)
			return waits_for_ever();
	info_budget_seconds = 5;
	snapshot_clear(snapshot);
	job = kmem_need(calloc(1, sizeof(*job)));
	*job = (struct job){ .pid = pid, .with_memory = memory, .snapshot = *snapshot };
	if (memory)
		info_memory_clear(memory);
	if (pthread_create(&thread, NULL, read_one, job)) {
		read_one(job);
	} else {
		clock_gettime(CLOCK_REALTIME, &end);
		end.tv_sec += LEFT_SECONDS;
		if (pthread_timedjoin_np(thread, NULL, &end)) {
			pthread_detach(thread);
			if (left < MOST_LEFT)
				pids[left] = pid;
			__atomic_fetch_add(&left, 1, __ATOMIC_RELAXED);
			return waits_for_ever();
		}
	}
	*snapshot = job->snapshot;
	if (memory)
		*memory = job->memory;
	enum info_result result = job->result;
	free(job);
	return result;
}
