/*
 * A program whose caches are read as files. files SAID: makes caches of many kinds, writes the library's figures of
 * each into SAID ("CACHE FILE VALUE" in a line) and its slabinfo into SAID.slabinfo, and prints "ready". Then the
 * program allocates and frees memory without cached objects, of a cache outside of SAID, and now and then charges 64
 * KiB to a group, "tenant". files SAID still: the program sleeps.
 */
#include <fcntl.h>
#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOLES 2000

static FILE *said;
static void *holes[HOLES];

static void *want(void *p)
{
	if (!p)
		exit(3);
	return p;
}

static void construct(void *object)
{
	memset(object, 7, 8);
}

static void fill(struct kmem_cache *cache, int count, int keep)
{
	void *objects[500];

	for (int i = 0; i < count; i++)
		objects[i] = want(kmem_cache_alloc(cache, GFP_KERNEL));
	for (int i = keep; i < count; i++)
		kmem_cache_free(cache, objects[i]);
}

static __attribute__((noinline)) void take(struct kmem_cache *cache, int count)
{
	for (int i = 0; i < count; i++)
		want(kmem_cache_alloc(cache, GFP_KERNEL));
	asm volatile("");
}

static int by_address(const void *a, const void *b)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;

	return (x > y) - (x < y);
}

/* Slabs are pages: one object of every tenth slab is freed. Returns: the objects in use on partial slabs. */
static unsigned long make_holes(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;
	unsigned long partial = 0;

	for (int i = 0; i < HOLES; i++)
		holes[i] = want(kmem_cache_alloc(cache, GFP_KERNEL));
	qsort(holes, HOLES, sizeof(*holes), by_address);
	for (int i = 0, page = 0; i < HOLES; i++) {
		page += !i || (size_t)holes[i] >> 12 != (size_t)holes[i - 1] >> 12;
		if (page % 10 == 0 && (size_t)holes[i] >> 12 != (size_t)holes[i - 1] >> 12) {
			kmem_cache_free(cache, holes[i]);
			holes[i] = (char *)holes[i] + 1;
		}
	}
	kmem_cache_shrink(cache);
	kmem_cache_get_stats(cache, &stats);
	for (int i = 0, from; i < HOLES;) {
		unsigned long used = 0;

		for (from = i; i < HOLES && (size_t)holes[i] >> 12 == (size_t)holes[from] >> 12; i++)
			used += !((size_t)holes[i] & 1);
		partial += used < stats.objects_per_slab ? used : 0;
	}
	return partial;
}

static void say(const char *name, const char *file, unsigned long value)
{
	fprintf(said, "%s %s %lu\n", name, file, value);
}

static int say_cache(struct kmem_cache *cache, void *arg)
{
	struct kmem_cache_stats stats;
	slab_flags_t debugged = kmem_cache_debug_flags(cache);

	kmem_cache_get_stats(cache, &stats);
	if (!strcmp(stats.name, "same") || !strcmp(stats.name, "misses") || strpbrk(stats.name, "/ ."))
		return 0;
	say(stats.name, "slab_size", stats.size);
	say(stats.name, "object_size", stats.object_size);
	say(stats.name, "objs_per_slab", stats.objects_per_slab);
	say(stats.name, "sheaf_capacity", stats.sheaf_capacity);
	say(stats.name, "min_partial", stats.min_partial);
	say(stats.name, "partial", stats.partial_slabs);
	say(stats.name, "slabs", stats.total_slabs);
	say(stats.name, "total_objects", stats.total_objects);
	say(stats.name, "objects", stats.active_objects);
	say(stats.name, "remote_node_defrag_ratio", kmem_cache_remote_node_defrag_ratio(cache));
	say(stats.name, "sanity_checks", !!(debugged & SLAB_CONSISTENCY_CHECKS));
	say(stats.name, "red_zone", !!(debugged & SLAB_RED_ZONE));
	say(stats.name, "poison", !!(debugged & SLAB_POISON));
	say(stats.name, "store_user", !!(debugged & SLAB_STORE_USER));
	say(stats.name, "trace", !!(debugged & SLAB_TRACE));
	say(stats.name, "failslab", !!(debugged & SLAB_FAILSLAB));
	for (enum kmem_event event = 0; event < KMEM_ALLOCS; event++)
		say(stats.name, kmem_event_name(event), kmem_cache_event(cache, event));
	return 0;
}

static void say_all(const char *file, unsigned long partial)
{
	char name[4096];

	snprintf(name, sizeof(name), "%s.slabinfo", file);
	int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);
	if (fd < 0 || kmem_print_slabinfo(fd) || close(fd))
		exit(4);
	said = want(fopen(file, "w"));
	if (partial)
		say("holes", "objects_partial", partial);
	kmem_for_each_cache(say_cache, NULL);
	if (fclose(said))
		exit(4);
}

static void populate(const char *file)
{
	struct kmem_cache *debugged = kmem_cache_create("debugged", 40, NULL, 0);
	struct kmem_cache *plain = kmem_cache_create("plain", 100, NULL, 0);
	void *many[64];

	fill(kmem_cache_create("aligned", 40, NULL, SLAB_HWCACHE_ALIGN | SLAB_RECLAIM_ACCOUNT | SLAB_SKIP_KFENCE),
	     400, 77);
	fill(kmem_cache_create("built", 48, 16, SLAB_TYPESAFE_BY_RCU, construct), 100, 50);
	fill(kmem_cache_create_usercopy("copied", 64, 0, 0, 8, 24, NULL), 10, 3);
	for (int i = 0; i < 2; i++)
		fill(kmem_cache_create("same", 80 + 8 * i, NULL, 0), 10, 3);
	fill(kmem_cache_create("a/b", 72, NULL, 0), 10, 3);
	fill(kmem_cache_create("with blank", 72, NULL, 0), 10, 3);
	fill(kmem_cache_create("..", 72, NULL, 0), 10, 3);
	fill(plain, 500, 123);
	kmem_cache_set_debug(debugged, "FZ");
	fill(debugged, 20, 9);
	struct kmem_cache *traced = kmem_cache_create("traced", 56, NULL, 0);
	fill(traced, 40, 30);
	take(traced, 7);
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(plain, GFP_KERNEL, 5);
	if (sheaf)
		kmem_cache_return_sheaf(plain, GFP_KERNEL, sheaf);
	if (kmem_cache_alloc_bulk(plain, GFP_KERNEL, 64, many))
		kmem_cache_free_bulk(plain, 64, many);
	for (int i = 0; i < 3000; i++)
		want(kmalloc((size_t)i % 1000 + 1, GFP_KERNEL));
	struct kmem_cache *of_holes = kmem_cache_create("holes", 256, NULL, 0);
	unsigned long partial = strcmp(getenv("ENGINE") ?: "", "slob") ? make_holes(of_holes) : 0;
	say_all(file, partial);
}

int main(int argc, char **argv)
{
	struct kmem_cache *misses = kmem_cache_create("misses", 64, NULL, 0);
	void *objects[600];

	if (argc < 2)
		return 2;
	populate(argv[1]);
	struct mem_cgroup *tenant = argc > 2 ? NULL : want(mem_cgroup_create(NULL, "tenant", 0));
	if (write(1, "ready\n", 6) != 6)
		return 5;
	while (argc > 2)
		pause();
	for (;; usleep(500)) {
		for (int i = 0; i < 600; i++)
			objects[i] = want(kmem_cache_alloc(misses, GFP_KERNEL));
		for (int i = 0; i < 600; i++)
			kmem_cache_free(misses, objects[i]);
		if (!mem_cgroup_charge(tenant, GFP_KERNEL, 65536))
			mem_cgroup_uncharge(tenant, 65536);
	}
}
