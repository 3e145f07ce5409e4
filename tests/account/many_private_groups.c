/*
 * many_private_groups.c: the cost of private groups grows with their number, not with its square: the test counts
 * calls of certain functions while many groups start and end. Disciplines: all. With hardened: own_addresses:0,
 * because here pages go from one name to another.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "page/arena.h"

#define GROUPS	1000u
#define FEWEST	64u		/* spares that wait for groups: the least number after so many groups, and
				 * the most */
#define MOST	192u
#define EACH	8u		/* child caches examined for each new or ended group, at most */

/* ------------------------------------------------------------------ what is counted */

static unsigned long looks, pieces, walks;

void __real_kmem_cache_get_stats(struct kmem_cache *cache, struct kmem_cache_stats *stats);
void __wrap_kmem_cache_get_stats(struct kmem_cache *cache, struct kmem_cache_stats *stats)
{
	looks++;
	__real_kmem_cache_get_stats(cache, stats);
}

void *__real_km_metadata_alloc(size_t bytes, bool may_wait);
void *__wrap_km_metadata_alloc(size_t bytes, bool may_wait)
{
	pieces++;
	return __real_km_metadata_alloc(bytes, may_wait);
}

int __real_km_pages_walk(int (*visit)(struct km_page *page, void *arg), void *arg);
int __wrap_km_pages_walk(int (*visit)(struct km_page *page, void *arg), void *arg)
{
	walks++;
	return __real_km_pages_walk(visit, arg);
}

static void count_anew(void)
{
	looks = pieces = walks = 0;
}

/* ------------------------------------------------------------------ groups */

static struct mem_cgroup *top, *group[GROUPS];
static struct kmem_cache *cache;
static void *object[GROUPS];

static struct mem_cgroup *private_group(void)
{
	struct mem_cgroup *made = mem_cgroup_create(top, "one", MEM_CGROUP_PRIVATE);

	if (!made)
		exit(1);
	return made;
}

/* So many groups, and an object in the name of each. */
static void come(void)
{
	for (unsigned i = 0; i < GROUPS; i++) {
		group[i] = private_group();
		MEMCG_SCOPE(group[i]);
		object[i] = kmem_cache_alloc(cache, GFP_KERNEL);
		CHECK(object[i]);
	}
}

static void go(void)
{
	for (unsigned i = 0; i < GROUPS; i++)
		mem_cgroup_put(group[i]);
}

static void free_all(void)
{
	for (unsigned i = 0; i < GROUPS; i++)
		kmem_cache_free(cache, object[i]);
}

static unsigned long stat_of(const char *key)
{
	char text[512];

	mem_cgroup_write_stat(top, text, sizeof(text));
	const char *line = strstr(text, key);
	return line ? strtoul(line + strlen(key), NULL, 10) : ~0ul;
}

static int is_spare(struct kmem_cache *one, void *count)
{
	*(unsigned *)count += strcmp(kmem_cache_name(one), "many:/") == 0;
	return 0;
}

static unsigned spares(void)
{
	unsigned count = 0;

	kmem_for_each_cache(is_spare, &count);
	return count;
}

static bool some_spares(void)
{
	return spares() >= FEWEST && spares() <= MOST;
}

static unsigned caches(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return stats.caches;
}

/* ------------------------------------------------------------------ */

/* Emptied, then ended: each group hands its child cache on, and this needs no memory. */
static void one_after_the_other(void)
{
	come();
	count_anew();
	CHECK(stat_of("slab ") == GROUPS * 4096ul);
	CHECK(walks <= 4);
	free_all();
	count_anew();
	go();
	CHECK(looks <= GROUPS * EACH && !pieces);
	CHECK(some_spares() && stat_of("dying ") == 0);
}

/* Ended with objects allocated: a few of the groups are examined at a time, and in the end all. */
static void left_behind(void)
{
	unsigned others = caches() - spares();

	come();
	CHECK(caches() == others + GROUPS && spares() == 0);
	count_anew();
	go();
	CHECK(looks <= GROUPS * EACH && looks >= GROUPS);
	CHECK(stat_of("dying ") == GROUPS && stat_of("slab ") == GROUPS * 4096ul);
	free_all();
	count_anew();
	for (unsigned i = 0; i < GROUPS; i++)
		mem_cgroup_put(private_group());
	CHECK(looks <= GROUPS * EACH * 2 && some_spares());
	CHECK(stat_of("dying ") == 0 && caches() == others + spares());
}

/* No group need come for the last ones to be gone. */
static void asked_for(void)
{
	come();
	go();
	CHECK(stat_of("dying ") == GROUPS);
	for (unsigned i = 1; i < GROUPS; i++)
		kmem_cache_free(cache, object[i]);
	CHECK(stat_of("dying ") == 1 && some_spares());
	kmem_cache_free(cache, object[0]);
	CHECK(stat_of("dying ") == 0 && some_spares());
}

/* A group emptied again and again takes one spare, keeps the spare, and leaves the spare at its end. */
static void emptied_in_turn(void)
{
	struct mem_cgroup *tenant = private_group();
	unsigned before = spares();

	for (unsigned i = 0; i < 100; i++) {
		MEMCG_SCOPE(tenant);
		CHECK(kmem_cache_alloc(cache, GFP_KERNEL));
		CHECK(spares() == before - 1);
		CHECK(mem_cgroup_destroy_all(tenant, NULL, NULL) == 0);
		CHECK(spares() == before - 1);
	}
	mem_cgroup_put(tenant);
	CHECK(spares() == before);
}

int main(void)
{
	top = mem_cgroup_create(NULL, "top", 0);
	cache = kmem_cache_create("many", 100, NULL, SLAB_ACCOUNT);
	if (!top || !cache)
		return 1;
	one_after_the_other();
	left_behind();
	asked_for();
	emptied_in_turn();
	come();
	free_all();
	go();
	unsigned before = caches() - spares();
	CHECK(some_spares());
	kmem_cache_destroy(cache);
	CHECK(caches() < before && spares() == 0);
	mem_cgroup_put(top);
	return failures != 0;
}
