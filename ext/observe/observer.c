/*
 * observer.c: KMEM_OPTIONS=observer:UID lets processes of that user read the statistics without the right to trace
 * this process. The process listens to an abstract socket name. Requests are answered by a slow path that may make
 * system calls, or, with observer_thread:1, by a helper thread.
 *
 * Invariants: an answer is the text of kmem_print_json, without object contents, addresses or keys, in separate
 * memory sealed before any other process gets access. At most one text is written per look, and no client is ever
 * waited for. A descriptor is used or closed only after a check that the descriptor is still the library's. The child
 * of a fork listens under its own name and has no descriptor of the parent's name. The thread ends before a system
 * call filter is installed.
 */
#include <errno.h>
#include <kmem/record.h>
#include <link.h>

#include "cache/cache.h"
#include "os/die.h"
#include "os/os.h"
#include "percpu/pcpu.h"
#include "inspect/stats_print.h"

#define LOOK_MS		100u	/* time between checks for requests */
#define KEPT_NUMBER	121	/* above the numbers used by programs, like that of standard error (os/stderr.c) */
#define ANSWERS		64u	/* closed connections of other users, or errors, per look */

#define WAIT_MS		1000u	/* longest wait of the answering thread */
#define END_MS		3000u	/* time limit for the end of the thread: three waits */
#define FORK_MS		50u	/* time for a look to finish, unless the thread is stuck */

extern struct r_debug _r_debug __attribute__((weak));	/* not declared by musl */

static struct {
	uint32_t taken;		/* one thread is working */
	unsigned pid;		/* process of the name; 0: no name yet */
	int fd;
	struct km_os_file file;
	uint64_t next_look;
	/* The helper thread, if running, owns the descriptor. */
	uint32_t serving;	/* PID of the thread's process; 0: no thread, or done */
	unsigned ticker, answerer;	/* thread IDs; 0: not started */
	uint32_t through;	/* answerer is finished */
	uint64_t next_try;
	enum { ENDING = 1, ENDED = 2 } ending;	/* no thread may start any more */
	const struct km_thread *ender;	/* km_thread of the ending thread */
} observer = { .fd = -1 };

/* Returns: false if the program closed the descriptor and perhaps reused the number. */
static bool is_ours(void)
{
	struct km_os_file file;

	return observer.fd >= 0 && !km_os_file(observer.fd, &file) && file.device == observer.file.device &&
	       file.inode == observer.file.inode;
}

/* Listen under the name of the process. least: smallest allowed descriptor number. */
static void listen_as(unsigned pid, int least)
{
	char name[KMEM_OBSERVER_NAME_BYTES];

	km_format(name, sizeof(name), KMEM_OBSERVER_NAME, pid);
	observer.pid = pid;
	observer.fd = km_os_listen(name, least);
	if (observer.fd >= 0 && km_os_file(observer.fd, &observer.file)) {
		km_os_close(observer.fd);
		observer.fd = -1;
	}
	km_debug(observer.fd < 0 || observer.fd >= least, "the descriptor of the name is above those of the program");
}

static void answer(int to)
{
	int file = km_os_memory_file("libkmem-observer");

	km_debug(km_thread.busy && km_load(&observer.taken), "a text belongs to one busy thread");
	const int error = file < 0 ? file : km_print_json_now(file) ?: km_os_seal(file);

	km_os_hand_over(to, error ? -1 : file);
	if (file >= 0)
		km_os_close(file);
}

static bool may_ask(unsigned user)
{
	return user == km_options.observer || user == 0;
}

/* Answer one permitted request, and close all other connections. Returns: true if a text was written. */
static bool look(void)
{
	for (unsigned i = 0; i < ANSWERS; i++) {
		unsigned user;
		int from = km_os_accept(observer.fd, &user);

		if (from < 0)
			break;
		const bool may = may_ask(user);
		if (may)
			answer(from);
		km_os_close(from);
		if (may)
			return true;
	}
	return false;
}

/* Look for requests, or start to listen. After a vfork, or a clone not seen by the fork handlers, the name belongs
 * to the parent: the name stays untouched, and this process has none. */
static bool come_by(unsigned pid, int least)
{
	const bool same = observer.pid == pid;

	if (same && is_ours())
		return look();
	if (same || !observer.pid)
		listen_as(pid, least);
	return false;
}

static bool take(void)
{
	uint32_t none = 0;

	return km_cas_acquire(&observer.taken, &none, 1u);
}

static bool take_within(unsigned ms)
{
	for (; !take(); ms--) {
		if (!ms)
			return false;
		km_os_wait(&observer.taken, 1, 1);
	}
	return true;
}

static void put(void)
{
	km_store_release(&observer.taken, 0u);
}

/* ------------------------------------------------------------------ helper thread */

static bool ends(void)
{
	return km_load_acquire(&observer.ending) || km_os_is_shut();
}

/* Answer requests until the thread must end. */
static void answer_all(unsigned pid)
{
	uint64_t next_check = km_os_now_ms() + WAIT_MS;
	bool answered = false;

	while (!ends()) {
		/* The starting tick has finished by then: the name is free. */
		if (take_within(FORK_MS)) {
			struct km_busy_was was = km_busy_begin();
			answered |= come_by(pid, 0);
			km_busy_end(was);
			put();
		}
		/* Write at most one text per LOOK_MS, however many requests arrive. */
		if (answered)
			km_os_wait(&observer.ending, 0, LOOK_MS);
		answered = km_os_wait_for(observer.fd, WAIT_MS);
		/* Requests must not keep a finished program alive. */
		const uint64_t now = km_os_now_ms();
		if (now >= next_check && km_os_program_is_over())
			return;
		if (now >= next_check)
			next_check = now + WAIT_MS;
	}
}

/* Body of the answering thread, with a separate descriptor table. The program relies on descriptor numbers: the next
 * one must be the lowest free number, and the program's own numbers must stay valid. The program may do anything
 * meanwhile. */
static void serve_apart(void)
{
	km_store(&observer.answerer, km_os_thread());
	km_os_thread_is_ours(true, "kmem-observer");
	if (km_os_own_descriptors()) {
		answer_all(km_os_pid());
		observer.fd = -1;
	} else {
		observer.next_try = UINT64_MAX;
		km_warn("KMEM_OPTIONS: observer_thread is ignored: the helper thread cannot have its own "
			"descriptors; misses answer");
	}
	km_os_thread_is_ours(false, NULL);
	km_store_release(&observer.through, 1u);
	km_os_wake(&observer.through);
}

/* Body of the ticker thread: run kmem_tick for a sleeping program, to return aged free memory and serve requests of
 * other processes. Ticks may print lines and use descriptors of the program, so the ticker shares the program's
 * descriptor table. */
static void keep(void)
{
	km_debug(!km_thread.busy && !km_thread.locks_held, "a helper thread begins as other threads");
	while (!km_load_acquire(&observer.through)) {
		if (!ends() && take()) {
			kmem_tick();
			put();
		}
		km_os_wait(&observer.through, 0, WAIT_MS);
	}
}

/* Run both threads. If the helper thread is the last thread of the process, libc ends the process from the helper
 * thread and flushes the stdio buffers, so the thread needs the program's descriptors. */
static void serve(void)
{
	km_store(&observer.ticker, km_os_thread());
	km_os_thread_is_ours(true, "kmem-observer");
	km_os_run_beside(serve_apart, keep);
	km_os_thread_is_ours(false, NULL);
	km_store_release(&observer.serving, 0u);
}

/* libc allocates while creating a thread, so creation is not allowed inside the dynamic linker or with a lock held. A
 * vfork child would be gone before the thread finishes. */
static bool may_begin(void)
{
	return (!&_r_debug || _r_debug.r_state == RT_CONSISTENT) && !km_thread.locks_held && !km_thread_is_lent();
}

/* Allocations by libc during creation count as the program's own. */
static bool begin_thread(void (*function)(void))
{
	const uint8_t was = km_thread.busy;

	km_debug(!km_thread.locks_held, "a thread holds no lock while it creates a thread");
	km_busy_end_clear();
	const bool begun = km_os_run_apart(function);
	km_debug(!km_thread.locks_held, "libc's allocations release all locks");
	km_busy_begin();
	km_thread.busy = was;
	return begun;
}

/* Start the helper thread, one per process. Returns: false if no thread can start now; ticks then answer, and a
 * later tick tries again. */
static bool begin_serving(unsigned pid, uint64_t now)
{
	if (!km_options.observer_thread || (observer.pid && observer.pid != pid) || now < observer.next_try ||
	    !may_begin())
		return false;
	km_debug(!km_load(&observer.serving) || km_load(&observer.serving) != pid, "a process has one observer");
	observer.next_try = now + WAIT_MS;
	km_store(&observer.ticker, 0u);
	km_store(&observer.answerer, 0u);
	km_store(&observer.through, 0u);
	km_store(&observer.serving, pid);
	/* Pairs with the fence in end_serving: either this thread sees `ending`, or end_serving sees `serving`. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (km_load_acquire(&observer.ending) || !begin_thread(serve)) {
		km_store(&observer.serving, 0u);
		return false;
	}
	/* The thread listens on its own, after this tick has finished. */
	if (is_ours())
		km_os_close(observer.fd);
	observer.fd = -1;
	observer.pid = pid;
	return true;
}

static bool is_gone(const unsigned *thread)
{
	return !km_load(thread) || !km_os_has_thread(km_load(thread));
}

static bool has_ended(unsigned pid)
{
	return km_load_acquire(&observer.serving) != pid && is_gone(&observer.ticker) && is_gone(&observer.answerer);
}

static void end_threads(unsigned pid)
{
	char name[KMEM_OBSERVER_NAME_BYTES];

	if (has_ended(pid))
		return;
	km_os_wake(&observer.ending);
	km_format(name, sizeof(name), KMEM_OBSERVER_NAME, pid);
	/* If the knock fails, the thread ends after its current wait. */
	km_os_knock(name);
	for (unsigned ms = 0; ms < END_MS && !km_os_is_shut() && !has_ended(pid); ms++)
		km_os_wait(&observer.ending, ENDING, 1);
	if (!km_os_is_shut() && !has_ended(pid))
		km_warn("the observer's helper thread does not end before the seccomp filter is installed");
}

/* End the helper thread. A filter of system calls could kill the process for any call of the thread, so the thread
 * must end before the filter is installed. Of several callers one does the work, and the others only wait, because
 * the first to finish may install the filter for all threads. A signal handler that interrupts the working caller
 * does the work again. */
static void end_serving(void)
{
	uint32_t none = 0;

	if (km_cas_acquire(&observer.ending, &none, ENDING)) {
		km_store(&observer.ender, &km_thread);
	} else if (km_load(&observer.ender) != &km_thread) {
		for (unsigned ms = 0; ms < END_MS && km_load_acquire(&observer.ending) != ENDED; ms++)
			km_os_wait(&observer.ending, ENDING, 1);
		return;
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	end_threads(km_os_pid());
	km_store_release(&observer.ending, ENDED);
}

/* ------------------------------------------------------------------ ticks and fork */

static void tick(uint64_t now)
{
	/* Writing a text takes locks, so a thread holding locks must not answer. */
	if (now < km_load(&observer.next_look) || km_thread.locks_held || km_thread_is_lent() || km_os_is_shut() ||
	    km_load(&observer.ending) || !take())
		return;
	km_debug(km_thread.busy && !km_thread.no_calls, "a tick belongs to a miss that may call the system");
	km_store(&observer.next_look, now + LOOK_MS);
	const unsigned pid = km_os_pid();
	const bool served = km_load_acquire(&observer.serving) == pid;
	if (!served && !begin_serving(pid, now))
		come_by(pid, KEPT_NUMBER);
	put();
}

/* Wait for another thread's look to end, unless the thread is stuck: the descriptors of a look in progress would
 * stay open in the child. */
static bool fork_prepare(void)
{
	return take_within(FORK_MS);
}

/* Drop the parent's name in the child: the name must end with the parent. */
static void fork_done(bool child, bool prepared)
{
	if (child) {
		if (!km_os_is_shut() && is_ours())
			km_os_close(observer.fd);
		observer.fd = -1;
		observer.pid = 0;
		km_store(&observer.serving, 0u);
		km_store(&observer.ticker, 0u);
		km_store(&observer.answerer, 0u);
		km_store(&observer.ending, 0u);
		observer.next_try = 0;
		km_store(&observer.next_look, (uint64_t)0);
		/* A child that only hits and sleeps must take a slow path once. */
		km_gate_shut();
	}
	if (child || prepared)
		put();
}

const struct km_observer_ops km_observing = { tick, end_serving, take, put, fork_prepare, fork_done };
KM_REGISTER(km_observer_ops, km_observing);
