/*
 * observed_ops.c: the layer OBSERVE, with one of three ops. km_ops_observed: each object is seen by hooks at
 * allocation and free, or checked before the free, or each allocation may fail on purpose. km_ops_profiled: a profile
 * is the only observer, at a small cost. km_ops_dead: the cache was destroyed. The layers below handle cached
 * objects. Invariant: no object passes unseen, except in calls in progress when the observation began.
 *
 * An observer comes to a running cache in this order: the hooks are stored, the layer is chosen, a drain with a fence
 * closes the public sheaves (layers.c). From the fence on each fast path misses, and each miss finds the layer.
 * Objects allocated unseen before are freed in view of the observer: an observer must accept such objects.
 *
 * A destroyed cache keeps ops, too: a call with the old pointer is reported as misuse, until another cache takes the
 * address.
 */
#include <errno.h>

#include "page/guard_range.h"
#include "profile_record.h"
#include "tracer.h"
#include "alloc_ops.h"

bool (*km_alloc_fails)(const char *name, size_t bytes, gfp_t gfp);
uint32_t km_alloc_probing;
const struct km_hooks km_probe_hooks;
struct km_profile_now km_profile_now;
const struct km_profile_ops *km_profile_ops;
const struct km_tracer_ops *km_tracer_ops;

void km_tracer_comes(const void *p, size_t bytes)
{
	if (km_tracer_ops)
		km_tracer_ops->comes(p, bytes);
}

void km_tracer_goes(const void *p)
{
	if (km_tracer_ops)
		km_tracer_ops->goes(p);
}

/* Returns: true if a profile is the only observer, and the cached objects are in per-CPU sheaves by CPU number, without
 * checks: km_ops_profiled may then pop and push as the fast path does. */
static bool is_profiled_only(const struct kmem_cache *cache, enum km_front front)
{
	return km_load(&km_alloc_probing) == KM_PROBING_PROFILE && km_load(&cache->ext.hooks) == &km_probe_hooks &&
	       front == KM_PERCPU_SHEAVES && km_hits_by_cpu() && !cache->layout.checked && !cache->layout.live_shift &&
	       !(cache->layout.flags & SLAB_FAILSLAB) && !km_layout_options.count_events;
}

const struct km_alloc_ops *km_observe_layer(struct kmem_cache *cache)
{
	if (cache->layout.dead)
		return &km_ops_dead;
	/* Engines with shared pages check every free at once, for every cache. */
	if (!cache->ext.hooks && (!cache->layout.checked || cache->layout.engine->shared_pages) &&
	    !(cache->layout.flags & SLAB_FAILSLAB))
		return NULL;
	return is_profiled_only(cache, cache->layout.engine->front) ? &km_ops_profiled : &km_ops_observed;
}

void km_alloc_watch(struct kmem_cache *cache, const struct km_hooks *hooks)
{
	km_store(&cache->ext.hooks, hooks);
	km_layers_choose(cache);
	km_alloc_drain(cache);
	km_debug(!hooks || !km_load(&cache->fast.pcs.front.open.pcs), "an observed cache has no public fast path");
}

void km_alloc_bury(struct kmem_cache *cache)
{
	cache->layout.dead = cache->layout.checked = true;
	if (cache->ext.parts)
		km_parts_end(cache);
	km_debug(!km_load(&cache->fast.pcs.inner.pcs), "a destroyed cache has no open per-CPU sheaves");
	km_layers_choose(cache);
}

/* ------------------------------------------------------------------ one object */

/* Allocates an object from the layer below and calls the observers. Zeroes after that, because a debug check wants to
 * see the object untouched. */
static void *show(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node)
{
	const struct km_alloc_ops *below = km_layer_below(cache, KM_LAYER_OBSERVE);
	const struct km_hooks *hooks = km_load(&cache->ext.hooks);
	const gfp_t unzeroed = gfp & ~__GFP_ZERO;
	void *object, *shown;

	for (unsigned i = 0; i < KM_MOST_LOST; i++) {
		object = bytes ? below->alloc_sized(cache, bytes, align, unzeroed, node) :
				 below->alloc(cache, unzeroed, node);
		if (km_unlikely(!object))
			return NULL;
		shown = hooks && hooks->on_alloc ? hooks->on_alloc(cache, object, gfp) : object;
		if (km_likely(shown != KM_LOST))
			break;
		object = shown = NULL;
	}
	if (km_likely(shown))
		return km_miss_zeroed(cache, shown, gfp, bytes);
	bool was = km_calls_begin(km_gfp_may_wait(gfp));
	if (object)
		km_layer_below(cache, KM_LAYER_OBSERVE)->free(cache, object);
	km_calls_end(was);
	return km_alloc_failed(cache->registry.name, bytes ?: cache->layout.object_size, gfp, ENOMEM);
}

/* Injects a failure before any object is taken. Kernel: should_failslab, called once for a bulk request as well. */
static bool fails(const struct kmem_cache *cache, size_t bytes, gfp_t gfp)
{
	bool failed = cache->layout.flags & SLAB_FAILSLAB && km_alloc_fails &&
		      km_alloc_fails(cache->registry.name, bytes, gfp);

	if (km_unlikely(failed))
		km_alloc_failed(cache->registry.name, bytes, gfp | __GFP_NOWARN, ENOMEM);
	return failed;
}

/* Runs the probes of an allocation, also of a failed one, as in the kernel. site: return address of the call. */
km_cold static void *probed(const struct kmem_cache *cache, void *object, size_t bytes, gfp_t gfp, int node,
			    uintptr_t site)
{
	const bool accounted = (cache->layout.flags & SLAB_ACCOUNT) || (gfp & __GFP_ACCOUNT);
	/* An engine that serves by size uses as many bytes as requested, rounded up. */
	const size_t size = km_max((size_t)cache->layout.size, km_align_up(bytes, KM_SIZED_UNIT));

	if (object && km_load(&km_alloc_probing) & KM_PROBING_PROFILE && km_profile_is_due(size))
		km_profile_ops->due(cache, object, size, km_gfp_may_wait(gfp), site);
	if (km_likely(!(km_load(&km_alloc_probing) & KM_PROBING_TRACER)))
		return object;
	if (km_thread.asked && km_thread.asked->cache == cache)
		bytes = km_thread.asked->bytes;
	if (cache->layout.flags & SLAB_KMALLOC)
		km_tracer_ops->kmalloc(km_alloc_take_site(site), object, bytes, size, gfp, node, accounted);
	else
		km_tracer_ops->cache_alloc(site, object, cache->registry.name, bytes,
					   cache->layout.size, gfp, node, accounted);
	/* Requests of kmalloc and new tell the tracer themselves. */
	if (!(cache->layout.flags & SLAB_KMALLOC))
		km_tracer_comes(object, bytes);
	return object;
}

static void *observed_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	void *object = fails(cache, cache->layout.object_size, gfp) ? NULL : show(cache, 0, 0, gfp, node);

	return km_likely(!km_load(&km_alloc_probing)) ? object :
	       probed(cache, object, cache->layout.object_size, gfp, node, (uintptr_t)__builtin_return_address(0));
}

static void *observed_alloc_sized(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node)
{
	void *object = fails(cache, bytes, gfp) ? NULL : show(cache, bytes, align, gfp, node);

	return km_likely(!km_load(&km_alloc_probing)) ? object :
	       probed(cache, object, bytes, gfp, node, (uintptr_t)__builtin_return_address(0));
}

/* Validates an object to be freed: slab, cache, boundary, and allocated state. Reports misuse. */
static bool valid(struct kmem_cache *cache, void *object)
{
	int index;

	/* A cache under slab debugging: the observer itself finds the slab and checks the object. */
	if (km_is_debugged(cache))
		return true;
	struct km_page *slab = km_slab_of(cache, object, &index, "kmem_cache_free");
	if (!slab)
		return false;
	/* is_taken may lock, so a signal handler inside an engine skips it; the engine's give checks again. */
	if (!km_miss_enter())
		return true;
	bool taken = cache->layout.engine->is_taken(cache, slab, (unsigned)index);
	km_busy_end_clear();
	if (!taken)
		km_refuse(slab, object, KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", cache->registry.name);
	return taken;
}

/* Runs the probes of a free, before the object is reused. */
km_cold static void probed_free(const struct kmem_cache *cache, const void *object, uintptr_t site)
{
	if (object && km_load(&km_alloc_probing) & KM_PROBING_PROFILE)
		km_profile_ops->goes(object);
	if (km_likely(!(km_load(&km_alloc_probing) & KM_PROBING_TRACER)))
		return;
	if (cache->layout.flags & SLAB_KMALLOC || cache->layout.engine->whole_pages)
		km_tracer_ops->kfree(site, object);
	else
		km_tracer_ops->cache_free(site, object, cache->registry.name);
	km_tracer_goes(object);
}

/* Calls the observers of a free. Returns: false if the object must not be freed. */
km_inline bool seen_off(struct kmem_cache *cache, void *object, uintptr_t site)
{
	const struct km_hooks *hooks = km_load(&cache->ext.hooks);

	if (km_unlikely(km_load(&km_alloc_probing)))
		probed_free(cache, object, site);
	if (km_unlikely(!object)) {
		km_miss_free_null(cache);
		return false;
	}
	if (cache->layout.checked && !cache->layout.engine->shared_pages && !valid(cache, object))
		return false;
	return !hooks || !hooks->on_free || hooks->on_free(cache, object);
}

static void observed_free(struct kmem_cache *cache, void *object)
{
	km_errno_scope(saved_errno);

	if (seen_off(cache, object, (uintptr_t)__builtin_return_address(0)))
		km_layer_below(cache, KM_LAYER_OBSERVE)->free(cache, object);
}

static void observed_free_past(struct kmem_cache *cache, void *object)
{
	km_errno_scope(saved_errno);

	if (seen_off(cache, object, (uintptr_t)__builtin_return_address(0)))
		km_ops_free_past(km_layer_below(cache, KM_LAYER_OBSERVE), cache, object);
}

/* With hooks allocates each object by itself. Without hooks only frees are checked, so the request goes to the layer
 * below. */
static int observed_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	if (km_load(&cache->ext.hooks)) {
		if (!km_bulk_one_by_one(cache, gfp, left, n, objects))
			return 0;
		/* A tracer learns of these objects as kmalloc's: malloc has no bulk calls. */
		for (size_t i = 0; km_load(&km_alloc_probing) && cache->layout.flags & SLAB_KMALLOC && i < n; i++)
			km_tracer_comes(objects[i], cache->layout.object_size);
		return (int)n;
	}
	if (fails(cache, cache->layout.object_size, gfp))
		return 0;
	return km_layer_below(cache, KM_LAYER_OBSERVE)->alloc_bulk(cache, gfp, left, n, objects);
}

const struct km_alloc_ops km_ops_observed = {
	.alloc = observed_alloc, .alloc_sized = observed_alloc_sized, .free = observed_free,
	.free_past = observed_free_past,
	.alloc_bulk = observed_alloc_bulk, .free_bulk = km_bulk_free_one_by_one,
};

/* ------------------------------------------------------------------ profiled */

/* The fast path under a profile. The public sheaves are closed, so each call comes here, finds the sheaves, and
 * counts the thread's bytes. So a sample belongs to its own caller, whatever the sheaves hold. A free checks if the
 * object may be a sample. All other calls go to the observed ops above. An allocation and a free cost 2 ns more than
 * their fast paths; with the observed ops, 18 ns more (docs/design/profiles.md). */
#ifdef KMEM_HAVE_RSEQ
static km_noinline void *profiled_due(struct kmem_cache *cache, void *object, uintptr_t site)
{
	km_profile_ops->due(cache, object, cache->layout.size, true, site);
	return object;
}

static void *profiled_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	const struct kmem_cache_front *front = &cache->fast.pcs.front;
	void *object = NULL;

	if (km_likely(!(gfp & KMEM_GFP_ODD)) && km_likely(km_gfp_may_wait(gfp)) && km_likely(node == NUMA_NO_NODE))
		object = kmem_pcs_pop(&cache->fast.pcs.inner, front->percpu, front->rseq);
	if (km_unlikely(!object))
		return observed_alloc(cache, gfp, node);
	if (km_profile_is_due(cache->layout.size))
		return profiled_due(cache, object, (uintptr_t)__builtin_return_address(0));
	return object;
}

/* Frees an object that may be a sample of the profile. */
static km_noinline void profiled_goes(struct kmem_cache *cache, void *object)
{
	km_profile_ops->goes(object);
	if (km_unlikely(!km_pcs_push(&cache->fast.pcs, object)))
		observed_free(cache, object);
}

static void profiled_free(struct kmem_cache *cache, void *object)
{
	const struct kmem_cache_front *front = &cache->fast.pcs.front;

	if (km_profile_may_have(object)) {
		profiled_goes(cache, object);
		return;
	}
	if (km_unlikely(!object) ||
	    km_unlikely(!kmem_pcs_push(&cache->fast.pcs.inner, front->percpu, front->rseq, object)))
		observed_free(cache, object);
}
#else
#define profiled_alloc observed_alloc
#define profiled_free observed_free
#endif

const struct km_alloc_ops km_ops_profiled = {
	.alloc = profiled_alloc, .alloc_sized = observed_alloc_sized, .free = profiled_free,
	.alloc_bulk = observed_alloc_bulk, .free_bulk = km_bulk_free_one_by_one,
};

/* ------------------------------------------------------------------ destroyed */

static void *dead_alloc(struct kmem_cache *cache, gfp_t gfp km_unused, int node km_unused)
{
	km_misuse(KM_MISUSE_DEAD_CACHE, "kmem_cache_alloc", cache, cache->registry.name);
	errno = EINVAL;
	return NULL;
}

static void dead_free(struct kmem_cache *cache, void *object)
{
	if (object)
		km_misuse(KM_MISUSE_DEAD_CACHE, "kmem_cache_free", object, cache->registry.name);
	else
		km_miss_free_null(cache);
}

const struct km_alloc_ops km_ops_dead = {
	.alloc = dead_alloc, .free = dead_free, .alloc_bulk = km_bulk_one_by_one, .free_bulk = km_bulk_free_one_by_one,
};
