/*
 * stop_threads.h: stop all threads of a process for a moment. During the stop the command reads the registers, and
 * the data with most changes.
 */
#ifndef KMEM_COMMAND_STOP_THREADS_H
#define KMEM_COMMAND_STOP_THREADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A thread's stack pointer, and the address of libc's record of the thread: at the stack's end, except for the first
 * thread. record 0: not known. */
struct stop_stack {
	uintptr_t pointer, record;
};

#define STOP_WORDS 96u			/* 64-bit words of a thread's general and vector registers */
struct stop_thread {
	pid_t id;
	uint64_t words[STOP_WORDS];
	struct stop_stack stack;
	int signal;			/* pending signal, delivered when the thread goes on; 0: none */
	bool stopped, late;
};

struct stop {
	struct stop_thread *threads;
	size_t count, room;
	pid_t *known;			/* hash table of the threads' ids; 0: an empty entry */
	size_t known_room;		/* a power of two */
	uint64_t begun_ns;
	unsigned times;			/* count of stops of more than one thread, valid after stop_end */
	uint64_t longest_ns;		/* longest of these stops, ns */
};

/* Stop all threads. On return, every thread created before the return stands still. Some threads may have been
 * stopped earlier, for some milliseconds, and continued. Returns: false with errno set, and no thread stopped;
 * ETIMEDOUT: a thread waits in the kernel. */
bool stop_begin(pid_t pid, struct stop *stop);
/* Continue all threads. The threads' words stay until stop_clear. */
void stop_end(struct stop *stop);
void stop_clear(struct stop *stop);
/* Read the stack pointers of all threads; each thread stops alone, for a moment. Returns: NULL with errno set. */
struct stop_stack *stop_stacks(pid_t pid, size_t *count);

/* ---- stop_watchdog.c: a guard around each stop: if a signal stops this process meanwhile, the watchdog continues
 * this process, so the stopped threads go on. */
void halted_begin(void);
void halted_end(void);

#endif
