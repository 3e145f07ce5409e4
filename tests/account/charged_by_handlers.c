/*
 * charged_by_handlers.c: a handler may interrupt a thread that holds the lock of its CPU's stock, perhaps the only
 * stock. A charge with __GFP_NOFAIL never fails for this reason, nor does a charge with room, and all bytes are
 * uncharged in the end, also after the group's end. Disciplines: all.
 */
#include "memcg/memcg_group.h"
#include "kit/clock.h"
#include "kit/inside.h"
#include "kit/charged_objects.h"

enum { BYTES = 5000 };

static struct km_stock *stocks(void)
{
	return (struct km_stock *)(uintptr_t)*km_memcg_view.stocks;
}

/* The state for a handler: its thread holds the stocks, or some of their locks belong to other threads. */
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

	/* Neighbours of the object are cached, and their page's owner word is set: no other work is left. */
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

/* Bytes counted by a spare outlive their group, and end the group's objcg when uncharged. */
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
