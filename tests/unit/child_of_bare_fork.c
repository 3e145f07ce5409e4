/*
 * child_of_bare_fork.c: a child of _Fork, without any handler of fork, limits its address space and locks its
 * memory, while a thread missing in the child holds all locks of the library: the calls succeed, and wait for no
 * lock. Disciplines: all
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <kmem/kmem.h>

#include "cache/cache.h"
#include "kit/check.h"
#include "kit/inside.h"

#define PATIENCE_S	580
#define ON_FAULT	4	/* MCL_ONFAULT, Linux 4.4 */

static sem_t locked, forked;

/* The work of a fork, up to the fork. */
static void *have_all_locks(void *arg)
{
	(void)arg;
	km_boot_fork_prepare();
	sem_post(&locked);
	while (sem_wait(&forked))
		;
	km_boot_fork_parent();
	return NULL;
}

/* _Fork; not every libc has the function. */
static pid_t fork_unseen(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static int confine_itself(void)
{
	struct rlimit limit = { (size_t)1 << 42, RLIM_INFINITY }, is;

	alarm(PATIENCE_S);
	if (setrlimit(RLIMIT_AS, &limit) || getrlimit(RLIMIT_AS, &is) || is.rlim_cur != limit.rlim_cur)
		return 1;
	/* The call may be refused. */
	mlockall(MCL_CURRENT | ON_FAULT);
	return 0;
}

int main(void)
{
	pthread_t thread;
	int status;

	kvfree(kvmalloc(100000, GFP_KERNEL));
	NEED(sem_init(&locked, 0, 0) == 0 && sem_init(&forked, 0, 0) == 0);
	NEED(pthread_create(&thread, NULL, have_all_locks, NULL) == 0);
	while (sem_wait(&locked))
		;
	pid_t child = fork_unseen();
	NEED(child >= 0);
	if (!child)
		_exit(confine_itself());
	sem_post(&forked);
	NEED(pthread_join(thread, NULL) == 0);
	NEED(waitpid(child, &status, 0) == child);
	if (status)
		printf("the child: status %#x%s\n", status, WTERMSIG(status) == SIGALRM ? ", it waited" : "");
	/* The parent is none. */
	NEED(!km_boot_is_stray());
	return status != 0;
}
