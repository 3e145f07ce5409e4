/*
 * os_thread.c: a thread of ours, for work that may wait for what the program's own threads hold, or for others; and how
 * many there are. Invariant: it takes no signal that is meant for the program, nor counts as one of its threads.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/prctl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "atomic.h"
#include "os.h"

/* A static program that has no threads may lack it. */
#pragma weak pthread_create

#define STACK_BYTES	(256ul << 10)

static void *run(void *function)
{
	((void (*)(void))(uintptr_t)function)();
	return NULL;
}

bool km_os_run_apart(void (*function)(void))
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, before;

	if (!pthread_create || km_os_is_shut() || (km_os_fault && km_os_fault("thread")) || pthread_attr_init(&attr))
		return false;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&thread, &attr, run, (void *)(uintptr_t)function);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return !error;
}

/* Those of this process; a fork's child has none. */
static uint64_t ours;	/* the process in the upper half, their number in the lower */
static km_tls bool is_ours;

static unsigned count_ours(uint64_t word, unsigned pid)
{
	return word >> 32 == pid ? (unsigned)word : 0;
}

void km_os_thread_is_ours(bool begins, const char *name)
{
	const unsigned pid = km_os_pid();
	uint64_t was = km_load(&ours), is;

	do
		is = (uint64_t)pid << 32 | (count_ours(was, pid) + (begins ? 1u : -1u));
	while (!km_cas_both(&ours, &was, is));
	is_ours = begins;
	if (begins)
		km_os_prctl(PR_SET_NAME, (const unsigned long[4]){ (uintptr_t)name });
}

/* Zero where the system does not say. */
static unsigned read_threads(const char *status)
{
	static const char field[] = "\nThreads:\t";
	const char *at = __builtin_strstr(status, field);
	unsigned threads = 0;

	for (at = at ? at + sizeof(field) - 1 : ""; *at >= '0' && *at <= '9'; at++)
		threads = threads * 10 + (unsigned)(*at - '0');
	return threads;
}

static bool read_status(char *text, size_t bytes)
{
	return !km_os_is_shut() && km_os_read("/proc/self/status", text, bytes) >= 0;
}

unsigned km_os_threads(void)
{
	const unsigned mine = count_ours(km_load(&ours), km_os_pid()) - is_ours;
	char text[4096];
	const unsigned threads = read_status(text, sizeof(text)) ? read_threads(text) : 0;

	return threads > mine ? threads - mine : threads;
}

/* The first thread counts, and can be seen, until the last one has ended. */
bool km_os_program_is_over(void)
{
	char text[4096];

	return read_status(text, sizeof(text)) && __builtin_strstr(text, "\nState:\tZ") &&
	       read_threads(text) == 1 + count_ours(km_load(&ours), km_os_pid());
}

bool km_os_has_thread(unsigned thread)
{
	int saved_errno = errno;
	bool has = !syscall(SYS_tgkill, getpid(), thread, 0);

	errno = saved_errno;
	return has;
}
