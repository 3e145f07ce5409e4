/*
 * fork_shrink.c: a program forks while other threads shrink and walk caches, and allocate and free large blocks: no
 * fork may wait for a drain that waits for the fork, and in the child all invariants hold. Runs for about two
 * seconds; an alarm ends a hanging test. Disciplines: all.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "slab/engine.h"

#define SECONDS 2
#define OBJECTS 200
#define BLOCKS 12

static volatile bool over;
static const char *const engines[] = { KM_ENGINE_NAMES };
enum { ENGINES = sizeof(engines) / sizeof(*engines) };
static struct kmem_cache *cache[ENGINES];

static void *shrinker(void *arg)
{
	struct kmem_cache *own = arg;
	void *object[OBJECTS];

	while (!over) {
		if (!kmem_cache_alloc_bulk(own, GFP_KERNEL, OBJECTS, object))
			exit(1);
		kmem_cache_free_bulk(own, OBJECTS, object);
		kmem_cache_shrink(own);
	}
	return NULL;
}

/* More of each class than a CPU caches: blocks join their class and leave the class. */
static void *taker(void *arg)
{
	void *block[BLOCKS];

	for (size_t size = 16 << 10; !over; size = size < 256 << 10 ? size * 2 : 16 << 10) {
		for (int i = 0; i < BLOCKS; i++)
			if (!(block[i] = kmalloc(size, GFP_KERNEL)))
				exit(1);
		for (int i = 0; i < BLOCKS; i++)
			kfree(block[i]);
	}
	return arg;
}

/* The child must be able to allocate, free and shrink at once. */
static void child(void)
{
	for (int i = 0; i < ENGINES; i++) {
		/* After any drain in the parent, no sheaf stays closed here. */
		if (cache[i]->fast.pcs.inner.pcs != cache[i]->fast.pcs.slot ||
		    cache[i]->fast.chain.open != cache[i]->fast.chain.slot)
			_exit(2);
		void *p = kmem_cache_alloc(cache[i], GFP_KERNEL);

		if (!p)
			_exit(1);
		kmem_cache_free(cache[i], p);
		kmem_cache_shrink(cache[i]);
	}
	_exit(kmem_check_all() ? 3 : 0);
}

int main(void)
{
	time_t end = time(NULL) + SECONDS;
	pthread_t thread[ENGINES], blocks;
	unsigned forks = 0;

	alarm(580);
	for (int i = 0; i < ENGINES; i++) {
		struct kmem_cache_args args = { .engine = engines[i] };

		cache[i] = kmem_cache_create(engines[i], 128, &args, SLAB_PANIC);
		if (pthread_create(&thread[i], NULL, shrinker, cache[i]))
			return 1;
	}
	if (pthread_create(&blocks, NULL, taker, NULL))
		return 1;
	for (; time(NULL) <= end; forks++) {
		int status = 0;
		pid_t pid = fork();

		if (pid == 0)
			child();
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status) {
			printf("fork %u: child ended with status %x\n", forks, status);
			return 1;
		}
	}
	over = true;
	for (int i = 0; i < ENGINES; i++)
		pthread_join(thread[i], NULL);
	pthread_join(blocks, NULL);
	printf("%u forks\n", forks);
	return 0;
}
