/*
 * memcg_child_caches.c: the child caches of a cache in private groups: tuned, shrunk and destroyed together with the
 * cache. Disciplines: all.
 */
#include "kit/charged_objects.h"

#include "os/os.h"

/* ------------------------------------------------------------------ as the cache is tuned */

static void needs_same(struct kmem_cache *child, struct kmem_cache *cache)
{
	struct kmem_cache_stats a, b;

	NEED(child && child != cache);
	kmem_cache_get_stats(child, &a);
	kmem_cache_get_stats(cache, &b);
	NEED(a.min_partial == b.min_partial && a.sheaf_capacity == b.sheaf_capacity && a.size == b.size);
	NEED(a.limit == b.limit && a.batchcount == b.batchcount && a.shared_factor == b.shared_factor);
	NEED(kmem_cache_remote_node_defrag_ratio(child) == kmem_cache_remote_node_defrag_ratio(cache));
}

/* min_partial, the ratio, and engine slab's three values; below and above the default for the size. */
static void write_all(struct kmem_cache *cache, unsigned n)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	NEED(kmem_cache_set_min_partial(cache, n) == 0 && kmem_cache_min_partial(cache) == n);
	NEED(kmem_cache_set_remote_node_defrag_ratio(cache, n) == 0);
	NEED(kmem_cache_tune(cache, n, n / 2, n / 3) == (strcmp(stats.engine, "slab") ? -EOPNOTSUPP : 0));
}

static int write_each(struct kmem_cache *cache, void *arg)
{
	kmem_cache_set_min_partial(cache, (uintptr_t)arg);
	return 0;
}

/* From the creation, and at each write; a write to a child cache changes this child only. */
static void tuned_alike(void)
{
	struct kmem_cache_args args = { .sheaf_capacity = 500 };
	struct kmem_cache *cache = kmem_cache_create("alike", 200, &args, SLAB_ACCOUNT), *other = charged("other", 200);
	struct mem_cgroup *a = private_group("a"), *b = private_group("b"), *brief = private_group("brief");
	void *objects[3];

	NEED((objects[0] = alloc_for(a, cache)));
	needs_same(named("alike:a"), cache);
	for (unsigned n = 7; n < 100; n += 46) {
		write_all(cache, n);
		needs_same(named("alike:a"), cache);
		NEED(kmem_cache_min_partial(other) != n);
	}
	write_all(cache, 12);
	NEED((objects[1] = alloc_for(b, cache)));
	needs_same(named("alike:b"), cache);
	write_all(named("alike:a"), 20);
	NEED(kmem_cache_min_partial(cache) == 12 && kmem_cache_min_partial(named("alike:b")) == 12);
	NEED(kmem_for_each_cache(write_each, (void *)55) == 0);
	NEED(kmem_cache_min_partial(named("alike:a")) == 55);
	/* Also a child that waits for its next group. */
	NEED((objects[2] = alloc_for(brief, cache)));
	mem_cgroup_put(brief);
	kmem_cache_free(cache, objects[2]);
	brief = private_group("brief");
	write_all(cache, 31);
	kmem_cache_free(cache, alloc_for(brief, cache));
	needs_same(named("alike:brief"), cache);
	/* The cache was created for this number, and so are its children. */
	if (kmem_cache_tune(cache, 300, 100, 0) == 0)
		needs_same(named("alike:b"), cache);
	kmem_cache_free(cache, objects[0]);
	kmem_cache_free(cache, objects[1]);
	mem_cgroup_put(a);
	mem_cgroup_put(b);
	mem_cgroup_put(brief);
	gone(cache);
	gone(other);
}

/* kmalloc's charged caches are tuned with the uncharged ones, before there is a group and after. */
static void kmalloc_tuned_alike(void)
{
	struct kmem_cache *plain = named("kmalloc-256");

	write_all(plain, 10);
	struct mem_cgroup *tenant = private_group("kmalloc");
	needs_same(named("kmalloc-cg-256"), plain);
	MEMCG_SCOPE(tenant);
	void *p = kmalloc(256, GFP_KERNEL_ACCOUNT);
	needs_same(named("kmalloc-cg-256:kmalloc"), plain);
	write_all(plain, 20);
	needs_same(named("kmalloc-cg-256"), plain);
	needs_same(named("kmalloc-cg-256:kmalloc"), plain);
	write_all(named("kmalloc-cg-256"), 30);
	needs_same(named("kmalloc-cg-256:kmalloc"), named("kmalloc-cg-256"));
	NEED(kmem_cache_min_partial(plain) == 20);
	kfree(p);
	mem_cgroup_put(tenant);
}

/* ------------------------------------------------------------------ many child caches at once */

/* Cached objects of child caches are drained with the cache's; also with more children than one shrink takes. */
static void shrunk_together(void)
{
	struct kmem_cache *cache = charged("together", 200);
	static struct mem_cgroup *tenant[150];
	void *kept = NULL;

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 150; i++) {
			char name[8];

			snprintf(name, sizeof(name), "%d", i);
			tenant[i] = private_group(name);
			void *p = alloc_for(tenant[i], cache);
			NEED(p && mem_cgroup_current(tenant[i]));
			if (i == 77 && round == 1)
				kept = p;
			else
				kmem_cache_free(cache, p);
		}
		NEED(slab_bytes(named("together:149")));
		NEED(kmem_cache_shrink(cache) == (kept != NULL));
		for (int i = 0; i < 150; i++) {
			char name[16];

			snprintf(name, sizeof(name), "together:%d", i);
			NEED((slab_bytes(named(name)) == 0) == !(kept && i == 77));
		}
		kmem_cache_free(cache, kept ?: alloc_for(tenant[0], cache));
		kept = NULL;
		for (int i = 0; i < 150; i++) {
			NEED(drained(tenant[i]) == 0);
			mem_cgroup_put(tenant[i]);
		}
	}
	gone(cache);
}

static unsigned fences;

static bool count_fences(const char *call)
{
	fences += strcmp(call, "fence") == 0;
	return false;
}

static void ignore(struct kmem_cache *cache, void *object, void *arg)
{
	(void)cache, (void)object, (void)arg;
}

/* Uses `count` caches in the tenant's name. Returns: the fences needed for the tenant's end. */
static unsigned fences_for(struct mem_cgroup *tenant, struct kmem_cache **caches, int count, mem_cgroup_dtor dtor)
{
	for (int i = 0; i < count; i++)
		NEED(alloc_for(tenant, caches[i]));
	fences = 0;
	km_os_fault = count_fences;
	NEED(mem_cgroup_destroy_all(tenant, dtor, NULL) == 0);
	km_os_fault = NULL;
	NEED(drained(tenant) == 0);
	return fences;
}

/*
 * The work that stops all CPUs is done once, for any number of caches; the tick at the end may add fences of its
 * own.
 */
#define OF_A_TICK 8u
static void at_once_for_all(void)
{
	struct mem_cgroup *tenant = private_group("fences");
	struct kmem_cache *caches[100];

	for (int i = 0; i < 100; i++)
		{
		char name[16];

		snprintf(name, sizeof(name), "fences %d", i);
		caches[i] = charged(name, 100);
	}
	unsigned one = fences_for(tenant, caches, 1, NULL), visited = fences_for(tenant, caches, 1, ignore);
	/* Engine slub's chains have two fences each of their own, and each visit is one more. */
	struct kmem_cache_stats stats;
	kmem_cache_get_stats(caches[0], &stats);
	unsigned own = one && strcmp(stats.engine, "slub") == 0 ? 2 : 0, more = own ? 3 : 0;
	NEED(one - own <= 2 + OF_A_TICK && visited - more <= 3 + OF_A_TICK);
	for (int i = 0; i < 2; i++) {
		NEED(fences_for(tenant, caches, 100, NULL) <= one + 99 * own + OF_A_TICK);
		NEED(fences_for(tenant, caches, 100, ignore) <= visited + 99 * more + OF_A_TICK);
	}
	mem_cgroup_put(tenant);
	for (int i = 0; i < 100; i++)
		gone(caches[i]);
}

static const struct test_case cases[] = {
	{ "tuned alike", tuned_alike },
	{ "kmalloc tuned alike", kmalloc_tuned_alike },
	{ "shrunk together", shrunk_together },
	{ "at once for all", at_once_for_all },
};

/* Objects shrunk together did not go back by age before. */
GROUPS_MAIN_OPTIONS(cases, ",decay:3600000")
