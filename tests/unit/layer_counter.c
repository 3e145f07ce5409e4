/*
 * layer_counter: one more layer, by the recipe of CONTRIBUTING: a counter of objects. Each object is counted once as
 * the object comes, and once as the object goes, charged or not, with layers above and below. Caches without the layer
 * are as before. Under each engine. Disciplines: all.
 */
#include "kit/charged_objects.h"

#include "alloc/alloc_ops.h"
#include "kit/inside.h"

#define N 300

/* ------------------------------------------------------------------ the layer: ext/counter/counter.c */

static unsigned long comes, goes;

static void *counted_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	void *object = km_layer_below(cache, KM_LAYER_ADDED)->alloc(cache, gfp, node);

	__atomic_fetch_add(&comes, object != NULL, __ATOMIC_RELAXED);
	return object;
}

static void counted_free(struct kmem_cache *cache, void *object)
{
	__atomic_fetch_add(&goes, 1, __ATOMIC_RELAXED);
	km_layer_below(cache, KM_LAYER_ADDED)->free(cache, object);
}

static const struct km_alloc_ops counter = {
	.alloc = counted_alloc, .free = counted_free,
	.alloc_bulk = km_bulk_one_by_one, .free_bulk = km_bulk_free_one_by_one,
};

static const struct km_alloc_ops *choose(struct kmem_cache *cache)
{
	return strncmp(cache->registry.name, "counted", 7) == 0 ? &counter : NULL;
}

__attribute__((constructor)) static void counter_init(void)
{
	NEED(km_layer_register(KM_LAYER_ADDED, choose));
}

/* ------------------------------------------------------------------ the test */

static void *objects[N], *one;

/* Single, many, without waiting; every way in and out once. */
static void round_trip(struct kmem_cache *cache)
{
	comes = goes = 0;
	for (int i = 0; i < N; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, i % 2 ? GFP_KERNEL : GFP_KERNEL | __GFP_ZERO)));
	NEED(comes == N && goes == 0);
	for (int i = 0; i < N; i++)
		kmem_cache_free(cache, objects[i]);
	NEED(comes == N && goes == N);
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, N, objects));
	kmem_cache_free_bulk(cache, N, objects);
	NEED(comes == 2 * N && goes == 2 * N);
	one = kmem_cache_alloc_nolock(cache, 0, NUMA_NO_NODE);
	NEED(comes == 2 * N + (one != NULL));
	if (one)
		kmem_cache_free_nolock(cache, one);
	NEED((one = kmem_cache_alloc(cache, GFP_NOWAIT)));
	if (slob)
		kmem_cache_free(cache, one);
	else
		kfree(one);
	NEED(comes == goes);
}

static void counted(void)
{
	struct kmem_cache *cache = make("counted", 200), *other = make("other", 200);

	NEED(km_alloc_ops(cache) == &counter && !cache->fast.pcs.front.open.pcs);
	round_trip(cache);
	NEED((one = kmem_cache_alloc(other, GFP_KERNEL)));
	kmem_cache_free(other, one);
	NEED(comes == goes && km_layer(other, KM_LAYER_ADDED) == km_layer(other, KM_LAYER_OBSERVE));
	gone(other);
	gone(cache);
	NEED(km_alloc_ops(cache) == &km_ops_dead);
}

static void charged_as_well(void)
{
	struct mem_cgroup *group[2] = { group_below(NULL, "first"), group_below(NULL, "second") };
	struct kmem_cache *cache = charged("counted", 200);

	for (int i = 0; i < 4; i++) {
		set_active_memcg(group[i / 2]);
		round_trip(cache);
		set_active_memcg(NULL);
		NEED(slob || km_layer_below(cache, KM_LAYER_CHARGE) == &counter);
		NEED((one = alloc_for(group[i % 2], cache)));
		NEED(slob || drained(group[i % 2]) == cost(cache));
		kmem_cache_free(cache, one);
		NEED(comes == goes && drained(group[0]) == 0 && drained(group[1]) == 0);
	}
	gone(cache);
}

static void *on_alloc(struct kmem_cache *cache, void *object, gfp_t gfp)
{
	NEED(comes == goes);
	return object;
}

/* An observer comes and goes below, and a debug shadow cache above, with a counter of its own. */
static void among_others(void)
{
	static const struct km_hooks hooks = { .on_alloc = on_alloc };
	struct kmem_cache *cache = make("counted", 200);

	for (int i = 0; i < 3; i++) {
		INSIDE(km_alloc_watch(cache, &hooks));
		NEED(km_layer_below(cache, KM_LAYER_ADDED) == &km_ops_observed && km_alloc_ops(cache) == &counter);
		NEED((one = kmem_cache_alloc(cache, GFP_KERNEL)));
		kmem_cache_free(cache, one);
		INSIDE(km_alloc_watch(cache, NULL));
		NEED(km_layer_below(cache, KM_LAYER_ADDED) == km_layer(cache, KM_LAYER_VALIDATE));
		round_trip(cache);
		NEED(kmem_cache_set_debug(cache, "F") == 0);
		NEED(km_alloc_ops(cache) != &counter && km_layer_below(cache, KM_LAYER_SHADOW) == &counter);
		round_trip(cache);
		NEED(kmem_cache_set_debug(cache, "-") == 0 && km_alloc_ops(cache) == &counter);
	}
	gone(cache);
}

/* The core chooses its own layers, and the added layer already has a function. */
static void registered(void)
{
	for (enum km_layer layer = KM_LAYER_CHARGE; layer < KM_LAYERS; layer++)
		NEED(!km_layer_register(layer, choose));
}

static const struct test_case cases[] = {
	{ "each object is counted once", counted },
	{ "charged objects, too", charged_as_well },
	{ "with layers above and below", among_others },
	{ "a layer is registered once", registered },
};
API_MAIN(cases)
