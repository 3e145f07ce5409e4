/*
 * os_thread.c: helper threads, for work that may wait for the program's threads; the number of the process's threads;
 * priority lent to a thread. Invariant: a helper thread takes no signal of the program, and does not count as a thread
 * of the program.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <linux/prctl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/text.h"
#include "die.h"
#include "os_call.h"

/* Weak, because a static program without threads may lack both. */
#pragma weak pthread_create
#pragma weak pthread_join

#define STACK_BYTES	(256ul << 10)

static void *run(void *function)
{
	((void (*)(void))(uintptr_t)function)();
	return NULL;
}

static bool begin(pthread_t *thread, int detached, void (*function)(void))
{
	pthread_attr_t attr;
	sigset_t all, before;

	if (!pthread_create || !pthread_join || km_os_is_shut() || km_call_fault("thread") || pthread_attr_init(&attr))
		return false;
	pthread_attr_setdetachstate(&attr, detached);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(thread, &attr, run, (void *)(uintptr_t)function);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return !error;
}

bool km_os_run_apart(void (*function)(void))
{
	pthread_t thread;

	return begin(&thread, PTHREAD_CREATE_DETACHED, function);
}

bool km_os_run_beside(void (*function)(void), void (*meanwhile)(void))
{
	pthread_t thread;
	const bool begun = begin(&thread, PTHREAD_CREATE_JOINABLE, function);

	km_debug(!begun || !pthread_equal(thread, pthread_self()), "a thread waits for another thread");
	if (begun) {
		meanwhile();
		pthread_join(thread, NULL);
	}
	return begun;
}

/* Linux 5.9. One call makes an empty table: an older kernel fails and changes nothing. */
#ifndef SYS_close_range
#define SYS_close_range		436
#endif
#define UNSHARE			2u

bool km_os_own_descriptors(void)
{
	return !km_os_is_shut() && !km_call_fault("own descriptors") &&
	       !KM_CALL(syscall(SYS_close_range, 0u, ~0u, UNSHARE));
}

/* Number of helper threads of this process; a child of fork has none. */
static uint64_t ours;	/* process id in the upper half, number of helper threads in the lower half */

static unsigned count_ours(uint64_t word, unsigned pid)
{
	return word >> 32 == pid ? (unsigned)word : 0;
}

void km_os_thread_is_ours(bool begins, const char *name)
{
	const unsigned pid = km_os_pid();
	uint64_t was = km_load(&ours), is;

	km_debug(km_thread.helper != begins, "a helper thread begins and ends once");
	km_debug(begins || count_ours(was, pid), "a helper thread ends after its begin");
	do
		is = (uint64_t)pid << 32 | (count_ours(was, pid) + (begins ? 1u : -1u));
	while (!km_cas_both(&ours, &was, is));
	km_thread.helper = begins;
	if (begins)
		km_os_prctl(PR_SET_NAME, (const unsigned long[4]){ (uintptr_t)name });
}

/* Returns: the number of threads, 0 if the system does not say. */
static unsigned read_threads(const char *status)
{
	static const char field[] = "\nThreads:\t";
	const char *at = __builtin_strstr(status, field);
	uint64_t threads = 0;

	if (at)
		at += sizeof(field) - 1;
	return at && km_text_number(&at, UINT32_MAX, &threads) ? (unsigned)threads : 0;
}

static bool read_status(char *text, size_t bytes)
{
	return !km_os_is_shut() && km_os_read("/proc/self/status", text, bytes) >= 0;
}

unsigned km_os_threads(void)
{
	const unsigned mine = count_ours(km_load(&ours), km_os_pid()) - km_thread.helper;
	char text[4096];
	const unsigned threads = read_status(text, sizeof(text)) ? read_threads(text) : 0;

	return threads > mine ? threads - mine : threads;
}

/* Returns: true if the first thread has ended: an ended thread has no memory to read. */
static bool first_has_ended(void)
{
	char from = 0, to;
	const struct iovec there = { &from, 1 }, here = { &to, 1 };

	return !km_os_is_shut() && KM_CALL(process_vm_readv(getpid(), &here, 1, &there, 1, 0)) == -ESRCH;
}

/* The first thread counts, and stays visible as a zombie, until the last thread has ended. */
bool km_os_program_is_over(void)
{
	char text[4096];

	if (!read_status(text, sizeof(text)))
		return first_has_ended();
	return __builtin_strstr(text, "\nState:\tZ") &&
	       read_threads(text) == 1 + count_ours(km_load(&ours), km_os_pid());
}

/* Returns the thread's number without a system call: libc computes the id of the thread's clock from the number. */
unsigned km_os_thread(void)
{
	clockid_t clock;

	return pthread_getcpuclockid(pthread_self(), &clock) ? 0 : ~(unsigned)clock >> 3;
}

bool km_os_has_thread(unsigned thread)
{
	return !KM_CALL(syscall(SYS_tgkill, getpid(), thread, 0));
}

/* From <linux/futex.h>, since Linux 5.14. */
#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2	13
#endif

bool km_os_lend(uint32_t *word, unsigned ms)
{
	struct timespec end;

	if (km_os_is_shut())
		return false;
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += (long)ms * 1000000;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	const long result = KM_CALL(syscall(SYS_futex, word, FUTEX_LOCK_PI2 | FUTEX_PRIVATE_FLAG, 0, &end, NULL, 0));
	return !result || result == -ETIMEDOUT;
}

void km_os_lend_end(uint32_t *word)
{
	if (!km_os_is_shut())
		KM_CALL(syscall(SYS_futex, word, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0));
}

bool km_os_is_real_time(void)
{
	long policy = km_os_is_shut() ? SCHED_OTHER : KM_CALL(syscall(SYS_sched_getscheduler, 0));

	policy &= ~SCHED_RESET_ON_FORK;
	return policy == SCHED_FIFO || policy == SCHED_RR || policy == SCHED_DEADLINE;
}
