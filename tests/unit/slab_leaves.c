/*
 * slab_leaves.c: while one thread holds a page and queries how full its slab is, another thread frees the last object
 * of the slab, and the slab leaves its cache in between: the answer is about this cache, and no other slab gets the
 * pages before the query's end. By kmem_slab_usage, and by kmem_reserve for existing slabs; with address reuse, too.
 * Disciplines: all.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kit/api.h"
#include "kit/sleeps.h"

#include "slab/engine.h"
#include "page/arena.h"

#define SIZE	200u

static struct kmem_cache *cache, *same_name;
static const struct km_engine *actual;
static struct km_engine engine;
static void *object, *others;
static pthread_t thread;
static int id;
static bool done, has_left;

static void *leaves(void *unused)
{
	__atomic_store_n(&id, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	kmem_cache_free(cache, object);
	kmem_cache_shrink(cache);
	others = kmem_cache_alloc(same_name, GFP_KERNEL);
	__atomic_store_n(&done, true, __ATOMIC_RELEASE);
	return unused;
}

/* The page is held: the other thread goes on as far as it can. */
static void ask_late(const struct kmem_cache *of, const struct km_page *slab, struct km_fullness *fullness)
{
	if (!has_left) {
		has_left = true;
		NEED(pthread_create(&thread, NULL, leaves, NULL) == 0);
		while (km_load(&slab->cache) == cache)
			usleep(100);
		while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE) && !sleeps(id))
			usleep(100);
	}
	actual->fullness(of, slab, fullness);
}

/* One object of a slab is allocated, in an engine whose query is delayed. */
static void prepare(void)
{
	cache = make("leaves", SIZE);
	same_name = make("leaves", 2 * SIZE);
	actual = cache->layout.engine;
	engine = *actual;
	engine.fullness = ask_late;
	NEED((object = kmem_cache_alloc(cache, GFP_KERNEL)));
	kmem_cache_shrink(cache);
	cache->layout.engine = &engine;
}

static void is_over(void)
{
	NEED(has_left && pthread_join(thread, NULL) == 0 && others);
	cache->layout.engine = actual;
	kmem_cache_free(same_name, others);
	gone(same_name);
	gone(cache);
}

static void asked_how_full(void)
{
	struct kmem_slab_usage usage;
	const void *pointer;

	if (slob)
		return;
	prepare();
	pointer = object;
	NEED(kmem_slab_usage(&pointer, 1, &usage) == 1);
	NEED(usage.cache == cache && usage.objects == cache->layout.objects && usage.inuse <= usage.objects,
	     "(%u of %u)", usage.inuse, usage.objects);
	is_over();
}

static void reserved(void)
{
	if (slob)
		return;
	prepare();
	NEED(kmem_reserve(cache, 10) == 0);
	NEED(kmem_reserve(cache, 0) == 0);
	is_over();
}

static const struct test_case cases[] = { { "asked how full", asked_how_full }, { "reserved", reserved } };

int main(int argc, char **argv)
{
	const size_t count = sizeof(cases) / sizeof(cases[0]);

	if (argc > 1)
		return api_main(argc, argv, cases, count, "");
	return api_main(argc, argv, cases, count, ",decay:0") |
	       api_main(argc, argv, cases, count, ",decay:0,own_addresses:1");
}
