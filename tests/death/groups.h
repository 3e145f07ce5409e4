/* groups.h: groups put or charged after their end, and an uncharge of bytes never charged. */
#ifndef DEATH_GROUPS_H
#define DEATH_GROUPS_H

#include <kmem/memcg.h>

static struct mem_cgroup *group_of(const char *name)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, name, 0);

	NEED(group);
	return blind(group);
}

static void group_put_twice(void)
{
	struct mem_cgroup *group = group_of("twice");

	mem_cgroup_put(group);
	expect("mem_cgroup_put(%p): group is gone", group);
	mem_cgroup_put(group);
	after_warning();
	mem_cgroup_put(group_of("another"));
}

/* The reference of the group below keeps the group. */
static void parent_put_twice(void)
{
	struct mem_cgroup *group = group_of("above"), *below = mem_cgroup_create(group, "below", 0);

	mem_cgroup_put(group);
	expect("mem_cgroup_put(%p): group is gone", group);
	alarm(580);
	mem_cgroup_put(group);
	after_warning();
	alarm(0);
	NEED(mem_cgroup_online(group) && mem_cgroup_charge(below, GFP_KERNEL, 64) == 0);
	mem_cgroup_uncharge(below, 64);
	mem_cgroup_put(below);
}

static void group_gone_active(void)
{
	struct mem_cgroup *group = group_of("active"), *other = group_of("other");

	set_active_memcg(group);
	mem_cgroup_put(group);
	expect("mem_cgroup_charge(%p): group is gone", group);
	NEED(mem_cgroup_charge(mem_cgroup_active(), GFP_KERNEL, 64) != 0);
	after_warning();
	set_active_memcg(other);
	NEED(mem_cgroup_charge(other, GFP_KERNEL, 64) == 0);
	mem_cgroup_uncharge(other, 64);
	set_active_memcg(NULL);
	mem_cgroup_put(other);
}

/* The next owner of such a group's memory must not be charged, for any number of new groups. */
static void group_gone_reused(void)
{
	struct mem_cgroup *group = group_of("active"), *others[100];

	set_active_memcg(group);
	mem_cgroup_put(group);
	for (int i = 0; i < 100; i++)
		others[i] = group_of("other");
	expect("mem_cgroup_charge(%p): group is gone", group);
	void *block = kmalloc(100 << 10, GFP_KERNEL_ACCOUNT);
	after_warning();
	NEED(!block);
	set_active_memcg(NULL);
	for (int i = 0; i < 100; i++) {
		NEED(mem_cgroup_drain(others[i]) == 0 && mem_cgroup_current(others[i]) == 0);
		mem_cgroup_put(others[i]);
	}
}

static struct mem_cgroup_shrinker *itself;
static int shrinks;

static uint64_t remove_itself(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	(void)group, (void)bytes, (void)arg;
	shrinks++;
	mem_cgroup_remove_shrinker(itself);
	return 0;
}

static void shrinker_removes_itself(void)
{
	struct mem_cgroup *group = group_of("shrinks");

	itself = mem_cgroup_add_shrinker(group, 0, remove_itself, NULL);
	NEED(itself && mem_cgroup_charge(group, GFP_KERNEL, 100) == 0);
	expect("mem_cgroup_remove_shrinker(%p): called by a shrinker, but waits for all shrinkers", itself);
	mem_cgroup_reclaim(group, 50);
	after_warning();
	/* The shrinker stays. */
	NEED(shrinks == 1);
	mem_cgroup_uncharge(group, 100);
	mem_cgroup_remove_shrinker(itself);
	mem_cgroup_put(group);
}

/* The bytes go to a stock first, and the excess is not visible there. */
static void uncharged_twice(void)
{
	struct mem_cgroup *group = group_of("twice"), *below = mem_cgroup_create(group, "below", 0);

	NEED(mem_cgroup_charge(below, GFP_KERNEL, 400) == 0);
	mem_cgroup_uncharge(below, 400);
	mem_cgroup_uncharge(below, 400);
	expect("mem_cgroup_uncharge(%p): more uncharged than was charged", below);
	mem_cgroup_drain(group);
	after_warning();
	NEED(mem_cgroup_current(below) == 0 && mem_cgroup_current(group) == 0);
	mem_cgroup_set_max(group, 10000);
	NEED(mem_cgroup_charge(below, GFP_KERNEL, 10000) == 0 && mem_cgroup_charge(below, GFP_KERNEL, 1) != 0);
}

static void uncharged_minus_one(void)
{
	struct mem_cgroup *group = group_of("minus");

	NEED(mem_cgroup_charge(group, GFP_KERNEL, 100) == 0);
	expect("mem_cgroup_uncharge(%p): more uncharged than was charged", group);
	mem_cgroup_uncharge(group, (uint64_t)-1);
	after_warning();
	mem_cgroup_drain(group);
	NEED(mem_cgroup_current(group) == 100);
}

#endif
