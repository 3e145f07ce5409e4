/*
 * first_start_forked.c: another thread forks while the library's first start registers its handlers of fork. The
 * child, without the starting thread, starts by itself, and its own forks have handlers: a fork waits for a lock held
 * by another thread of the child, and the lock is free in the grandchild. Disciplines: all.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"

/* libc's function, otherwise called by the library. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library);
extern void *__dso_handle;

static bool asked;
static int inside[2], status = -1;

static int status_of(pid_t pid)
{
	int result = -1;

	NEED(pid > 0 && waitpid(pid, &result, 0) == pid);
	return result;
}

/* The registry is locked; what follows stays so until the other thread is about to fork, and a little longer. */
static int stay(struct kmem_cache *cache, void *arg)
{
	(void)cache, (void)arg;
	NEED(write(inside[1], "x", 1) == 1);
	usleep(300000);
	return 1;
}

static void *visit(void *arg)
{
	kmem_for_each_cache(stay, arg);
	return NULL;
}

static void grandchild(void)
{
	alarm(280);
	_exit(kmem_cache_create("grandchild's", 64, 8, 0, NULL) ? 0 : 1);
}

static void child(void)
{
	pthread_t visitor;
	char x;

	alarm(580);
	void *p = kmalloc(100, GFP_KERNEL);
	NEED(p);
	kfree(p);
	NEED(!pipe(inside) && !pthread_create(&visitor, NULL, visit, NULL) && read(inside[0], &x, 1) == 1);
	pid_t pid = fork();
	if (!pid)
		grandchild();
	_exit(status_of(pid) ? 1 : 0);
}

static void *fork_now(void *unused)
{
	pid_t pid = fork();

	(void)unused;
	if (!pid)
		child();
	status = status_of(pid);
	return NULL;
}

/* The library calls this one. */
int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	pthread_t other;

	if (!asked) {
		asked = true;
		NEED(!pthread_create(&other, NULL, fork_now, NULL));
		pthread_join(other, NULL);
	}
	return __register_atfork(prepare, parent, child, &__dso_handle);
}

int main(void)
{
	NEED(slab_is_available() && asked);
	NEED(status == 0);
	return 0;
}
