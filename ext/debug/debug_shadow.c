/*
 * debug_shadow.c: debugging of a live cache. The cache's layout never changes, because callers derive objects from
 * addresses by the layout. Objects allocated from then on come from another cache, a debug shadow cache, with the
 * layout and the hooks of debugging. A shadow is a normal cache, but no user knows of the shadow.
 *
 *	kmem_cache_alloc(cache)		-> layer SHADOW -> the serving shadow, if there is one; else the cache
 *	kmem_cache_free(cache, object)	-> layer SHADOW -> the cache of the object's slab: one of these two
 *	kfree(object)			-> page map -> that cache at once
 *
 * The layer stands above all other layers of the cache, including the charging layer: a shadow of a charged cache is
 * charged on its own, and has its own child caches.
 *
 * Invariants. While an object of a shadow may be out, no fast path of the cache finds a sheaf, neither a public nor a
 * charged one: every free goes through the alloc ops, and looks at the page. So the sheaves close before the first
 * shadow object is allocated. The sheaves reopen after the last shadow object came back: then no shadow serves, no
 * running call has seen a shadow serve, and no shadow has an object out. The word `calls` holds the number of running
 * calls and the bit SERVES, so the thread that ends service knows of all earlier calls. Empty shadows live as long as
 * the cache: a thread may still be inside the free of the last object, and the same flags may be wanted again. A
 * cache has at most one shadow for each set of flags.
 *
 * No step needs a fence. A sequence running while the sheaves close holds an object of the cache itself, because no
 * other object existed. A thread that obtains a shadow object sees all stores made before the object was allocated.
 */
#include <errno.h>

#include <kmem/stats.h>

#include "cache/mailbox.h"
#include "alloc/alloc_ops.h"
#include "page/guard_range.h"
#include "page/metadata.h"
#include "os/die.h"
#include "os/sanitizer.h"
#include "debug.h"
#include "debug_shadow.h"

/* Link all of debugging into a program of the archive that calls kmem_cache_set_debug. */
__attribute__((used)) static const struct km_debug_ops *const keep_debugging = &km_debugging;

/* ------------------------------------------------------------------ calls */

#define SERVES	1u		/* bit of km_shadows.calls: a shadow serves */
#define CALL	2u

/* Begin a counted call. Returns: the serving shadow, and the caller must call `leave`; or NULL if none serves, and
 * the call is not counted. */
static struct kmem_cache *enter(struct km_shadows *shadows)
{
	/* Acquire pairs with serve. */
	if (km_likely(km_add_both(&shadows->calls, CALL) & SERVES))
		return km_load_acquire(&shadows->serving);
	km_sub(&shadows->calls, CALL);
	return NULL;
}

/* End a counted call. Release pairs with is_unused: the objects of the call are visible in the statistics. */
static void leave(struct km_shadows *shadows)
{
	km_add_both(&shadows->calls, -CALL);
}

/* Drop __GFP_ACCOUNT if caches share pages (slob): the shadow uses another engine, and must stay uncharged like the
 * cache's own objects. */
static gfp_t gfp_for(const struct kmem_cache *cache, gfp_t gfp)
{
	return cache->layout.engine->shared_pages ? gfp & ~__GFP_ACCOUNT : gfp;
}

static void *shadow_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	struct kmem_cache *serving = enter(cache->ext.shadows);

	if (!serving)
		return km_layer_below(cache, KM_LAYER_SHADOW)->alloc(cache, gfp, node);
	gfp = gfp_for(cache, gfp);
	void *object = km_ops_for(serving, gfp)->alloc(serving, gfp, node);
	leave(cache->ext.shadows);
	return object;
}

/* Returns: the cache of the object's slab, by the page; or NULL if the object is in no slab. */
static struct kmem_cache *cache_of(const void *object)
{
	struct km_page *page = object ? km_page_of(object) : NULL;
	struct km_page *slab = page ? km_page_head(page) : NULL;

	return slab && km_load_acquire(&slab->type) == KM_PAGE_SLAB ? km_load(&slab->cache) : NULL;
}

/* Returns: true if the free must take the normal path below the shadow layer. With shared pages (slob) this includes
 * every object outside of slabs; the engine validates these objects. */
static bool is_own(const struct kmem_cache *cache, const struct kmem_cache *actual, const void *object)
{
	return actual == cache || !object || (actual && actual->memcg.child_of == cache) ||
	       (!actual && cache->layout.engine->shared_pages);
}

/* Free a guarded object: the object has a page of its own, outside of slabs. */
static km_cold void free_guarded(struct kmem_cache *cache, void *object)
{
	const struct km_alloc_ops *own = km_layer_below(cache, KM_LAYER_SHADOW);

	if (own == &km_ops_sampled)
		own->free(cache, object);
	else
		km_guard_ops->free(cache, object, "kmem_cache_free");
}

static void shadow_free(struct kmem_cache *cache, void *object)
{
	struct kmem_cache *actual = cache_of(object);
	int index;

	if (km_is_guarded(object))
		free_guarded(cache, object);
	else if (is_own(cache, actual, object))
		km_layer_below(cache, KM_LAYER_SHADOW)->free(cache, object);
	else if (km_likely(km_is_shadow(cache, actual)))
		km_free_miss(actual, object);
	else
		km_slab_of(cache, object, &index, "kmem_cache_free");
}

static void give_back(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	km_calls_scope(was, km_gfp_may_wait(gfp));

	km_free_bulk(cache, n, objects);
}

static int shadow_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	struct kmem_cache *serving = enter(cache->ext.shadows);

	if (!serving)
		return km_layer_below(cache, KM_LAYER_SHADOW)->alloc_bulk(cache, gfp, left, n, objects);
	gfp = gfp_for(cache, gfp);
	bool done = km_ops_for(serving, gfp)->alloc_bulk(serving, gfp, left, left, objects);
	leave(cache->ext.shadows);
	/* Free the objects so far: objects popped from a sheaf may be of any of the caches. */
	if (!done && left < n)
		give_back(cache, gfp, n - left, objects + left);
	return done ? (int)n : 0;
}

/* Free runs of objects of the same cache, from the end of the array. */
static void shadow_free_bulk(struct kmem_cache *cache, size_t n, size_t all km_unused, void **objects)
{
	while (n) {
		struct kmem_cache *actual = cache_of(objects[n - 1]);
		size_t run = 1;

		while (run < n && cache_of(objects[n - 1 - run]) == actual)
			run++;
		n -= run;
		km_debug(run, "a run has an object");
		if (is_own(cache, actual, objects[n]) && actual)
			km_layer_below(cache, KM_LAYER_SHADOW)->free_bulk(cache, run, run, objects + n);
		else if (km_likely(km_is_shadow(cache, actual)))
			km_free_bulk(actual, run, objects + n);
		else
			while (run--)
				shadow_free(cache, objects[n + run]);
	}
}

static const struct km_alloc_ops shadow_ops = {
	.alloc = shadow_alloc, .free = shadow_free, .alloc_bulk = shadow_alloc_bulk, .free_bulk = shadow_free_bulk,
};

/* ------------------------------------------------------------------ creating shadows */

static struct kmem_cache *create(struct kmem_cache *cache, slab_flags_t flags, int *error)
{
	const bool shared = cache->layout.engine->shared_pages;
	struct km_creation creation = {
		.internal = true, .engine = shared ? &KM_ENGINE_DEFAULT : cache->layout.engine, .shadow_of = cache,
		.tuned_with = shared ? NULL : cache, .singly = km_cache_is(cache, KM_CACHE_SINGLY),
		.args = {
			.align = cache->form.align, .ctor = cache->form.ctor,
			.useroffset = cache->ext.useroffset, .usersize = cache->ext.usersize,
		},
	};
	bool keeps_content = cache->form.ctor || cache->layout.flags & SLAB_TYPESAFE_BY_RCU;

	/* Not with shared pages, where the constructor runs at each allocation. */
	if (keeps_content && !shared && !km_is_debugged(cache) &&
	    cache->layout.freeptr + sizeof(void *) <= cache->layout.object_size) {
		creation.args.use_freeptr_offset = true;
		creation.args.freeptr_offset = cache->layout.freeptr;
	}
	if (flags & SLAB_STORE_USER)
		km_debug_stacks_start();
	struct kmem_cache *shadow = km_cache_create_locked(cache->registry.name, cache->layout.object_size,
							   (cache->layout.flags & ~KM_DEBUG_FLAGS) | flags, &creation);
	*error = creation.error;
	return shadow;
}

static struct km_shadows *shadows_of(struct kmem_cache *cache)
{
	if (cache->ext.shadows)
		return cache->ext.shadows;
	struct km_shadows *shadows = km_metadata_alloc(sizeof(*shadows), true);

	if (!shadows)
		return NULL;
	/* Release pairs with km_alloc_has_out. */
	km_store_release(&cache->ext.shadows, shadows);
	return shadows;
}

/* Finds the cache's debug shadow cache with these flags, or creates one. Returns: NULL with the reason in *error. */
static struct kmem_cache *get(struct kmem_cache *cache, slab_flags_t flags, int *error)
{
	struct km_shadows *shadows = shadows_of(cache);
	struct kmem_cache *shadow = shadows ? shadows->first : NULL;
	unsigned count = 0;

	while (shadow && (shadow->layout.flags & KM_DEBUG_FLAGS) != flags) {
		shadow = shadow->ext.next_shadow;
		count++;
	}
	*error = shadows ? -EOPNOTSUPP : -ENOMEM;
	if (shadow || !shadows || count == KM_SHADOWS_MOST)
		return shadow;
	shadow = create(cache, flags, error);
	if (!shadow)
		return NULL;
	km_debug(shadow->layout.object_size == cache->layout.object_size && shadow->ext.shadow_of == cache,
		 "a debug shadow cache has the object size of its cache");
	shadow->ext.next_shadow = shadows->first;
	/* Release pairs with walkers of the list: the shadow is complete. */
	km_store_release(&shadows->first, shadow);
	return shadow;
}

/* ------------------------------------------------------------------ on and off */

/* Returns: true if a shadow serves. Context: the registry is locked here and in all functions below. */
static bool does_serve(const struct km_shadows *shadows)
{
	return km_load(&shadows->calls) & SERVES;
}

/* Make kmalloc and malloc report the requested size of each object, for the red zone of shadow objects. */
static void tell_sizes(struct kmem_cache *cache, bool observed)
{
	if (!(cache->layout.flags & SLAB_KMALLOC) || km_is_debugged(cache))
		return;
	km_kmalloc_watch(cache, observed);
	if (km_malloc_watch)
		km_malloc_watch(cache, observed);
}

/* Makes a debug shadow cache serve the cache's allocations. Closes the sheaves of the fast path first. */
static void serve(struct kmem_cache *cache, struct kmem_cache *shadow)
{
	struct km_shadows *shadows = cache->ext.shadows;

	if (!shadows->out) {
		km_store_release(&shadows->out, true);
		km_layer_set(cache, KM_LAYER_SHADOW, &shadow_ops);
		tell_sizes(cache, true);
		km_alloc_drain(cache);
	}
	km_debug(!km_load(&cache->fast.pcs.front.open.pcs) && !km_load(&cache->fast.pcs.front.back.pcs),
		 "an object of a debug shadow cache is allocated only with the fast path closed");
	/* Release pairs with enter. */
	km_store_release(&shadows->serving, shadow);
	if (!does_serve(shadows))
		km_add_both(&shadows->calls, SERVES);
}

/* Make future objects of the cache carry exactly these of KM_DEBUG_FLAGS. Returns: 0 or -errno. */
static int switch_to(struct kmem_cache *cache, slab_flags_t flags)
{
	struct kmem_cache *shadow;
	int error = 0;

	km_debug(!(flags & ~KM_DEBUG_FLAGS) && !cache->memcg.child_of && !cache->ext.shadow_of,
		 "a user's cache is switched, with permitted flags");
	if (flags == (cache->layout.flags & KM_DEBUG_FLAGS)) {
		if (cache->ext.shadows && does_serve(cache->ext.shadows))
			km_add_both(&cache->ext.shadows->calls, -SERVES);
		km_store(&cache->ext.carried, flags);
		km_shadows_settle(cache);
		return 0;
	}
	shadow = get(cache, flags, &error);
	if (!shadow)
		return error == -EINVAL ? -EOPNOTSUPP : error;
	serve(cache, shadow);
	km_store(&cache->ext.carried, flags);
	return 0;
}

/* Returns: true if no object of the shadow is out. Requires: no call allocates from the shadow. */
static bool is_empty(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	km_alloc_finish_deferred(cache);
	kmem_cache_get_stats(cache, &stats);
	if (stats.active_objects)
		return false;
	km_alloc_drain(cache);
	cache->layout.engine->shrink(cache);
	kmem_cache_get_stats(cache, &stats);
	return !stats.active_objects;
}

static int find_full_child(struct kmem_cache *cache, void *shadow)
{
	return cache->memcg.child_of == shadow && !is_empty(cache);
}

static bool is_unused(const struct km_shadows *shadows)
{
	/* Acquire pairs with leave. */
	if (km_load_acquire(&shadows->calls))
		return false;
	for (struct kmem_cache *at = shadows->first; at; at = at->ext.next_shadow)
		if (!is_empty(at) || (km_is_parent(at) && km_registry_each(find_full_child, at)))
			return false;
	return true;
}

void km_shadows_settle(struct kmem_cache *cache)
{
	struct km_shadows *shadows = cache->ext.shadows;

	if (!shadows || !shadows->out || does_serve(shadows))
		return;
	if (!is_unused(shadows)) {
		km_store(&km_shadows_drain, true);
		return;
	}
	km_store(&shadows->out, false);
	km_layer_set(cache, KM_LAYER_SHADOW, NULL);
	tell_sizes(cache, false);
	/* No shadow layer any more: the drain ends by opening the cache's sheaves. */
	km_alloc_drain(cache);
}

static int settle(struct kmem_cache *cache, void *arg km_unused)
{
	km_shadows_settle(cache);
	return 0;
}

void km_shadows_settle_all(void)
{
	km_store(&km_shadows_drain, false);
	km_registry_each(settle, NULL);
}

/* ------------------------------------------------------------------ requests of the user */

int km_switch_flags(struct kmem_cache *cache, slab_flags_t flags)
{
	if (cache->layout.dead || cache->memcg.child_of || cache->ext.shadow_of)
		return -EINVAL;
	/* Large blocks have no bytes around them, and slob's kmalloc objects have a header in front. A sanitizer
	 * already uses the bytes and the hooks. */
	if (cache->layout.engine->whole_pages || cache == km_kmalloc_sized ||
	    cache->layout.flags & SLAB_NO_USER_FLAGS || km_sanitizer.objects)
		return -EOPNOTSUPP;
	/* Keep the flag of failure injection. */
	return switch_to(cache, flags | (cache->layout.flags & SLAB_FAILSLAB));
}

int kmem_cache_set_debug(struct kmem_cache *cache, const char *letters)
{
	slab_flags_t flags;

	if (km_unlikely(cache->layout.dead)) {
		km_misuse(KM_MISUSE_DEAD_CACHE, "kmem_cache_set_debug", cache, cache->registry.name);
		return -EINVAL;
	}
	if (!letters || !km_debug_letters(letters, &flags))
		return -EINVAL;
	if (km_thread.busy)
		return -EBUSY;
	km_registry_scope();
	return km_switch_flags(cache, flags);
}

slab_flags_t kmem_cache_debug_flags(const struct kmem_cache *cache)
{
	return km_load(&cache->ext.carried);
}
