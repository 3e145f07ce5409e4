/*
 * malloc_handlers.c: signal handlers allocate while the interrupted thread holds a lock of the library. The handler's
 * request may be refused, but never waits for its own thread. The test interrupts, at every instruction, calls that
 * take a lock outside of alloc and free. Also handlers of fork allocate while the library's fork handler holds all
 * locks: these requests are served. Disciplines: all
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/malloc.h"
#include "kit/options.h"

#define BATCH 200

static struct kmem_cache *cache;
static volatile unsigned long strikes, refused;

/* More objects than a CPU caches, a class that may be new, a mapping; a tick may drain. */
static void strike(void)
{
	void *objects[BATCH];

	strikes++;
	if (kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, BATCH, objects))
		kmem_cache_free_bulk(cache, BATCH, objects);
	else
		refused++;
	free(malloc(strikes % 30000));
	if (strikes % 16 == 0)
		free(malloc(5 << 20));
}

/* ------------------------------------------------------------------ fork */

/* Registered before the library's handlers, so that all three run while the library holds its locks. */
static volatile unsigned in_fork;
static bool is_stepping;	/* a fork may come from inside the allocator */

static void strike_in_fork(void)
{
	if (!cache)
		return;
	in_fork++;
	strike();
	if (is_stepping)
		return;
	/* Every handler gets memory: in the parent before and behind the fork, and in the child. */
	void *p = malloc(100), *large = malloc(100000), *own = malloc(6 << 20);
	NEED(p && large && own);
	kmem_cache_shrink(cache);
	free(p);
	free(large);
	free(own);
}

static void register_first(void)
{
	pthread_atfork(strike_in_fork, strike_in_fork, strike_in_fork);
}

__attribute__((section(".preinit_array"), used)) static void (*first)(void) = register_first;

/* True in the parent, if the child can allocate. */
static bool fork_and_allocate(void)
{
	int status;
	pid_t child = fork();

	if (!child) {
		void *objects[BATCH];
		bool got = kmem_cache_alloc_bulk(cache, GFP_KERNEL, BATCH, objects);

		_exit(got && malloc(20000) && kmem_check_all() == 0 ? 0 : 1);
	}
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void forks(void)
{
	for (int i = 0; i < 20; i++)
		NEED(fork_and_allocate());
	NEED(in_fork == 40 && refused == 0);
	/* Nothing stays busy. */
	void *objects[BATCH];
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, BATCH, objects));
	kmem_cache_free_bulk(cache, BATCH, objects);
}

/* ------------------------------------------------------------------ at every instruction */

#define TRAP_FLAG 0x100ull

static void on_step(int signal)
{
	(void)signal;
	strike();
	/* A fork by a handler, too: the child only ends. */
	if (strikes % 4001 == 0) {
		int status;
		pid_t child = fork();

		if (!child)
			_exit(0);
		NEED(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	}
}

#define STEP(statement)                                                                            \
	do {                                                                                       \
		unsigned long before = strikes;                                                    \
		__writeeflags(__readeflags() | TRAP_FLAG);                                         \
		statement;                                                                         \
		__writeeflags(__readeflags() & ~TRAP_FLAG);                                        \
		NEED(strikes > before);                                                           \
	} while (0)

static int nothing(struct kmem_cache *each, void *arg)
{
	(void)each;
	(void)arg;
	return 0;
}

static void steps(void)
{
	struct sigaction step = { .sa_handler = on_step };
	struct mallinfo2 info;
	void *volatile p;

	is_stepping = true;
	sigaction(SIGTRAP, &step, NULL);
	/* The first request of a class makes the cache, and shows the cache to the fast path. */
	STEP(p = malloc(32000));
	NEED(p);
	free(p);
	STEP(p = malloc(6 << 20));
	STEP(p = realloc(p, 9 << 20));
	STEP(free(p));
	STEP(p = aligned_alloc(1 << 16, 1 << 17));
	NEED(p);
	STEP(kmem_cache_clear_events(cache));
	STEP(kmem_for_each_cache(nothing, NULL));
	STEP(info = mallinfo2());
	NEED(info.arena > 0);
	/*
	 * The block is found in the table of mappings, under the table's lock, and reported. volatile hides the
	 * value from the compiler.
	 */
	char *volatile inside = (char *)first + 8;
	STEP(kfree(inside));
	free(p);
}

static void run(void)
{
	alarm(580);
	cache = kmem_cache_create("struck", 200, NULL, 0);
	NEED(cache);
	free(malloc(6 << 20));
	forks();
	steps();
	NEED(kmem_check_all() == 0);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {
		"engine:sheaf,decay:0,misuse:warn", "engine:slub,decay:0,misuse:warn",
	};

	if (argc > 1) {
		run();
		printf("%s: %lu strikes, %lu refused\n", argv[1], strikes, refused);
		return 0;
	}
	for (int i = 0; i < 2; i++) {
		int status;
		pid_t child = fork();

		if (!child) {
			set_options(options[i]);
			execl("/proc/self/exe", argv[0], options[i], (char *)NULL);
			_exit(127);
		}
		NEED(child > 0 && waitpid(child, &status, 0) == child);
		NEED(status == 0);
	}
	return 0;
}
