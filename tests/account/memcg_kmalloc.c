/*
 * memcg_kmalloc.c: kmalloc with __GFP_ACCOUNT takes an object of the CPU's charged sheaf before the owner is known.
 * Here: when this happens, and that the group in whose name an object is allocated is charged, for any earlier owner:
 * while one group is charged, after the second, with several, with none, and with the process's default group.
 * Disciplines: all.
 */
#define _GNU_SOURCE
#include "kit/charged_cpus.h"

#include "memcg/charged_sheaf.h"

enum { SOME = 24, BYTES = 200 };

static struct kmem_cache *cache;
static struct mem_cgroup *one, *two;
static void *objects[SOME];

static void *get(struct mem_cgroup *group)
{
	MEMCG_SCOPE(group);
	return kmalloc(BYTES, GFP_KERNEL_ACCOUNT);
}

/* Each case has a process of its own, without earlier charges. */
static void begin(void)
{
	one = group_below(NULL, "one");
	two = group_below(NULL, "two");
	cache = km_kmalloc_cache_by(BYTES, __GFP_ACCOUNT);
	NEED(cache && km_charges_all(cache));
}

static void end(void)
{
	NEED(drained(one) == 0 && drained(two) == 0);
	mem_cgroup_put(two);
	mem_cgroup_put(one);
}

/* The sizes lead to the blocks while frees put objects there. */
static bool is_shown(void)
{
	for (uint32_t i = 1; i < cache->registry.size_count; i++)
		NEED(cache->registry.size_ids[i] == cache->registry.size_ids[0]);
	NEED(!cache->registry.size_ids[0] || cache->registry.size_ids[0] == cache->fast.id);
	return cache->registry.size_ids[0];
}

static void is_right(size_t ones, size_t twos)
{
	NEED(drained(one) == ones * cost(cache) && drained(two) == twos * cost(cache));
}

static void is_charged_to(const void *object, struct mem_cgroup *group)
{
	struct mem_cgroup *objcg = mem_cgroup_from_obj(object);

	NEED(objcg == group);
	mem_cgroup_put(objcg);
}

/* One group, then a second; the second's first objects were freed by the first. */
static void second_comes(void)
{
	begin();
	NEED(!is_shown());
	for (int i = 0; i < SOME; i++)
		NEED((objects[i] = get(one)));
	NEED(is_shown() == has_blocks(cache));
	for (int i = 0; i < SOME / 2; i++)
		kfree(objects[i]);
	void *last = objects[SOME / 2 - 1], *object = get(one);
	if (has_blocks(cache))
		NEED(object == last);
	kfree(object);
	/* Closed for a drain, and open again. */
	is_right(SOME / 2, 0);
	NEED(is_shown() == has_blocks(cache));
	for (int i = 0; i < SOME / 2; i++)
		NEED((objects[i] = get(one)));
	for (int i = 0; i < SOME / 2; i++)
		kfree(objects[i]);
	for (int i = 0; i < SOME / 2; i++) {
		NEED((objects[i] = get(two)));
		is_charged_to(objects[i], two);
	}
	NEED(is_shown() == has_blocks(cache));
	is_right(SOME / 2, SOME / 2);
	for (int i = 0; i < SOME; i++)
		kfree(objects[i]);
	is_right(0, 0);
	end();
}

/* A sheaf owned by the first group at the second's arrival has no owner any more. */
static void block_is_no_ones(void)
{
	begin();
	for (int i = 0; i < SOME; i++)
		NEED((objects[i] = get(i % 2 ? two : one)));
	for (unsigned cpu = 0; has_blocks(cache) && cpu < km_percpu.cpus; cpu++)
		NEED(km_owned_owner_cpu(&cache->memcg.charged, cpu) <= KM_OBJCGS_DIFFER);
	for (int i = 0; i < SOME; i++)
		kfree(objects[i]);
	for (int i = 0; i < SOME; i++) {
		NEED((objects[i] = get(i % 2 ? one : two)));
		is_charged_to(objects[i], i % 2 ? one : two);
	}
	is_right(SOME / 2, SOME / 2);
	for (int i = 0; i < SOME; i++)
		kfree(objects[i]);
	is_right(0, 0);
	end();
}

/*
 * A thread that read the cache's state before the second group, and sets up a sheaf afterwards, sets no single owner.
 */
static void block_that_comes_late(void)
{
	begin();
	kfree(get(one));
	kfree(get(two));
	is_right(0, 0);
	if (has_blocks(cache)) {
		const uintptr_t owner = 0x1000;

		NEED(!lies_charged(cache) && !km_owned_owner(&cache->memcg.charged));
		NEED(km_charged_found(cache, owner));
		NEED(km_owned_owner(&cache->memcg.charged) == KM_OBJCGS_DIFFER);
	}
	end();
}

/* The thread has no group: uncharged, or charged to the process's default group. */
static void not_said(void)
{
	struct mem_cgroup *defaults[] = { NULL, one, two, mem_cgroup_root() };

	begin();
	defaults[1] = one;
	defaults[2] = two;
	for (size_t n = 0; n < sizeof(defaults) / sizeof(defaults[0]); n++) {
		struct mem_cgroup *objcg = n == 1 || n == 2 ? defaults[n] : NULL;

		for (int i = 0; i < SOME; i++)
			NEED((objects[i] = get(one)));
		for (int i = 0; i < SOME; i++)
			kfree(objects[i]);
		mem_cgroup_set_default(defaults[n]);
		for (int i = 0; i < SOME; i++) {
			NEED((objects[i] = kmalloc(BYTES, GFP_KERNEL_ACCOUNT)));
			is_charged_to(objects[i], objcg);
		}
		mem_cgroup_set_default(NULL);
		is_right(objcg == one ? SOME : 0, objcg == two ? SOME : 0);
		for (int i = 0; i < SOME; i++)
			kfree(objects[i]);
	}
	is_right(0, 0);
	end();
}

/* A group at its limit gets no object charged to another group. */
static void at_a_limit(void)
{
	begin();
	NEED(mem_cgroup_set_max(two, 4 * cost(cache)) == 0);
	for (int i = 0; i < SOME; i++)
		NEED((objects[i] = get(one)));
	for (int i = 0; i < SOME; i++)
		kfree(objects[i]);
	for (int i = 0; i < 4; i++)
		NEED((objects[i] = get(two)));
	for (int i = 0; i < 4; i++) {
		MEMCG_SCOPE(two);
		NEED(!kmalloc(BYTES, GFP_KERNEL_ACCOUNT | __GFP_NOWARN) && errno == ENOMEM);
	}
	is_right(0, 4);
	for (int i = 0; i < 4; i++)
		kfree(objects[i]);
	end();
}

static const struct test_case cases[] = {
	{ "second comes", second_comes },
	{ "block is no one's", block_is_no_ones },
	{ "block that comes late", block_that_comes_late },
	{ "not said", not_said },
	{ "at a limit", at_a_limit },
};

CHARGED_MAIN(cases)
