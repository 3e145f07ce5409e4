/*
 * os_thread.c: a thread of ours, for work that may wait for what the program's own threads hold. Invariant: it takes no
 * signal that is meant for the program, and nobody waits for it.
 */
#include <pthread.h>
#include <signal.h>

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
