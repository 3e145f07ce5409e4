/*
 * visits: a visitor of kmem_for_each_cache reads and prints all figures, visits all caches again, tunes caches,
 * drains groups and sets their limits. Each of these calls ends, with the same effect as outside of a visit.
 * Disciplines: all.
 */
#include <fcntl.h>

#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "kit/api.h"

static struct kmem_cache *seen;
static struct mem_cgroup *group;
static int nowhere;
static int leaks, charged;	/* results outside of a visit: kmem_print_leaks, and the number of the group's
				 * caches */

static int count(struct kmem_cache *cache, void *visits)
{
	++*(int *)visits;
	return 0;
}

static int one_more(const char *name, size_t objects, uint64_t bytes, void *caches)
{
	NEED(objects && bytes);
	++*(int *)caches;
	return 0;
}

static int read_all(struct kmem_cache *cache, void *arg)
{
	int *visits = arg, again = 0, caches = 0;
	struct kmem_cache_stats stats;
	char text[4096];

	if (cache != seen)
		return count(cache, visits);
	kmem_cache_get_stats(cache, &stats);
	NEED(!strcmp(stats.name, "seen"));
	NEED(kmem_print_json(nowhere) == 0 && kmem_print_slabinfo(nowhere) == 0);
	NEED(kmem_print_leaks(nowhere) == leaks && kmem_check_all() == 0);
	NEED(kmem_for_each_cache(count, &again) == 0 && again > 1);
	NEED(mem_cgroup_write_stat(group, text, sizeof(text)) > 0);
	mem_cgroup_walk_caches(group, one_more, &caches);
	NEED(caches == charged);
	return count(cache, visits);
}

static int write_some(struct kmem_cache *cache, void *arg)
{
	if (cache != seen)
		return count(cache, arg);
	int tuned = kmem_cache_tune(cache, 10, 5, 1);
	NEED(tuned == kmem_slabinfo_write("seen 10 5 1"));
	NEED(kmem_cache_set_min_partial(cache, 3) == 0 && kmem_cache_min_partial(cache) == 3);
	mem_cgroup_drain(group);
	NEED(mem_cgroup_set_max(group, 1 << 20) == 0);
	return count(cache, arg);
}

static void each_ends(void)
{
	int first = 0, second = 0, third = 0;

	alarm(580);
	NEED((nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC)) >= 0);
	seen = make("seen", 100);
	void *object = kmem_cache_alloc(seen, GFP_KERNEL);
	NEED(object);
	NEED((group = mem_cgroup_create(NULL, "seen", 0)));
	void *paid = kmem_cache_alloc_in(seen, group, GFP_KERNEL);
	NEED(paid);
	leaks = kmem_print_leaks(nowhere);
	mem_cgroup_walk_caches(group, one_more, &charged);
	NEED(kmem_for_each_cache(read_all, &first) == 0);
	NEED(kmem_for_each_cache(write_some, &second) == 0);
	NEED(kmem_for_each_cache(count, &third) == 0 && first == second && second == third);
	kmem_cache_free(seen, object);
	kmem_cache_free(seen, paid);
	mem_cgroup_put(group);
	gone(seen);
	/* A cache can be created and destroyed again afterwards: no lock of a visit is held. */
	gone(make("after", 100));
	NEED(kmem_check_all() == 0);
}

static const struct test_case cases[] = { { "each call ends", each_ends } };
API_MAIN(cases)
