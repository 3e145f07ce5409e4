/*
 * layers.c: the stack of layers above a cache's objects. The order is enum km_layer (slab/kmem_cache.h). Each layer has
 * ops (struct km_alloc_ops): a request enters the top layer of the cache, and each layer serves a request, or passes
 * the request to the layer below (km_layer_below).
 *
 * cache->layers has an entry for each layer. The entry of an absent layer repeats the entry of the next layer below.
 * So the first entry is the top, and the entry behind a layer stands below the layer: one load finds either, however
 * many layers are absent. Invariant, under km_drain_lock: BASE is present, and an absent layer's entry equals the
 * entry below.
 *
 * Layers change while other CPUs allocate and free, in these steps:
 *
 *	comes	1. the layer's state is stored (hooks, charge, out)
 *		2. the entries are stored, from the layer up to the top, each by a release; a slow path loads the top
 *		   by an acquire. A call on the way through the former top ends as if the call had come earlier.
 *		3. the public sheaves close: from then on every call is a slow path. If a layer must see all objects,
 *		   a drain of the cache follows (drain.c). The fence of the drain aborts every fast path in progress.
 *		   If a layer needs no fence, the layer's file has the reason (sampled_ops.c, debug_shadow.c).
 *	goes	the state is changed, the entries are stored, the public sheaves open. A call inside of the layer ends
 *		there: ops are constants, and the layers below serve requests at any time.
 *
 * The lock makes steps 2 and 3 one transaction where no drain follows, because a drain opens the public sheaves if
 * the top layer allows them (km_alloc_ops.pcs).
 */
#include "alloc_ops.h"

static const struct km_alloc_ops *base_layer(struct kmem_cache *cache)
{
	bool by_cpu;

	switch (cache->layout.engine->front) {
	case KM_PERCPU_NONE:
		return &km_ops_none;
	case KM_PERCPU_FREELIST:
		/* If events are counted, a child cache counts each of its calls: no fast path by CPU. */
		by_cpu = km_hits_by_cpu() && !(cache->memcg.child_of && km_layout_options.count_events);
		return by_cpu ? &km_ops_chain : &km_ops_chain_soft;
	default:
		return km_percpu.index == KM_INDEX_CID ? &km_ops_array_by_cid : &km_ops_array;
	}
}

/* The layers of the core. SHADOW is set by an event, and CHARGE where objects may be charged: km_sample_layer then
 * returns the charging ops unchanged. */
static km_layer_fn *const of_core[KM_LAYERS] = {
	[KM_LAYER_CHARGE] = km_sample_layer,
	[KM_LAYER_OBSERVE] = km_observe_layer,
	[KM_LAYER_VALIDATE] = km_validate_layer,
	[KM_LAYER_BASE] = base_layer,
};
static km_layer_fn *registered[KM_LAYERS];

bool km_layer_register(enum km_layer layer, km_layer_fn *choose)
{
	km_layer_fn *none = NULL;

	km_debug(layer < KM_LAYERS && choose, "a layer is in the order of layers");
	/* Release pairs with km_layers_choose: data that `choose` reads are visible. */
	return layer != KM_LAYER_SHADOW && !of_core[layer] && km_cas_release(&registered[layer], &none, choose);
}

void km_layer_set_locked(struct kmem_cache *cache, enum km_layer layer, const struct km_alloc_ops *ops)
{
	const struct km_alloc_ops **entry = &cache->layers[layer], *was = *entry;

	km_debug(km_is_locked(&km_drain_lock), "layers change under the drain lock");
	km_debug(ops || layer != KM_LAYER_BASE, "each cache has the base layer");
	ops = ops ?: entry[1];
	/* Release pairs with km_layer. Absent layers above repeat the entry. */
	km_store_release(entry, ops);
	while (entry > cache->layers && *--entry == was)
		km_store_release(entry, ops);
}

void km_layer_set(struct kmem_cache *cache, enum km_layer layer, const struct km_alloc_ops *ops)
{
	km_lock_scope(&km_drain_lock);
	km_layer_set_locked(cache, layer, ops);
}

void km_layers_choose(struct kmem_cache *cache)
{
	km_lock_scope(&km_drain_lock);
	for (unsigned layer = KM_LAYERS; layer--;) {
		km_layer_fn *choose = of_core[layer] ?: km_load_acquire(&registered[layer]);

		/* A destroyed cache keeps no layer above OBSERVE: each call is reported. */
		if (cache->layout.dead && layer < KM_LAYER_OBSERVE)
			km_layer_set_locked(cache, layer, NULL);
		else if (choose)
			km_layer_set_locked(cache, layer, choose(cache));
	}
	km_store(&cache->ext.seen, cache->ext.hooks || cache->layout.live_shift ||
				       km_layer(cache, KM_LAYER_CHARGE + 1) != km_layer(cache, KM_LAYER_OBSERVE));
}
