/*
 * sibling.c: a cache that is debugged while it is used. Its layout stays what it is, for whoever goes from an address
 * to an object reads it. Objects that are allocated from then on are those of another cache, a sibling, which has the
 * layout and the hooks of debugging; it is a cache like any other, but that no user knows of it.
 *
 *	kmem_cache_alloc(cache)		-> shape below -> the sibling that serves, if there is one; else the cache
 *	kmem_cache_free(cache, object)	-> shape below -> the cache in whose slab the object is: one of these two
 *	kfree(object)			-> page map -> that cache at once
 *
 * The shape stands before the cache's own (struct km_shape), that of what is paid for included: a sibling of a cache
 * that is charged is charged by itself, and has twins of its own.
 *
 * Invariants. While an object of a sibling may be out the cache has no shelf that a hit finds, neither a public nor a
 * charged one: each free meets the shape, which looks at the page. So the shelf is closed before the first object is
 * had from a sibling, and is open again after the last came back: then no sibling serves, no call is under way that has
 * seen one serve, and no sibling has an object out. Such calls are counted in the word that says whether one serves
 * (`calls`), so that the thread that ends it knows of all that began before. Siblings stay, empty, as long as the cache
 * does: a thread that freed the last object of one may not be through yet, and the next time the same flags are wanted
 * it is there. So a cache has one sibling for each set of flags at most.
 *
 * No step waits for a fence. A sequence that is under way when the shelf is closed has an object of the cache's in
 * hand, for there was no other; a thread that comes by an object of a sibling has what was stored before it was had.
 */
#include <errno.h>

#include "cache/mail.h"
#include "alloc/shape.h"
#include "page/guarded.h"
#include "page/meta.h"
#include "os/die.h"
#include "debug.h"
#include "sibling.h"

/* ------------------------------------------------------------------ calls */

#define SERVES	1u		/* of km_siblings.calls */
#define CALL	2u

/* The sibling that serves, for a call that then must `leave`; NULL: none does, and the call is none that counts. */
static struct kmem_cache *enter(struct km_siblings *siblings)
{
	/* Acquire pairs with serve. */
	if (km_likely(km_add_both(&siblings->calls, CALL) & SERVES))
		return km_load_acquire(&siblings->serving);
	km_sub(&siblings->calls, CALL);
	return NULL;
}

/* Release pairs with is_unused: what the call had is counted. */
static void leave(struct km_siblings *siblings)
{
	km_add_both(&siblings->calls, -CALL);
}

/* An engine whose objects don't say whose they are has siblings of another one: those are not paid for, as its own. */
static gfp_t gfp_for(const struct kmem_cache *cache, gfp_t gfp)
{
	return cache->engine->shared_pages ? gfp & ~__GFP_ACCOUNT : gfp;
}

static void *sibling_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	struct kmem_cache *serving = enter(cache->siblings);

	if (!serving)
		return km_load(&cache->own)->alloc(cache, gfp, node);
	gfp = gfp_for(cache, gfp);
	void *object = km_shape_for(serving, gfp)->alloc(serving, gfp, node);
	leave(cache->siblings);
	return object;
}

/* The cache in whose slab it is, as its page says; NULL: none. */
static struct kmem_cache *cache_of(const void *object)
{
	struct km_page *page = object ? km_page_of(object) : NULL;
	struct km_page *slab = page ? km_page_head(page) : NULL;

	return slab && km_load_acquire(&slab->type) == KM_PAGE_SLAB ? km_load(&slab->cache) : NULL;
}

/* It goes the way that it would go if the cache had no siblings. Of an engine whose caches share pages all that is in
 * no slab does; the engine validates it. */
static bool is_own(const struct kmem_cache *cache, const struct kmem_cache *actual, const void *object)
{
	return actual == cache || !object || (actual && actual->twin_of == cache) ||
	       (!actual && cache->engine->shared_pages);
}

/* It lies in a page of its own, in no slab. */
static km_cold void free_guarded(struct kmem_cache *cache, void *object)
{
	const struct km_shape *own = km_load(&cache->own);

	if (own == &km_shape_sampled)
		own->free(cache, object);
	else
		km_guarding.free(cache, object, "kmem_cache_free");
}

static void sibling_free(struct kmem_cache *cache, void *object)
{
	struct kmem_cache *actual = cache_of(object);
	int index;

	if (km_is_guarded(object))
		free_guarded(cache, object);
	else if (is_own(cache, actual, object))
		km_load(&cache->own)->free(cache, object);
	else if (km_likely(km_is_sibling(cache, actual)))
		km_free_miss(actual, object);
	else
		km_slab_of(cache, object, &index, "kmem_cache_free");
}

static void give_back(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	bool was = km_calls_begin(km_gfp_may_wait(gfp));

	km_front_free_bulk(cache, n, objects);
	km_calls_end(was);
}

static int sibling_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	struct kmem_cache *serving = enter(cache->siblings);

	if (!serving)
		return km_load(&cache->own)->alloc_bulk(cache, gfp, left, n, objects);
	gfp = gfp_for(cache, gfp);
	bool done = km_shape_for(serving, gfp)->alloc_bulk(serving, gfp, left, left, objects);
	leave(cache->siblings);
	/* Those that a shelf had may be anybody's. */
	if (!done && left < n)
		give_back(cache, gfp, n - left, objects + left);
	return done ? (int)n : 0;
}

/* Run by run of one cache's, from the end. */
static void sibling_free_bulk(struct kmem_cache *cache, size_t n, size_t all km_unused, void **objects)
{
	while (n) {
		struct kmem_cache *actual = cache_of(objects[n - 1]);
		size_t run = 1;

		while (run < n && cache_of(objects[n - 1 - run]) == actual)
			run++;
		n -= run;
		km_debug(run, "a run has an object");
		if (is_own(cache, actual, objects[n]) && actual)
			km_load(&cache->own)->free_bulk(cache, run, run, objects + n);
		else if (km_likely(km_is_sibling(cache, actual)))
			km_front_free_bulk(actual, run, objects + n);
		else
			while (run--)
				sibling_free(cache, objects[n + run]);
	}
}

/* Objects that came by a shelf, before it was closed: they are the cache's own. */
static void *sibling_recharge(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, void *object,
			      uint64_t *word)
{
	return km_load(&cache->own)->recharge(cache, gfp, objcg, object, word);
}

static size_t sibling_recharge_bulk(struct kmem_cache *cache, gfp_t gfp, struct obj_cgroup *objcg, size_t n,
				    void **objects)
{
	return km_load(&cache->own)->recharge_bulk(cache, gfp, objcg, n, objects);
}

const struct km_shape km_shape_sibling = {
	.alloc = sibling_alloc, .free = sibling_free, .alloc_bulk = sibling_alloc_bulk, .free_bulk = sibling_free_bulk,
};

const struct km_shape km_shape_sibling_charged = {
	.alloc = sibling_alloc, .free = sibling_free, .alloc_bulk = sibling_alloc_bulk, .free_bulk = sibling_free_bulk,
	.recharge = sibling_recharge, .recharge_bulk = sibling_recharge_bulk,
};

/* ------------------------------------------------------------------ siblings come */

static struct kmem_cache *create(struct kmem_cache *cache, slab_flags_t flags, int *error)
{
	const bool shared = cache->engine->shared_pages;
	struct km_creation creation = {
		.internal = true, .engine = shared ? &KM_ENGINE_DEFAULT : cache->engine, .sibling_of = cache,
		.tuned_with = shared ? NULL : cache, .singly = cache->singly,
		.args = {
			.align = cache->align, .ctor = cache->ctor,
			.useroffset = cache->useroffset, .usersize = cache->usersize,
		},
	};
	bool keeps_content = cache->ctor || cache->flags & SLAB_TYPESAFE_BY_RCU;

	/* Where pages are shared a constructor runs at each allocation, and the link may lie in its bytes. */
	if (keeps_content && !shared && !km_is_debugged(cache) &&
	    cache->freeptr + sizeof(void *) <= cache->object_size) {
		creation.args.use_freeptr_offset = true;
		creation.args.freeptr_offset = cache->freeptr;
	}
	*error = -ENOMEM;
	if (flags & SLAB_STORE_USER)
		km_debug_stacks_start();
	return km_cache_create_locked(cache->name, cache->object_size, (cache->flags & ~KM_DEBUG_FLAGS) | flags,
				      &creation, error);
}

static struct km_siblings *siblings_of(struct kmem_cache *cache)
{
	if (cache->siblings)
		return cache->siblings;
	struct km_siblings *siblings = km_meta_alloc(sizeof(*siblings), true);

	if (!siblings)
		return NULL;
	siblings->shape[0] = &km_shape_sibling;
	siblings->shape[1] = &km_shape_sibling_charged;
	/* Release pairs with km_front_has_out. */
	km_store_release(&cache->siblings, siblings);
	return siblings;
}

/* The one that has these flags, made now where there is none; NULL: *error says why. */
static struct kmem_cache *get(struct kmem_cache *cache, slab_flags_t flags, int *error)
{
	struct km_siblings *siblings = siblings_of(cache);
	struct kmem_cache *sibling = siblings ? siblings->first : NULL;
	unsigned count = 0;

	while (sibling && (sibling->flags & KM_DEBUG_FLAGS) != flags) {
		sibling = sibling->next_sibling;
		count++;
	}
	*error = siblings ? -EOPNOTSUPP : -ENOMEM;
	if (sibling || !siblings || count == KM_SIBLINGS_MOST)
		return sibling;
	sibling = create(cache, flags, error);
	if (!sibling)
		return NULL;
	km_debug(sibling->object_size == cache->object_size && sibling->sibling_of == cache,
		 "a sibling has the cache's objects");
	sibling->next_sibling = siblings->first;
	/* Release pairs with who walks over them: it is made. */
	km_store_release(&siblings->first, sibling);
	return sibling;
}

/* ------------------------------------------------------------------ on and off */

/* With the registry locked, as all that follows. */
static bool does_serve(const struct km_siblings *siblings)
{
	return km_load(&siblings->calls) & SERVES;
}

/* kmalloc's and malloc's: an object of a sibling's is told how many bytes its user wants. */
static void tell_sizes(struct kmem_cache *cache, bool watched)
{
	if (!(cache->flags & SLAB_KMALLOC) || km_is_debugged(cache))
		return;
	km_kmalloc_watch(cache, watched);
	if (km_malloc_watch)
		km_malloc_watch(cache, watched);
}

/* New objects are the sibling's: the shelves that hits find are closed by then. */
static void serve(struct kmem_cache *cache, struct kmem_cache *sibling)
{
	struct km_siblings *siblings = cache->siblings;

	if (!siblings->out) {
		km_store_release(&siblings->out, true);
		km_front_publish_shape(cache);
		tell_sizes(cache, true);
		km_front_drain(cache);
	}
	km_debug(!km_load(&cache->shelf.front.open.shelf) && !km_load(&cache->shelf.front.back.shelf),
		 "an object of a sibling is had only where no hit can free it");
	/* Release pairs with enter. */
	km_store_release(&siblings->serving, sibling);
	if (!does_serve(siblings))
		km_add_both(&siblings->calls, SERVES);
}

int km_siblings_switch(struct kmem_cache *cache, slab_flags_t flags)
{
	struct kmem_cache *sibling;
	int error = 0;

	km_debug(!(flags & ~KM_DEBUG_FLAGS) && !cache->twin_of && !cache->sibling_of,
		 "a cache that users know is switched, by flags that are for it");
	if (flags == (cache->flags & KM_DEBUG_FLAGS)) {
		if (cache->siblings && does_serve(cache->siblings))
			km_add_both(&cache->siblings->calls, -SERVES);
		km_store(&cache->carried, flags);
		km_siblings_settle(cache);
		return 0;
	}
	sibling = get(cache, flags, &error);
	if (!sibling)
		return error == -EINVAL ? -EOPNOTSUPP : error;
	serve(cache, sibling);
	km_store(&cache->carried, flags);
	return 0;
}

/* Is no object of it out, and will none be, as nobody asks it for one? */
static bool is_empty(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	km_front_finish_deferred(cache);
	kmem_cache_get_stats(cache, &stats);
	if (stats.active_objects)
		return false;
	km_front_drain(cache);
	cache->engine->shrink(cache);
	kmem_cache_get_stats(cache, &stats);
	return !stats.active_objects;
}

static int find_full_twin(struct kmem_cache *cache, void *sibling)
{
	return cache->twin_of == sibling && !is_empty(cache);
}

static bool is_unused(const struct km_siblings *siblings)
{
	/* Acquire pairs with leave. */
	if (km_load_acquire(&siblings->calls))
		return false;
	for (struct kmem_cache *at = siblings->first; at; at = at->next_sibling)
		if (!is_empty(at) || (at->twins && km_registry_each(find_full_twin, at)))
			return false;
	return true;
}

void km_siblings_settle(struct kmem_cache *cache)
{
	struct km_siblings *siblings = cache->siblings;

	if (!siblings || !siblings->out || does_serve(siblings))
		return;
	if (!is_unused(siblings)) {
		km_store(&km_siblings_drain, true);
		return;
	}
	km_store(&siblings->out, false);
	km_front_publish_shape(cache);
	tell_sizes(cache, false);
	/* Its shelves open. */
	km_front_drain(cache);
}

static int settle(struct kmem_cache *cache, void *arg km_unused)
{
	km_siblings_settle(cache);
	return 0;
}

void km_siblings_settle_all(void)
{
	km_store(&km_siblings_drain, false);
	km_registry_each(settle, NULL);
}
