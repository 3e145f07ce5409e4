/*
 * groups.h: groups that are put or charged when they are gone, and bytes that come back without having been charged.
 */
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

/* It lies in a stock at first, where nobody sees that it is too much. */
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
