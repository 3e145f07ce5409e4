/*
 * hooks.c: the hooks of observers. Disciplines: all. Each object passes on_alloc and on_free once, on every path; an
 * object refused by on_alloc goes back, and an object kept by on_free does not.
 */
#include <pthread.h>

#include "kit/api.h"

#include "alloc/fast_path.h"
#include "kit/inside.h"

#define OBJECTS 500

static unsigned long shown, hidden;
static bool refuse, keep;
static void *kept;

static void *on_alloc(struct kmem_cache *cache, void *object, gfp_t gfp)
{
	if (refuse)
		return NULL;
	__atomic_fetch_add(&shown, 1, __ATOMIC_RELAXED);
	return object;
}

static bool on_free(struct kmem_cache *cache, void *object)
{
	__atomic_fetch_add(&hidden, 1, __ATOMIC_RELAXED);
	if (keep)
		kept = object;
	return !keep;
}

static const struct km_hooks hooks = { .on_alloc = on_alloc, .on_free = on_free };

static struct kmem_cache *observed(void)
{
	struct kmem_cache *cache = make("observed", 200);

	/* Set before the first use of the cache, as observers do. */
	INSIDE(km_alloc_watch(cache, &hooks));
	shown = hidden = 0;
	return cache;
}

static size_t active(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return stats.active_objects;
}

static void every_object(void)
{
	struct kmem_cache *cache = observed();
	static void *objects[OBJECTS];

	for (int i = 0; i < OBJECTS; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	NEED(shown == OBJECTS);
	for (int i = 0; i < OBJECTS; i++)
		kmem_cache_free(cache, objects[i]);
	NEED(hidden == OBJECTS);
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, OBJECTS, objects));
	NEED(shown == 2 * OBJECTS);
	kmem_cache_free_bulk(cache, OBJECTS, objects);
	NEED(hidden == 2 * OBJECTS && active(cache) == 0);
	kmem_cache_destroy(cache);
}

static void refused(void)
{
	struct kmem_cache *cache = observed();

	refuse = true;
	for (int i = 0; i < OBJECTS; i++)
		NEED(!kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN));
	NEED(!kmem_cache_alloc(cache, GFP_NOWAIT | __GFP_NOWARN));
	refuse = false;
	NEED(active(cache) == 0 && hidden == 0);
	kmem_cache_destroy(cache);
}

static void kept_back(void)
{
	struct kmem_cache *cache = observed();
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);

	keep = true;
	kmem_cache_free(cache, p);
	keep = false;
	NEED(kept == p && active(cache) == 1);
	NEED(kmem_cache_alloc(cache, GFP_KERNEL) != p);
	kmem_cache_free(cache, p);
	NEED(hidden == 2 && active(cache) == 1);
}

static bool over;

static void *allocating(void *arg)
{
	struct kmem_cache *cache = arg;
	void *mine[64];

	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		for (int i = 0; i < 32; i++)
			NEED((mine[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 32, mine + 32));
		kmem_cache_free_bulk(cache, 32, mine + 16);
		for (int i = 0; i < 16; i++) {
			kmem_cache_free(cache, mine[i]);
			kmem_cache_free(cache, mine[63 - i]);
		}
	}
	return NULL;
}

/* Calls under way end as begun; later calls are observed, or are not. */
static void begun_and_ended(void)
{
	struct kmem_cache *cache = make("observed now and then", 200);
	pthread_t threads[2];
	void *p;

	for (int i = 0; i < 2; i++)
		NEED(pthread_create(&threads[i], NULL, allocating, cache) == 0);
	for (int i = 0; i < 40; i++) {
		unsigned long before = __atomic_load_n(&shown, __ATOMIC_RELAXED);

		INSIDE(km_alloc_watch(cache, i % 2 ? NULL : &hooks));
		NEED((p = kmem_cache_alloc(cache, GFP_KERNEL)));
		NEED(i % 2 || __atomic_load_n(&shown, __ATOMIC_RELAXED) > before);
		kmem_cache_free(cache, p);
	}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		NEED(pthread_join(threads[i], NULL) == 0);
	shown = hidden = 0;
	NEED((p = kmem_cache_alloc(cache, GFP_KERNEL)));
	kmem_cache_free(cache, p);
	NEED(shown == 0 && hidden == 0);
	gone(cache);
}

static const struct test_case cases[] = {
	{ "every object is seen", every_object },
	{ "refused", refused },
	{ "kept", kept_back },
	{ "begun and ended while others allocate", begun_and_ended },
};

API_MAIN(cases)
