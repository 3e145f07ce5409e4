/*
 * tenants.c: a program with caches with much memory, little memory, or many empty slabs, and with groups. The program
 * prints "ready" and waits: SIGUSR2 makes it grow, and print "grown"; SIGUSR1, if there is an argument, makes it
 * execute another program.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>

static void *want(void *p)
{
	if (!p)
		exit(3);
	return p;
}

static void *fill(const char *name, unsigned size, int count, int keep_each)
{
	struct kmem_cache *cache = want(kmem_cache_create(name, size, NULL, 0));
	void **objects = want(calloc((size_t)count + 1, sizeof(*objects)));

	for (int i = 0; i < count; i++)
		memset(objects[i] = want(kmem_cache_alloc(cache, GFP_KERNEL)), 1, size);
	for (int i = 0; keep_each && i < count; i++)
		if (keep_each < 0 || i % keep_each)
			kmem_cache_free(cache, objects[i]);
	free(objects);
	return cache;
}

static struct mem_cgroup *group(struct mem_cgroup *parent, const char *name, size_t bytes)
{
	struct mem_cgroup *group = want(mem_cgroup_create(parent, name, 0));

	if (mem_cgroup_charge(group, GFP_KERNEL, bytes))
		exit(3);
	return group;
}

int main(int argc, char **argv)
{
	struct kmem_cache *grows = fill("grows", 1000, 0, 0);
	sigset_t signals;
	int number;

	fill("most_of_it", 1000, 20000, 0);
	fill("untouched", 300, 0, 0);
	/* One object in each slab, at most, of what was filled; and none in any. */
	fill("sparse", 256, 20000, 300);
	fill("emptied", 512, 1000, -1);
	kvmalloc(10 << 20, GFP_KERNEL);
	struct mem_cgroup *tenants = group(NULL, "tenants", 1 << 20), *large = group(tenants, "large", 4 << 20);
	group(tenants, "small", 10000);
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigaddset(&signals, SIGUSR2);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	write(1, "ready\n", 6);
	while (!sigwait(&signals, &number)) {
		if (number == SIGUSR1 && argc > 1)
			execl("/bin/sleep", "sleep", "1000", (char *)NULL);
		for (int i = 0; i < 1000; i++)
			memset(want(kmem_cache_alloc(grows, GFP_KERNEL)), 1, 1000);
		if (mem_cgroup_charge(large, GFP_KERNEL, 1 << 20))
			return 3;
		write(1, "grown\n", 6);
	}
	return 3;
}
