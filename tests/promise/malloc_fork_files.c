/*
 * malloc_fork_files.c: a fork beside stdio. One thread holds a FILE. Another thread holds libc's list of FILEs, and
 * waits for the FILE in fflush(NULL). A third thread forks, and libc takes the list for the fork. Then the first
 * thread allocates: the allocation succeeds, and all three go on. Disciplines: all
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit/malloc.h"
#include "kit/sleeps.h"

#define ROUNDS	5
#define BLOCKS	2000

static int waiting;	/* the thread expected to sleep next */

static void await_sleep(void)
{
	int id;

	do
		usleep(100);
	while (!(id = __atomic_load_n(&waiting, __ATOMIC_ACQUIRE)) || !sleeps(id));
}

static void sleeps_from_here(void)
{
	__atomic_store_n(&waiting, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
}

static void *flushes(void *unused)
{
	sleeps_from_here();
	fflush(NULL);
	return unused;
}

static void *forks(void *unused)
{
	int status;

	sleeps_from_here();
	pid_t child = fork();
	if (!child) {
		void *p = malloc(100), *q = malloc(5 << 20);
		/* The child's list of FILEs is free, and so is the allocator. */
		_exit(!p || !q || fflush(NULL) || !fopen("/dev/null", "r"));
	}
	NEED(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	return unused;
}

static void begin(pthread_t *thread, void *(*function)(void *))
{
	__atomic_store_n(&waiting, 0, __ATOMIC_RELEASE);
	NEED(pthread_create(thread, NULL, function, NULL) == 0);
	await_sleep();
}

/* Requests with misses, and with locks of every kind. */
static void allocate(void)
{
	static void *block[BLOCKS];

	for (int i = 0; i < BLOCKS; i++)
		NEED((block[i] = malloc((size_t)i * 37 + 1)));
	for (int i = 0; i < BLOCKS; i++)
		free(block[i]);
	free(malloc(9 << 20));
}

int main(void)
{
	pthread_t flusher, forker;

#ifndef __GLIBC__
	printf("fork of this libc takes its list of FILEs behind all handlers, and no other code may\n");
	return 77;
#endif
	alarm(580);
	check_ours();
	for (int round = 0; round < ROUNDS; round++) {
		flockfile(stdin);
		begin(&flusher, flushes);
		begin(&forker, forks);
		allocate();
		funlockfile(stdin);
		NEED(pthread_join(flusher, NULL) == 0 && pthread_join(forker, NULL) == 0);
	}
	return 0;
}
