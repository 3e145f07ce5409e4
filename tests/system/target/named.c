/*
 * named.c: a process with names of caches and groups unfit for a terminal: its tests read the names from another
 * process.
 */
#include <stdio.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>

static const char *const names[] = {
	"quo\"te\\\xff", "\xff\xfe", "esc\033[2J", "c1 \xc2\x9b" "31m", "long \xe0\x80\x80", "half \xed\xa0\x80",
	"beyond \xf4\x90\x80\x80", "cut \xe2\x82", "new\nline\ttab", "lone \x80\xbf", "del\x7f",
	"\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4",
};

int main(void)
{
	void *last = NULL;

	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct kmem_cache *cache = kmem_cache_create(names[i], 100 + 8 * i, 0, 0, NULL);
		struct mem_cgroup *group = mem_cgroup_create(NULL, names[i], 0);

		if (!cache || !group)
			return 1;
		for (unsigned n = 0; n < 100; n++)
			last = kmem_cache_alloc(cache, GFP_KERNEL);
		kmem_cache_alloc_in(cache, group, GFP_KERNEL);
	}
	printf("ready %p\n", last);
	fflush(stdout);
	pause();
	return 0;
}
