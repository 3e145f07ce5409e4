/*
 * hopeless_requests.c: a request that no reclaim can serve takes no memory from other users: a length beyond the
 * address space, beyond a limit or the system's memory, a charge above a group's max. Objects cached on CPUs stay,
 * cached large blocks keep their memory, no shrinker is called, and the number of system calls is low for any number
 * of caches. A request that some caches can serve is served, and the other caches keep their objects. Not with nodes:
 * large blocks begin as the system makes them, and none lies ready. With hardened: quarantine:0, because freed
 * objects must be cached.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "kit/cases.h"
#include "page/arena.h"
#include "page/huge_cache.h"
#include "os/os.h"

#define CACHES	200u
#define QUIET	(GFP_KERNEL | __GFP_NOWARN)
#define MIB	((size_t)1 << 20)

static struct kmem_cache *caches[CACHES];
static void *kept;			/* a large block in use, so that others may be cached */
static size_t lying;			/* pages of these */
static unsigned asked;			/* calls for address space */
static bool refusing;			/* ... and all are refused */

static bool count(const char *call)
{
	bool asks = !strcmp(call, "map") || !strcmp(call, "reserve") || !strcmp(call, "remap");

	asked += asks;
	return refusing && (asks || !strncmp(call, "commit", 6));
}

static unsigned long ready(const struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats((struct kmem_cache *)cache, &stats);
	return stats.shelf_objects;
}

/* Caches with an object in a sheaf. */
static unsigned filled(void)
{
	unsigned many = 0;

	for (unsigned i = 0; i < CACHES; i++)
		many += ready(caches[i]) != 0;
	return many;
}

static void make_caches(void)
{
	km_arena_set(false, 3600000);
	for (unsigned i = 0; i < CACHES; i++) {
		char name[32];

		snprintf(name, sizeof(name), "hopeful_%u", i);
		NEED((caches[i] = kmem_cache_create(name, 64 + i % 20 * 16, 0, 0, NULL)));
		kmem_cache_free(caches[i], kmem_cache_alloc(caches[i], GFP_KERNEL));
	}
	NEED(filled() == CACHES);
	NEED((kept = malloc(64 * MIB)));
	km_os_fault = count;
}

/* Refused, with a few questions, and nothing was given back. */
static void refused(size_t bytes)
{
	asked = 0;
	errno = 0;
	CHECK(!malloc(bytes) && errno == ENOMEM);
	errno = 0;
	CHECK(!realloc(kept, bytes) && errno == ENOMEM);
	errno = 0;
	CHECK(!aligned_alloc(4 * MIB, bytes) && errno == ENOMEM);
	CHECK(asked <= 30);
	CHECK_EQUAL(filled(), CACHES);
	CHECK_EQUAL(km_huge_cache.pages, lying);
}

static void beyond_all(void)
{
	make_caches();
	void *block = malloc(8 * MIB);
	NEED(block);
	free(block);
	lying = 8 * MIB / KM_PAGE_SIZE;
	NEED(km_huge_cache.pages == lying);
	for (unsigned shift = 47; shift < 64; shift++)
		refused((size_t)1 << shift);
	refused(SIZE_MAX - 4096);
}

static void beyond_limit(int resource)
{
	struct rlimit limit = { 1ul << 30, 1ul << 30 };

	make_caches();
	NEED(setrlimit(resource, &limit) == 0);
	refused(2ul << 30);
	refused(1ul << 40);
	/* Most of the memory is available for smaller requests. */
	void *p = malloc(400 * MIB);
	CHECK(p);
	free(p);
}

static void beyond_addresses(void)
{
	beyond_limit(RLIMIT_AS);
}

static void beyond_data(void)
{
	beyond_limit(RLIMIT_DATA);
}

static unsigned shrinks;

static uint64_t shrink_nothing(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	(void)group, (void)bytes, (void)arg;
	shrinks++;
	return 0;
}

static bool raise_max(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	unsigned *times = arg;

	return ++*times > 1 && mem_cgroup_set_max(group, 2 * bytes) == 0;
}

/*
 * A charge above max is refused at once; the out-of-memory callback is called all the same, because the
 * callback may raise max.
 */
static void beyond_max(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "small", 0);
	unsigned times = 0;

	NEED(group && mem_cgroup_set_max(group, MIB) == 0);
	NEED(mem_cgroup_add_shrinker(group, 0, shrink_nothing, NULL));
	mem_cgroup_set_oom_callback(group, raise_max, &times);
	struct kmem_cache *cache = kmem_cache_create("charged", 128, 0, SLAB_ACCOUNT, NULL);
	NEED(cache);
	set_active_memcg(group);
	kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
	unsigned long before = ready(cache), current = mem_cgroup_current(group);
	CHECK(!kvmalloc(2 * MIB, QUIET | __GFP_ACCOUNT) && times == 1);
	CHECK(ready(cache) == before && mem_cgroup_current(group) == current && !shrinks);
	void *p = kvmalloc(2 * MIB, QUIET | __GFP_ACCOUNT);
	CHECK(p && times == 2);
	/* A request that a reclaim could serve starts a reclaim. */
	mem_cgroup_set_oom_callback(group, NULL, NULL);
	CHECK(!kvmalloc(3 * MIB, QUIET | __GFP_ACCOUNT) && shrinks);
	kvfree(p);
	set_active_memcg(NULL);
}

/* A request for a slab; each cache here has one slab without allocated objects, except for cached ones. */
static void in_proportion(void)
{
	struct kmem_cache *wanting = kmem_cache_create("wanting", 1024, 0, 0, NULL);
	unsigned before, left;

	make_caches();
	NEED(wanting);
	refusing = true;
	/* Until the free pages are used up, and one cache after the other had to give. */
	do {
		before = filled();
		NEED(kmem_cache_alloc(wanting, QUIET));
		left = filled();
	} while (before == left);
	/* A slab has at most 8 pages, a cache gives one at least. */
	CHECK(before - left <= 32 && left);
	while (kmem_cache_alloc(wanting, QUIET))
		;
	CHECK_EQUAL(filled(), 0);
	CHECK_EQUAL(kmem_check_all(), 0);
}

static const struct test_case cases[] = {
	{ "beyond all address space", beyond_all },
	{ "beyond a limit on addresses", beyond_addresses },
	{ "beyond a limit on data", beyond_data },
	{ "beyond a group's max", beyond_max },
	{ "in proportion", in_proportion },
};

int main(void)
{
	return run_cases(cases, sizeof(cases) / sizeof(cases[0]), "requests");
}
