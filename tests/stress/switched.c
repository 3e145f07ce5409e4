/*
 * switched: threads allocate and free in all ways, each other's objects too, for groups as well, while another thread
 * switches debugging of the caches on and off, with other flags each time, shrinks them, and forks. No object is given
 * out twice, none is found damaged, and in the end the caches are as they were. SECONDS=n. Disciplines: all.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "cache/cache.h"
#include "kit/check.h"

#define THREADS	3u
#define SHARED	64u
#define BULK	24u
#define TAKEN	0x6e656b6174756f79ul
#define SIZE	64u

enum { PLAIN, CHARGED, TYPED, SIZED, KINDS };

static struct {
	struct kmem_cache *cache[KINDS];	/* SIZED: kmalloc's, by size */
	struct mem_cgroup *group, *private;
	unsigned long *shared[KINDS][SHARED];
	unsigned long wrong, calls;
	int stop;
} world;

struct dice {
	unsigned long state;
};

static unsigned roll(struct dice *dice, unsigned sides)
{
	dice->state = dice->state * 6364136223846793005ul + 1442695040888963407ul;
	return (unsigned)(dice->state >> 33) % sides;
}

/* Word 1 tells whether a thread has the object; the rest belongs to this thread. */
static void take(unsigned kind, unsigned long *object)
{
	if (!object)
		return;
	/* The contents of a free object are the allocator's. */
	object[1] = TAKEN;
	object[2] = (unsigned long)object ^ kind;
}

static void check(unsigned kind, unsigned long *object)
{
	if (object[1] != TAKEN || object[2] != ((unsigned long)object ^ kind))
		__atomic_fetch_add(&world.wrong, 1, __ATOMIC_RELAXED);
	object[1] = 0;
}

static gfp_t gfp_of(struct dice *dice, unsigned kind)
{
	gfp_t gfp = (roll(dice, 4) ? GFP_KERNEL : GFP_NOWAIT) | __GFP_NOWARN;

	return kind == SIZED && !roll(dice, 8) ? gfp | __GFP_ACCOUNT : gfp;
}

static unsigned long *get(struct dice *dice, unsigned kind)
{
	gfp_t gfp = gfp_of(dice, kind);
	unsigned long *object;

	if (kind == SIZED)
		object = roll(dice, 3) ? kmalloc(40 + roll(dice, 24), gfp) : kzalloc(33 + roll(dice, 32), gfp);
	else
		object = roll(dice, 3) ? kmem_cache_alloc(world.cache[kind], gfp) :
		       roll(dice, 2) ? kmem_cache_zalloc(world.cache[kind], gfp) :
				       kmem_cache_alloc_node(world.cache[kind], gfp, 0);
	take(kind, object);
	return object;
}

static void put(struct dice *dice, unsigned kind, unsigned long *object)
{
	if (!object)
		return;
	check(kind, object);
	if (kind == SIZED || !roll(dice, 3))
		kfree(object);
	else
		kmem_cache_free(world.cache[kind], object);
}

static void many(struct dice *dice, unsigned kind)
{
	void *objects[BULK];
	gfp_t gfp = gfp_of(dice, kind);
	unsigned n = 1 + roll(dice, BULK);

	if (kind == SIZED ? !kmalloc_bulk(SIZE, gfp, n, objects) :
			    !kmem_cache_alloc_bulk(world.cache[kind], gfp, n, objects))
		return;
	for (unsigned i = 0; i < n; i++)
		take(kind, objects[i]);
	/* Some objects are exchanged with other threads. */
	for (unsigned i = 0; i < n; i += 3) {
		unsigned long **slot = &world.shared[kind][roll(dice, SHARED)];
		void *other = __atomic_exchange_n(slot, objects[i], __ATOMIC_ACQ_REL);

		objects[i] = other;
	}
	for (unsigned i = 0; i < n; i++)
		if (objects[i])
			check(kind, objects[i]);
	if (kind == SIZED || !roll(dice, 3))
		kfree_bulk(n, objects);
	else
		kmem_cache_free_bulk(world.cache[kind], n, objects);
}

static void by_sheaf(struct dice *dice, unsigned kind)
{
	struct kmem_cache *cache = world.cache[kind];
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL | __GFP_NOWARN, 1 + roll(dice, 12));
	unsigned long *object = sheaf ? kmem_cache_alloc_from_sheaf(cache, GFP_KERNEL, sheaf) : NULL;

	take(kind, object);
	if (sheaf && roll(dice, 2))
		kmem_cache_refill_sheaf(cache, GFP_KERNEL | __GFP_NOWARN, &sheaf, 4);
	put(dice, kind, object);
	kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
}

static void *churn(void *seed)
{
	struct dice dice = { (unsigned long)seed };
	unsigned long calls = 0;

	for (; !__atomic_load_n(&world.stop, __ATOMIC_RELAXED); calls++) {
		unsigned kind = roll(&dice, KINDS), what = roll(&dice, 16);
		struct mem_cgroup *objcg = !roll(&dice, 2) ? NULL : roll(&dice, 2) ? world.group : world.private;
		struct mem_cgroup *before = set_active_memcg(objcg);

		if (!what) {
			many(&dice, kind);
		} else if (what == 1 && kind != SIZED) {
			by_sheaf(&dice, kind);
		} else {
			unsigned long **slot = &world.shared[kind][roll(&dice, SHARED)];

			put(&dice, kind, __atomic_exchange_n(slot, get(&dice, kind), __ATOMIC_ACQ_REL));
		}
		set_active_memcg(before);
	}
	__atomic_fetch_add(&world.calls, calls, __ATOMIC_RELAXED);
	return NULL;
}

static void fork_once(void)
{
	int status;
	pid_t child = fork();

	NEED(child >= 0);
	if (!child) {
		struct dice dice = { 1 };

		for (unsigned i = 0; i < 100; i++)
			put(&dice, i % KINDS, get(&dice, i % KINDS));
		_exit(0);
	}
	NEED(waitpid(child, &status, 0) == child && status == 0);
}

static unsigned long switch_all(long seconds)
{
	static const char *const letters[] = { "FZPU", "-", "Z", "-", "-", "FP", "F", "-" };
	struct dice dice = { 7 };
	unsigned long switches = 0;

	for (time_t end = time(NULL) + seconds; time(NULL) < end && !world.wrong; switches++) {
		unsigned kind = roll(&dice, KINDS);

		NEED(kmem_cache_set_debug(world.cache[kind], letters[roll(&dice, 8)]) == 0);
		if (!roll(&dice, 4))
			kmem_cache_shrink(world.cache[kind]);
		if (!roll(&dice, 64))
			fork_once();
		if (!roll(&dice, 16))
			usleep(100);
	}
	return switches;
}

static void end(void)
{
	struct dice dice = { 3 };

	for (unsigned kind = 0; kind < KINDS; kind++) {
		struct kmem_cache *cache = world.cache[kind];
		struct kmem_cache_stats stats;

		for (unsigned i = 0; i < SHARED; i++)
			put(&dice, kind, world.shared[kind][i]);
		NEED(kmem_cache_set_debug(cache, "FZPU") == 0 && kmem_cache_validate(cache) == 0);
		NEED(kmem_cache_set_debug(cache, "-") == 0);
		kmem_cache_shrink(cache);
		kmem_cache_get_stats(cache, &stats);
		NEED(stats.active_objects == 0, "%lu of %s", stats.active_objects, stats.name);
		NEED(cache->ext.shadows && !cache->ext.shadows->out, "%s", stats.name);
	}
}

int main(void)
{
	const char *wanted = getenv("SECONDS");
	void *probe = kmalloc(SIZE, GFP_KERNEL);
	pthread_t threads[THREADS];

	world.cache[PLAIN] = kmem_cache_create("plain", SIZE, NULL, 0);
	world.cache[CHARGED] = kmem_cache_create("charged", 88, NULL, SLAB_ACCOUNT);
	world.cache[TYPED] = kmem_cache_create("typed", 200, NULL, SLAB_TYPESAFE_BY_RCU);
	world.cache[SIZED] = kmem_cache_of(probe);
	world.group = mem_cgroup_create(NULL, "group", 0);
	world.private = mem_cgroup_create(NULL, "private", MEM_CGROUP_PRIVATE);
	kfree(probe);
	for (uintptr_t i = 0; i < THREADS; i++)
		NEED(pthread_create(&threads[i], NULL, churn, (void *)(i + 11)) == 0);
	unsigned long switches = switch_all(wanted ? atol(wanted) : 3);
	__atomic_store_n(&world.stop, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	end();
	int damages = kmem_check_all();
	printf("%lu switches, %lu calls, %lu objects that were not as left, %d damages\n", switches, world.calls,
	       world.wrong, damages);
	return world.wrong || damages;
}
