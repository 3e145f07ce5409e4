/*
 * left_cpus.c: threads that move leave no objects for long on former CPUs, although their caches are in use all the
 * time; on CPUs with misses all objects stay. The test sets the clock. Disciplines: all Not with hardened: no charged
 * object is cached.
 */
#define _GNU_SOURCE
#include <sched.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>

#include "kit/cpus.h"
#include "kit/check.h"
#include "kit/clock.h"
#include "alloc/fast_path.h"
#include "page/arena.h"
#include "kit/inside.h"

TEST_IS_INSIDE

#define OBJECTS 2000u	/* more than all sheaves and the barn hold: allocating and freeing them misses */
#define DECAY_MS 600000

static struct kmem_cache *cache;

static void miss(void)
{
	static void *objects[OBJECTS];

	for (unsigned i = 0; i < OBJECTS; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (unsigned i = 0; i < OBJECTS; i++)
		kmem_cache_free(cache, objects[i]);
}

static void reap(void)
{
	ahead_ms += DECAY_MS / 2 + 1000;
	struct km_busy_was was = km_busy_begin();
	for (int i = 0; i < 20; i++) {
		km_alloc_tick();
		ahead_ms += 1000;
	}
	km_busy_end(was);
}

/* For a charged cache the charged cached objects count. */
static size_t lies_on(unsigned cpu)
{
	return km_pcs_count_cpu(cache->memcg.charged.slot ? &cache->memcg.charged : &cache->fast.pcs, cpu);
}

static void wander(const unsigned cpus[2], const char *name, slab_flags_t flags)
{
	struct kmem_cache_args args = { .engine = "sheaf" };

	NEED(go_to_cpu((int)cpus[0]));
	NEED((cache = kmem_cache_create(name, 64, &args, flags)));
	km_arena_set(false, DECAY_MS);
	miss();
	NEED(go_to_cpu((int)cpus[1]));
	miss();
	NEED(lies_on(cpus[0]) && lies_on(cpus[1]));
	/* Threads on both. */
	for (int i = 0; i < 6; i++) {
		NEED(go_to_cpu((int)cpus[i % 2]));
		miss();
		NEED(go_to_cpu((int)cpus[(i + 1) % 2]));
		miss();
		reap();
		CHECK(lies_on(cpus[0]) && lies_on(cpus[1]));
	}
	/* No misses on the first CPU any more: its objects stay as long as objects of an idle cache, and then go. */
	NEED(go_to_cpu((int)cpus[1]));
	for (int i = 0; i < 4; i++) {
		miss();
		reap();
		CHECK(lies_on(cpus[1]));
		CHECK(i != 0 || lies_on(cpus[0]));
	}
	CHECK(!lies_on(cpus[0]));
	/* A returning thread finds an ordinary CPU. */
	NEED(go_to_cpu((int)cpus[0]));
	miss();
	CHECK(lies_on(cpus[0]));
	NEED(kmem_check_all() == 0);
	kmem_cache_destroy(cache);
}

int main(void)
{
	unsigned cpus[2] = { (unsigned)cpu_at(0), (unsigned)cpu_at(1) };

	if (cpu_at(1) < 0)
		return 77;
	wander(cpus, "wandering", 0);
	struct mem_cgroup *group = mem_cgroup_create(NULL, "wanders", 0);
	NEED(group);
	mem_cgroup_set_default(group);
	wander(cpus, "charged", SLAB_ACCOUNT);
	return failures != 0;
}
