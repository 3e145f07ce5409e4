/*
 * cache_limit.c: kmem_cache_set_limit: a cache never has more slabs than the limit, for every kind of request. Cached
 * objects are drained before a request fails. Disciplines: all.
 */
#define _GNU_SOURCE
#include "kit/cpus.h"
#include "kit/api.h"

#include <pthread.h>
#include <sched.h>

#define PAGE 4096ul
#define MOST 20000

static size_t pages_before;

/* In pages of all caches since `before`; slabs of less than the usual order count as what they are. */
static uint64_t used(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return (stats.pages_used - pages_before) * PAGE;
}

static void begin(void)
{
	kmem_shrink_all();
	pages_before = 0;
	pages_before = used() / PAGE;
}

static void *objects[MOST];

static size_t fill(struct kmem_cache *cache, gfp_t gfp)
{
	size_t count = 0;

	while (count < MOST && (objects[count] = kmem_cache_alloc(cache, gfp | __GFP_NOWARN)))
		count++;
	NEED(count < MOST && errno == ENOMEM);
	return count;
}

static void up_to_it(void)
{
	static const unsigned sizes[] = { 24, 192, 1000, 4096, 9000 };

	for (unsigned i = 0; i < 5; i++) {
		struct kmem_cache *cache = make("limited", sizes[i]);
		const uint64_t limit = 60 * PAGE;
		void *others[9];

		begin();
		NEED(kmem_cache_limit(cache) == UINT64_MAX);
		NEED(kmem_cache_set_limit(cache, limit) == 0 && kmem_cache_limit(cache) == limit);
		size_t count = fill(cache, GFP_KERNEL);
		NEED(used() <= limit && count * sizes[i] > limit / 2);
		NEED(kmem_cache_event(cache, KMEM_LIMIT) > 0);
		NEED(strcmp(kmem_event_name(KMEM_LIMIT), "limit") == 0);
		/* One freed, one to be had. */
		for (int k = 0; k < 8; k++) {
			kmem_cache_free(cache, objects[k]);
			NEED((objects[k] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN)));
			NEED(!kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN));
			NEED(!kmem_cache_alloc(cache, GFP_NOWAIT));
		}
		kmem_cache_free_bulk(cache, 8, objects);
		NEED(!kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, 9, others));
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, 8, objects));
		NEED(!kmem_cache_prefill_sheaf(cache, GFP_KERNEL | __GFP_NOWARN, 9));
		/* Raised and lowered while there are more. */
		NEED(kmem_cache_set_limit(cache, limit + 64 * PAGE) == 0);
		NEED((objects[count] = kmem_cache_alloc(cache, GFP_KERNEL)));
		NEED(kmem_cache_set_limit(cache, PAGE) == 0);
		kmem_cache_free_bulk(cache, count + 1, objects);
		NEED(kmem_cache_set_limit(cache, UINT64_MAX) == 0);
		gone(cache);
	}
}

/* ------------------------------------------------------------------ what another thread's CPU has is taken back */

static struct kmem_cache *common;
static size_t filled;

static void *fill_and_free(void *arg)
{
	NEED(go_to_cpu(cpu_at((int)(uintptr_t)arg % CPU_COUNT(all_cpus()))));
	filled = fill(common, GFP_KERNEL);
	for (size_t i = 0; i < filled; i++)
		kmem_cache_free(common, objects[i]);
	return NULL;
}

static void cached_objects(void)
{
	pthread_t thread;

	common = make("common", 256);
	NEED(kmem_cache_set_limit(common, 64 * PAGE) == 0);
	for (uintptr_t i = 0; i < 8; i++) {
		size_t before = filled;

		NEED(pthread_create(&thread, NULL, fill_and_free, (void *)i) == 0);
		pthread_join(thread, NULL);
		NEED(!i || filled == before);
	}
	gone(common);
}

#define THREADS 4

static void *worker(void *arg)
{
	void *mine[64];
	size_t count = 0;

	for (int i = 0; i < 20000; i++) {
		if (count < 64 && i % 3)
			mine[count] = kmem_cache_alloc(common, GFP_KERNEL | __GFP_NOWARN), count += mine[count] != NULL;
		else if (count)
			kmem_cache_free(common, mine[--count]);
		if (i % 500 == 0)
			NEED(used() <= *(uint64_t *)arg);
	}
	kmem_cache_free_bulk(common, count, mine);
	return NULL;
}

static void threads(void)
{
	pthread_t thread[THREADS];
	uint64_t limit = 16 * PAGE;

	common = make("threads", 512);
	begin();
	NEED(kmem_cache_set_limit(common, limit) == 0);
	for (int i = 0; i < THREADS; i++)
		NEED(pthread_create(&thread[i], NULL, worker, &limit) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	gone(common);
}

static const struct test_case cases[] = {
	{ "up to it", up_to_it },
	{ "cached objects", cached_objects },
	{ "threads", threads },
};

static void shares_pages(void)
{
	struct kmem_cache *cache = make("shared", 100);

	NEED(kmem_cache_set_limit(cache, 1 << 20) == -EOPNOTSUPP && kmem_cache_limit(cache) == UINT64_MAX);
	kmem_cache_destroy(cache);
}

static const struct test_case slob_cases[] = {
	{ "shares pages", shares_pages },
};

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "slob") == 0)
		return api_main(argc, argv, slob_cases, 1, "");
	return api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), "");
}
