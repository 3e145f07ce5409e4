/*
 * malloc_forking.c: fork in a program whose threads are allocating: the child has the parent's data, can allocate,
 * free what the parent allocated, and start threads; the parent goes on. Also a child of a child.
 * Disciplines: all
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit/malloc.h"

#define THREADS	3
#define FORKS	60
#define KEPT	200

static int stop;

static size_t any_size(unsigned *seed)
{
	unsigned pick = rand_r(seed);

	return pick % 16 == 0 ? pick % 300000 : pick % 2000;
}

static void churn(unsigned seed, int rounds)
{
	void *held[64] = { 0 };
	size_t bytes[64] = { 0 };

	for (int i = 0; i < rounds || (!rounds && !__atomic_load_n(&stop, __ATOMIC_RELAXED)); i++) {
		unsigned slot = rand_r(&seed) % 64;

		NEED(is_filled(held[slot], bytes[slot], slot));
		free(held[slot]);
		bytes[slot] = any_size(&seed) & 1023;
		held[slot] = malloc(bytes[slot]);
		NEED(held[slot]);
		fill(held[slot], bytes[slot], slot);
		if (i % 64 == 0)
			free(malloc(any_size(&seed)));
	}
	for (int i = 0; i < 64; i++)
		free(held[i]);
}

static void *allocating(void *arg)
{
	churn((unsigned)(uintptr_t)arg, 0);
	return NULL;
}

static void *in_child(void *arg)
{
	churn((unsigned)(uintptr_t)arg, 300);
	return NULL;
}

static void child(char **kept, int depth)
{
	pthread_t thread;

	alarm(580);
	for (int i = 0; i < KEPT; i++) {
		NEED(is_filled(kept[i], 100 + (size_t)i * 7, (unsigned)i));
		free(kept[i]);
	}
	churn(1234, 300);
	NEED(pthread_create(&thread, NULL, in_child, (void *)7) == 0);
	NEED(pthread_join(thread, NULL) == 0);
	if (!depth) {
		pid_t pid = fork();

		if (!pid) {
			churn(99, 300);
			_exit(0);
		}
		int status;
		NEED(waitpid(pid, &status, 0) == pid && status == 0);
	}
	_exit(0);
}

int main(void)
{
	pthread_t threads[THREADS];
	char *kept[KEPT];

	check_ours();
	alarm(580);
	for (int i = 0; i < KEPT; i++) {
		kept[i] = malloc(100 + (size_t)i * 7);
		fill(kept[i], 100 + (size_t)i * 7, (unsigned)i);
	}
	for (long i = 0; i < THREADS; i++)
		NEED(pthread_create(&threads[i], NULL, allocating, (void *)(i + 1)) == 0);
	for (int i = 0; i < FORKS; i++) {
		int status;
		pid_t pid = fork();

		NEED(pid >= 0);
		if (!pid)
			child(kept, i % 8);
		NEED(waitpid(pid, &status, 0) == pid);
		NEED(status == 0, "(fork %d: status %x)", i, (unsigned)status);
		churn((unsigned)i, 100);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		NEED(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < KEPT; i++)
		free(kept[i]);
	return 0;
}
