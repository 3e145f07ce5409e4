/*
 * mappings: at any load the library uses at most 100 of the system's mappings, of about 65,000 for a process,
 * although each block above 4 MiB could be one: threads allocate and free objects and blocks of all sizes, grow and
 * cut them, create and destroy caches and groups, and shrink; first without such blocks, then with many. SEED=n.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "kit/mappings.h"

#define THREADS	4u
#define SLOTS	400u
#define STEPS	10000u

static unsigned long seed;

static unsigned pick(unsigned long *state, unsigned below)
{
	*state = *state * 6364136223846793005ul + 1442695040888963407ul;
	return (unsigned)(*state >> 33) % below;
}

static bool with_big;

/* Half of them small; of the others a third above 4 MiB, up to 64. */
static size_t size_of(unsigned long *state)
{
	unsigned powers = with_big ? 12 : 8;

	return ((size_t)1 << (pick(state, 2) ? pick(state, 14) : 14 + pick(state, powers))) + pick(state, 4096);
}

static void touch(char *p, size_t bytes)
{
	if (bytes <= 1 << 20)
		memset(p, 1, bytes);
	else
		for (size_t at = 0; at < bytes; at += bytes / 16)
			p[at] = 1;
}

static void *run(void *arg)
{
	unsigned long state = seed + (unsigned long)(uintptr_t)arg;
	void *slot[SLOTS] = { NULL };
	struct mem_cgroup *group = NULL;

	for (unsigned step = 0; step < STEPS; step++) {
		void **p = &slot[pick(&state, SLOTS)];
		size_t bytes = size_of(&state);

		switch (pick(&state, 40)) {
		case 0:
			kmem_shrink_all();
			break;
		case 1: {
			char name[32];

			snprintf(name, sizeof(name), "wild-%u-%u", (unsigned)(uintptr_t)arg, step % 64);
			struct kmem_cache *cache = kmem_cache_create(name, 1 + pick(&state, 5000), NULL, 0);
			kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
			kmem_cache_destroy(cache);
			break;
		}
		case 2:
			if (group)
				mem_cgroup_put(group);
			group = mem_cgroup_create(NULL, "wild", 0);
			break;
		case 3: case 4: case 5: case 6: {
			void *grown = kvrealloc(*p, bytes, GFP_KERNEL);

			*p = grown ?: *p;
			break;
		}
		case 7: case 8:
			kvfree(*p);
			*p = group ? kmalloc_in(group, bytes % 100000 + 1, GFP_KERNEL | __GFP_NOWARN) : NULL;
			break;
		default:
			kvfree(*p);
			*p = pick(&state, 3) ? kvmalloc(bytes, GFP_KERNEL | __GFP_NOWARN) : NULL;
			if (*p)
				touch(*p, bytes);
		}
	}
	for (unsigned i = 0; i < SLOTS; i++)
		kvfree(slot[i]);
	if (group)
		mem_cgroup_put(group);
	return NULL;
}

static unsigned most, most_big;
static int over;

static void *watch(void *unused)
{
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		struct kmem_stats stats;

		/* Few mappings are made between the two counts. */
		kmem_get_stats(&stats);
		unsigned now = mappings_of_ours();
		most_big = stats.mapped_blocks > most_big ? (unsigned)stats.mapped_blocks : most_big;
		most = now > most ? now : most;
		usleep(1000);
	}
	return NULL;
}

/* The most mappings of the library, and the most large blocks. */
static void load(unsigned before)
{
	pthread_t thread[THREADS], watcher;

	most = most_big = 0;
	over = 0;
	NEED(!pthread_create(&watcher, NULL, watch, NULL));
	for (unsigned i = 0; i < THREADS; i++)
		NEED(!pthread_create(&thread[i], NULL, run, (void *)(uintptr_t)i));
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	pthread_join(watcher, NULL);
	/* A thread's stack and its guard are two mappings. */
	most -= most > before + 2 * (THREADS + 1) ? before + 2 * (THREADS + 1) : most;
	printf("at most %u mappings of ours, at most %u big blocks\n", most, most_big);
}

int main(void)
{
	const char *text = getenv("SEED");
	unsigned before = mappings_of_ours();

	seed = text ? strtoul(text, NULL, 10) : (unsigned long)time(NULL);
	printf("seed %lu\n", seed);
	load(before);
	CHECK(most <= MAPPINGS_MOST && !most_big);
	with_big = true;
	load(before);
	CHECK(most <= MAPPINGS_MOST);
	return failures != 0;
}
