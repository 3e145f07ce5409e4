/*
 * watched.c: objects as a sanitizer sees them (port/sanitizer.h), where one is in the process: each is told when it
 * comes and goes, with the bytes that were asked for. Then a cache has no shelves, and these hooks. Invariant: the word
 * at `freeptr`, which lies behind the red zone, says the bytes that a living object has; 0 or a link where it is free.
 */
#include "../port/die.h"
#include "cache.h"

static bool keeps_word(const struct kmem_cache *cache)
{
	return !cache->engine->shared_pages && !(cache->flags & SLAB_TYPESAFE_BY_RCU);
}

/* Of SLOB's kmalloc the header says it. */
static size_t bytes_of(const struct kmem_cache *cache, const void *object)
{
	if (keeps_word(cache))
		return *km_watched_word(cache, object);
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
		*km_watched_word(cache, object) = cache->object_size;
	km_debug(!cache->shelf.front.open.shelf, "a cache that a sanitizer watches has no shelf");
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
	km_debug(!keeps_word(cache) || *km_watched_word(cache, object) <= cache->object_size,
		 "a living object's word says its bytes");
	km_object_ends(object, bytes_of(cache, object));
	if (keeps_word(cache))
		*km_watched_word(cache, object) = 0;
	return true;
}

const struct km_hooks km_watched_hooks = { .on_alloc = comes, .on_free = goes };

void *km_watched_asked(void *p, size_t bytes)
{
	struct kmem_cache *cache = ZERO_OR_NULL_PTR(p) ? NULL : kmem_cache_of(p);
	size_t *asked = NULL, before;

	if (ZERO_OR_NULL_PTR(p))
		return p;
	if (cache && cache->hooks && keeps_word(cache))
		asked = km_watched_word(cache, p);
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

size_t km_watched_bytes(const struct kmem_cache *cache, const void *p)
{
	return cache->hooks && !cache->engine->shared_pages ? bytes_of(cache, p) : 0;
}
