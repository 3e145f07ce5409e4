/*
 * memcg_private.c: private groups. Disciplines: all. Objects allocated in a private group's name are in slabs of
 * the group, charged whole; mem_cgroup_destroy_all frees all of them at once; and any ordinary free frees one. With
 * hardened: own_addresses:0, because here pages go from one name to another.
 */
#include "kit/charged_objects.h"

#include <pthread.h>
#include <sched.h>

#define PAGE 4096ul
#define FEW 700

/* ------------------------------------------------------------------ slabs of their own */

/*
 * Objects of three tenants in turn: no page has objects of two tenants; and each object is charged
 * to its tenant.
 */
static void no_neighbours(void)
{
	struct kmem_cache *cache = charged("shared", 200);
	struct mem_cgroup *tenant[3] = { private_group("a"), private_group("b"), group_below(NULL, "c") };
	static void *objects[FEW];

	for (int i = 0; i < FEW; i++) {
		NEED((objects[i] = alloc_for(tenant[i % 3], cache)));
		struct mem_cgroup *objcg = mem_cgroup_from_obj(objects[i]);
		NEED(objcg == tenant[i % 3]);
		mem_cgroup_put(objcg);
	}
	for (int i = 0; i < FEW; i++)
		for (int j = 0; j < i; j++)
			NEED(i % 3 == j % 3 || (uintptr_t)objects[i] / PAGE != (uintptr_t)objects[j] / PAGE);
	NEED(named("shared:a") && named("shared:b") && !named("shared:c"));
	NEED(kmem_cache_of(objects[0]) == named("shared:a"));
	NEED(drained(tenant[0]) == slab_bytes(named("shared:a")));
	NEED(drained(tenant[0]) >= (FEW + 2) / 3 * 200);
	for (int i = 0; i < FEW; i++)
		if (i % 2)
			kfree(objects[i]);
		else
			kmem_cache_free(cache, objects[i]);
	for (int i = 0; i < 3; i++) {
		NEED(drained(tenant[i]) == 0);
		mem_cgroup_put(tenant[i]);
	}
	gone(cache);
	NEED(!named("shared:a"));
}

static void in_bulk(void)
{
	struct kmem_cache *cache = charged("bulk", 256);
	struct mem_cgroup *tenant[3] = { private_group("a"), private_group("b"), group_below(NULL, "c") };
	static void *objects[3][FEW], *mixed[3 * FEW];

	for (size_t n = 1; n <= FEW; n = n * 3 / 2 + 1) {
		for (int t = 0; t < 3; t++) {
			MEMCG_SCOPE(tenant[t]);
			NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, n, objects[t]));
		}
		for (size_t i = 0; i < n; i++)
			for (int t = 0; t < 3; t++) {
				struct mem_cgroup *objcg = mem_cgroup_from_obj(objects[t][i]);
				NEED(objcg == tenant[t]);
				mem_cgroup_put(objcg);
				/* In turn, or in runs. */
				mixed[n % 2 ? i * 3 + t : t * n + i] = objects[t][i];
			}
		if (n % 3)
			kmem_cache_free_bulk(cache, 3 * n, mixed);
		else
			kfree_bulk(3 * n, mixed);
		for (int t = 0; t < 3; t++)
			NEED(drained(tenant[t]) == 0);
	}
	for (int t = 0; t < 3; t++)
		mem_cgroup_put(tenant[t]);
	gone(cache);
}

/*
 * A thread's active group is a private group that is offline: objects are ordinary objects of the parent, each
 * allocated once.
 */
static void in_bulk_of_an_offline_group(void)
{
	struct kmem_cache *cache = charged("offline", 128);
	struct mem_cgroup *parent = group_below(NULL, "parent");
	struct mem_cgroup *tenant[3] = { group_below(parent, "a"), group_below(parent, "b"),
					 group_of(parent, "c", MEM_CGROUP_PRIVATE) };
	static void *objects[2 * FEW];

	{
		MEMCG_SCOPE(tenant[2]);
		kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
	}
	NEED(mem_cgroup_offline(tenant[2]) == 0);
	for (size_t n = 1; n <= FEW; n = n * 3 / 2 + 1) {
		/* Several groups are charged, and their freed objects are cached. */
		for (int t = 0; t < 2; t++) {
			MEMCG_SCOPE(tenant[t]);
			NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, n, objects));
			kmem_cache_free_bulk(cache, n, objects);
		}
		MEMCG_SCOPE(tenant[2]);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, n, objects));
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, n, objects + n));
		for (size_t i = 0; i < 2 * n; i++) {
			NEED(kmem_cache_of(objects[i]) == cache);
			for (size_t j = 0; j < i; j++)
				NEED(objects[i] != objects[j]);
		}
		NEED(drained(parent) == 2 * n * (128 + sizeof(void *)));
		kfree_bulk(2 * n, objects);
		NEED(drained(parent) == 0);
	}
	for (int t = 0; t < 3; t++)
		mem_cgroup_put(tenant[t]);
	mem_cgroup_put(parent);
	gone(cache);
}

static void construct(void *object)
{
	memset(object, 0x5a, 96);
}

/* A constructed object is constructed in the child cache as well; __GFP_ZERO zeroes. */
static void of_the_same_kind(void)
{
	struct kmem_cache *cache = kmem_cache_create("kind", 96, 0, SLAB_ACCOUNT | SLAB_HWCACHE_ALIGN, construct);
	struct kmem_cache *plain = make("kind, plain", 88);
	struct mem_cgroup *tenant = private_group("kind");
	static void *objects[FEW];

	for (int i = 0; i < FEW; i++) {
		NEED((objects[i] = alloc_for(tenant, cache)));
		NEED(all(objects[i], 0x5a, 96) && (uintptr_t)objects[i] % 64 == 0);
	}
	for (int i = 0; i < FEW; i++)
		kmem_cache_free(cache, objects[i]);
	set_active_memcg(tenant);
	/* Only requests with __GFP_ACCOUNT are the tenant's. */
	for (int i = 0; i < FEW; i++) {
		gfp_t gfp = i % 2 ? GFP_KERNEL_ACCOUNT | __GFP_ZERO : GFP_KERNEL;

		NEED((objects[i] = kmem_cache_alloc(plain, gfp)));
		NEED((kmem_cache_of(objects[i]) == plain) == !(i % 2));
		NEED(!(i % 2) || all(objects[i], 0, 88));
		memset(objects[i], 0xff, 88);
	}
	/* The group may be charged for objects in other slabs, by the object. */
	NEED(kmem_cache_charge(objects[0], GFP_KERNEL) && kmem_cache_charge(objects[1], GFP_KERNEL));
	set_active_memcg(NULL);
	for (int i = 0; i < FEW; i++)
		kmem_cache_free(plain, objects[i]);
	NEED(drained(tenant) == 0);
	mem_cgroup_put(tenant);
	gone(cache);
	gone(plain);
}

/* ------------------------------------------------------------------ all at once */

static struct {
	unsigned small, large, blocks;
	struct kmem_cache *cache;
	uint32_t sum;
} seen;

static void count(struct kmem_cache *cache, void *object, void *arg)
{
	NEED(arg == &seen);
	if (!cache)
		seen.blocks++;
	else if (cache == seen.cache)
		seen.small++;
	else
		seen.large++;
	seen.sum += *(uint32_t *)object;
}

/* volatile: no other pointer to the block exists, so a compiler might drop the writes. */
static uint32_t fill_up(struct mem_cgroup *group, struct kmem_cache *cache, void **objects)
{
	uint32_t sum = 0;

	set_active_memcg(group);
	for (uint32_t i = 0; i < FEW; i++) {
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		*(uint32_t *)objects[i] = i;
		/* Half of them go by themselves. */
		if (i % 2)
			sum += i;
	}
	for (uint32_t i = 0; i < FEW; i += 2)
		kmem_cache_free(cache, objects[i]);
	for (uint32_t i = 0; i < 100; i++) {
		volatile uint32_t *p = kmalloc(i * 37 % 4000 + 4, GFP_KERNEL_ACCOUNT);

		NEED(p);
		*p = i;
		sum += i;
	}
	size_t sizes[] = { 20000, 300000, 5 << 20, 4 << 20, 20 << 20 };
	for (uint32_t i = 0; i < 5; i++) {
		volatile uint32_t *p = kvmalloc(sizes[i], GFP_KERNEL_ACCOUNT);

		NEED(p);
		*p = i;
		sum += i;
	}
	set_active_memcg(NULL);
	return sum;
}

static void all_at_once(void)
{
	struct kmem_cache *cache = charged("at once", 64);
	struct mem_cgroup *above = group_below(NULL, "above");
	struct mem_cgroup *tenant = group_of(above, "tenant", MEM_CGROUP_PRIVATE), *other = private_group("other");
	static void *objects[FEW];
	struct kmem_stats before, after;

	void *kept = alloc_for(other, cache);
	mem_cgroup_drain(other);
	for (int round = 0; round < 6; round++) {
		kmem_shrink_all();
		kmem_get_stats(&before);
		uint32_t sum = fill_up(tenant, cache, objects);
		NEED(named("at_once:tenant") && drained(above) > 29 << 20);
		NEED(drained(above) == drained(tenant));
		memset(&seen, 0, sizeof(seen));
		seen.cache = cache;
		NEED(mem_cgroup_destroy_all(tenant, round % 2 ? count : NULL, &seen) == 0);
		if (round % 2)
			NEED(seen.small == FEW / 2 && seen.large == 100 && seen.blocks == 5 && seen.sum == sum);
		NEED(drained(tenant) == 0 && drained(above) == 0 && mem_cgroup_peak(above) > 29 << 20);
		NEED(!named("at_once:tenant") && kmem_check_all() == 0);
		kmem_shrink_all();
		kmem_get_stats(&after);
		NEED(after.pages_used <= before.pages_used && after.caches <= before.caches);
		NEED(after.large_blocks == before.large_blocks && after.mapped_blocks == before.mapped_blocks);
	}
	NEED(mem_cgroup_destroy_all(above, NULL, NULL) == -EINVAL);
	kmem_cache_free(cache, kept);
	mem_cgroup_put(tenant);
	mem_cgroup_put(above);
	mem_cgroup_put(other);
	gone(cache);
}

/* A handler frees a block while its thread is in an engine, so the free is deferred. */
static void *to_be_freed;

static void free_it(int signal)
{
	(void)signal;
	kfree(to_be_freed);
	to_be_freed = NULL;
}

static void strike(void *object)
{
	*(long *)object = 0;
	if (to_be_freed)
		raise(SIGUSR1);
}

/* Objects with a deferred free are free: the destructor does not see them. */
static void freed_by_handlers(void)
{
	struct kmem_cache *striking = kmem_cache_create("striking", 64, 0, 0, strike);
	struct mem_cgroup *tenant = private_group("struck");

	signal(SIGUSR1, free_it);
	for (size_t bytes = 65536; bytes <= 8 << 20; bytes <<= 7) {
		set_active_memcg(tenant);
		volatile uint32_t *kept = kvmalloc(bytes, GFP_KERNEL_ACCOUNT);
		to_be_freed = kvmalloc(bytes, GFP_KERNEL_ACCOUNT);
		set_active_memcg(NULL);
		NEED(kept && to_be_freed);
		*kept = 7;
		/* The object's slab is new, and its objects are constructed. */
		void *object = kmem_cache_alloc(striking, GFP_KERNEL);
		NEED(object && !to_be_freed);
		memset(&seen, 0, sizeof(seen));
		NEED(mem_cgroup_destroy_all(tenant, count, &seen) == 0);
		NEED(seen.blocks == 1 && seen.sum == 7 && drained(tenant) == 0);
		kmem_cache_free(striking, object);
		kmem_cache_shrink(striking);
	}
	mem_cgroup_put(tenant);
	gone(striking);
}

/*
 * The last objects of an ended group, freed by a handler that interrupted the allocator: no later call reaches their
 * child cache by itself.
 */
static struct kmem_cache *orphaned_of;
static void *orphaned[3000];

static void free_orphans(int signal)
{
	(void)signal;
	for (size_t i = 0; i < sizeof(orphaned) / sizeof(orphaned[0]) && orphaned[i]; i++) {
		kmem_cache_free(orphaned_of, orphaned[i]);
		orphaned[i] = NULL;
	}
}

static void strike_once(void *object)
{
	(void)object;
	if (orphaned[0])
		raise(SIGUSR1);
}

static void orphans_freed_by_a_handler(void)
{
	struct kmem_cache *striking = kmem_cache_create("striking", 64, 0, 0, strike_once);
	struct mem_cgroup *tenant = private_group("orphaned");
	char text[512];

	orphaned_of = charged("orphaned", 200);
	for (size_t i = 0; i < sizeof(orphaned) / sizeof(orphaned[0]); i++)
		NEED((orphaned[i] = alloc_for(tenant, orphaned_of)));
	mem_cgroup_put(tenant);
	signal(SIGUSR1, free_orphans);
	void *object = kmem_cache_alloc(striking, GFP_KERNEL);
	NEED(object && !orphaned[0]);
	NEED(mem_cgroup_write_stat(mem_cgroup_root(), text, sizeof(text)) < sizeof(text));
	NEED(strstr(text, "dying 0\n"));
	kmem_cache_free(striking, object);
	gone(striking);
	gone(orphaned_of);
}

/* A stale pointer is found: by the cache, by kfree, in bulk; with any other contents of the cache. */
static struct kmem_cache *stale_cache;
static void *stale[4];

static void free_stale(void)
{
	kmem_cache_free(stale_cache, stale[0]);
	kfree(stale[1]);
	kmem_cache_free_bulk(stale_cache, 1, &stale[2]);
	kfree((char *)stale[3] + 1);
}

static void pointers_that_are_left(void)
{
	struct mem_cgroup *tenant = private_group("stale");
	char text[4096];
	int lines;

	stale_cache = charged("stale", 2000);
	for (int i = 0; i < 4; i++)
		stale[i] = alloc_for(tenant, stale_cache);
	NEED(mem_cgroup_destroy_all(tenant, NULL, NULL) == 0);
	int status = said(free_stale, text, &lines);
	NEED(status == 0 || WIFSIGNALED(status));
	NEED(lines >= 1 && strstr(text, "kmem_cache_free"));
	mem_cgroup_put(tenant);
	gone(stale_cache);
}

/* ------------------------------------------------------------------ typesafe caches */

/* Typesafe slabs go with destroy_all, or with the cache, and stay charged until then. */
static void typesafe(void)
{
	struct kmem_cache *cache = kmem_cache_create("typesafe", 100, NULL, SLAB_ACCOUNT | SLAB_TYPESAFE_BY_RCU);
	struct mem_cgroup *parent = group_below(NULL, "parent");

	for (int all_at_once = 1; all_at_once >= 0; all_at_once--) {
		struct mem_cgroup *tenant = group_of(parent, "tenant", MEM_CGROUP_PRIVATE);
		void *object = alloc_for(tenant, cache);

		NEED(object);
		kmem_cache_free(cache, object);
		NEED(drained(tenant) >= PAGE && kmem_cache_shrink(cache) == 1);
		if (all_at_once)
			NEED(mem_cgroup_destroy_all(tenant, NULL, NULL) == 0 && drained(tenant) == 0);
		mem_cgroup_put(tenant);
		NEED((drained(parent) != 0) == !all_at_once && kmem_cache_shrink(cache) == !all_at_once);
	}
	kmem_cache_destroy(cache);
	NEED(drained(parent) == 0 && kmem_check_all() == 0);
	mem_cgroup_put(parent);
}

/* ------------------------------------------------------------------ limits */

/* As many objects as whole slabs hold, repeated; objects cached elsewhere are drained first. */
static void to_the_last_slab(void)
{
	struct kmem_cache *cache = charged("limited", 256), *idle = charged("idle", 512);
	struct mem_cgroup *tenant = private_group("limited");
	const uint64_t max = 80 * PAGE;
	static void *objects[5000], *others[200];
	size_t count = 0;

	NEED(mem_cgroup_set_max(tenant, max) == 0);
	set_active_memcg(tenant);
	for (int i = 0; i < 200; i++)
		NEED((others[i] = kmem_cache_alloc(idle, GFP_KERNEL)));
	for (int i = 0; i < 200; i++)
		kmem_cache_free(idle, others[i]);
	while (count < 5000 && (objects[count] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN)))
		count++;
	NEED(errno == ENOMEM && mem_cgroup_current(tenant) <= max && mem_cgroup_events(tenant, MEMCG_MAX) > 0);
	/* All but what a page or the least slab leaves. */
	NEED(count >= (max - 2 * PAGE) / 256 * 15 / 16 && count <= max / 256);
	for (int i = 0; i < 100; i++) {
		kmem_cache_free(cache, objects[i]);
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN)));
		NEED(!kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN));
		NEED(!kmem_cache_alloc(cache, GFP_NOWAIT));
	}
	NEED(!kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, 16, others));
	for (int i = 0; i < 16; i++)
		kmem_cache_free(cache, objects[i]);
	/* A request that succeeds in the end leaves errno unchanged. */
	errno = 0;
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, 16, objects) && errno == 0);
	NEED((others[0] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOFAIL)) && errno == 0);
	NEED(mem_cgroup_current(tenant) > max);
	kmem_cache_free(cache, others[0]);
	set_active_memcg(NULL);
	kmem_cache_free_bulk(cache, count, objects);
	NEED(drained(tenant) == 0);
	mem_cgroup_put(tenant);
	gone(cache);
	gone(idle);
}

static unsigned shrunk, slowed;
static void *cached[5000];
static size_t cached_count;
static struct kmem_cache *cached_in;

static uint64_t shrink(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	(void)group, (void)arg;
	uint64_t freed = 0;

	while (cached_count && freed < bytes) {
		kmem_cache_free(cached_in, cached[--cached_count]);
		freed += 300;
	}
	shrunk++;
	return freed;
}

static void slow(struct mem_cgroup *group, uint64_t over, unsigned delay, void *arg)
{
	(void)group, (void)over, (void)delay, (void)arg;
	slowed++;
}

/* Shrinkers and the callback of high are called, although slabs are charged at a point without waiting. */
static void under_pressure(void)
{
	struct mem_cgroup *tenant = private_group("pressure");
	static void *objects[1000];

	cached_in = charged("pressure", 300);
	struct mem_cgroup_shrinker *shrinker = mem_cgroup_add_shrinker(tenant, 0, shrink, NULL);
	NEED(shrinker && mem_cgroup_set_max(tenant, 512 * 1024) == 0);
	set_active_memcg(tenant);
	while (!shrunk && cached_count < 5000) {
		void *object = kmem_cache_alloc(cached_in, GFP_KERNEL);

		NEED(object);
		cached[cached_count++] = object;
	}
	for (int i = 0; i < 1000; i++)
		NEED((objects[i] = kmem_cache_alloc(cached_in, GFP_KERNEL)));
	set_active_memcg(NULL);
	NEED(shrunk > 1 && mem_cgroup_current(tenant) <= 512 * 1024);
	mem_cgroup_remove_shrinker(shrinker);
	kmem_cache_free_bulk(cached_in, cached_count, cached);
	mem_cgroup_set_high_callback(tenant, slow, NULL);
	mem_cgroup_set_max(tenant, MEMCG_NO_LIMIT);
	NEED(mem_cgroup_set_high(tenant, drained(tenant) + 10000) == 0 && !slowed);
	for (int i = 0; i < 2000; i++)
		NEED((cached[i] = alloc_for(tenant, cached_in)));
	NEED(slowed && mem_cgroup_events(tenant, MEMCG_HIGH) > 0);
	kmem_cache_free_bulk(cached_in, 2000, cached);
	kmem_cache_free_bulk(cached_in, 1000, objects);
	NEED(drained(tenant) == 0);
	mem_cgroup_put(tenant);
	gone(cached_in);
}

/*
 * The first object of a cache creates the child cache, by a request that may wait; later requests
 * need not wait.
 */
static void without_waiting(void)
{
	struct kmem_cache *cache = charged("nowait", 128);
	struct mem_cgroup *tenant = private_group("nowait");

	set_active_memcg(tenant);
	NEED(!kmem_cache_alloc(cache, GFP_NOWAIT) && errno == ENOMEM);
	void *p = kmem_cache_alloc(cache, GFP_KERNEL), *q = kmem_cache_alloc(cache, GFP_NOWAIT);
	NEED(p && q && kmem_cache_of(p) == kmem_cache_of(q));
	set_active_memcg(NULL);
	kmem_cache_free(cache, p);
	kmem_cache_free(cache, q);
	mem_cgroup_put(tenant);
	gone(cache);
}

/* ------------------------------------------------------------------ one goes before the other */

static void the_group_goes_first(void)
{
	struct kmem_cache *cache = charged("orphans", 96);
	struct mem_cgroup *top = group_below(NULL, "top");
	static void *objects[FEW], *large[3];
	struct kmem_stats stats;

	for (int round = 0; round < 20; round++) {
		struct mem_cgroup *leaf = group_of(top, round % 2 ? "odd" : "even", MEM_CGROUP_PRIVATE);

		for (int i = 0; i < FEW; i++)
			NEED((objects[i] = alloc_for(leaf, cache)));
		set_active_memcg(leaf);
		for (int i = 0; i < 3; i++)
			NEED((large[i] = kmalloc(100000, GFP_KERNEL_ACCOUNT)));
		NEED(mem_cgroup_offline(leaf) == 0);
		/* From now on the objects are the parent's, like any other. */
		void *late = kmem_cache_alloc(cache, GFP_KERNEL);
		NEED(late && kmem_cache_of(late) == cache);
		set_active_memcg(NULL);
		mem_cgroup_put(leaf);
		uint64_t most = drained(top);
		NEED(most > FEW * 96 + 300000);
		struct mem_cgroup *objcg = mem_cgroup_from_obj(objects[FEW - 1]);
		NEED(objcg == top);
		mem_cgroup_put(objcg);
		for (int i = 0; i < FEW; i++)
			kmem_cache_free(cache, objects[i]);
		for (int i = 0; i < 3; i++)
			kfree(large[i]);
		kmem_cache_free(cache, late);
		NEED(drained(top) == 0);
	}
	/* They are used again. */
	kmem_get_stats(&stats);
	unsigned caches = stats.caches;
	struct mem_cgroup *last = private_group("last");
	void *p = alloc_for(last, cache);
	kmem_get_stats(&stats);
	NEED(p && stats.caches == caches && named("orphans:last") && !named("orphans:odd"));
	kmem_cache_free(cache, p);
	mem_cgroup_put(last);
	mem_cgroup_put(top);
	gone(cache);
	kmem_get_stats(&stats);
	NEED(stats.caches < caches);
}

static struct kmem_cache *doomed;
static void *doomed_object;

static void destroy_doomed(void)
{
	kmem_cache_destroy(doomed);
	kfree(doomed_object);
}

/* The destruction reports the objects left, and the objects are uncharged then. */
static void the_cache_goes_first(void)
{
	struct mem_cgroup *tenant = private_group("survivor");
	char text[4096];
	int lines;

	doomed = charged("doomed", 100);
	struct kmem_cache *other = charged("doomed not", 100);
	void *p = alloc_for(tenant, doomed), *q = alloc_for(tenant, other);
	kmem_cache_free(doomed, p);
	doomed_object = alloc_for(tenant, doomed);
	said(destroy_doomed, text, &lines);
	NEED(strstr(text, "kmem_cache_destroy(doomed:survivor)") && lines > 2);
	kmem_cache_free(doomed, doomed_object);
	gone(doomed);
	NEED(!named("doomed:survivor") && named("doomed_not:survivor"));
	/* No caller may destroy a child cache. */
	kmem_cache_destroy(named("doomed_not:survivor"));
	kmem_cache_free(other, q);
	NEED(drained(tenant) == 0);
	mem_cgroup_put(tenant);
	gone(other);
}

/* ------------------------------------------------------------------ many, and threads */

#define GROUPS 8
#define CACHES 5
#define SLOTS 3000
#define STEPS 200000

static struct {
	void *object;
	int group, cache;
} slot[SLOTS];
static void mixed(void)
{
	static const char *const names[CACHES] = { "mixed 0", "mixed 1", "mixed 2", "mixed 3", "mixed 4" };
	struct mem_cgroup *groups[GROUPS];
	struct kmem_cache *caches[CACHES];

	for (int g = 0; g < GROUPS; g++)
		groups[g] = group_of(NULL, "mixed", g % 4 ? MEM_CGROUP_PRIVATE : 0);
	for (unsigned c = 0; c < CACHES; c++)
		caches[c] = c % 2 ? charged(names[c], 16 + 200 * c) : make(names[c], 16 + 200 * c);
	for (int step = 0; step < STEPS; step++) {
		int i = (int)(random_number() % SLOTS), g = (int)(random_number() % GROUPS);

		if (random_number() % 8192 == 0 && g % 4) {
			NEED(mem_cgroup_destroy_all(groups[g], NULL, NULL) == 0 && drained(groups[g]) == 0);
			for (int s = 0; s < SLOTS; s++)
				if (slot[s].group == g)
					slot[s].object = NULL;
		} else if (slot[i].object) {
			NEED(*(int *)slot[i].object == i);
			if (random_number() % 2 && slot[i].cache < CACHES)
				kmem_cache_free(caches[slot[i].cache], slot[i].object);
			else
				kfree(slot[i].object);
			slot[i].object = NULL;
		} else {
			slot[i].group = g;
			slot[i].cache = (int)(random_number() % (CACHES + 1));
			MEMCG_SCOPE(groups[g]);
			slot[i].object = slot[i].cache < CACHES ?
						 kmem_cache_alloc(caches[slot[i].cache], GFP_KERNEL_ACCOUNT) :
						 kmalloc(random_number() % 30000 + 4, GFP_KERNEL_ACCOUNT);
			NEED(slot[i].object);
			*(int *)slot[i].object = i;
		}
	}
	NEED(kmem_check_all() == 0);
	for (int i = 0; i < SLOTS; i++)
		kfree(slot[i].object);
	for (int g = 0; g < GROUPS; g++) {
		NEED(drained(groups[g]) == 0);
		mem_cgroup_put(groups[g]);
	}
	for (int c = 0; c < CACHES; c++)
		gone(caches[c]);
}

#define THREADS 4
#define ROUNDS 20000

static struct kmem_cache *common;
static struct mem_cgroup *common_group[3];

static void *worker(void *arg)
{
	uint64_t mine = (uintptr_t)arg * 0x9e3779b97f4a7c15u + 1;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t number = random_next(&mine);

		set_active_memcg(common_group[(number >> 20) % 3]);
		post(common, kmem_cache_alloc(common, GFP_KERNEL), number);
		if (i % 4000 == 0)
			mem_cgroup_drain(common_group[0]);
		if (number % 512 == 0)
			sched_yield();
		/* Groups come and go meanwhile, and leave what they have. */
		if (number % 1024 == 0) {
			struct mem_cgroup *brief = private_group("brief");

			set_active_memcg(brief);
			void *object = kmem_cache_alloc(common, GFP_KERNEL);
			set_active_memcg(NULL);
			mem_cgroup_put(brief);
			post(common, object, number / 1024);
		}
	}
	return NULL;
}

static void crosswise(void)
{
	pthread_t thread[THREADS];

	common = charged("crosswise", 128);
	for (int i = 0; i < 3; i++)
		common_group[i] = group_of(NULL, "crosswise", i ? MEM_CGROUP_PRIVATE : 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		NEED(pthread_create(&thread[i], NULL, worker, (void *)(i + 1)) == 0);
	/* Children of a fork go on alone. */
	for (int i = 0; i < 10; i++) {
		int status;
		pid_t child = fork();

		if (!child) {
			alarm(580);
			for (int t = 0; t < 3; t++)
				for (int k = 0; k < 300; k++)
					kmem_cache_free(common, alloc_for(common_group[t], common));
			NEED(mem_cgroup_destroy_all(common_group[1], NULL, NULL) == 0);
			/* A slab charged by another thread, and not yet allocated, is lost with the thread. */
			NEED(drained(common_group[1]) <= THREADS * 8 * PAGE);
			_exit(0);
		}
		NEED(waitpid(child, &status, 0) == child && status == 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < 256; i++)
		if (mailbox[i])
			kmem_cache_free(common, mailbox[i]);
	for (int i = 0; i < 3; i++) {
		NEED(drained(common_group[i]) == 0);
		mem_cgroup_put(common_group[i]);
	}
	gone(common);
}

static const struct test_case cases[] = {
	{ "no neighbours", no_neighbours },
	{ "in bulk", in_bulk },
	{ "in bulk of an offline group", in_bulk_of_an_offline_group },
	{ "of the same kind", of_the_same_kind },
	{ "all at once", all_at_once },
	{ "freed by handlers", freed_by_handlers },
	{ "orphans freed by a handler", orphans_freed_by_a_handler },
	{ "pointers that are left", pointers_that_are_left },
	{ "typesafe", typesafe },
	{ "to the last slab", to_the_last_slab },
	{ "under pressure", under_pressure },
	{ "without waiting", without_waiting },
	{ "the group goes first", the_group_goes_first },
	{ "the cache goes first", the_cache_goes_first },
	{ "mixed", mixed },
	{ "crosswise", crosswise },
};

GROUPS_MAIN(cases)
