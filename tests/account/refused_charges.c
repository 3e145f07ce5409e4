/*
 * refused_charges.c: the cost of a charge that a limit refuses: the examination of charged and unused bytes below the
 * group. The charge makes no system call, and examines no cache without cached objects, for any number of caches. A
 * request larger than the cached bytes drains nothing. And cached bytes below the group are always found: in sheaves
 * and stocks of other CPUs, of child groups, among other groups' objects, in private caches. Disciplines: all Not
 * with engine: the other engines have no charged sheaves, or slabs on CPUs. With hardened:
 * quarantine:0, because freed objects must be cached.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <kmem/stats.h>

#include "kit/cases.h"
#include "kit/cpus.h"
#include "kit/groups.h"
#include "os/os.h"
#include "percpu/pcpu.h"

#define CACHES	300u
#define QUIET	(GFP_KERNEL | __GFP_NOWARN)
#define MIB	(1ul << 20)

/* System calls; sheaves of CPUs, and private caches, examined. */
static unsigned fences, looks;

static bool count_fence(const char *call)
{
	fences += !strcmp(call, "fence");
	return false;
}

uintptr_t __real_km_owned_owner_cpu(const struct km_pcs *pcs, unsigned cpu);
uintptr_t __wrap_km_owned_owner_cpu(const struct km_pcs *pcs, unsigned cpu);
uintptr_t __wrap_km_owned_owner_cpu(const struct km_pcs *pcs, unsigned cpu)
{
	looks++;
	return __real_km_owned_owner_cpu(pcs, cpu);
}

void __real_kmem_cache_get_stats(struct kmem_cache *cache, struct kmem_cache_stats *stats);
void __wrap_kmem_cache_get_stats(struct kmem_cache *cache, struct kmem_cache_stats *stats);
void __wrap_kmem_cache_get_stats(struct kmem_cache *cache, struct kmem_cache_stats *stats)
{
	looks++;
	__real_kmem_cache_get_stats(cache, stats);
}

static struct kmem_cache *caches[CACHES];

static void make_caches(void)
{
	for (unsigned i = 0; i < CACHES; i++) {
		char name[32];

		snprintf(name, sizeof(name), "looked_at_%u", i);
		NEED((caches[i] = kmem_cache_create(name, 64 + i % 7 * 64, NULL, SLAB_ACCOUNT)));
	}
}

static void use_each(struct mem_cgroup *group)
{
	for (unsigned i = 0; i < CACHES; i++) {
		void *object = kmem_cache_alloc_in(caches[i], group, QUIET);

		if (object)
			kmem_cache_free(caches[i], object);
	}
}

/* A group at its limit, after a notification. */
static struct mem_cgroup *full(unsigned flags)
{
	struct mem_cgroup *group = group_of(NULL, "full", flags);

	NEED(mem_cgroup_set_max(group, MIB) == 0);
	while (kmalloc_in(group, 1000, QUIET))
		;
	NEED(!kmalloc_in(group, 1000, QUIET));
	km_os_fault = count_fence;
	return group;
}

static void refused(struct mem_cgroup *group, unsigned most_looks, unsigned most_fences)
{
	for (int i = 0; i < 3; i++) {
		fences = looks = 0;
		CHECK(!kmalloc_in(group, 1000, QUIET));
		CHECK(looks <= most_looks && fences <= most_fences, "%u looks, %u fences", looks, fences);
	}
}

static void idle_caches(void)
{
	make_caches();
	use_each(group_below(NULL, "other"));
	kmem_shrink_all();
	refused(full(0), 4 * km_percpu.cpus, 0);
}

static void others_caches(void)
{
	make_caches();
	struct mem_cgroup *group = full(0);
	use_each(group_below(NULL, "other"));
	refused(group, (CACHES + 4) * km_percpu.cpus, 0);
}

/* A private group's own request first drains its cache on other CPUs. */
static void private_caches(void)
{
	make_caches();
	struct mem_cgroup *group = group_of(NULL, "one", MEM_CGROUP_PRIVATE);
	NEED(mem_cgroup_set_max(group, CACHES * 40000ul) == 0);
	for (unsigned i = 0; i < CACHES; i++)
		NEED(kmem_cache_alloc_in(caches[i], group, QUIET));
	while (kmalloc_in(group, 1000, QUIET))
		;
	NEED(!kmalloc_in(group, 1000, QUIET));
	km_os_fault = count_fence;
	refused(group, 100, 16);
}

static unsigned long cached(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return stats.shelf_objects;
}

static void takes_nothing(void)
{
	struct mem_cgroup *group = group_below(NULL, "one");
	void *object[16];

	NEED(mem_cgroup_set_max(group, MIB) == 0);
	make_caches();
	for (int i = 0; i < 16; i++)
		NEED(object[i] = kmem_cache_alloc_in(caches[0], group, QUIET));
	NEED(charge(group, MIB / 2));
	for (int i = 0; i < 16; i++)
		kmem_cache_free(caches[0], object[i]);
	unsigned long before = cached(caches[0]);
	km_os_fault = count_fence;
	fences = 0;
	CHECK(mem_cgroup_charge(group, QUIET, MIB / 2 + 64));
	CHECK(!fences && cached(caches[0]) == before, "%u fences, %lu of %lu", fences, cached(caches[0]), before);
	mem_cgroup_uncharge(group, MIB / 2);
}

/* ------------------------------------------------------------------ cached bytes are found */

static struct {
	struct mem_cgroup *group;
	struct kmem_cache *cache;
	void *object[2000];
	unsigned count;
} given;

/* On another CPU, where there is one. */
static void *give(void *arg)
{
	if (cpu_at(1) >= 0)
		go_to_cpu(cpu_at(1));
	while (given.count)
		kmem_cache_free(given.cache, given.object[--given.count]);
	return arg;
}

static void take(struct kmem_cache *cache, struct mem_cgroup *group)
{
	given.cache = cache;
	while (given.count < 2000 && (given.object[given.count] = kmem_cache_alloc_in(cache, group, QUIET)))
		given.count++;
	NEED(given.count > 100 && given.count < 2000);
}

/*
 * `group` is `root` or below. All bytes that the group allocates and another CPU frees are available to
 * one charge.
 */
static void found(struct mem_cgroup *root, struct mem_cgroup *group, struct mem_cgroup *other)
{
	const unsigned long max = 256 << 10;
	struct kmem_cache *cache = kmem_cache_create("found", 256, NULL, SLAB_ACCOUNT);

	NEED(cache && mem_cgroup_set_max(root, max) == 0);
	for (int i = 0; i < 4; i++) {
		pthread_t thread;

		take(cache, group);
		void *others = other ? kmem_cache_alloc_in(cache, other, QUIET) : NULL;
		CHECK(mem_cgroup_charge(root, QUIET, max / 2));
		NEED(pthread_create(&thread, NULL, give, NULL) == 0);
		pthread_join(thread, NULL);
		CHECK(mem_cgroup_charge(root, QUIET, max) == 0, "round %d", i);
		mem_cgroup_uncharge(root, max);
		if (others)
			kmem_cache_free(cache, others);
	}
	kmem_cache_destroy(cache);
	CHECK_EQUAL(drained(root), 0);
}

static void in_itself(void)
{
	struct mem_cgroup *group = group_below(NULL, "one");

	found(group, group, NULL);
}

static void below(void)
{
	struct mem_cgroup *root = group_below(NULL, "root");

	for (int i = 0; i < 100; i++)
		group_below(root, "child");
	found(root, group_below(group_below(root, "one"), "child"), NULL);
}

static void among_others(void)
{
	struct mem_cgroup *group = group_below(NULL, "one");

	found(group, group, group_below(NULL, "other"));
}

static void in_private_caches(void)
{
	struct mem_cgroup *root = group_below(NULL, "root"), *group = group_of(root, "one", MEM_CGROUP_PRIVATE);

	found(root, group, NULL);
}

static const struct test_case cases[] = {
	{ "idle caches", idle_caches }, { "others' caches", others_caches }, { "private caches", private_caches },
	{ "takes nothing", takes_nothing }, { "in itself", in_itself }, { "below", below },
	{ "among others", among_others }, { "in private caches", in_private_caches },
};

int main(void)
{
	return run_cases(cases, sizeof(cases) / sizeof(cases[0]), "refused charges");
}
