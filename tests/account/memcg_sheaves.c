/*
 * memcg_sheaves.c: charged objects by other ways than a hit: prefilled sheaves, zeroed objects, and a cache whose
 * first charge was a call that may not wait; to the byte. Disciplines: all.
 */
#include "kit/charged_objects.h"

#include "cache/cache.h"

static struct slab_sheaf *prefilled(struct kmem_cache *cache, struct mem_cgroup *group, gfp_t gfp, unsigned n)
{
	MEMCG_SCOPE(group);
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, gfp, n);

	NEED(sheaf && kmem_cache_sheaf_size(sheaf) >= n);
	return sheaf;
}

/* The filling group is charged for the objects of a sheaf, until they are freed or go back. */
static void of_sheaf(struct kmem_cache *cache, gfp_t gfp, unsigned n)
{
	struct mem_cgroup *group = group_below(NULL, "filler"), *other = group_below(NULL, "taker");
	struct slab_sheaf *sheaf = prefilled(cache, group, gfp, n);
	static void *objects[2000];

	NEED(drained(group) == kmem_cache_sheaf_size(sheaf) * cost(cache));
	set_active_memcg(other);
	for (unsigned i = 0; i < n; i++)
		NEED((objects[i] = kmem_cache_alloc_from_sheaf(cache, GFP_NOWAIT | __GFP_ACCOUNT, sheaf)));
	set_active_memcg(NULL);
	unsigned left = kmem_cache_sheaf_size(sheaf);
	NEED(drained(group) == (n + left) * cost(cache) && drained(other) == 0);
	set_active_memcg(group);
	NEED(kmem_cache_refill_sheaf(cache, gfp, &sheaf, n + 7) == 0);
	set_active_memcg(NULL);
	NEED(drained(group) == (n + kmem_cache_sheaf_size(sheaf)) * cost(cache));
	kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
	NEED(drained(group) == n * cost(cache));
	kmem_cache_free_bulk(cache, n, objects);
	NEED(drained(group) == 0 && drained(other) == 0);
	mem_cgroup_put(group);
	mem_cgroup_put(other);
}

static void sheaves(void)
{
	struct kmem_cache *cache = charged("sheaves", 200), *plain = make("now and then", 120);
	struct mem_cgroup *group = group_below(NULL, "exchanged");

	/* An uncharged sheaf; then each object is charged. */
	struct slab_sheaf *unpaid = kmem_cache_prefill_sheaf(plain, GFP_KERNEL, 10);
	void *object = kmem_cache_alloc_from_sheaf(plain, GFP_KERNEL, unpaid);
	for (unsigned n = 1; n < 2000; n = n * 3 + 1) {
		of_sheaf(cache, GFP_KERNEL, n);
		of_sheaf(plain, GFP_KERNEL_ACCOUNT, n);
	}
	NEED(kmem_cache_of(object) == plain && !mem_cgroup_from_obj(object));
	set_active_memcg(group);
	unsigned had = kmem_cache_sheaf_size(unpaid);
	NEED(kmem_cache_refill_sheaf(plain, GFP_KERNEL_ACCOUNT, &unpaid, had + 1) == 0);
	set_active_memcg(NULL);
	/*
	 * A sheaf of engine sheaf is exchanged, because all its objects are uncharged; an array is filled up.
	 */
	bool block = plain->fast.pcs.slot && !plain->layout.engine->array.tune && !plain->layout.live_shift;
	NEED(kmem_cache_sheaf_size(unpaid) == had + 1 && drained(group) == (block ? had + 1 : 1) * cost(plain));
	kmem_cache_return_sheaf(plain, GFP_KERNEL, unpaid);
	kmem_cache_free(plain, object);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
	gone(cache);
	gone(plain);
}

static void construct(void *object)
{
	memset(object, 0x5a, 96);
}

/* From the charged sheaf as well, of a private group too, with any former contents. */
static void zeroed(void)
{
	struct kmem_cache *cache = charged("zeroed", 96), *now = make("zeroed now and then", 96);
	struct kmem_cache *constructed = kmem_cache_create("constructed", 96, 0, SLAB_ACCOUNT, construct);
	struct mem_cgroup *group[2] = { group_below(NULL, "zeroed"), private_group("zeroed") };
	static void *objects[300], *others[300];

	for (int round = 0; round < 4; round++) {
		struct kmem_cache *from = round < 2 ? cache : now;

		set_active_memcg(group[round % 2]);
		for (int i = 0; i < 300; i++) {
			NEED((objects[i] = kmem_cache_alloc(from, GFP_KERNEL_ACCOUNT)));
			memset(objects[i], 0xff, 96);
		}
		for (int i = 0; i < 300; i++)
			kmem_cache_free(from, objects[i]);
		for (int i = 0; i < 300; i++) {
			NEED((objects[i] = kmem_cache_zalloc(from, GFP_KERNEL_ACCOUNT)) && all(objects[i], 0, 96));
			NEED((others[i] = kmem_cache_alloc(constructed, GFP_KERNEL)));
			NEED(all(others[i], 0x5a, 96));
			struct mem_cgroup *objcg = mem_cgroup_from_obj(objects[i]);
			NEED(objcg == group[round % 2]);
			mem_cgroup_put(objcg);
		}
		NEED(round % 2 || drained(group[0]) == 300 * (cost(from) + cost(constructed)));
		set_active_memcg(NULL);
		for (int i = 0; i < 300; i++) {
			kmem_cache_free(from, objects[i]);
			kmem_cache_free(constructed, others[i]);
		}
		NEED(drained(group[round % 2]) == 0);
	}
	/* A hit is one: what was freed last comes first. */
	set_active_memcg(group[0]);
	objects[0] = kmem_cache_alloc(cache, GFP_KERNEL);
	for (int i = 0; i < 50; i++) {
		kmem_cache_free(cache, objects[0]);
		void *again = kmem_cache_zalloc(cache, GFP_KERNEL);

		NEED(again == objects[0] || !cache->memcg.charged.slot);
		objects[0] = again;
	}
	kmem_cache_free(cache, objects[0]);
	set_active_memcg(NULL);
	for (int i = 0; i < 2; i++)
		mem_cgroup_put(group[i]);
	gone(cache);
	gone(now);
	gone(constructed);
}

/* The cache's first charged object was requested by a call that may not wait. */
static void begun_without_waiting(void)
{
	struct kmem_cache *cache = make("begun", 200);
	struct mem_cgroup *group = group_below(NULL, "begun");
	static void *objects[100];

	set_active_memcg(group);
	kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
	NEED((objects[0] = kmem_cache_alloc(cache, GFP_NOWAIT | __GFP_ACCOUNT)));
	NEED(cache->memcg.charge && !cache->memcg.charged.slot && drained(group) == cost(cache));
	for (int i = 1; i < 100; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL_ACCOUNT)));
	set_active_memcg(NULL);
	NEED(!cache->memcg.charged.slot == !cache->fast.pcs.slot);
	NEED(drained(group) == 100 * cost(cache));
	kmem_cache_free_bulk(cache, 100, objects);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
	gone(cache);
}

static const struct test_case cases[] = {
	{ "sheaves", sheaves },
	{ "zeroed", zeroed },
	{ "begun without waiting", begun_without_waiting },
};

GROUPS_MAIN(cases)
