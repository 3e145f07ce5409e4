/*
 * hostile.c: a process with caches and groups named from a file, each name ended by a NUL. The process writes each of
 * the library's own outputs to a file of the current folder, and then allocates until its end.
 */
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>

#define MOST 1000

static struct kmem_cache *caches[MOST];
static struct mem_cgroup *groups[MOST];

static int to_file(const char *name)
{
	return open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
}

int main(int argc, char **argv)
{
	static char text[1 << 20];
	FILE *names = fopen(argv[1], "rb");
	size_t length = fread(text, 1, sizeof(text), names);
	unsigned count = 0;
	(void)argc;

	for (const char *at = text; at < text + length && count < MOST; at += strlen(at) + 1, count++) {
		struct mem_cgroup *above = count % 7 == 6 ? groups[count - 1] : NULL;

		caches[count] = kmem_cache_create(at, 2000 + 8 * (count % 16), 0, SLAB_ACCOUNT, NULL);
		groups[count] = mem_cgroup_create(above, at, count % 5 ? 0 : MEM_CGROUP_PRIVATE);
		if (!caches[count] || !groups[count] || !kmem_cache_alloc(caches[count], GFP_KERNEL) ||
		    !kmem_cache_alloc_in(caches[count], groups[count], GFP_KERNEL))
			return 1;
	}
	FILE *xml = fopen("own.xml", "w");
	malloc_info(0, xml);
	fclose(xml);
	kmem_print_json(to_file("own.json"));
	kmem_print_slabinfo(to_file("own.slabinfo"));
	kmem_metrics(to_file("own.openmetrics"));
	puts("ready");
	fflush(stdout);
	for (unsigned i = 0;; i = (i + 1) % count) {
		kmem_cache_alloc_in(caches[i], groups[i], GFP_KERNEL);
		kmem_cache_free(caches[i], kmem_cache_alloc(caches[i], GFP_KERNEL));
		usleep(500);
	}
}
