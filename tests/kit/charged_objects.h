/*
 * charged_objects.h: common code for tests of charged objects: charged caches, the charge of an object, caches by
 * name, objects passed between threads, and a main.
 */
#ifndef TESTS_KIT_CHARGED_OBJECTS_H
#define TESTS_KIT_CHARGED_OBJECTS_H

#include "api.h"
#include "groups.h"
#include "random.h"

/* Returns: the charge of an object in a shared slab, in bytes. */
static uint64_t cost(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return stats.size + sizeof(void *);
}

/* Creates a cache with SLAB_ACCOUNT. */
static struct kmem_cache *charged(const char *name, unsigned size)
{
	struct kmem_cache *cache = kmem_cache_create(name, size, NULL, SLAB_ACCOUNT);

	NEED(cache);
	return cache;
}

static void *alloc_for(struct mem_cgroup *group, struct kmem_cache *cache)
{
	MEMCG_SCOPE(group);
	return kmem_cache_alloc(cache, GFP_KERNEL_ACCOUNT);
}

/* ---- caches by name, as statistics show them */

struct wanted {
	const char *name;
	struct kmem_cache *cache;
	unsigned count;
};

static int by_name(struct kmem_cache *cache, void *arg)
{
	struct wanted *wanted = arg;

	if (strcmp(kmem_cache_name(cache), wanted->name) == 0) {
		wanted->cache = cache;
		wanted->count++;
	}
	return 0;
}

static struct kmem_cache *named(const char *name)
{
	struct wanted wanted = { .name = name };

	kmem_for_each_cache(by_name, &wanted);
	NEED(wanted.count < 2);
	return wanted.cache;
}

static uint64_t slab_bytes(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return stats.total_slabs * stats.pages_per_slab * 4096;
}

/* ---- threads: another thread than the allocating thread may free an object, or none frees the object */

static void *mailbox[256];

/* Puts the object into a random box, and frees the former content of the box. */
static void post(struct kmem_cache *cache, void *object, uint64_t random)
{
	NEED(object);
	object = __atomic_exchange_n(&mailbox[random % 256], object, __ATOMIC_ACQ_REL);
	if (object)
		kmem_cache_free(cache, object);
}

/*
 * ---- API_MAIN without slob: objects of slob do not record their cache, so they are uncharged (docs/kernel-map.md)
 */

#define GROUPS_MAIN(cases) GROUPS_MAIN_OPTIONS(cases, "")
#define GROUPS_MAIN_OPTIONS(cases, more)                                                           \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		if (argc > 1 && strcmp(argv[1], "slob") == 0)                                      \
			return 0;                                                                  \
		return api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), more);        \
	}

#endif
