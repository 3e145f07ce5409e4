/*
 * private_groups_interrupted.c: a handler may allocate for a private group at any instruction, also in the middle of
 * a request for another group or for the same: each request gets its object, and its group is charged. Here a handler
 * runs before and after each call of the child cache's fast path, and after each charge. Disciplines: all.
 */
#include "kit/charged_objects.h"

#include "os/lock.h"

enum { MANY = 300, EACH = 3 };

static struct kmem_cache *struck, *others;
static struct mem_cgroup *objcg;	/* of what the handler allocates */
static void *kept[4096];
/* volatile: the compiler assumes that raise calls no function of this file. */
static volatile unsigned kept_count, strikes;
static volatile bool on;

static void handler(int signal)
{
	(void)signal;
	strikes = strikes + 1;
	/* Zeroed, so that no request is a hit. */
	for (int i = 0; i < EACH && kept_count < sizeof(kept) / sizeof(kept[0]); i++)
		if ((kept[kept_count] = kmem_cache_alloc_in(others, objcg, GFP_ATOMIC | __GFP_ZERO)))
			kept_count = kept_count + 1;
}

static void strike(void)
{
	if (!on || km_thread.busy)
		return;
	on = false;
	raise(SIGUSR1);
	on = true;
}

void *__real_kmem_cache_alloc(struct kmem_cache *cache, gfp_t gfp);
void *__wrap_kmem_cache_alloc(struct kmem_cache *cache, gfp_t gfp)
{
	strike();
	void *object = __real_kmem_cache_alloc(cache, gfp);
	strike();
	return object;
}

bool __real_km_objcg_charge(void *objcg, uint64_t bytes, gfp_t gfp);
bool __wrap_km_objcg_charge(void *objcg, uint64_t bytes, gfp_t gfp)
{
	bool done = __real_km_objcg_charge(objcg, bytes, gfp);

	strike();
	return done;
}

static void free_kept(void)
{
	for (unsigned i = 0; i < kept_count; i++)
		kmem_cache_free(others, kept[i]);
	kept_count = 0;
}

static void begin(struct mem_cgroup *group, struct mem_cgroup *handlers)
{
	/* A request that may wait creates the child cache. */
	struck = charged("struck", 2000);
	others = charged("others", 3000);
	kmem_cache_free(struck, kmem_cache_alloc_in(struck, group, GFP_KERNEL));
	kmem_cache_free(others, kmem_cache_alloc_in(others, handlers, GFP_KERNEL));
	objcg = handlers;
	signal(SIGUSR1, handler);
}

static void end(void)
{
	on = false;
	NEED(strikes);
	gone(struck);
	gone(others);
}

/* A request with __GFP_NOFAIL succeeds at the group's max. */
static void no_failure(void)
{
	struct mem_cgroup *group = private_group("full"), *handlers = private_group("handlers");
	static void *objects[MANY];

	begin(group, handlers);
	mem_cgroup_set_max(group, 100 << 10);
	on = true;
	for (int i = 0; i < MANY; i++)
		NEED((objects[i] = kmem_cache_alloc_in(struck, group, GFP_KERNEL | __GFP_NOFAIL)));
	on = false;
	NEED(mem_cgroup_current(group) >= MANY * 2000ul);
	for (int i = 0; i < MANY; i++)
		kmem_cache_free(struck, objects[i]);
	free_kept();
	NEED(drained(group) == 0 && drained(handlers) == 0);
	end();
}

static volatile uint64_t ballast;

static uint64_t shrink(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	(void)arg;
	bytes = bytes < ballast ? bytes : ballast;
	ballast = ballast - bytes;
	mem_cgroup_uncharge(group, bytes);
	return bytes;
}

/* Bytes charged ahead for a slab are a slab's, or are uncharged: the handler's group is the same. */
static void charged_once(void)
{
	struct mem_cgroup *group = private_group("one");
	static void *objects[MANY];

	begin(group, group);
	mem_cgroup_set_max(group, 32 << 20);
	NEED(mem_cgroup_add_shrinker(group, 0, shrink, NULL));
	ballast = 31 << 20;
	NEED(charge(group, ballast));
	on = true;
	for (int i = 0; i < MANY; i++)
		NEED((objects[i] = kmem_cache_alloc_in(struck, group, GFP_KERNEL)));
	on = false;
	NEED(ballast < 31 << 20);
	for (int i = 0; i < MANY; i++)
		kmem_cache_free(struck, objects[i]);
	free_kept();
	mem_cgroup_uncharge(group, ballast);
	NEED(drained(group) == 0);
	end();
}

static const struct test_case cases[] = {
	{ "no failure", no_failure },
	{ "charged once", charged_once },
};

GROUPS_MAIN(cases)
