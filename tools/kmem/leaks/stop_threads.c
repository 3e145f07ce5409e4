/*
 * stop_threads.c: stops all threads of a process. Each thread is seized, and a seize stops nothing; then all threads
 * are interrupted. Invariant: stop_end resumes each stopped thread, with the thread's pending signal. If this process
 * ends before stop_end, the kernel resumes the threads.
 *
 * A thread that waits for a CPU, or in the kernel, stops only when the wait ends. A late thread would prolong the
 * stop of all other threads. The stopped threads wait for some milliseconds and are then resumed. This process then
 * waits for the late thread alone. Once the late thread has stopped, the other threads, which stop fast, are
 * interrupted again.
 *
 * A stop of this process, for example by the terminal, would leave the threads stopped. The stop signal is therefore
 * deferred until the threads are resumed. SIGSTOP cannot be deferred: stop_watchdog.c resumes this process.
 *
 * To stop and resume one thread costs some microseconds. With thousands of threads, these microseconds are the length
 * of the stop. A stop must therefore make few calls per thread: registers are read while other threads are still
 * stopping, and new threads are detected with one read of the thread count.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
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
#include <unistd.h>

#include "info/info.h"
#include "command.h"
#include "leaks/stop_threads.h"

#define MAX_THREADS	65536u
#define MAX_LOOKS	64u		/* rounds of the search for new threads */
#define PATIENCE_NS	3000000ull	/* time that stopped threads wait for a late thread */
#define EACH_NS		20000ull	/* mean time for one thread to stop; beyond, a thread is late */
#define ATTEMPTS	6u		/* attempts with PATIENCE_NS; each further attempt doubles the time */
#define WAIT_NS		2000000000ull	/* limit for a wait in the kernel, and for the patience */
#define BUSY_NS		20000000000ull	/* limit for a thread that waits for a CPU */
#define ALARM_US	2000
#define ALARM_EACH_US	10u		/* added for each thread that the handler checks */
#define MANY		256		/* threads; from here on, each power of two sets the alarm anew */
#define HURRY_NS	4000000		/* CPU time at real-time priority */
#define LATE_ALARM_US	50000
#define STILL_SECONDS	2u		/* limit of a read in a stop: the process that answers may be stopped */
#define READ_SECONDS	30u

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ------------------------------------------------------------------ known threads */

/* Returns: the table entry of a thread id, or the empty entry for the id. */
static pid_t *find_known(const struct stop *stop, pid_t id)
{
	size_t at = (uint32_t)id * 2654435761u & (stop->known_room - 1);

	while (stop->known[at] && stop->known[at] != id)
		at = (at + 1) & (stop->known_room - 1);
	return &stop->known[at];
}

static bool is_known(const struct stop *stop, pid_t id)
{
	return stop->known_room && *find_known(stop, id) == id;
}

/* Fills the table with all threads of the list. know() grows the table first: half of the table stays empty. */
static void know_all(struct stop *stop, size_t room)
{
	if (room > stop->known_room) {
		free(stop->known);
		stop->known = kmem_need(malloc(room * sizeof(*stop->known)));
		stop->known_room = room;
	}
	memset(stop->known, 0, stop->known_room * sizeof(*stop->known));
	for (size_t i = 0; i < stop->count; i++)
		*find_known(stop, stop->threads[i].id) = stop->threads[i].id;
}

static void know(struct stop *stop, pid_t id)
{
	if (stop->known_room <= stop->count * 2)
		know_all(stop, stop->known_room ? stop->known_room * 2 : 64);
	*find_known(stop, id) = id;
}

/* ------------------------------------------------------------------ one thread */

/* Threads for the alarm handler. seized: threads that this process must wait for. ending: threads killed before the
 * detach, for example by exec; these threads stay traced until this process collects their exit status. */
static pid_t seized[MAX_THREADS], ending[MAX_THREADS];
static volatile sig_atomic_t seized_count, ending_count;

static void note_id(pid_t *list, volatile sig_atomic_t *count, pid_t id)
{
	if (*count >= (sig_atomic_t)MAX_THREADS)
		return;
	list[*count] = id;
	*count = *count + 1;
}

/*
 * Collects the exit status of ended threads. A thread that calls exec holds a lock until all other threads of the
 * process are gone, and a seize waits for the lock. A traced thread is gone only when the tracer has collected the
 * exit status. A wait for exits also takes the stop of a traced thread. Each status is therefore read with WNOWAIT
 * first: wait_for would wait in vain for a stop taken here.
 */
static void look_for_ends(const pid_t *list, sig_atomic_t count)
{
	const int how = WEXITED | WNOHANG | __WALL;

	for (sig_atomic_t i = 0; i < count; i++) {
		siginfo_t info = { .si_pid = 0 };

		if (waitid(P_PID, (id_t)list[i], &info, how | WNOWAIT) == 0 && info.si_pid &&
		    (info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED))
			waitid(P_PID, (id_t)list[i], &info, how);
	}
}

static void wake(int signal)
{
	int error = errno;

	(void)signal;
	look_for_ends(seized, seized_count);
	look_for_ends(ending, ending_count);
	errno = error;
}

/* Interrupts waits every `us` microseconds. 0 ends the interrupts. */
static void set_alarm(unsigned us)
{
	struct sigaction action = { .sa_handler = wake };
	struct itimerval timer = { { 0, us }, { 0, us } };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

/* Adds a thread for the handler. With some thousand threads the handler runs as long as the alarm interval, so the
 * interval grows with the count. */
static void note_seized(pid_t id)
{
	note_id(seized, &seized_count, id);
	if (seized_count >= MANY && !(seized_count & (seized_count - 1)))
		set_alarm(ALARM_US + ALARM_EACH_US * (unsigned)seized_count);
}

/* Seizes a thread; an ended thread is skipped. Returns: false with errno set if the thread cannot be seized. */
static bool seize(struct stop *stop, pid_t id)
{
	if (ptrace(PTRACE_SEIZE, id, NULL, NULL) != 0)
		return errno == ESRCH;
	stop->threads = kmem_grow(stop->threads, stop->count, &stop->room, sizeof(*stop->threads));
	stop->threads[stop->count++] = (struct stop_thread){ .id = id };
	know(stop, id);
	note_seized(id);
	return true;
}

/* Opens the thread list of a process. Returns: NULL with errno set on failure; ESRCH: no such process. */
static DIR *open_threads(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *threads = opendir(path);
	if (!threads && errno == ENOENT)
		errno = ESRCH;
	return threads;
}

/* Seizes all threads not seized yet. Returns: the count of new threads, or -1 with errno set. */
static int seize_new(pid_t pid, struct stop *stop)
{
	struct dirent *entry;
	int found = 0;
	DIR *threads = open_threads(pid);

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

static void read_registers(struct stop_thread *thread)
{
	struct user_regs_struct registers = { 0 };
	struct iovec general = { &registers, sizeof(registers) };
	struct iovec vectors = { NULL, 0 };

	if (ptrace(PTRACE_GETREGSET, thread->id, (void *)NT_PRSTATUS, &general) != 0)
		return;
#if defined(__x86_64__)
	thread->stack = (struct stop_stack){ registers.rsp, registers.fs_base };
#elif defined(__aarch64__)
	thread->stack.pointer = registers.sp;
#endif
	size_t bytes = sizeof(registers) < sizeof(thread->words) ? sizeof(registers) : sizeof(thread->words);
	memcpy(thread->words, &registers, bytes);
	vectors = (struct iovec){ (char *)thread->words + bytes, sizeof(thread->words) - bytes };
	ptrace(PTRACE_GETREGSET, thread->id, (void *)NT_PRFPREG, &vectors);
}

/* Returns: true if the thread waits in the kernel or is gone; false if the thread only waits for a CPU. */
static bool is_in_kernel(pid_t id)
{
	FILE *file = target_proc(id, "stat");
	char state = 'D', line[512];

	if (file && fgets(line, sizeof(line), file) && strrchr(line, ')'))
		sscanf(strrchr(line, ')') + 1, " %c", &state);
	if (file)
		fclose(file);
	return state == 'D';
}

/* Waits until the thread stops or ends, and reads the registers of a stopped thread. Returns: false after `end`. */
static bool wait_until(struct stop_thread *thread, uint64_t end)
{
	int status;
	pid_t got;

	do
		got = waitpid(thread->id, &status, __WALL | (now_ns() < end ? 0 : WNOHANG));
	while (got < 0 && errno == EINTR);
	thread->late = got == 0;
	if (got > 0 && WIFSTOPPED(status)) {
		thread->stopped = true;
		if (status >> 16 != PTRACE_EVENT_STOP)
			thread->signal = WSTOPSIG(status);
		read_registers(thread);
	}
	return !thread->late;
}

/* Waits like wait_until, for WAIT_NS, or for BUSY_NS if the thread waits for a CPU on a busy machine. Returns: false
 * with ETIMEDOUT if the thread still waits, for example in the kernel as the caller of vfork. */
static bool wait_for(struct stop_thread *thread)
{
	const uint64_t begun = now_ns();

	for (uint64_t end = begun + WAIT_NS; !wait_until(thread, end); end += WAIT_NS)
		if (is_in_kernel(thread->id) || end >= begun + BUSY_NS) {
			errno = ETIMEDOUT;
			return false;
		}
	return true;
}

/* Unblock the alarms in this thread: the command may have been started with blocked signals. */
static void let_alarm_in(void)
{
	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigaddset(&alarm, SIGRTMIN);
	pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
}

/* ------------------------------------------------------------------ a stop of this process */

static const int stops[] = { SIGTSTP, SIGTTIN, SIGTTOU };
static struct sigaction stops_before[KMEM_COUNT(stops)];
static volatile sig_atomic_t asked_to_stop;	/* the deferred stop signal; 0: none */

static void note_stop(int number)
{
	asked_to_stop = number;
}

static void put_stops_off(void)
{
	struct sigaction later = { .sa_handler = note_stop, .sa_flags = SA_RESTART };

	for (size_t i = 0; i < KMEM_COUNT(stops); i++)
		if (!sigaction(stops[i], NULL, &stops_before[i]) && stops_before[i].sa_handler == SIG_DFL)
			sigaction(stops[i], &later, NULL);
}

/* Restores the handlers and raises a stop signal deferred meanwhile. */
static void let_stops_in(void)
{
	for (size_t i = 0; i < KMEM_COUNT(stops); i++)
		sigaction(stops[i], &stops_before[i], NULL);
	if (asked_to_stop)
		kill(getpid(), asked_to_stop);
	asked_to_stop = 0;
}

/* Scheduling policy before hurry(); -1: hurry() is not in effect. */
static struct sched_param before;
static volatile sig_atomic_t policy = -1;

/* Restores the scheduling policy. Context: also the timer's signal handler, because the target process determines
 * the count of threads and the length of the stop. */
static void hurry_no_longer(int signal)
{
	int error = errno;

	(void)signal;
	if (policy >= 0)
		sched_setscheduler(0, policy, &before);
	policy = -1;
	errno = error;
}

/* Gives this thread SCHED_FIFO, where allowed, for HURRY_NS of CPU time while target threads are stopped. The timer
 * counts CPU time, because a signal pending during a wait in the kernel would keep SIGTERM from ending kmem. */
static void hurry(void)
{
	const struct sched_param first = { .sched_priority = 1 };
	const struct sigaction late = { .sa_handler = hurry_no_longer, .sa_flags = SA_RESTART };
	const struct itimerspec time = { .it_value.tv_nsec = HURRY_NS };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	static timer_t timer;
	static bool has_timer;

	if (!has_timer)
		has_timer = !sigaction(SIGRTMIN, &late, NULL) && !timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer);
	if (!has_timer || policy >= 0)
		return;
	sched_getparam(0, &before);
	policy = sched_getscheduler(0);
	sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first);
	if (timer_settime(timer, 0, &time, NULL))
		hurry_no_longer(0);
}

/* ------------------------------------------------------------------ all threads */

static void let_go(const struct stop_thread *thread)
{
	if (thread->stopped && ptrace(PTRACE_DETACH, thread->id, NULL, (void *)(intptr_t)thread->signal) != 0)
		note_id(ending, &ending_count, thread->id);
}

static void note_length(struct stop *stop)
{
	uint64_t ns = now_ns() - stop->begun_ns;

	stop->times++;
	stop->longest_ns = ns > stop->longest_ns ? ns : stop->longest_ns;
}

/* Interrupts the threads from number `from` on. Requires: the threads before `from` are stopped. Returns: false if a
 * thread is late. */
static bool interrupt_from(struct stop *stop, size_t from, uint64_t patience)
{
	const uint64_t end = stop->begun_ns + patience + EACH_NS * stop->count;
	bool all = true;

	for (size_t i = from; i < stop->count; i++)
		ptrace(PTRACE_INTERRUPT, stop->threads[i].id, NULL, NULL);
	for (size_t i = from; i < stop->count; i++) {
		uint64_t its_end = now_ns() + patience;

		all = wait_until(&stop->threads[i], its_end < end ? its_end : end) && all;
	}
	return all;
}

static size_t standing(const struct stop *stop)
{
	size_t count = 0;

	for (size_t i = 0; i < stop->count; i++)
		count += stop->threads[i].stopped;
	return count;
}

/* Returns: true if the process has no thread besides the stopped threads. Only a known thread can have started a
 * thread, and all known threads are stopped. */
static bool are_all(pid_t pid, const struct stop *stop)
{
	FILE *file = target_proc(pid, "status");
	size_t there = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file) && sscanf(line, "Threads: %zu", &there) != 1)
		;
	if (file)
		fclose(file);
	return standing(stop) == there;
}

enum outcome { STOP_ALL, STOP_LATE, STOP_FAILED };

static enum outcome stop_all(pid_t pid, struct stop *stop, uint64_t patience)
{
	size_t done = stop->count;
	int found;

	errno = 0;
	found = seize_new(pid, stop);
	set_alarm(ALARM_US + ALARM_EACH_US * (unsigned)stop->count);
	if (!done)
		stop->begun_ns = now_ns();
	/* A running thread may start another thread until all threads are stopped. */
	for (unsigned look = 0; found > 0 && look < MAX_LOOKS; look++) {
		if (!interrupt_from(stop, done, patience))
			return STOP_LATE;
		done = stop->count;
		found = are_all(pid, stop) ? 0 : seize_new(pid, stop);
	}
	if (found > 0)
		return STOP_LATE;
	if (found == 0 && standing(stop))
		return STOP_ALL;
	/* An ended process stays in the list until the parent waits, and cannot be seized. */
	if (found == 0)
		errno = ESRCH;
	return STOP_FAILED;
}

/* Resumes all threads except the last late thread, which stays stopped. Returns: false if a late thread does not
 * stop. */
static bool keep_late(struct stop *stop)
{
	size_t late = 0;
	bool ok = true;

	for (size_t i = 0; i < stop->count; i++)
		if (stop->threads[i].late)
			stop->threads[late++] = stop->threads[i];
		else
			let_go(&stop->threads[i]);
	note_length(stop);
	stop->count = 0;
	set_alarm(LATE_ALARM_US);
	for (size_t i = 0; ok && i < late; i++) {
		ok = wait_for(&stop->threads[i]);
		if (ok && i + 1 < late)
			let_go(&stop->threads[i]);
	}
	stop->begun_ns = now_ns();
	if (ok && late && stop->threads[late - 1].stopped) {
		stop->threads[0] = stop->threads[late - 1];
		stop->count = 1;
	}
	know_all(stop, 0);
	set_alarm(ALARM_US);
	return ok;
}

static void begin(struct stop *stop)
{
	halted_begin();
	*stop = (struct stop){ .begun_ns = now_ns() };
	info_read_seconds = STILL_SECONDS;
	seized_count = 0;
	put_stops_off();
	let_alarm_in();
	hurry();
	set_alarm(ALARM_US);
}

/* Undoes begin(). Context: after the last detach. */
static void end(void)
{
	hurry_no_longer(0);
	info_read_seconds = READ_SECONDS;
	halted_end();
	let_stops_in();
}

bool stop_begin(pid_t pid, struct stop *stop)
{
	uint64_t patience = PATIENCE_NS;
	enum outcome outcome;
	unsigned attempt = 0;

	begin(stop);
	while ((outcome = stop_all(pid, stop, patience)) == STOP_LATE) {
		if (!keep_late(stop))
			break;
		patience *= ++attempt >= ATTEMPTS ? 2 : 1;
		errno = ETIMEDOUT;
		if (patience > WAIT_NS)
			break;
		seized_count = 0;
		for (size_t i = 0; i < stop->count; i++)
			note_id(seized, &seized_count, stop->threads[i].id);
	}
	int error = errno;
	set_alarm(0);
	if (outcome == STOP_ALL)
		return true;
	stop_end(stop);
	stop_clear(stop);
	errno = error ? error : ESRCH;
	return false;
}

void stop_end(struct stop *stop)
{
	for (size_t i = 0; i < stop->count; i++)
		let_go(&stop->threads[i]);
	note_length(stop);
	end();
}

void stop_clear(struct stop *stop)
{
	free(stop->threads);
	free(stop->known);
	*stop = (struct stop){ .count = 0 };
}

/* ------------------------------------------------------------------ one thread at a time */

/* Stops one thread, reads the stack pointer and resumes the thread. Returns: false with errno set on failure. */
static bool add_stack(struct stop *stop, pid_t id)
{
	size_t before = stop->count;
	/* The previous thread was resumed. */
	seized_count = 0;
	bool ok = seize(stop, id) || target_has_ended(id);	/* a first thread that has ended stays in the list */

	if (!ok || stop->count == before)
		return ok;
	struct stop_thread *thread = &stop->threads[before];
	ptrace(PTRACE_INTERRUPT, id, NULL, NULL);
	ok = wait_for(thread);
	let_go(thread);
	return ok;
}

struct stop_stack *stop_stacks(pid_t pid, size_t *count)
{
	struct stop stop;
	struct dirent *entry;
	bool ok = true;
	DIR *threads = open_threads(pid);

	if (!threads)
		return NULL;
	begin(&stop);
	while (ok && (entry = readdir(threads)))
		if (atoi(entry->d_name) > 0 && stop.count < MAX_THREADS)
			ok = add_stack(&stop, atoi(entry->d_name));
	int error = ok ? ESRCH : errno;
	set_alarm(0);
	end();
	closedir(threads);
	struct stop_stack *stacks = ok && stop.count ? kmem_need(calloc(stop.count, sizeof(*stacks))) : NULL;
	for (*count = 0; stacks && *count < stop.count; ++*count)
		stacks[*count] = stop.threads[*count].stack;
	stop_clear(&stop);
	errno = error;
	return stacks;
}
