/*
 * debug_threads: two threads free an object with an overwritten state. One of them frees the object, for any value
 * of the word; the other gets the report of an already free object. The first thread is stopped in the middle: its
 * report goes to a full pipe. For each engine, each in a process of its own.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "cache/cache.h"
#include "ext/debug/debug.h"

#define FLAGS (SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER)

static struct kmem_cache *cache;
static void *object;

struct freer {
	pthread_t thread;
	pid_t id;
	bool done;
};

static void *free_it(void *arg)
{
	struct freer *freer = arg;

	__atomic_store_n(&freer->id, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	kmem_cache_free(cache, object);
	__atomic_store_n(&freer->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static char state_of(const struct freer *freer)
{
	char path[64], text[256] = "";
	pid_t id;

	while (!(id = __atomic_load_n(&freer->id, __ATOMIC_ACQUIRE)))
		sched_yield();
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", id);
	int fd = open(path, O_RDONLY);
	NEED(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	char *end = strrchr(text, ')');
	NEED(end);
	return end[2];
}

/* The thread sleeps in the write to the pipe, or behind the thread there; no other place is left. */
static void begin(struct freer *freer)
{
	NEED(!pthread_create(&freer->thread, NULL, free_it, freer));
	while (!__atomic_load_n(&freer->done, __ATOMIC_ACQUIRE) && state_of(freer) != 'S')
		sched_yield();
}

static unsigned count(const char *text, const char *what)
{
	unsigned n = 0;

	while ((text = strstr(text, what)) && ++n)
		text++;
	return n;
}

static void two_of_them(bool shared)
{
	static char said[1 << 20], full[4096];
	struct freer freers[2] = { { .id = 0 } };
	size_t length = 0;
	int pipes[2];
	ssize_t n;

	cache = kmem_cache_create("mine", 64, NULL, FLAGS);
	object = kmem_cache_alloc(cache, GFP_KERNEL);
	NEED(object && !pipe(pipes));
	*km_debug_word(cache, object) ^= 1;
	NEED(!fcntl(pipes[1], F_SETFL, O_NONBLOCK));
	while ((n = write(pipes[1], full, sizeof(full))) > 0)
		;
	NEED(!fcntl(pipes[1], F_SETFL, 0) && dup2(pipes[1], 2) == 2);
	close(pipes[1]);
	begin(&freers[0]);
	begin(&freers[1]);
	NEED(!freers[0].done);
	NEED(!fcntl(pipes[0], F_SETFL, O_NONBLOCK));
	for (bool done = false; !done || n > 0; length += n > 0 ? (size_t)n : 0) {
		done = __atomic_load_n(&freers[0].done, __ATOMIC_ACQUIRE) &&
		       __atomic_load_n(&freers[1].done, __ATOMIC_ACQUIRE);
		n = read(pipes[0], said + length, sizeof(said) - 1 - length);
	}
	for (int i = 0; i < 2; i++)
		NEED(!pthread_join(freers[i].thread, NULL));
	char *text = memchr(said, 'l', length);
	NEED(text && count(text, ": Object state overwritten") == 1);
	NEED(count(text, ": object already free") == 1);
	/* A free object in a shared page has no known owner. */
	NEED(shared || count(text, ": Object already free") == 1);
	NEED(!kmem_cache_validate(cache));
	NEED(kmem_cache_alloc(cache, GFP_KERNEL) != kmem_cache_alloc(cache, GFP_KERNEL));
}

int main(int argc, char **argv)
{
	static const char *const engines[] = { KM_ENGINE_NAMES };
	int failed = 0, status;

	if (argc == 2) {
		alarm(580);
		two_of_them(km_engine_find(argv[1])->shared_pages);
		return 0;
	}
	for (size_t e = 0; e < sizeof(engines) / sizeof(engines[0]); e++) {
		pid_t pid = fork();

		if (!pid) {
			char options[64];

			snprintf(options, sizeof(options), "misuse:warn,engine:%s", engines[e]);
			setenv("KMEM_OPTIONS", options, 1);
			execl("/proc/self/exe", "debug_threads", engines[e], NULL);
			_exit(2);
		}
		if (waitpid(pid, &status, 0) == pid && status == 0)
			continue;
		printf("%s: status 0x%x\n", engines[e], (unsigned)status);
		failed++;
	}
	printf("%d failed\n", failed);
	return failed != 0;
}
