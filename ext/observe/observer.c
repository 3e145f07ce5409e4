/*
 * observer.c: KMEM_OPTIONS=observer:UID: processes of that user get the numbers without rights to trace this one. A
 * process that listens to a name is asked by who connects, and answers when it next comes by here: a miss that may call
 * the system, or with observer_thread:1 a thread of ours, which waits for who asks. Invariants: the answer is the text
 * of kmem_print_json, no object's content, no address and no key, in memory of its own, sealed before anybody else has
 * it; who asks costs one text in a look at most, and is never waited for; a descriptor is used or closed only after it
 * was seen to be ours; a child of fork has a name of its own, and none of its parent's; the thread is gone before a
 * filter of system calls comes.
 */
#include "observer.h"

#include <errno.h>

#include "cache/cache.h"
#include "os/die.h"
#include "os/os.h"
#include "percpu/pcpu.h"
#include "inspect/helper_thread.h"
#include "inspect/stats_print.h"

#define LOOK_MS		100u	/* between looks whether somebody asks */
#define KEPT_NUMBER	121	/* beyond what programs count, as that of standard error (os/stderr.c) */
#define ANSWERS		64u	/* to others' users and errors, in one look */

#define WAIT_MS		1000u	/* the thread that answers looks around, though nobody asks */
#define END_MS		3000u	/* in which that thread ends: three of its waits */
#define FORK_MS		50u	/* in which a look is through, unless it stands */

static struct {
	uint32_t taken;		/* one thread is at it */
	unsigned pid;		/* whose name it is; 0: there is none yet */
	int fd;
	struct km_os_file file;
	uint64_t next_look;
	/* The thread that answers, where one does: the name's descriptor is its own then. */
	uint32_t serving;	/* the process that it is of; 0: there is none, or it has done its last */
	unsigned keeper, answerer;	/* its threads, by the system's numbers; 0: it has not begun */
	uint32_t through;	/* the answerer has done its last */
	uint64_t next_try;
	enum { ENDING = 1, ENDED = 2 } ending;	/* there shall be none any more */
	const char *ender;	/* of the thread that sees to that */
} observer = { .fd = -1 };

/* The program may have closed it, and opened something under its number. */
static bool is_ours(void)
{
	struct km_os_file file;

	return observer.fd >= 0 && !km_os_file(observer.fd, &file) && file.device == observer.file.device &&
	       file.inode == observer.file.inode;
}

/* least: the smallest number that its descriptor may have. */
static void listen_as(unsigned pid, int least)
{
	char name[KM_OBSERVER_NAME_BYTES];

	km_format(name, sizeof(name), KM_OBSERVER_NAME, pid);
	observer.pid = pid;
	observer.fd = km_os_listen(name, least);
	if (observer.fd >= 0 && km_os_file(observer.fd, &observer.file)) {
		km_os_close(observer.fd);
		observer.fd = -1;
	}
	km_debug(observer.fd < 0 || observer.fd >= least, "the name's descriptor is out of the program's way");
}

static void answer(int to)
{
	int file = km_os_memory_file("libkmem-observer");

	km_debug(km_thread_busy && km_load(&observer.taken), "a text is one thread's, which handlers leave alone");
	const int error = file < 0 ? file : km_print_json_now(file) ?: km_os_seal(file);

	km_os_hand_over(to, error ? -1 : file);
	if (file >= 0)
		km_os_close(file);
}

static bool may_ask(unsigned user)
{
	return user == km_options.observer || user == 0;
}

/* Others than who may ask find the connection closed. Was a text written? */
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

/* After a vfork, or a clone past our handlers, it is the parent's: it is left alone, and this one has none. */
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

/* ------------------------------------------------------------------ a thread that answers */

static bool ends(void)
{
	return km_load_acquire(&observer.ending) || km_os_is_shut();
}

/* Until nobody is to be answered any more. */
static void answer_all(unsigned pid)
{
	uint64_t next_check = km_os_now_ms() + WAIT_MS;
	bool answered = false;

	while (!ends()) {
		/* The tick that began this one is through by then: the name is free. */
		if (take_within(FORK_MS)) {
			struct km_busy_was was = km_busy_begin();
			answered |= come_by(pid, 0);
			km_busy_end(was);
			put();
		}
		/* There is no more than one text in a look's time, whoever asks how often. */
		if (answered)
			km_os_wait(&observer.ending, 0, LOOK_MS);
		answered = km_os_wait_for(observer.fd, WAIT_MS);
		/* Nobody keeps a program by asking. */
		const uint64_t now = km_os_now_ms();
		if (now >= next_check && km_os_program_is_over())
			return;
		if (now >= next_check)
			next_check = now + WAIT_MS;
	}
}

/*
 * The program may do whatever it likes meanwhile, or nothing. It counts on its descriptors' numbers: that the next one
 * is the smallest that is free, and that what it opened under one is still that. So the thread has its own.
 */
static void serve_apart(void)
{
	km_store(&observer.answerer, km_os_thread());
	km_os_thread_is_ours(true, "kmem-observer");
	if (km_os_own_descriptors()) {
		answer_all(km_os_pid());
		observer.fd = -1;
	} else {
		observer.next_try = UINT64_MAX;
		km_warn("observer_thread: the system gives a thread no descriptors of its own: misses answer");
	}
	km_os_thread_is_ours(false, NULL);
	km_store_release(&observer.through, 1u);
	km_os_wake(&observer.through);
}

/*
 * The program may sleep: free memory is given back by age, requests from outside are served. These say lines, and have
 * descriptors, of the program's.
 */
static void keep(void)
{
	km_debug(!km_thread_busy && !km_locks_held, "a thread of ours begins as any other");
	while (!km_load_acquire(&observer.through)) {
		if (!ends() && take()) {
			kmem_tick();
			put();
		}
		km_os_wait(&observer.through, 0, WAIT_MS);
	}
}

/* Where this is the process's last thread libc ends the process by it, and writes what is in its buffers: it has the
 * program's descriptors. */
static void serve(void)
{
	km_store(&observer.keeper, km_os_thread());
	km_os_thread_is_ours(true, "kmem-observer");
	km_os_run_beside(serve_apart, keep);
	km_os_thread_is_ours(false, NULL);
	km_store_release(&observer.serving, 0u);
}

/* Of each process one. Where there is none to be had it is tried again, and ticks answer. */
static bool begin_serving(unsigned pid, uint64_t now)
{
	if (!km_options.observer_thread || (observer.pid && observer.pid != pid) || now < observer.next_try ||
	    !km_helper_may())
		return false;
	km_debug(!km_load(&observer.serving) || km_load(&observer.serving) != pid, "of each process there is one");
	observer.next_try = now + WAIT_MS;
	km_store(&observer.keeper, 0u);
	km_store(&observer.answerer, 0u);
	km_store(&observer.through, 0u);
	km_store(&observer.serving, pid);
	/* Either this sees that there shall be none, or who says so sees that there is one. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (km_load_acquire(&observer.ending) || !km_helper_begin(serve)) {
		km_store(&observer.serving, 0u);
		return false;
	}
	/* The thread listens by itself, once this is through. */
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
	return km_load_acquire(&observer.serving) != pid && is_gone(&observer.keeper) && is_gone(&observer.answerer);
}

static void end_threads(unsigned pid)
{
	char name[KM_OBSERVER_NAME_BYTES];

	if (has_ended(pid))
		return;
	km_os_wake(&observer.ending);
	km_format(name, sizeof(name), KM_OBSERVER_NAME, pid);
	/* Where it can't it ends when it next looks around. */
	km_os_knock(name);
	for (unsigned ms = 0; ms < END_MS && !km_os_is_shut() && !has_ended(pid); ms++)
		km_os_wait(&observer.ending, ENDING, 1);
	if (!km_os_is_shut() && !has_ended(pid))
		km_warn("the observer's thread does not end before a filter of system calls comes");
}

/*
 * A filter of system calls may end the process for any of the thread's: it must be gone before there is one. Of
 * several threads that ask at once the first that is through may have its filter for all of them: the others only wait.
 * A handler that struck the one that is at it does it instead.
 */
static void end_serving(void)
{
	static km_tls char self;
	uint32_t none = 0;

	if (km_cas_acquire(&observer.ending, &none, ENDING)) {
		km_store(&observer.ender, &self);
	} else if (km_load(&observer.ender) != &self) {
		for (unsigned ms = 0; ms < END_MS && km_load_acquire(&observer.ending) != ENDED; ms++)
			km_os_wait(&observer.ending, ENDING, 1);
		return;
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	end_threads(km_os_pid());
	km_store_release(&observer.ending, ENDED);
}

/* ------------------------------------------------------------------ when */

static void tick(uint64_t now)
{
	/* A text is written that takes locks: not while this thread has some. */
	if (now < km_load(&observer.next_look) || km_locks_held || km_thread_is_lent() || km_os_is_shut() ||
	    km_load(&observer.ending) || !take())
		return;
	km_debug(km_thread_busy && !km_no_calls, "a tick is a miss's, which may call the system");
	km_store(&observer.next_look, now + LOOK_MS);
	const unsigned pid = km_os_pid();
	const bool served = km_load_acquire(&observer.serving) == pid;
	if (!served && !begin_serving(pid, now))
		come_by(pid, KEPT_NUMBER);
	put();
}

/* Another thread's look is through by then, unless it stands: its descriptors would be the child's for good. */
static bool fork_prepare(void)
{
	return take_within(FORK_MS);
}

/* The parent's name must end with the parent. */
static void fork_done(bool child, bool prepared)
{
	if (child) {
		if (!km_os_is_shut() && is_ours())
			km_os_close(observer.fd);
		observer.fd = -1;
		observer.pid = 0;
		km_store(&observer.serving, 0u);
		km_store(&observer.keeper, 0u);
		km_store(&observer.answerer, 0u);
		km_store(&observer.ending, 0u);
		observer.next_try = 0;
		km_store(&observer.next_look, (uint64_t)0);
		/* It may do no more than hit and sleep. */
		km_gate_shut();
	}
	if (child || prepared)
		put();
}

const struct km_observer_ops km_observing = { tick, end_serving, take, put, fork_prepare, fork_done };
KM_REGISTER(km_observer_ops, km_observing);
