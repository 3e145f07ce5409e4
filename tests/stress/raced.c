/*
 * raced: threads allocate, free, query owners of objects, shrink and tick, at caches of each kind with flags and
 * records written by several threads: hardened, guarded, left out of core dumps, constructed. For ThreadSanitizer,
 * run by tests/system/sanitize_thread with options; by itself the test checks the contents of objects. Disciplines:
 * all
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"

#define THREADS	4
#define KINDS	4
#define SLOTS	64
#define ROUNDS	20000

static struct kmem_cache *caches[KINDS], *large[2];
static unsigned long built;

static void construct(void *object)
{
	__atomic_fetch_add(&built, 1, __ATOMIC_RELAXED);
	memset(object, 0, 500);
}

static int count_one(void *object, void *arg)
{
	(void)object;
	++*(int *)arg;
	return 0;
}

static void look(struct kmem_cache *cache, unsigned turn, const void *object)
{
	struct kmem_cache_stats stats;
	char other[64];

	if (turn % 64 == 0)
		NEED(kmem_cache_of(object) == cache || !kmem_cache_of(object));
	if (turn % 512 == 0)
		kmem_cache_get_stats(cache, &stats);
	if (turn % 1024 == 0)
		kmem_cache_shrink(cache);
	if (turn % 4096 == 0)
		kmem_shrink_all();
	if (turn % 256 == 0)
		kmem_tick();
	/* An address of any kind may be asked for. */
	kmem_cache_of(other);
}

static void *work(void *arg)
{
	uint64_t seed = (uintptr_t)arg;
	unsigned char *slot[SLOTS] = { NULL };
	struct kmem_cache *of[SLOTS];

	for (unsigned turn = 0; turn < ROUNDS; turn++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		unsigned i = (unsigned)(seed >> 33) % SLOTS;

		if (slot[i]) {
			NEED(slot[i][0] == (unsigned char)i && slot[i][499] == (unsigned char)i);
			look(of[i], turn, slot[i]);
			slot[i][0] = slot[i][499] = 0;
			kmem_cache_free(of[i], slot[i]);
			slot[i] = NULL;
			continue;
		}
		of[i] = caches[(seed >> 40) % KINDS];
		slot[i] = kmem_cache_alloc(of[i], GFP_KERNEL);
		NEED(slot[i]);
		slot[i][0] = slot[i][499] = (unsigned char)i;
	}
	for (unsigned i = 0; i < SLOTS; i++)
		if (slot[i])
			kmem_cache_free(of[i], slot[i]);
	/* Slabs come and go. */
	for (unsigned turn = 0; turn < ROUNDS / 100; turn++) {
		for (unsigned i = 0; i < SLOTS; i++)
			NEED(slot[i] = kmem_cache_alloc(large[i % 2], GFP_KERNEL));
		for (unsigned i = 0; i < SLOTS; i++)
			kmem_cache_free(large[i % 2], slot[i]);
		kmem_shrink_all();
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	int walked = 0;

	caches[0] = kmem_cache_create("plain", 500, NULL, 0);
	caches[1] = kmem_cache_create("left out", 500, NULL, SLAB_NODUMP);
	caches[2] = kmem_cache_create("built", 500, 0, 0, construct);
	caches[3] = kmem_cache_create("typed", 500, NULL, SLAB_TYPESAFE_BY_RCU);
	large[0] = kmem_cache_create("large", 30000, NULL, 0);
	large[1] = kmem_cache_create("large, left out", 30000, NULL, SLAB_NODUMP);
	for (uintptr_t i = 0; i < THREADS; i++)
		NEED(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
	for (int i = 0; i < THREADS; i++)
		NEED(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < KINDS; i++) {
		kmem_cache_walk(caches[i], count_one, &walked);
		NEED(walked == 0);
	}
	NEED(kmem_check_all() == 0);
	printf("%lu objects built\n", built);
	return 0;
}
