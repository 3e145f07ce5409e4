/*
 * A program whose figures are read by others: measured FILE. Names of caches and groups contain every special
 * character of a format; there are private groups, nested groups, two of one path, and limits that were met. Writes
 * the output of kmem_metrics into FILE, prints "ready" and waits to be killed.
 */
#include <fcntl.h>
#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const names[] = {
	"plain", "quote\"", "back\\slash", "new\nline", "brace}", "{a=\"b\"}", "comma,",
	"\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\x98",
	"\xff\xfe", "half\xe2\x82", "long\xed\xa0\x80", "\\n", "#", "a b", "EOF", "\r\t",
};

static void *want(void *p)
{
	if (!p)
		exit(3);
	return p;
}

int main(int argc, char **argv)
{
	struct mem_cgroup *all = want(mem_cgroup_create(NULL, "all", 0));

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct kmem_cache *cache = want(kmem_cache_create(names[i], 64 + 16 * i, 0, SLAB_NO_MERGE, NULL));
		struct mem_cgroup *group = want(mem_cgroup_create(i % 3 ? all : NULL, names[i],
								  i % 2 ? MEM_CGROUP_PRIVATE : 0));

		if (i % 4 == 0 && mem_cgroup_set_max(group, 64 << 10))
			return 4;
		for (size_t n = 0; n < 300 + i; n++) {
			want(kmem_cache_alloc(cache, GFP_KERNEL));
			if (!kmem_cache_alloc_in(cache, group, GFP_KERNEL | __GFP_NOWARN) && i % 4)
				return 5;
		}
	}
	want(mem_cgroup_create(all, "twice", 0));
	want(mem_cgroup_create(all, "twice", 0));
	want(kvmalloc(10 << 20, GFP_KERNEL));
	kmem_cache_destroy(want(kmem_cache_create("gone", 100, 0, SLAB_NO_MERGE, NULL)));
	int fd = argc == 2 ? open(argv[1], O_CREAT | O_TRUNC | O_WRONLY, 0644) : -1;
	if (fd < 0 || kmem_metrics(fd) || close(fd) || write(1, "ready\n", 6) != 6)
		return 6;
	for (;;)
		pause();
}
