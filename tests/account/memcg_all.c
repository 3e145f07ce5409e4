/*
 * memcg_all.c: charges without a flag in gfp: a scope that accounts all requests (MEMCG_SCOPE_ALL), and calls in a
 * group's name (kmalloc_in, kmem_cache_alloc_in). Outside of such a scope objects are uncharged, before and after.
 * Disciplines: all
 */
#include "kit/charged_objects.h"

#include <pthread.h>

#define EACH 200

static struct kmem_cache *plain;

/* One of each kind, with plain GFP_KERNEL. */
struct lot {
	void *objects[EACH], *blocks[EACH], *zeroed, *pages, *mapping, *bulk[EACH];
};

static void get_lot(struct lot *lot)
{
	for (int i = 0; i < EACH; i++)
		NEED((lot->objects[i] = kmem_cache_alloc(plain, GFP_KERNEL)) &&
		     (lot->blocks[i] = kmalloc(100, GFP_KERNEL)));
	NEED((lot->zeroed = kzalloc(1000, GFP_KERNEL)) && (lot->pages = kmalloc(64 << 10, GFP_KERNEL)) &&
	     (lot->mapping = kvmalloc(5 << 20, GFP_KERNEL)) && kmalloc_bulk(300, GFP_KERNEL, EACH, lot->bulk));
}

static void put_lot(struct lot *lot)
{
	for (int i = 0; i < EACH; i++) {
		kmem_cache_free(plain, lot->objects[i]);
		kfree(lot->blocks[i]);
	}
	kfree(lot->zeroed);
	kfree(lot->pages);
	kvfree(lot->mapping);
	kfree_bulk(EACH, lot->bulk);
}

/* At least what was asked for. */
#define LOT_BYTES (EACH * (72 + 100 + 300) + 1000 + (64 << 10) + (5 << 20))

static void *frees(void *lot)
{
	put_lot(lot);
	return NULL;
}

static void all_of_it(unsigned flags)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "all", flags);
	struct lot inside, outside;
	pthread_t thread;

	NEED(group);
	{
		MEMCG_SCOPE(group);
		get_lot(&outside);
	}
	NEED(drained(group) == 0);
	{
		MEMCG_SCOPE_ALL(group);
		get_lot(&inside);
		/* A cache created since then. */
		struct kmem_cache *fresh = kmem_cache_create("fresh", 500, NULL, 0);
		NEED(fresh);
		uint64_t before = drained(group);
		void *object = kmem_cache_alloc(fresh, GFP_KERNEL);
		NEED(drained(group) >= before + 500);
		kmem_cache_free(fresh, object);
		kmem_cache_destroy(fresh);
	}
	NEED(drained(group) >= LOT_BYTES);
	struct mem_cgroup *objcg = mem_cgroup_from_obj(inside.blocks[0]);
	NEED(objcg == group);
	mem_cgroup_put(objcg);
	uint64_t paid = drained(group);
	put_lot(&outside);
	{
		MEMCG_SCOPE(group);
		get_lot(&outside);
	}
	NEED(drained(group) == paid);
	put_lot(&outside);
	/* The limit holds for requests without a flag. */
	mem_cgroup_set_max(group, paid);
	{
		MEMCG_SCOPE_ALL(group);
		NEED(!kmalloc(1 << 20, GFP_KERNEL | __GFP_NOWARN) && errno == ENOMEM);
	}
	/* Another thread's frees uncharge. */
	NEED(pthread_create(&thread, NULL, frees, &inside) == 0);
	pthread_join(thread, NULL);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
}

static void scope_of_all(void)
{
	plain = kmem_cache_create("plain", 72, NULL, 0);
	NEED(plain);
	NEED(!mem_cgroup_account_all(false));
	all_of_it(0);
	all_of_it(MEM_CGROUP_PRIVATE);
	kmem_cache_destroy(plain);
}

static void one_call(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "one call", 0), *other = mem_cgroup_create(NULL, "other", 0);
	struct kmem_cache *cache = kmem_cache_create("one", 200, NULL, 0);
	void *objects[2], *pages;

	NEED(group && other && cache);
	set_active_memcg(other);
	NEED((objects[0] = kmalloc_in(group, 100, GFP_KERNEL)) &&
	     (objects[1] = kmem_cache_alloc_in(cache, group, GFP_KERNEL)) &&
	     (pages = kmalloc_in(group, 20000, GFP_KERNEL | __GFP_ZERO)));
	NEED(mem_cgroup_active() == other);
	set_active_memcg(NULL);
	NEED(drained(other) == 0);
	NEED(drained(group) >= 300 + 20000);
	for (int i = 0; i < 2; i++) {
		struct mem_cgroup *objcg = mem_cgroup_from_obj(objects[i]);

		NEED(objcg == group);
		mem_cgroup_put(objcg);
	}
	mem_cgroup_set_max(group, drained(group));
	NEED(!kmalloc_in(group, 100000, GFP_KERNEL | __GFP_NOWARN) && errno == ENOMEM);
	kfree(objects[0]);
	kmem_cache_free(cache, objects[1]);
	kfree(pages);
	NEED(drained(group) == 0);
	kmem_cache_destroy(cache);
	mem_cgroup_put(group);
	mem_cgroup_put(other);
}

static const struct test_case cases[] = {
	{ "one call", one_call },
	{ "scope of all", scope_of_all },
};

GROUPS_MAIN(cases)
