/*
 * mixed_meanwhile.c: a cache gets its second objcg in the middle of another thread's call: before each look at a
 * charged sheaf, and each operation on one, made by a drain, an allocation or a free. From then on charged sheaves may
 * be mixed, and the owner word of a sheaf names no objcg. No call follows such a word, each object is charged to its
 * group, and in the end all bytes are exact. Disciplines: all.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>

#include "kit/cases.h"
#include "kit/cpus.h"
#include "kit/groups.h"

#include "alloc/alloc_ops.h"
#include "memcg/charged_sheaf.h"

enum { OBJECTS = 60, FREED = 30, MOST = 40 };
enum { FIRST, SECOND, PRIVATE, UNCHARGED, OBJCGS };

/* ------------------------------------------------------------------ a point of a call */

static struct kmem_cache *cache;
static struct mem_cgroup *groups[OBJCGS];
static __thread bool calls;		/* the thread with the tested calls */
static int points;			/* to be passed; -1: the last was reached */
static bool struck;
static int comer;			/* the second objcg */
static void *others;			/* its object */
static sem_t go, gone;

static void *alloc_for(int objcg)
{
	MEMCG_SCOPE(groups[objcg]);
	return kmem_cache_alloc(cache, GFP_KERNEL);
}

static void *come(void *unused)
{
	for (;;) {
		while (sem_wait(&go))
			;
		others = alloc_for(comer);
		sem_post(&gone);
	}
	return unused;
}

static bool has_come(void)
{
	const uint32_t state = km_load(&cache->memcg.charging) & ~KM_CHARGING_PARENT;

	return state != KM_CHARGING_ONE && state != KM_CHARGING_ONE_OWNED && state != KM_CHARGING_DUE;
}

/* From here on the call finds several objcgs. The other thread may wait for the call's end, for its object. */
static void point(void)
{
	if (!calls || points < 0 || points-- || km_load(&km_drain_lock.state) || has_come() ||
	    (comer == PRIVATE && km_registry_is_mine()))
		return;
	struck = true;
	sem_post(&go);
	while (!has_come())
		sched_yield();
}

#define POINT(type, name, parameters, arguments)                                                   \
	type __real_##name parameters;                                                             \
	type __wrap_##name parameters                                                              \
	{                                                                                          \
		point();                                                                           \
		return __real_##name arguments;                                                    \
	}
POINT(uintptr_t, km_owned_owner_cpu, (const struct km_pcs *pcs, unsigned cpu), (pcs, cpu))
POINT(uintptr_t, km_owned_owner, (const struct km_pcs *pcs), (pcs))
POINT(size_t, km_pcs_count_cpu, (const struct km_pcs *pcs, unsigned cpu), (pcs, cpu))
POINT(bool, km_memcg_below, (const struct obj_cgroup *objcg, const struct mem_cgroup *root), (objcg, root))
POINT(void *, km_owned_pop, (struct km_pcs *pcs, uintptr_t owner), (pcs, owner))
POINT(bool, km_owned_push, (struct km_pcs *pcs, uintptr_t owner, void *object), (pcs, owner, object))
POINT(size_t, km_owned_pop_n, (struct km_pcs *pcs, uintptr_t owner, void **out, size_t n), (pcs, owner, out, n))
POINT(size_t, km_owned_push_n, (struct km_pcs *pcs, uintptr_t owner, void *const *in, size_t n), (pcs, owner, in, n))
POINT(bool, km_owned_adopt, (struct km_pcs *pcs, uintptr_t owner), (pcs, owner))
POINT(bool, km_owned_install, (struct km_pcs *pcs, void **sheaf, uintptr_t owner), (pcs, sheaf, owner))
POINT(uint64_t, km_objcg_spare, (const struct obj_cgroup *objcg), (objcg))
POINT(bool, km_objcg_charge, (struct obj_cgroup *objcg, uint64_t bytes, gfp_t gfp), (objcg, bytes, gfp))
POINT(void, km_objcg_uncharge, (struct obj_cgroup *objcg, uint64_t bytes), (objcg, bytes))
POINT(bool, km_objcgs_note, (struct kmem_cache *of, uint64_t owner, bool may_wait), (of, owner, may_wait))

/* ------------------------------------------------------------------ what may be under way */

static void *objects[OBJECTS + MOST];
static size_t count;

static void nothing(void) { }
static void drain_first(void) { mem_cgroup_drain(groups[FIRST]); }
static void drain_second(void) { mem_cgroup_drain(groups[SECOND]); }
static void drain_root(void) { mem_cgroup_drain(mem_cgroup_root()); }
static void shrink(void) { kmem_cache_shrink(cache); }

static void alloc_one(void)
{
	objects[count] = alloc_for(FIRST);
	NEED(objects[count++]);
}

static void alloc_many(void)
{
	MEMCG_SCOPE(groups[FIRST]);
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, MOST, objects + count));
	count += MOST;
}

static void alloc_zeroed(void)
{
	MEMCG_SCOPE(groups[FIRST]);
	objects[count] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_ZERO);
	NEED(objects[count++]);
}

static void free_one(void) { kfree(objects[--count]); }

static void free_many(void)
{
	count -= FREED;
	kmem_cache_free_bulk(cache, FREED, objects + count);
}

static void free_all(void)
{
	while (count)
		kmem_cache_free(cache, objects[--count]);
}

static const struct call {
	const char *name;
	void (*before)(void), (*call)(void);
} tested[] = {
	{ "drain", nothing, drain_first }, { "drain of another", nothing, drain_second },
	{ "drain of all", nothing, drain_root }, { "shrink", nothing, shrink },
	{ "allocate", nothing, alloc_one }, { "allocate after a drain", drain_first, alloc_one },
	{ "allocate many", nothing, alloc_many }, { "allocate many after a drain", drain_first, alloc_many },
	{ "allocate zeroed", nothing, alloc_zeroed }, { "allocate zeroed after a drain", drain_first, alloc_zeroed },
	{ "free", nothing, free_one }, { "free after a drain", drain_first, free_one },
	{ "free many", nothing, free_many }, { "free many after a drain", drain_first, free_many },
	{ "free all", nothing, free_all },
};

/* ------------------------------------------------------------------ each at each point */

static unsigned strikes;

static void is_charged_to(void *object, int objcg)
{
	struct mem_cgroup *group = mem_cgroup_from_obj(object);

	NEED(group == groups[objcg]);
	mem_cgroup_put(group);
}

/* Returns: false if the call has no such point. */
static bool strike_at(const struct call *each, int at, const char *engine)
{
	struct kmem_cache_args args = { .engine = engine };

	cache = kmem_cache_create_args("mixed", 200, &args, SLAB_ACCOUNT | SLAB_NO_MERGE);
	NEED(cache);
	for (count = 0; count < OBJECTS;)
		alloc_one();
	free_many();
	each->before();
	points = at;
	struck = false;
	others = NULL;
	calls = true;
	each->call();
	calls = false;
	const bool reached = points < 0;
	if (struck)
		while (sem_wait(&gone))
			;
	strikes += struck;
	NEED(!struck || others, "%s, %d", each->name, at);
	for (size_t i = 0; i < count; i++)
		is_charged_to(objects[i], FIRST);
	if (others) {
		is_charged_to(others, comer);
		kmem_cache_free(cache, others);
	}
	free_all();
	kmem_cache_shrink(cache);
	for (int i = 0; i < UNCHARGED; i++)
		NEED(!drained(groups[i]), "%s, %d, %s: %lu", each->name, at, engine, (unsigned long)drained(groups[i]));
	kmem_cache_destroy(cache);
	return reached;
}

int main(void)
{
	static const char *const engines[] = { "sheaf", "slab" };
	pthread_t thread;

	for (int i = 0; cpu_at(i) >= 0; i++) {
		NEED(go_to_cpu(cpu_at(i)));
		kfree(kmalloc(1, GFP_KERNEL));
		mem_cgroup_put(group_below(NULL, "first"));
	}
	go_anywhere();
	if (CPU_COUNT(all_cpus()) < 2) {
		printf("the other thread needs a stock of its own\n");
		return 77;
	}
	for (int i = 0; i < UNCHARGED; i++)
		groups[i] = i == PRIVATE ? private_group("private") : group_below(NULL, "group");
	sem_init(&go, 0, 0);
	sem_init(&gone, 0, 0);
	NEED(pthread_create(&thread, NULL, come, NULL) == 0);
	for (unsigned e = 0; e < 2; e++)
		for (comer = SECOND; comer < OBJCGS; comer++)
			for (size_t i = 0; i < sizeof(tested) / sizeof(tested[0]); i++)
				for (int at = 0; strike_at(&tested[i], at, engines[e]); at++)
					;
	NEED(strikes > 200, "%u", strikes);
	for (int i = 0; i < UNCHARGED; i++)
		mem_cgroup_put(groups[i]);
	NEED(kmem_check_all() == 0);
	return failures != 0;
}
