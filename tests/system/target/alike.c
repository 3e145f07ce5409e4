/*
 * A program with similar names. alike [NAME...]: makes a cache of each name, in this order, and groups with the names
 * of files, prints "ready" and waits to be killed.
 */
#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *want(void *p)
{
	if (!p)
		exit(3);
	return p;
}

int main(int count, char **names)
{
	struct mem_cgroup *group = want(mem_cgroup_create(NULL, "group", 0));

	for (int i = 1; i < count; i++)
		want(kmem_cache_alloc(want(kmem_cache_create(names[i], 64, 0, SLAB_NO_MERGE, NULL)), GFP_KERNEL));
	want(mem_cgroup_create(NULL, "memory.max", 0));
	want(mem_cgroup_create(group, "memory.max", 0));
	want(mem_cgroup_create(group, "_memory.max", 0));
	want(mem_cgroup_create(group, "memory.oom.group", 0));
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
