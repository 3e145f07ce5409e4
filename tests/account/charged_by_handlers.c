/*
 * charged_by_handlers.c: a handler may strike a thread that has the lock of its CPU's stock, and that may be the only
 * one there is: a charge that must not fail does not fail for that, nor does one that has room, and the bytes are where
 * they belong when all is given back, also where the group has left meanwhile. Disciplines: all.
 */
#include "memcg/memcg_group.h"
#include "kit/clock.h"
#include "kit/inside.h"
#include "kit/paid.h"

enum { BYTES = 5000 };

static struct km_stock *stocks(void)
{
	return (struct km_stock *)(uintptr_t)*km_memcg_view.stocks;
}

/* As a handler finds it that struck a thread which has the stocks, or some of their locks are others'. */
static struct km_busy_was take_stocks(void)
{
	struct km_busy_was was = km_busy_begin();

	for (unsigned i = 0; i < *km_memcg_view.stock_count; i++)
		NEED(km_trylock(&stocks()[i].lock));
	return was;
}

static void give_stocks(struct km_busy_was was)
{
	for (unsigned i = *km_memcg_view.stock_count; i--;)
		km_unlock(&stocks()[i].lock);
	km_busy_end(was);
}

static void by_hand(void)
{
	struct mem_cgroup *group = group_below(NULL, "struck");
	struct km_busy_was was = take_stocks();
	int insisting = mem_cgroup_charge(group, GFP_ATOMIC, BYTES);
	int asking = mem_cgroup_charge(group, GFP_NOWAIT, BYTES);

	give_stocks(was);
	NEED(!insisting && !asking);
	NEED(drained(group) == 2 * BYTES);
	was = take_stocks();
	mem_cgroup_uncharge(group, BYTES);
	give_stocks(was);
	NEED(drained(group) == BYTES);
	mem_cgroup_uncharge(group, BYTES);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
}

static void an_object(void)
{
	struct kmem_cache *cache = charged("struck", 100);
	struct mem_cgroup *group = group_below(NULL, "struck");

	/* Its neighbours lie ready, and their page says already who pays: nothing else is missing. */
	set_active_memcg(group);
	void *first = kmem_cache_alloc(cache, GFP_KERNEL);
	kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
	NEED(first && drained(group) == (slob ? 0 : cost(cache)));
	struct km_busy_was was = take_stocks();
	void *object = kmem_cache_alloc(cache, GFP_ATOMIC | __GFP_NOWARN);
	give_stocks(was);
	set_active_memcg(NULL);
	NEED(object || slob);
	NEED(slob || drained(group) == 2 * cost(cache));
	kmem_cache_free(cache, first);
	if (object)
		kmem_cache_free(cache, object);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
	kmem_cache_destroy(cache);
}

/* Bytes that a spare has counted outlive their group, and end its objcg when they come back. */
static void group_leaves(void)
{
	struct mem_cgroup *parent = group_below(NULL, "parent"), *group = group_below(parent, "child");
	struct obj_cgroup *objcg = group->objcg;
	struct km_busy_was was = take_stocks();
	int charged = mem_cgroup_charge(group, GFP_ATOMIC, BYTES);

	give_stocks(was);
	NEED(!charged && !mem_cgroup_offline(group));
	NEED(drained(parent) == BYTES);
	mem_cgroup_put(group);
	NEED(objcg->memcg == parent);
	km_objcg_uncharge(objcg, BYTES);
	NEED(drained(parent) == 0);
	km_memcg_lock();
	km_memcg_reap();
	km_memcg_unlock();
	NEED(!objcg->memcg);
	mem_cgroup_put(parent);
}

static const struct test_case cases[] = {
	{ "by hand", by_hand }, { "an object", an_object }, { "group leaves", group_leaves },
};
API_MAIN(cases)
