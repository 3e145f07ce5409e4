/* groups.h: common code for tests of memory groups. */
#ifndef TESTS_KIT_GROUPS_H
#define TESTS_KIT_GROUPS_H

#include <stdint.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>

#include "check.h"

static struct mem_cgroup *group_of(struct mem_cgroup *parent, const char *name, unsigned flags)
{
	struct mem_cgroup *group = mem_cgroup_create(parent, name, flags);

	NEED(group, "%s", name);
	return group;
}

static struct mem_cgroup *group_below(struct mem_cgroup *parent, const char *name)
{
	return group_of(parent, name, 0);
}

static struct mem_cgroup *private_group(const char *name)
{
	return group_of(NULL, name, MEM_CGROUP_PRIVATE);
}

static bool charge(struct mem_cgroup *group, unsigned long bytes)
{
	return mem_cgroup_charge(group, GFP_KERNEL, bytes) == 0;
}

/* Returns: the charged bytes without cached charges. */
static uint64_t drained(struct mem_cgroup *group)
{
	mem_cgroup_drain(group);
	return mem_cgroup_current(group);
}

#endif
