/*
 * Objects of each state, for `kmem who`: prints for each a line with its name, address and state, then "ready", and
 * waits to be killed.
 */
#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void say(const char *name, const void *p, const char *state)
{
	printf("%s %p %s\n", name, p, state);
}

int main(void)
{
	struct kmem_cache *cache = kmem_cache_create("whose", 192, NULL, 0);
	struct mem_cgroup *group = mem_cgroup_create(NULL, "tenant 7", 0);
	static void *many[1000];

	for (int i = 0; i < 1000; i++)
		many[i] = kmem_cache_alloc(cache, GFP_KERNEL);
	say("cache", many[3], "live");
	say("inside", (char *)many[950] + 100, "live");
	kmem_cache_free(cache, many[999]);
	say("sheaf", many[999], "ready");
	/* More than a CPU caches. */
	for (int i = 100; i < 900; i++)
		kmem_cache_free(cache, many[i]);
	for (int i = 100; i < 900; i++)
		say("given", many[i], "gone");
	say("kmalloc", kmalloc(700, GFP_KERNEL), "live");
	say("pages", kmalloc(100000, GFP_KERNEL), "live");
	say("big", (char *)kvmalloc(10 << 20, GFP_KERNEL) + 5000000, "live");
	if (group) {
		say("tenant", kmalloc_in(group, 300, GFP_KERNEL), "live");
		say("paid-pages", kmalloc_in(group, 200000, GFP_KERNEL), "live");
		struct mem_cgroup *before = set_active_memcg(group);
		say("paid-big", kvmalloc(12 << 20, GFP_KERNEL_ACCOUNT), "live");
		set_active_memcg(before);
	}
	say("static", many, "foreign");
	printf("ready\n");
	fflush(stdout);
	for (;;)
		pause();
}
