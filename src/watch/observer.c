/*
 * observer.c: KMEM_OPTIONS=observer:UID: processes of that user get the numbers without rights to trace this one. A
 * process that listens to a name is asked by who connects, and answers when it next comes by here: a miss that may call
 * the system. Invariants: the answer is the text of kmem_print_json, no object's content, no address and no key, in
 * memory of its own, sealed before anybody else has it; who asks costs one text in a look at most, and is
 * never waited for; a descriptor is used or closed only after it was seen to be ours; a child of fork has a
 * name of its own, and none of its parent's.
 */
#include "observer.h"

#include <errno.h>

#include "../cache/cache.h"
#include "../port/die.h"
#include "../port/os.h"
#include "print.h"

#define LOOK_MS		100u	/* between looks whether somebody asks */
#define KEPT_NUMBER	121	/* beyond what programs count, as that of standard error (port/stderr.c) */
#define ANSWERS		64u	/* to others' users and errors, in one look */

static struct {
	uint32_t taken;		/* one thread is at it */
	unsigned pid;		/* whose name it is; 0: there is none yet */
	int fd;
	struct km_os_file file;
	uint64_t next_look;
} observer = { .fd = -1 };

/* The program may have closed it, and opened something under its number. */
static bool is_ours(void)
{
	struct km_os_file file;

	return observer.fd >= 0 && !km_os_file(observer.fd, &file) && file.device == observer.file.device &&
	       file.inode == observer.file.inode;
}

static void listen_as(unsigned pid)
{
	char name[KM_OBSERVER_NAME_BYTES];

	km_format(name, sizeof(name), KM_OBSERVER_NAME, pid);
	observer.pid = pid;
	observer.fd = km_os_listen(name, KEPT_NUMBER);
	if (observer.fd >= 0 && km_os_file(observer.fd, &observer.file)) {
		km_os_close(observer.fd);
		observer.fd = -1;
	}
	km_debug(observer.fd < 0 || observer.fd >= KEPT_NUMBER, "the name's descriptor is out of the program's way");
}

static void answer(int to)
{
	int file = km_os_memory_file("libkmem-observer");

	const int error = file < 0 ? file : km_print_json_now(file) ?: km_os_seal(file);

	km_os_hand_over(to, error ? -1 : file);
	if (file >= 0)
		km_os_close(file);
}

static bool may_ask(unsigned user)
{
	return user == km_options.observer || user == 0;
}

/* Others than who may ask find the connection closed. */
static void look(void)
{
	for (unsigned i = 0; i < ANSWERS; i++) {
		unsigned user;
		int from = km_os_accept(observer.fd, &user);

		if (from < 0)
			return;
		const bool may = may_ask(user);
		if (may)
			answer(from);
		km_os_close(from);
		if (may)
			return;
	}
}

static void tick(uint64_t now)
{
	uint32_t none = 0;

	/* A text is written that takes locks: not while this thread has some. */
	if (now < km_load(&observer.next_look) || km_own_locks.count || km_os_is_shut() ||
	    !km_cas_acquire(&observer.taken, &none, 1u))
		return;
	km_debug(km_front_busy && !km_no_calls, "a tick is a miss's, which may call the system");
	km_store(&observer.next_look, now + LOOK_MS);
	/* After a vfork, or a clone past our handlers, it is the parent's: it is left alone, and this one has none. */
	if (observer.pid == km_os_pid() && is_ours())
		look();
	else if (observer.pid == km_os_pid() || !observer.pid)
		listen_as(km_os_pid());
	km_store_release(&observer.taken, 0u);
}

/* The parent's name must end with the parent. */
static void fork_child(void)
{
	if (!km_os_is_shut() && is_ours())
		km_os_close(observer.fd);
	observer.fd = -1;
	observer.pid = 0;
	km_store(&observer.taken, 0u);
	km_store(&observer.next_look, (uint64_t)0);
}

const struct km_observing km_observing = { .tick = tick, .fork_child = fork_child };
