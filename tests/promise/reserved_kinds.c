/*
 * reserved_kinds.c: kmem_reserve keeps its promise for caches of every kind: afterwards so many allocations and first
 * writes make no page fault, for new caches and for used caches: debugged, with a constructor, aligned to cache
 * lines, typesafe. The exceptions are named on the manual page: caches with SLAB_NODUMP, and caches of a private
 * group, get their pages at the first write, and no fewer objects. The library's clock stands still. With hardened:
 * own_addresses:0, because freed slabs would be out of reach.
 */
#define _GNU_SOURCE
#include <sched.h>

#include <kmem/memcg.h>

#include "kit/api.h"
#include "kit/clock.h"
#include "kit/cpus.h"
#include "kit/faults.h"

#define MANY	3000u
#define EACH	7u	/* one of so many objects stays allocated in a used cache */

static const unsigned sizes[] = { 24, 500, 2000, 5000 };
static char *objects[MANY], *kept[MANY];

static void take(struct kmem_cache *cache, unsigned size, char **to, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		NEED((to[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		memset(to[i], 1, size);
	}
}

static void give(struct kmem_cache *cache, char **from, unsigned each)
{
	for (unsigned i = 0; i < MANY; i++)
		if (from[i] && (!each || i % each)) {
			kmem_cache_free(cache, from[i]);
			from[i] = NULL;
		}
}

static void construct(void *object)
{
	memset(object, 2, 24);
}

static struct kmem_cache *cache_of(const char *name, unsigned size, slab_flags_t flags, bool constructed)
{
	struct kmem_cache_args args = { .ctor = constructed ? construct : NULL };
	struct kmem_cache *cache = kmem_cache_create(name, size, &args, flags);

	NEED(cache);
	return cache;
}

static void on_one_cpu(void)
{
	stay_here();
	memset(objects, 0, sizeof(objects));
	memset(kept, 0, sizeof(kept));
}

/* Everything is back, but what waits for a grace period. */
static void end(struct kmem_cache *cache, slab_flags_t flags)
{
	give(cache, objects, 0);
	give(cache, kept, 0);
	NEED(kmem_check_all() == 0);
	if (flags & SLAB_TYPESAFE_BY_RCU)
		kmem_cache_destroy(cache);
	else
		gone(cache);
	kmem_shrink_all();
}

/* The code has run before. */
static void warm(unsigned size, slab_flags_t flags, bool constructed)
{
	struct kmem_cache *cache = cache_of("warm", size + 8, flags, constructed);

	NEED(kmem_reserve(cache, 100) == 0);
	take(cache, size, objects, MANY);
	program_pages();
	end(cache, flags);
}

static long faults_of(unsigned size, slab_flags_t flags, bool constructed, bool used)
{
	struct kmem_cache *cache = cache_of("kind", size, flags, constructed);

	if (used) {
		take(cache, size, kept, MANY / 2);
		give(cache, kept, EACH);
	}
	NEED(kmem_reserve(cache, MANY) == 0);
	long before = page_faults();
	take(cache, size, objects, MANY);
	long came = page_faults() - before;
	end(cache, flags);
	return came;
}

static void kind(slab_flags_t flags, bool constructed)
{
	on_one_cpu();
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int used = 0; used < 2; used++) {
			long came = 1;

			warm(sizes[i], flags, constructed);
			for (int left = FAULTS_TRIES; came && left; left--)
				came = faults_of(sizes[i], flags, constructed, used);
			CHECK(!came, "%ld faults, size %u, used %d", came, sizes[i], used);
		}
}

static void poisoned(void)
{
	kind(SLAB_POISON, false);
}

static void red_zones(void)
{
	kind(SLAB_RED_ZONE, false);
}

static void users(void)
{
	kind(SLAB_STORE_USER, false);
}

static void all_debugging(void)
{
	kind(SLAB_CONSISTENCY_CHECKS | SLAB_POISON | SLAB_RED_ZONE | SLAB_STORE_USER, false);
}

static void checked(void)
{
	kind(SLAB_CONSISTENCY_CHECKS, false);
}

static void constructed(void)
{
	kind(0, true);
}

static void aligned(void)
{
	kind(SLAB_HWCACHE_ALIGN, false);
}

static void read_when_free(void)
{
	kind(SLAB_TYPESAFE_BY_RCU, false);
}

/* Here first writes fault; but objects are there, also where the system gives no more. */
static void not_dumped(void)
{
	on_one_cpu();
	warm(500, SLAB_NODUMP, false);
	long came = faults_of(500, SLAB_NODUMP, false, false);
	printf("%ld faults\n", came);
}

static void private(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "private", MEM_CGROUP_PRIVATE), *old;

	if (slob)
		return;
	NEED(group);
	on_one_cpu();
	old = set_active_memcg(group);
	warm(500, SLAB_ACCOUNT, false);
	long came = faults_of(500, SLAB_ACCOUNT, false, false);
	printf("%ld faults\n", came);
	set_active_memcg(old);
	mem_cgroup_put(group);
}

static const struct test_case cases[] = {
	{ "poisoned", poisoned },
	{ "red zones", red_zones },
	{ "users", users },
	{ "all debugging", all_debugging },
	{ "checked", checked },
	{ "constructed", constructed },
	{ "aligned", aligned },
	{ "read when free", read_when_free },
	{ "not dumped", not_dumped },
	{ "private", private },
};
API_MAIN(cases)
