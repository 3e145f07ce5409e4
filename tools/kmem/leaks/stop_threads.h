/*
 * stop_threads.h: all threads of a process stand still for a moment, in which their registers are read, and what
 * changes most.
 */
#ifndef KMEM_COMMAND_STOP_THREADS_H
#define KMEM_COMMAND_STOP_THREADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A thread's stack pointer, and the place of libc's record of the thread: at the stack's end, but for the first thread.
 * record 0: not known. */
struct stop_stack {
	uintptr_t pointer, record;
};

#define STOP_WORDS 96u			/* of a thread: general registers, and those of vectors */
struct stop_thread {
	pid_t id;
	uint64_t words[STOP_WORDS];
	struct stop_stack stack;
	int signal;			/* one that it was about to get; 0: none */
	bool stopped, late;
};

struct stop {
	struct stop_thread *threads;
	size_t count, room;
	pid_t *known;			/* their ids, in a table by hash; 0: nobody */
	size_t known_room;		/* a power of two */
	uint64_t begun_ns;
	unsigned times;			/* how often any stood still beside others, behind stop_end */
	uint64_t longest_ns;		/* and for how long, at most */
};

/* False: errno says why, ETIMEDOUT: one of them waits in the kernel; nobody is stopped then. Every thread that began
 * before this returns stands still. Some may have stood still before, for some milliseconds, and have gone on. */
bool stop_begin(pid_t pid, struct stop *stop);
/* They go on. The threads' words stay until stop_clear. */
void stop_end(struct stop *stop);
void stop_clear(struct stop *stop);
/* Read the stack pointers of all threads; each thread stands still alone, for a moment. NULL: errno says why. */
struct stop_stack *stop_stacks(pid_t pid, size_t *count);

/* ---- stop_watchdog.c: around all of that: this process goes on until they do, though somebody stops it meanwhile. */
void halted_begin(void);
void halted_end(void);

#endif
