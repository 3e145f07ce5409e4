/*
 * sanitized.c: which caches are watched, and objects as a sanitizer sees them (os/sanitizer.h), where one is in the
 * process: each is told when it comes and goes, with the bytes that were asked for. Then a cache has no shelves, and
 * hooks. Invariant: under a sanitizer the word at `freeptr`, which lies behind the red zone, says the bytes that a
 * living object has; 0 or a link where it is free.
 */
#include "os/die.h"
#include "cache.h"

bool km_observed_sizes;
const struct km_block_hooks *km_block_hooks;
static const struct km_hooks sanitizer_hooks;

/* A flag that is asked for and not to be had is said once. */
static km_cold void say_idle_flags(const char *name, const char *why)
{
	static uint32_t said;

	if (!km_swap_acquire(&said, 1u))
		km_warn("kmem_cache_create(%s): SLAB_RED_ZONE, SLAB_POISON, SLAB_STORE_USER, SLAB_TRACE do nothing: %s",
			name, why);
}

slab_flags_t km_observed_flags(const char *name, uint32_t size, slab_flags_t flags, const struct km_creation *creation)
{
	const slab_flags_t hooked = KM_DEBUG_LAYOUT | SLAB_TRACE;

	/* A twin is debugged as its cache is, a sibling as was asked for; a large block is no slab's. */
	if (creation->child_of || creation->shadow_of)
		return flags;
	if (creation->engine && creation->engine->whole_pages)
		return flags & ~KM_DEBUG_FLAGS;
	if (km_debug_ops)
		flags = km_debug_ops->flags(name, size, creation->args.align, flags);
	if (km_failure_ops && km_failure_ops->may_fail(name, flags))
		flags |= SLAB_FAILSLAB;
	if (km_likely(!(flags & hooked)))
		return flags;
	const struct km_engine *engine = creation->engine ?: creation->args.engine ?
					 km_engine_find(creation->args.engine) : km_options.engine;
	/* A block of kmalloc's has its size in front, which is looked at, and nothing around it. */
	const bool blocks = engine->shared_pages && flags & SLAB_KMALLOC;
	if (km_debug_ops && !km_sanitizer.objects && !blocks)
		return flags;
	say_idle_flags(name, km_sanitizer.objects ? "a sanitizer watches the objects" :
		       blocks ? "blocks of kmalloc's have nothing around them in its engine" :
						    "the program is linked without (-Wl,-u,km_debugging)");
	return flags & ~hooked;
}

const struct km_hooks *km_observed_hooks_of(const struct kmem_cache *cache)
{
	if (km_is_observed(cache))
		return &sanitizer_hooks;
	if (cache->flags & (KM_DEBUG_LAYOUT | SLAB_TRACE)) {
		if (cache->flags & SLAB_KMALLOC)
			km_store(&km_observed_sizes, true);
		return km_debug_ops->hooks;
	}
	if (cache->child_of)
		return cache->child_of->hooks;
	return km_load(&km_alloc_probing) ? &km_probe_hooks : NULL;
}

static bool keeps_word(const struct kmem_cache *cache)
{
	return !cache->engine->shared_pages && !(cache->flags & SLAB_TYPESAFE_BY_RCU);
}

/* Of SLOB's kmalloc the header says it. */
static size_t bytes_of(const struct kmem_cache *cache, const void *object)
{
	if (keeps_word(cache))
		return *km_observed_word(cache, object);
	return cache == km_kmalloc_sized ? cache->engine->sized.usable(object) : cache->object_size;
}

/* Of such a cache a free object may be read. */
static bool only_handed(const struct kmem_cache *cache)
{
	return cache->flags & SLAB_TYPESAFE_BY_RCU;
}

/* Where pages are cut into blocks of any size, the page is what changes hands. */
static void page_changes_hands(const struct kmem_cache *cache, const void *object, void (*how)(const void *p))
{
	if (cache->engine->shared_pages)
		how((const void *)km_align_down((uintptr_t)object, KM_PAGE_SIZE));
}

static void *comes(struct kmem_cache *cache, void *object, gfp_t gfp)
{
	(void)gfp;
	page_changes_hands(cache, object, km_handed_in);
	if (only_handed(cache)) {
		km_handed_in(object);
		if (cache->engine->shared_pages)
			km_memory_on(object, cache->object_size);
		return object;
	}
	if (keeps_word(cache))
		*km_observed_word(cache, object) = cache->object_size;
	km_debug(!cache->pcs.front.open.pcs, "a cache that a sanitizer watches has no shelf");
	km_object_begins(object, bytes_of(cache, object), cache->ctor != NULL);
	return object;
}

static bool goes(struct kmem_cache *cache, void *object)
{
	page_changes_hands(cache, object, km_handed_out);
	if (only_handed(cache)) {
		km_handed_out(object);
		return true;
	}
	km_debug(!keeps_word(cache) || *km_observed_word(cache, object) <= cache->object_size,
		 "a living object's word says its bytes");
	km_object_ends(object, bytes_of(cache, object));
	if (keeps_word(cache))
		*km_observed_word(cache, object) = 0;
	return true;
}

static const struct km_hooks sanitizer_hooks = { .on_alloc = comes, .on_free = goes };

void *km_observed_asked(void *p, size_t bytes)
{
	struct kmem_cache *cache = ZERO_OR_NULL_PTR(p) ? NULL : km_cache_of(p);
	const struct km_hooks *hooks = cache ? km_load(&cache->hooks) : NULL;
	size_t *asked = NULL, before;

	if (hooks && hooks->asked)
		hooks->asked(cache, p, bytes);
	if (km_block_hooks && !cache && !ZERO_OR_NULL_PTR(p) && (before = km_large_bytes(p)))
		km_block_hooks->shrinks(p, bytes, before);
	if (ZERO_OR_NULL_PTR(p) || !km_sanitizer.objects)
		return p;
	if (hooks && keeps_word(cache))
		asked = km_observed_word(cache, p);
	else if (!cache)
		asked = km_large_asked(p);
	before = asked ? *asked : 0;
	if (before > bytes) {
		km_debug(bytes <= before, "an object that is resized has room");
		*asked = bytes;
		km_object_resized(p, before, bytes);
	}
	return p;
}

size_t km_observed_bytes(const struct kmem_cache *cache, const void *p)
{
	const struct km_hooks *hooks = km_load(&cache->hooks);

	if (hooks && hooks->bytes)
		return hooks->bytes(cache, p);
	return km_sanitizer.objects && hooks && !cache->engine->shared_pages ? bytes_of(cache, p) : 0;
}

bool km_observed_grow(void *p, size_t bytes, gfp_t gfp)
{
	struct kmem_cache *cache = ZERO_OR_NULL_PTR(p) ? NULL : km_cache_of(p);
	const struct km_hooks *hooks = cache ? km_load(&cache->hooks) : NULL;
	size_t before = hooks && hooks->grow ? hooks->bytes(cache, p) : 0;

	if (!before || !hooks->grow(cache, p, bytes))
		return false;
	if (gfp & __GFP_ZERO)
		__builtin_memset((char *)p + before, 0, bytes - before);
	return true;
}
