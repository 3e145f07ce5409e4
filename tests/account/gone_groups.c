/*
 * gone_groups.c: ended groups leave no records and no caches, for any number, one after the other or at once; a
 * destroyed cache leaves its record. A private group's cache stays while a thread is still in a free of its last
 * object, by any call, or while readers of the program's RCU may read the object. Disciplines: all.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>

#include <kmem/rcu.h>
#include <kmem/stats.h>

#include "kit/cases.h"
#include "kit/cpus.h"
#include "kit/groups.h"
#include "kit/rollup.h"

#include "slab/engine.h"
#include "page/arena.h"
#include "page/metadata.h"
#include "os/os.h"
#include "os/sanitizer.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED km_sanitizer.valgrind
#endif

enum { MANY = 100000, AT_ONCE = 10000, MOST_KIB = 2048 };

/* ------------------------------------------------------------------ what stays */

static unsigned long caches(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return stats.caches;
}

static void *array_of(size_t bytes)
{
	void *array = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	NEED(array != MAP_FAILED);
	return array;
}

/* `count` groups with an object each, `width` of them at once. */
static void come_and_go(unsigned flags, unsigned count, unsigned width)
{
	struct mem_cgroup **group = array_of(width * sizeof(*group));
	void **object = array_of(width * sizeof(*object));

	for (unsigned n = 0; n < count; n += width) {
		for (unsigned i = 0; i < width; i++) {
			group[i] = group_of(NULL, "session", flags);
			NEED(object[i] = kmalloc_in(group[i], 64, GFP_KERNEL));
		}
		for (unsigned i = 0; i < width; i++)
			mem_cgroup_put(group[i]);
		for (unsigned i = 0; i < width; i++)
			kfree(object[i]);
	}
	munmap(group, width * sizeof(*group));
	munmap(object, width * sizeof(*object));
}

static void leave_nothing(unsigned flags, unsigned count, unsigned width, bool shrinks)
{
	come_and_go(flags, 10, 2);
	/* A sanitizer is slow. */
	if (SANITIZED) {
		count /= 50;
		width = width > 1 ? count : 1;
	}
	kmem_shrink_all();
	unsigned long before = rollup_kb("Rss"), caches_before = caches();
	come_and_go(flags, count, width);
	if (shrinks)
		kmem_shrink_all();
	unsigned long after = rollup_kb("Rss");
	/* A sanitizer uses memory of its own. */
	CHECK(after < before + MOST_KIB || SANITIZED, "%lu KiB, then %lu", before, after);
	CHECK(caches() <= caches_before + (shrinks ? 0 : 256), "%lu caches, then %lu", caches_before, caches());
	CHECK(kmem_check_all() == 0);
}

static void one_by_one(void) { leave_nothing(0, MANY, 1, true); }
static void one_by_one_private(void) { leave_nothing(MEM_CGROUP_PRIVATE, MANY / 10, 1, true); }
static void unasked(void) { leave_nothing(0, MANY, 1, false); }
static void unasked_private(void) { leave_nothing(MEM_CGROUP_PRIVATE, MANY / 10, 1, false); }
static void at_once(void) { leave_nothing(0, MANY, MANY, true); }
static void at_once_private(void) { leave_nothing(MEM_CGROUP_PRIVATE, AT_ONCE, AT_ONCE, true); }

/* A destroyed cache leaves its record, of 1 KiB, and the entries of its id. */
static void gone_caches(void)
{
	enum { CACHES = 4000 };
	struct kmem_cache **cache = array_of(CACHES * sizeof(*cache));
	struct kmem_cache_args args = { .engine = "sheaf" };
	struct kmem_stats before, after;
	char name[32];

	kmem_shrink_all();
	kmem_get_stats(&before);
	for (unsigned i = 0; i < CACHES; i++) {
		snprintf(name, sizeof(name), "gone_%u", i);
		NEED(cache[i] = kmem_cache_create(name, 64 + i % 50 * 16, &args, 0));
	}
	for (unsigned i = 0; i < CACHES; i++)
		kmem_cache_destroy(cache[i]);
	kmem_shrink_all();
	kmem_get_stats(&after);
	CHECK(after.meta_bytes < before.meta_bytes + CACHES * 1100ul, "%lu bytes for each",
	      (after.meta_bytes - before.meta_bytes) / CACHES);
	munmap(cache, CACHES * sizeof(*cache));
}

static bool no_fence(const char *call)
{
	return strcmp(call, "fence") == 0;
}

/* The system refuses the fence, unannounced: objects cached on this CPU go back all the same. */
static void without_a_fence(void)
{
	NEED(go_to_cpu(cpu_at(0)));
	km_os_fault = no_fence;
	leave_nothing(MEM_CGROUP_PRIVATE, MANY / 100, 1, true);
	km_os_fault = NULL;
}

static void without_a_fence_slub(void)
{
	struct kmem_cache_args args = { .engine = "slub" };
	struct kmem_cache *slub = kmem_cache_create("slub", 100, &args, SLAB_ACCOUNT);

	NEED(go_to_cpu(cpu_at(0)));
	km_os_fault = no_fence;
	mem_cgroup_put(private_group("first"));
	unsigned long before = caches();
	for (int i = 0; i < 100; i++) {
		struct mem_cgroup *group = private_group("session");

		kfree(kmem_cache_alloc_in(slub, group, GFP_KERNEL));
		mem_cgroup_put(group);
	}
	kmem_shrink_all();
	CHECK(caches() == before, "%lu caches, then %lu", before, caches());
	km_os_fault = NULL;
}

/* ------------------------------------------------------------------ a free under way */

static const struct km_engine *engine;
static struct km_engine slow;
static sem_t given, go_on;

static void lose_cpu(void)
{
	sem_post(&given);
	while (sem_wait(&go_on))
		;
}

static void give_slowly(struct kmem_cache *cache, void **objects, unsigned count)
{
	engine->give(cache, objects, count);
	lose_cpu();
}

static void free_slowly(struct kmem_cache *cache, void *object)
{
	engine->free(cache, object);
	lose_cpu();
}

static unsigned give_last_slowly(struct kmem_cache *cache, void **objects, unsigned count)
{
	unsigned kept = engine->chain.give_last(cache, objects, count);

	lose_cpu();
	return kept;
}

static void count_slowly(struct kmem_cache *cache, enum kmem_event event, size_t count)
{
	engine->hit(cache, event, count);
	if (event == KMEM_FREE_FASTPATH)
		lose_cpu();
}

static struct kmem_cache *cache;

static void *by_kfree(void *object) { kfree(object); return NULL; }
static void *by_bulk(void *object) { kfree_bulk(1, &object); return NULL; }
static void *by_cache(void *object) { kmem_cache_free(cache, object); return NULL; }
static void *by_caches_bulk(void *object) { kmem_cache_free_bulk(cache, 1, &object); return NULL; }
static void *(*const frees[])(void *) = { by_kfree, by_bulk, by_cache, by_caches_bulk };

static int is_it(struct kmem_cache *each, void *wanted)
{
	return each == wanted;
}

static void last_free(const char *name, void *(*how)(void *))
{
	struct kmem_cache_args args = { .engine = name };
	pthread_t thread;

	/* No sheaves: freed objects go to their slab at once. */
	cache = kmem_cache_create("last", 100, &args, SLAB_NO_SHEAVES);
	struct mem_cgroup *group = private_group("one");
	void *object = kmem_cache_alloc_in(cache, group, GFP_KERNEL), *hold = NULL;
	struct kmem_cache *child = kmem_cache_of(object);

	NEED(object && child && child != cache);
	/* The CPU's slab is another one. */
	if (child->layout.engine->front == KM_PERCPU_FREELIST) {
		hold = array_of(4096 * sizeof(void *));
		for (unsigned i = 0; i < child->layout.objects; i++)
			NEED(((void **)hold)[i] = kmem_cache_alloc_in(cache, group, GFP_KERNEL));
		for (unsigned i = 0; i < child->layout.objects; i++)
			kfree(((void **)hold)[i]);
	}
	engine = child->layout.engine;
	slow = *engine;
	slow.give = give_slowly;
	slow.free = engine->free ? free_slowly : NULL;
	slow.chain.give_last = engine->chain.give_last ? give_last_slowly : NULL;
	child->layout.engine = &slow;
	mem_cgroup_put(group);
	NEED(pthread_create(&thread, NULL, how, object) == 0);
	while (sem_wait(&given))
		;
	kmem_shrink_all();
	CHECK(kmem_for_each_cache(is_it, child), "%s", name);
	child->layout.engine = engine;
	sem_post(&go_on);
	pthread_join(thread, NULL);
	kmem_shrink_all();
	CHECK(!kmem_for_each_cache(is_it, child), "%s", name);
	CHECK(kmem_check_all() == 0);
	kmem_cache_destroy(cache);
}

static void last_frees(void)
{
	static const char *const engines[] = { "sheaf", "slab", "slub" };

	sem_init(&given, 0, 0);
	sem_init(&go_on, 0, 0);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned how = 0; how < sizeof(frees) / sizeof(frees[0]); how++)
			last_free(engines[i], frees[how]);
}

/* The option stats:1: a hit of engine slub counts its event after the object is free. */
static void counted_hits(void)
{
	struct kmem_cache_args args = { .engine = "slub" };

	km_layout_options.count_events = true;
	/* No tick drains the CPU's slab by age. */
	km_arena_set(false, 3600000);
	kmem_tick();
	sem_init(&given, 0, 0);
	sem_init(&go_on, 0, 0);
	NEED(go_to_cpu(cpu_at(0)));
	/* The first is by kfree, the third by kmem_cache_free. */
	for (unsigned how = 0; how < 4; how += 2) {
		cache = kmem_cache_create("counted", 100, &args, 0);
		struct mem_cgroup *group = private_group("one");
		void *object = kmem_cache_alloc_in(cache, group, GFP_KERNEL);
		struct kmem_cache *child = kmem_cache_of(object);
		pthread_t thread;

		NEED(object && child && child != cache);
		engine = child->layout.engine;
		slow = *engine;
		slow.hit = count_slowly;
		child->layout.engine = &slow;
		mem_cgroup_put(group);
		NEED(pthread_create(&thread, NULL, frees[how], object) == 0);
		while (sem_wait(&given))
			;
		kmem_shrink_all();
		CHECK(kmem_for_each_cache(is_it, child), "%u", how);
		sem_post(&go_on);
		pthread_join(thread, NULL);
		child->layout.engine = engine;
		kmem_shrink_all();
		CHECK(!kmem_for_each_cache(is_it, child), "%u", how);
		kmem_cache_destroy(cache);
	}
}

/* ------------------------------------------------------------------ typesafe objects */

static struct kmem_rcu_head *asked;
static void (*at_its_end)(struct kmem_rcu_head *head);

static void call(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head))
{
	asked = head;
	at_its_end = func;
}

static void end_one(void)
{
	struct kmem_rcu_head *head = asked;

	asked = NULL;
	if (head)
		at_its_end(head);
}

static void synchronize(void) { }

/* The group's slabs of them wait for a grace period; then they are gone as all others. */
static void typesafe(const char *name)
{
	struct kmem_cache_args args = { .engine = name };
	struct mem_cgroup *above = group_of(NULL, "above", 0), *group = group_of(above, "one", MEM_CGROUP_PRIVATE);

	cache = kmem_cache_create("typesafe", 100, &args, SLAB_TYPESAFE_BY_RCU);
	void *first = kmem_cache_alloc_in(cache, group, GFP_KERNEL);
	void *object = kmem_cache_alloc_in(cache, group, GFP_KERNEL);
	struct kmem_cache *child = kmem_cache_of(object);

	NEED(object && first && child && child != cache);
	kmem_cache_free(cache, first);
	kmem_shrink_all();
	mem_cgroup_put(group);
	kmem_cache_free(cache, object);
	kmem_shrink_all();
	CHECK(kmem_for_each_cache(is_it, child) && drained(above), "%s", name);
	kvfree_rcu_barrier();
	kmem_shrink_all();
	CHECK(!kmem_for_each_cache(is_it, child) && !drained(above), "%s", name);
	/* Slabs that wait at the cache's destruction go with the cache. */
	group = group_of(above, "two", MEM_CGROUP_PRIVATE);
	object = kmem_cache_alloc_in(cache, group, GFP_KERNEL);
	NEED(object);
	mem_cgroup_put(group);
	kmem_cache_free(cache, object);
	kmem_shrink_all();
	kmem_cache_destroy(cache);
	CHECK(!drained(above) && kmem_check_all() == 0, "%s", name);
	mem_cgroup_put(above);
}

static void by_rcu(void)
{
	static const struct kmem_rcu rcu = { call, synchronize, end_one };

	NEED(kmem_set_rcu(&rcu) == 0);
	typesafe("sheaf");
	typesafe("slab");
	typesafe("slub");
}

static const struct test_case cases[] = {
	{ "one by one", one_by_one }, { "one by one, private", one_by_one_private },
	{ "no shrinker", unasked }, { "no shrinker, private", unasked_private },
	{ "at once", at_once }, { "at once, private", at_once_private },
	{ "gone caches", gone_caches },
	{ "without a fence", without_a_fence }, { "without a fence, slub", without_a_fence_slub },
	{ "last frees", last_frees }, { "counted hits", counted_hits }, { "by RCU", by_rcu },
};

int main(void)
{
	return run_cases(cases, sizeof(cases) / sizeof(cases[0]), "gone groups");
}
