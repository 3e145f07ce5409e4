/*
 * sampled_ops.c: ops of a cache whose next object comes from the pool of guarded objects (page/guard_range.h). The
 * fast path checks nothing. So a sampled cache has these ops and no public sheaves, until the object is allocated,
 * and for a bounded number of calls more. Then the cache's plain ops return. Invariant: a call other than the sampled
 * one ends as in the plain ops.
 *
 * No fence is needed. A free on another CPU may use the fast path until its thread sees the store that closes the
 * sheaves. But the thread that frees the sampled object got the object from the allocating thread, after this store,
 * and so sees the sheaves closed.
 *
 * Frees that find the guarded object. A free by address (kfree, free, and kmem_cache_free of a cache without per-CPU
 * sheaves) always finds the object, because no page has an entry for the object. So does a check of each free, and
 * hardening. Any other kmem_cache_free would push the object unseen. Such a free is found while the cache has these
 * ops, for WINDOW calls. After the window, the object is found when its sheaf is emptied, or when the cache is
 * sampled again. Until then the object is reused as any other object: the pages around stay guarded, but no free of
 * the object is checked.
 *
 * A charged object has an owner word, by its page; a guarded object has none. So a charged cache is not sampled. If
 * the cache becomes charged while a guarded object is out, the object stays uncharged: such a cache is in state
 * KM_CHARGING_SOME for ever, without mixed sheaves, and its frees look at the owner. A charged allocation that meets
 * the object in a plain sheaf frees the object and takes another (km_plain_alloc).
 *
 * kmalloc and malloc know the requested bytes, and the ops do not: a miss names only a cache. The first call that
 * meets these ops samples nothing. From then on misses of kmalloc and malloc take the slow path with sizes
 * (km_direct), and leave the bytes in km_thread.asked, until an object was sampled.
 */
#include "os/secret.h"
#include "page/guard_range.h"
#include "alloc_ops.h"

#define WINDOW		4096u		/* calls after the sample, each 7 ns more than a fast path: 29 us in all */
#define FOR_EVER	UINT32_MAX

struct km_direct km_direct = { { KMALLOC_MAX_CACHE_SIZE, 0 }, { KMALLOC_MAX_CACHE_SIZE, 0 } };

void km_alloc_want_sizes(bool wanted)
{
	/* A tracer needs the requested sizes, too. */
	wanted |= km_guarded.each || km_load(&km_alloc_probing) & KM_PROBING_TRACER;
	for (unsigned i = 0; i < KM_DOORS; i++)
		km_store(&km_direct.most[i], wanted ? 0 : km_load(&km_direct.usual[i]));
}

/* Returns: true if a guarded object may replace an object of the cache. False for objects readable after their free,
 * separate memory and injected failures; and for observers, which check already. */
static bool can_sample(const struct kmem_cache *cache)
{
	const slab_flags_t never = SLAB_TYPESAFE_BY_RCU | SLAB_SKIP_KFENCE | SLAB_NODUMP | SLAB_FAILSLAB |
				   KM_DEBUG_LAYOUT;

	return km_guarded.bytes && !cache->ext.hooks && !cache->layout.dead && !cache->memcg.child_of &&
	       !cache->ext.shadow_of && !(cache->layout.flags & never) &&
	       !cache->layout.engine->whole_pages && cache->layout.object_size <= km_guarded.page_bytes &&
	       cache->form.align <= km_guarded.page_bytes;
}

/* Returns: true if frees may miss the guarded object after the sampling, so that the window is useful. Blocks of
 * kmalloc are mostly freed by address, and need none. */
static bool needs_window(const struct kmem_cache *cache)
{
	return !km_sees_frees(cache) && !(cache->layout.flags & SLAB_KMALLOC);
}

static bool begin(struct kmem_cache *cache, uint32_t calls, bool due)
{
	km_debug(calls, "a cache is sampled for some calls");
	km_store(&cache->ext.sample_calls, calls);
	km_store(&cache->ext.sample_due, due);
	return km_alloc_change_layer(cache, KM_LAYER_CHARGE, NULL, &km_ops_sampled, false);
}

bool km_alloc_sample(struct kmem_cache *cache)
{
	if (!can_sample(cache) || km_alloc_ops(cache) != km_plain_ops(cache))
		return false;
	return begin(cache, WINDOW, true);
}

/* A charged cache stays charged. A pending sample is dropped, unless each allocation is guarded. */
const struct km_alloc_ops *km_sample_layer(struct kmem_cache *cache)
{
	const struct km_alloc_ops *now = km_layer(cache, KM_LAYER_CHARGE);

	if (km_ops_charges(now))
		return now;
	if (km_likely(!km_guarded.each) || !can_sample(cache))
		return NULL;
	km_store(&cache->ext.sample_calls, FOR_EVER);
	km_store(&cache->ext.sample_due, true);
	return &km_ops_sampled;
}

/* From now on every free of the cache takes the slow path: the caller has got this cache of a guarded kmalloc block,
 * and may free the block by kmem_cache_free. */
void km_alloc_see_frees(struct kmem_cache *cache)
{
	if (!km_sees_frees(cache) && km_alloc_ops(cache) == km_plain_ops(cache))
		begin(cache, FOR_EVER, false);
}

/* Ends the sampling. A caller that may not wait leaves the change of ops to the next call. */
static void end(struct kmem_cache *cache, bool may_wait)
{
	km_store(&cache->ext.sample_calls, 1u);
	if (cache->layout.flags & SLAB_KMALLOC)
		km_alloc_want_sizes(false);
	if (needs_window(cache) && km_load(&cache->ext.guarded))
		km_guard_ops->unseen(cache);
	if (!km_thread.busy)
		km_alloc_change_layer(cache, KM_LAYER_CHARGE, &km_ops_sampled, NULL, may_wait && !km_thread.no_calls);
}

/* Counts a call of the window; a rough count, because threads race. FOR_EVER lasts while a guarded object is out. */
static void pass(struct kmem_cache *cache, bool may_wait)
{
	uint32_t left = km_load(&cache->ext.sample_calls);

	if (left == FOR_EVER && (km_guarded.each || km_load(&cache->ext.guarded)))
		return;
	if (left == FOR_EVER)
		km_store(&cache->ext.sample_calls, WINDOW);
	else if (left > 1)
		km_store(&cache->ext.sample_calls, left - 1);
	else
		end(cache, may_wait);
}

void *km_alloc_asked(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node)
{
	km_debug(bytes && bytes <= cache->layout.object_size, "an object has room for the requested bytes");
	const struct km_asked asked = { cache, bytes, align }, *outer = km_thread.asked;
	km_thread.asked = &asked;
	void *object = node == NUMA_NO_NODE ? km_alloc_miss(cache, gfp) : km_alloc_miss_node(cache, gfp, node);
	km_thread.asked = outer;
	return object;
}

static struct km_asked whole(const struct kmem_cache *cache)
{
	return (struct km_asked){ cache, cache->layout.object_size, cache->form.align };
}

/* Returns: the requested bytes of the object; 0: not known yet. Then the next call of kmalloc or malloc notes the
 * bytes. */
static struct km_asked asked_of(const struct kmem_cache *cache)
{
	if (!(cache->layout.flags & SLAB_KMALLOC))
		return whole(cache);
	if (km_thread.asked && km_thread.asked->cache == cache)
		return *km_thread.asked;
	km_alloc_want_sizes(true);
	return (struct km_asked){ NULL, 0, 0 };
}

static void *take(struct kmem_cache *cache, gfp_t gfp, struct km_asked asked)
{
	if (!asked.bytes || asked.bytes > km_guarded.page_bytes)
		return NULL;
	bool due = km_guarded.each || km_swap_acquire(&cache->ext.sample_due, false);
	void *object = due ? km_guard_ops->alloc(cache, asked.bytes, asked.align, gfp) : NULL;

	/* The cache may have become charged meanwhile: a guarded object must stay uncharged. */
	if (km_unlikely(object && km_ops_charges(km_layer(cache, KM_LAYER_CHARGE)))) {
		km_guard_ops->free(cache, object, NULL);
		return NULL;
	}
	if (km_guarded.each || !due)
		return object;
	if (!object || !needs_window(cache))
		end(cache, true);
	return object;
}

/* Returns: true if this request may get a guarded object. False for requests that must not wait, name a node or an
 * objcg, or come from a handler inside the library, because guarding makes system calls. */
static bool may_take(const struct kmem_cache *cache, gfp_t gfp, int node)
{
	return km_load(&cache->ext.sample_due) && node == NUMA_NO_NODE && !(gfp & KMEM_GFP_ODD & ~__GFP_ZERO) &&
	       km_gfp_may_wait(gfp) && !km_thread.no_calls && !km_thread.busy;
}

/* Passes on an object of the plain ops. A guarded object that a fast path had freed to a sheaf is allocated again
 * properly. */
static void *had(struct kmem_cache *cache, void *object, gfp_t gfp)
{
	if (km_is_guarded(object))
		km_guard_ops->again(cache, object);
	pass(cache, km_gfp_may_wait(gfp));
	return object;
}

static void *sampled_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	void *object = may_take(cache, gfp, node) ? take(cache, gfp, asked_of(cache)) : NULL;

	return object ?: had(cache, km_plain_ops(cache)->alloc(cache, gfp, node), gfp);
}

static void *sampled_alloc_sized(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node)
{
	const struct km_asked asked = { cache, bytes, align };
	void *object = may_take(cache, gfp, node) ? take(cache, gfp, asked) : NULL;

	return object ?: had(cache, km_plain_ops(cache)->alloc_sized(cache, bytes, align, gfp, node), gfp);
}

static void sampled_free(struct kmem_cache *cache, void *object)
{
	/* The sampling goes on after this free, because a double free usually follows soon. */
	if (km_is_guarded(object))
		km_guard_ops->free(cache, object, "kmem_cache_free");
	else
		km_plain_ops(cache)->free(cache, object);
	pass(cache, true);
}

static void sampled_free_past(struct kmem_cache *cache, void *object)
{
	if (km_is_guarded(object)) {
		sampled_free(cache, object);
		return;
	}
	km_ops_free_past(km_plain_ops(cache), cache, object);
	pass(cache, true);
}

/* Replaces one of the allocated objects by a guarded one: so a failure leaves nothing to undo. */
static int sampled_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	if (!km_plain_ops(cache)->alloc_bulk(cache, gfp, left, n, objects))
		return 0;
	for (size_t i = 0; i < left; i++)
		had(cache, objects[i], gfp);
	size_t one = left ? km_random_below((uint32_t)left) : 0;
	void *object = left && may_take(cache, gfp, NUMA_NO_NODE) ? take(cache, gfp, whole(cache)) : NULL;
	if (object) {
		km_plain_ops(cache)->free(cache, objects[one]);
		objects[one] = object;
	}
	return (int)n;
}

static void sampled_free_bulk(struct kmem_cache *cache, size_t n, size_t all, void **objects)
{
	for (size_t i = 0; i < n;) {
		if (!km_is_guarded(objects[i])) {
			i++;
			pass(cache, true);
			continue;
		}
		km_guard_ops->free(cache, objects[i], "kmem_cache_free_bulk");
		objects[i] = objects[--n];
	}
	if (n)
		km_plain_ops(cache)->free_bulk(cache, n, all, objects);
}

const struct km_alloc_ops km_ops_sampled = {
	.alloc = sampled_alloc, .alloc_sized = sampled_alloc_sized, .free = sampled_free,
	.free_past = sampled_free_past, .alloc_bulk = sampled_alloc_bulk, .free_bulk = sampled_free_bulk,
};
