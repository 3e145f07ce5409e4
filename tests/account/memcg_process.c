/*
 * memcg_process.c: a group made for the process by options, and groups of the program: these are below the process's
 * group, and within its limit, with any actions of the program. Disciplines: all.
 */
#include "kit/charged_objects.h"

#define LIMIT	(8ul << 20)

static struct mem_cgroup *whole;

static int first(struct mem_cgroup *group, unsigned depth, void *arg)
{
	(void)arg;
	if (depth != 1)
		return 0;
	whole = group;
	return 1;
}

/* The group of the process. */
static void look(void)
{
	NEED(mem_cgroup_walk(NULL, first, NULL) == 1 && strcmp(mem_cgroup_name(whole), "whole") == 0);
	NEED(mem_cgroup_max(whole) == LIMIT && mem_cgroup_parent(whole) == mem_cgroup_root());
}

static void below_it(void)
{
	struct mem_cgroup *named, *unnamed, *private;

	look();
	NEED((named = group_below(mem_cgroup_root(), "a")) && (unnamed = group_below(NULL, "b")));
	private = private_group("c");
	NEED(mem_cgroup_parent(named) == whole && mem_cgroup_parent(unnamed) == whole);
	NEED(mem_cgroup_parent(private) == whole);
	struct mem_cgroup *deep = group_below(named, "deep");
	NEED(mem_cgroup_parent(deep) == named);
	mem_cgroup_put(deep);
	mem_cgroup_put(named);
	mem_cgroup_put(unnamed);
	mem_cgroup_put(private);
}

/* Allocates objects of 1000 bytes until a refusal. */
static size_t until_refused(struct kmem_cache *cache)
{
	static void *objects[LIMIT / 1000 + 1];
	size_t count = 0;

	while (count <= LIMIT / 1000 && (objects[count] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN)))
		count++;
	NEED(count <= LIMIT / 1000 && errno == ENOMEM && mem_cgroup_current(whole) <= LIMIT);
	for (size_t i = 0; i < count; i++)
		kmem_cache_free(cache, objects[i]);
	return count;
}

/* By any group, by the root, uncharged, by another default. */
static void has_its_limit(void)
{
	struct kmem_cache *cache = make("limited", 1000);
	const size_t least = LIMIT / 1000 * 9 / 10;

	look();
	struct mem_cgroup *a = group_below(NULL, "a"), *b = group_below(a, "b"), *c = private_group("c");
	struct mem_cgroup *objcgs[] = { NULL, mem_cgroup_root(), a, b, c, whole };

	for (int as_default = 0; as_default < 2; as_default++)
		for (int i = 0; i < 6; i++) {
			if (as_default)
				mem_cgroup_set_default(objcgs[i]);
			else
				set_active_memcg(objcgs[i]);
			NEED(as_default || mem_cgroup_active() == objcgs[i]);
			NEED(until_refused(cache) > least);
			set_active_memcg(NULL);
		}
	mem_cgroup_set_default(NULL);
	mem_cgroup_put(a);
	mem_cgroup_put(b);
	mem_cgroup_put(c);
	gone(cache);
}

/*
 * The program can drop the process's group, if the group has no children; then the program's groups
 * are children of the root.
 */
static void without_it(void)
{
	look();
	struct mem_cgroup *a = group_below(NULL, "a");
	NEED(mem_cgroup_offline(whole) == -EBUSY);
	mem_cgroup_put(a);
	NEED(mem_cgroup_offline(whole) == 0);
	a = group_below(NULL, "a");
	NEED(mem_cgroup_parent(a) == mem_cgroup_root());
	mem_cgroup_put(a);
}

static const struct test_case cases[] = {
	{ "below it", below_it },
	{ "has its limit", has_its_limit },
	{ "without it", without_it },
};

GROUPS_MAIN_OPTIONS(cases, ",memcg_limit:8M,memcg_group:whole")
