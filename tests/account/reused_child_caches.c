/*
 * reused_child_caches.c: a private group's child cache, taken over from an ended group, is emptied and kept, because
 * the thread that freed the last object of the ended group may still be in the free. The child cache is tuned as a new
 * one. With any contents of a group, the registry is never locked for long during the group's end. Disciplines: all.
 */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "kit/cases.h"
#include "slab/engine.h"
#include "page/metadata.h"

#define OBJECTS		20000u
#define LONG		1100u		/* slabs freed at once, and former empty slabs */

/* ------------------------------------------------------------------ slabs freed while the registry is locked */

static bool locked;
static unsigned long freed, most;

void __real_km_registry_lock(void);
void __wrap_km_registry_lock(void)
{
	__real_km_registry_lock();
	locked = true;
	freed = 0;
}

void __real_km_registry_unlock(void);
void __wrap_km_registry_unlock(void)
{
	most = freed > most ? freed : most;
	locked = false;
	__real_km_registry_unlock();
}

void __real_km_slab_free(struct kmem_cache *cache, struct km_page *slab);
void __wrap_km_slab_free(struct kmem_cache *cache, struct km_page *slab)
{
	freed += locked;
	__real_km_slab_free(cache, slab);
}

/* ------------------------------------------------------------------ fences; the system may refuse them */

static bool refused;

int __real_km_os_barrier(void);
int __wrap_km_os_barrier(void)
{
	return refused ? -ENOMEM : __real_km_os_barrier();
}

/* ------------------------------------------------------------------ a free under way */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static enum { NOT_YET, GIVEN, GO_ON } stage;

static void step(int to)
{
	pthread_mutex_lock(&mutex);
	stage = to;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
}

static void wait_for(int wanted)
{
	pthread_mutex_lock(&mutex);
	while ((int)stage != wanted)
		pthread_cond_wait(&changed, &mutex);
	pthread_mutex_unlock(&mutex);
}

static const struct km_engine *engine;
static struct km_engine slow;
static unsigned given;

/* The thread loses its CPU here. */
static void give_slowly(struct kmem_cache *cache, void **objects, unsigned count)
{
	engine->give(cache, objects, count);
	given += count;
	/* With validated frees the objects come one by one; the last free empties the child cache. */
	if (stage != NOT_YET || given < 2)
		return;
	step(GIVEN);
	wait_for(GO_ON);
}

static void *free_both(void *objects)
{
	kfree_bulk(2, objects);
	return NULL;
}

static struct mem_cgroup *private_group(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "one", MEM_CGROUP_PRIVATE);

	NEED(group);
	return group;
}

static void *alloc_for(struct mem_cgroup *group, struct kmem_cache *cache)
{
	MEMCG_SCOPE(group);
	void *object = kmem_cache_alloc(cache, GFP_KERNEL_ACCOUNT);

	NEED(object);
	return object;
}

static void overwrite_free_memory(void)
{
	for (size_t bytes = 64; bytes <= 4096; bytes *= 2)
		for (unsigned i = 0; i < 64; i++)
			memset(km_metadata_alloc(bytes, true), 0x41, bytes);
}

static void last_steps(const char *name)
{
	struct kmem_cache_args args = { .engine = name };
	/* No sheaves: freed objects go to their slab at once. */
	struct kmem_cache *cache = kmem_cache_create("steps", 100, &args, SLAB_NO_SHEAVES);
	struct mem_cgroup *first = private_group();
	void *objects[2] = { alloc_for(first, cache), alloc_for(first, cache) };
	struct kmem_cache *child = kmem_cache_of(objects[0]);
	pthread_t thread;

	NEED(child && child != cache && child == kmem_cache_of(objects[1]));
	engine = child->layout.engine;
	slow = *engine;
	slow.give = give_slowly;
	child->layout.engine = &slow;
	stage = NOT_YET;
	given = 0;
	mem_cgroup_put(first);
	NEED(pthread_create(&thread, NULL, free_both, objects) == 0);
	wait_for(GIVEN);
	/* The next group finds the first group's child cache empty. */
	struct mem_cgroup *second = private_group();
	void *object = alloc_for(second, cache);
	CHECK(kmem_cache_of(object) == child);
	CHECK(mem_cgroup_destroy_all(second, NULL, NULL) == 0);
	overwrite_free_memory();
	step(GO_ON);
	pthread_join(thread, NULL);
	/* The child cache is as good as new. */
	object = alloc_for(second, cache);
	CHECK(kmem_cache_of(object) == child && !strcmp(kmem_cache_name(child), "steps:one"));
	kfree(object);
	mem_cgroup_put(second);
	NEED(kmem_check_all() == 0);
	kmem_cache_destroy(cache);
}

/* ------------------------------------------------------------------ no fence */

static int is_it(struct kmem_cache *cache, void *wanted)
{
	return cache == wanted;
}

/* Cached objects cannot be drained: the child cache goes after all, but its readable memory does not. */
static void no_fence(const char *name)
{
	struct kmem_cache_args args = { .engine = name };
	struct kmem_cache *cache = kmem_cache_create("fence", 100, &args, SLAB_ACCOUNT);
	struct mem_cgroup *group = private_group();

	kfree(alloc_for(group, cache));
	mem_cgroup_put(group);
	group = private_group();
	for (int round = 0; round < 3; round++) {
		struct kmem_cache *child = kmem_cache_of(alloc_for(group, cache));

		for (int i = 0; i < 500; i++) {
			void *object = alloc_for(group, cache);

			if (i % 3 == 0)
				kfree(object);
		}
		refused = true;
		CHECK(mem_cgroup_destroy_all(group, NULL, NULL) == 0);
		refused = false;
		/* The first child cache, or its memory, is kept: no other cache uses the memory. */
		overwrite_free_memory();
		CHECK(round || !strcmp(child->layout.engine->name, name));
		CHECK(round || kmem_for_each_cache(is_it, child) || child->layout.dead);
		mem_cgroup_drain(group);
		CHECK(mem_cgroup_current(group) == 0 && kmem_check_all() == 0);
	}
	mem_cgroup_put(group);
	kmem_cache_destroy(cache);
}

/* ------------------------------------------------------------------ many slabs */

static unsigned long seen;

static void count(struct kmem_cache *cache, void *object, void *arg)
{
	(void)object;
	seen += cache == arg;
}

static void fill(struct mem_cgroup *group, struct kmem_cache *cache, unsigned objects)
{
	for (unsigned i = 0; i < objects; i++)
		alloc_for(group, cache);
}

static void many_slabs(const char *name)
{
	struct kmem_cache_args args = { .engine = name };
	struct kmem_cache *cache = kmem_cache_create("slabs", 1000, &args, SLAB_ACCOUNT);
	struct kmem_cache *other = kmem_cache_create("others", 3000, &args, SLAB_ACCOUNT);
	struct mem_cgroup *group = private_group();

	most = 0;
	for (int round = 0; round < 4; round++) {
		fill(group, cache, OBJECTS);
		fill(group, other, 77);
		seen = 0;
		CHECK(mem_cgroup_destroy_all(group, round % 2 ? count : NULL, cache) == 0);
		CHECK(seen == (round % 2 ? OBJECTS : 0));
		mem_cgroup_drain(group);
		CHECK(mem_cgroup_current(group) == 0 && kmem_check_all() == 0);
		/* The next group has the child caches of this one. */
		if (round == 1) {
			kfree(alloc_for(group, cache));
			kfree(alloc_for(group, other));
			mem_cgroup_put(group);
			group = private_group();
		}
	}
	CHECK(most <= LONG);
	mem_cgroup_put(group);
	kmem_cache_destroy(cache);
	kmem_cache_destroy(other);
}

/* ------------------------------------------------------------------ tuning of a child cache */

static struct kmem_cache_stats stats_of(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return stats;
}

static void tuned_alike(struct kmem_cache *child, struct kmem_cache *cache)
{
	struct kmem_cache_stats one = stats_of(child), other = stats_of(cache);

	CHECK(kmem_cache_min_partial(child) == kmem_cache_min_partial(cache));
	CHECK(kmem_cache_remote_node_defrag_ratio(child) == kmem_cache_remote_node_defrag_ratio(cache));
	CHECK(kmem_cache_limit(child) == UINT64_MAX);
	CHECK(one.limit == other.limit && one.batchcount == other.batchcount);
	CHECK(one.shared_factor == other.shared_factor);
}

/*
 * The next group's child cache is tuned as the cache is at this time, also if the tuning is newer than the child;
 * and counts from 0.
 */
static void tuned_anew(const char *name)
{
	struct kmem_cache_args args = { .engine = name };
	struct kmem_cache *cache = kmem_cache_create("tuned", 100, &args, SLAB_ACCOUNT), *child = NULL;

	for (int round = 0; round < 4; round++) {
		struct mem_cgroup *group = private_group();
		void *object = alloc_for(group, cache);

		NEED(!child || kmem_cache_of(object) == child);
		child = kmem_cache_of(object);
		tuned_alike(child, cache);
		CHECK_EQUAL(kmem_cache_event(child, KMEM_ALLOC_SLAB), stats_of(child).total_slabs);
		CHECK_EQUAL(kmem_cache_event(child, KMEM_FREE_SLAB), 0);
		NEED(kmem_cache_set_min_partial(child, 777) == 0);
		NEED(kmem_cache_set_remote_node_defrag_ratio(child, 3) == 0);
		NEED(kmem_cache_set_limit(child, 1 << 20) == 0);
		CHECK((kmem_cache_tune(child, 30, 10, 3) == 0) == (strcmp(name, "slab") == 0));
		kfree(object);
		mem_cgroup_put(group);
		/* Once without a group. */
		if (round == 1) {
			NEED(kmem_cache_set_min_partial(cache, 9) == 0);
			kmem_cache_tune(cache, 40, 20, 0);
			NEED(kmem_cache_set_min_partial(child, 7) == 0);
		}
	}
	NEED(kmem_check_all() == 0);
	kmem_cache_destroy(cache);
}

int main(int argc, char **argv)
{
	static const char *const engines[] = { "sheaf", "slab", "slub" };

	/* Slabs are counted: no slab goes back by age, at any speed of the test. */
	if (argc < 2)
		return again(argv[0], "again", "decay:3600000") != 0;

	for (int i = 0; i < 3; i++) {
		many_slabs(engines[i]);
		no_fence(engines[i]);
		tuned_anew(engines[i]);
	}
	last_steps("sheaf");
	last_steps("slab");
	return failures != 0;
}
