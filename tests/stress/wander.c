/*
 * wander: threads go from CPU to CPU, rest, and come back, while their objects cached on former CPUs are drained:
 * with a decay of 20 ms reclaim finds left CPUs some ten times a second. No object is allocated twice, none is lost.
 * SECONDS=n. Disciplines: all
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/cpus.h"
#include "kit/random.h"

#define THREADS	6u
#define CACHES	4u
#define OBJECTS	600u	/* objects of a thread: more than a CPU's sheaves hold, so that requests miss */

struct object {
	struct object *self;
	uintptr_t owner;
};

static struct kmem_cache *caches[CACHES];
static int stop;

static void fail(const char *why)
{
	printf("FAIL: %s\n", why);
	fflush(stdout);
	_exit(1);
}

static void swap_one(struct object **slot, uint8_t *cache, uint32_t random, uintptr_t owner)
{
	struct object *object = *slot;

	if (object) {
		if (object->self != object || object->owner != owner)
			fail("an object is another thread's, too");
		object->self = NULL;
		kmem_cache_free(caches[*cache], object);
		*slot = NULL;
		return;
	}
	*cache = random % CACHES;
	*slot = object = kmem_cache_alloc(caches[*cache], GFP_KERNEL);
	if (!object)
		fail("no memory");
	*object = (struct object){ object, owner };
}

static void *wander(void *argument)
{
	uint64_t random = (uintptr_t)argument;
	struct object *objects[OBJECTS] = { NULL };
	uint8_t cache[OBJECTS];

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		uint32_t number = random_next(&random);

		if (number % 4096 == 0)
			go_to_cpu(cpu_at((int)((number >> 12) % (unsigned)CPU_COUNT(all_cpus()))));
		if (number % 32768 == 1)
			usleep(30000);
		swap_one(&objects[number % OBJECTS], &cache[number % OBJECTS], number >> 16, (uintptr_t)argument);
	}
	for (unsigned i = 0; i < OBJECTS; i++)
		if (objects[i])
			swap_one(&objects[i], &cache[i], 0, (uintptr_t)argument);
	return NULL;
}

/* The library reads the decay at its start: executes the program again, with a short decay. */
static void begin_again(char **argv)
{
	const char *options = getenv("KMEM_OPTIONS");
	char text[512];

	snprintf(text, sizeof(text), "%s%sdecay:20", options ? options : "", options ? "," : "");
	setenv("KMEM_OPTIONS", text, 1);
	execl("/proc/self/exe", argv[0], "again", (char *)NULL);
	fail("cannot begin again");
}

int main(int argc, char **argv)
{
	const char *wanted = getenv("SECONDS");
	pthread_t threads[THREADS];
	char name[16];

	if (argc < 2)
		begin_again(argv);
	/* As they are before a thread is tied to one. */
	all_cpus();
	for (unsigned i = 0; i < CACHES; i++) {
		snprintf(name, sizeof(name), "wander-%u", i);
		caches[i] = kmem_cache_create(name, 64u << i, NULL, 0);
		if (!caches[i])
			fail("no cache");
	}
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, wander, (void *)(i + 1)))
			fail("no thread");
	sleep(wanted ? (unsigned)atoi(wanted) : 2);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	if (kmem_check_all())
		fail("what is kept of the objects does not agree");
	for (unsigned i = 0; i < CACHES; i++) {
		struct kmem_cache_stats stats;

		kmem_cache_shrink(caches[i]);
		kmem_cache_get_stats(caches[i], &stats);
		if (stats.total_slabs)
			fail("objects were lost");
		kmem_cache_destroy(caches[i]);
	}
	return 0;
}
