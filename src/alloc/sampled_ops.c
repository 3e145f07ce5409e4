/*
 * sampled_ops.c: the shape of a cache of which an object is to come from the pool of guarded ones
 * (page/guard_range.h). Hits look at nothing; so a cache has this shape, and no public shelf, from when it is chosen
 * until the object is had, and for a bounded number of calls more: then it has its plain shape again. Invariant: a
 * call that is not the sampled one ends as its plain shape ends it.
 *
 * Why no fence. A free on another CPU may be a hit for as long as its thread has not seen the store that closes the
 * shelf. But whoever frees the sampled object has it from the thread that allocated it, behind that store, and so sees
 * it closed.
 *
 * Which frees find the object. One that goes by the address (kfree, free, and kmem_cache_free of a cache whose CPUs
 * have no blocks) finds it at any time: no page says that it is anybody's; so does a check of each free, and hardening.
 * Any other kmem_cache_free would push it unseen: it is found while the cache has this shape, for WINDOW calls, and
 * after that where the block is taken apart, or where the cache is sampled again. Until then it is an object like any
 * other, and goes from hand to hand: the pages beside it are guarded still, but no free of it is checked.
 *
 * Objects that are paid for have an owner word, by their page, and a guarded one has none. So a cache is not sampled
 * that somebody pays for. If it begins to be paid for while such an object is out, that one is nobody's: hits of frees
 * stay off the blocks of many owners then (km_charged_set_ops), and an allocation that is to be paid for and meets
 * it on a plain shelf frees it and takes another (km_plain_alloc).
 *
 * kmalloc and malloc know the bytes that are asked for, and a shape does not: their misses name a cache. For the first
 * call to meet this shape nothing is sampled, but from then on misses of these doors go the long way (km_direct), on
 * which they leave the bytes in km_asked, until one was sampled.
 */
#include "page/guard_range.h"
#include "alloc_ops.h"

#define WINDOW		4096u		/* calls, each 7 ns more than a hit: 29 us in all */
#define FOR_EVER	UINT32_MAX

km_tls struct km_asked km_asked;
struct km_direct km_direct = { { KMALLOC_MAX_CACHE_SIZE, 0 }, { KMALLOC_MAX_CACHE_SIZE, 0 } };

void km_alloc_want_sizes(bool wanted)
{
	/* A tracer is told the sizes as well. */
	wanted |= km_guarded.each || km_load(&km_alloc_probing) & KM_PROBING_TRACER;
	for (unsigned i = 0; i < KM_DOORS; i++)
		km_store(&km_direct.most[i], wanted ? 0 : km_load(&km_direct.usual[i]));
}

/* An object that is to be readable after it was freed can't be guarded, nor one that lies apart, or may fail on
 * purpose; and one that is watched is by others. */
static bool can_sample(const struct kmem_cache *cache)
{
	const slab_flags_t never = SLAB_TYPESAFE_BY_RCU | SLAB_SKIP_KFENCE | SLAB_NODUMP | SLAB_FAILSLAB |
				   KM_DEBUG_LAYOUT;

	return km_guarded.bytes && !cache->hooks && !cache->dead && !cache->child_of &&
	       !cache->shadow_of && !(cache->flags & never) &&
	       !cache->engine->whole_pages && cache->object_size <= km_guarded.page_bytes &&
	       cache->align <= km_guarded.page_bytes;
}

/* Kmalloc's objects are freed by their address, mostly. */
static bool needs_window(const struct kmem_cache *cache)
{
	return !km_sees_frees(cache) && !(cache->flags & SLAB_KMALLOC);
}

static bool begin(struct kmem_cache *cache, uint32_t calls, bool due)
{
	km_debug(calls, "a cache is sampled for some calls");
	km_store(&cache->sample_calls, calls);
	km_store(&cache->sample_due, due);
	return km_alloc_change_layer(cache, KM_LAYER_CHARGE, NULL, &km_ops_sampled, false);
}

bool km_alloc_sample(struct kmem_cache *cache)
{
	if (!can_sample(cache) || km_alloc_ops(cache) != km_plain_ops(cache))
		return false;
	return begin(cache, WINDOW, true);
}

/* A charged cache stays charged. A guarded object that is to come from the cache is forgotten, unless each is. */
const struct km_alloc_ops *km_sample_layer(struct kmem_cache *cache)
{
	const struct km_alloc_ops *now = km_layer(cache, KM_LAYER_CHARGE);

	if (km_ops_charges(now))
		return now;
	if (km_likely(!km_guarded.each) || !can_sample(cache))
		return NULL;
	km_store(&cache->sample_calls, FOR_EVER);
	km_store(&cache->sample_due, true);
	return &km_ops_sampled;
}

/* For whoever asked for the cache of a guarded block of kmalloc's, to free it by that. */
void km_alloc_see_frees(struct kmem_cache *cache)
{
	if (!km_sees_frees(cache) && km_alloc_ops(cache) == km_plain_ops(cache))
		begin(cache, FOR_EVER, false);
}

/* Whoever may not wait leaves it to the next call. */
static void end(struct kmem_cache *cache, bool may_wait)
{
	km_store(&cache->sample_calls, 1u);
	if (cache->flags & SLAB_KMALLOC)
		km_alloc_want_sizes(false);
	if (needs_window(cache) && km_load(&cache->guarded))
		km_guard_ops->unseen(cache);
	if (!km_thread_busy)
		km_alloc_change_layer(cache, KM_LAYER_CHARGE, &km_ops_sampled, NULL, may_wait && !km_no_calls);
}

/* One more call of the window; the count is rough, as threads race. For ever is as long as some object is out. */
static void pass(struct kmem_cache *cache, bool may_wait)
{
	uint32_t left = km_load(&cache->sample_calls);

	if (left == FOR_EVER && (km_guarded.each || km_load(&cache->guarded)))
		return;
	if (left == FOR_EVER)
		km_store(&cache->sample_calls, WINDOW);
	else if (left > 1)
		km_store(&cache->sample_calls, left - 1);
	else
		end(cache, may_wait);
}

void *km_alloc_asked(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node)
{
	km_debug(bytes && bytes <= cache->object_size, "an object has room for what is asked for");
	km_asked = (struct km_asked){ cache, (uint32_t)bytes, (uint32_t)align };
	void *object = node == NUMA_NO_NODE ? km_alloc_miss(cache, gfp) : km_alloc_miss_node(cache, gfp, node);
	km_asked.cache = NULL;
	return object;
}

static struct km_asked whole(const struct kmem_cache *cache)
{
	return (struct km_asked){ cache, cache->object_size, cache->align };
}

/* The bytes that the object is to have; 0: the next call of its door will say. */
static struct km_asked asked_of(const struct kmem_cache *cache)
{
	if (!(cache->flags & SLAB_KMALLOC))
		return whole(cache);
	if (km_asked.cache == cache)
		return km_asked;
	km_alloc_want_sizes(true);
	return (struct km_asked){ NULL, 0, 0 };
}

static void *take(struct kmem_cache *cache, gfp_t gfp, struct km_asked asked)
{
	if (!asked.bytes || asked.bytes > km_guarded.page_bytes)
		return NULL;
	bool due = km_guarded.each || km_swap_acquire(&cache->sample_due, false);
	void *object = due ? km_guard_ops->alloc(cache, asked.bytes, asked.align, gfp) : NULL;

	/* Somebody may pay by now: it was counted before this look; km_charged_set_ops stores before it looks. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
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

/* It makes system calls, and serves no node, no payer, and no handler that struck inside of the library. */
static bool may_take(const struct kmem_cache *cache, gfp_t gfp, int node)
{
	return km_load(&cache->sample_due) && node == NUMA_NO_NODE && !(gfp & KMEM_GFP_ODD & ~__GFP_ZERO) &&
	       km_gfp_may_wait(gfp) && !km_no_calls && !km_thread_busy;
}

/* An object that lay on the shelf may be a guarded one, freed by a hit. */
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
	struct km_asked asked = { cache, (uint32_t)bytes, (uint32_t)align };
	void *object = may_take(cache, gfp, node) ? take(cache, gfp, asked) : NULL;

	if (object)
		return object;
	return had(cache, km_plain_ops(cache)->alloc_sized(cache, bytes, align, gfp, node), gfp);
}

static void sampled_free(struct kmem_cache *cache, void *object)
{
	/* It goes on after that: a second free comes soon, as a rule. */
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

/* Of many, one: the others are there by then, so that nothing of it has to be undone. */
static int sampled_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	if (!km_plain_ops(cache)->alloc_bulk(cache, gfp, left, n, objects))
		return 0;
	for (size_t i = 0; i < left; i++)
		had(cache, objects[i], gfp);
	size_t one = left ? (km_guarded_random() % left) : 0;
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
