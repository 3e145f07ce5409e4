/*
 * sanitize_cache.c: reports of allocations and frees to a sanitizer, with the requested bytes. The caches have no
 * per-CPU sheaves, but hooks. Invariant: under a sanitizer the word at `freeptr`, behind the red zone, holds the
 * bytes of a live object; for a free object, 0 or a link.
 */
#include "sanitize.h"

#include "os/die.h"
#include "cache/cache.h"

static bool keeps_word(const struct kmem_cache *cache)
{
	return !cache->layout.engine->shared_pages && !(cache->layout.flags & SLAB_TYPESAFE_BY_RCU);
}

/* For SLOB's kmalloc the header holds the size. */
static size_t bytes_of(const struct kmem_cache *cache, const void *object)
{
	if (keeps_word(cache))
		return *km_observed_word(cache, object);
	return cache == km_kmalloc_sized ? cache->layout.engine->sized.usable(object) : cache->layout.object_size;
}

/* A free object of a typesafe cache may still be read. */
static bool only_handed(const struct kmem_cache *cache)
{
	return cache->layout.flags & SLAB_TYPESAFE_BY_RCU;
}

/* With shared pages, report the page of the object: the page is the unit of reuse. */
static void page_changes_hands(const struct kmem_cache *cache, const void *object,
			       void (*how)(const void *p, size_t bytes))
{
	if (cache->layout.engine->shared_pages)
		how((const void *)km_align_down((uintptr_t)object, KM_PAGE_SIZE), 1);
}

static void *comes(struct kmem_cache *cache, void *object, gfp_t gfp)
{
	(void)gfp;
	page_changes_hands(cache, object, km_sanitizing.handed_in);
	if (only_handed(cache)) {
		km_sanitizing.handed_in(object, 1);
		if (cache->layout.engine->shared_pages)
			km_sanitizing.memory_on(object, cache->layout.object_size);
		return object;
	}
	if (keeps_word(cache))
		*km_observed_word(cache, object) = cache->layout.object_size;
	km_debug(!cache->fast.pcs.front.open.pcs, "a cache observed by a sanitizer has no per-CPU sheaves");
	km_sanitizing.object_begins(object, bytes_of(cache, object), cache->form.ctor != NULL);
	return object;
}

static bool goes(struct kmem_cache *cache, void *object)
{
	page_changes_hands(cache, object, km_sanitizing.handed_out);
	if (only_handed(cache)) {
		km_sanitizing.handed_out(object, 1);
		return true;
	}
	km_debug(!keeps_word(cache) || *km_observed_word(cache, object) <= cache->layout.object_size,
		 "the word of an allocated object has its bytes");
	km_sanitizing.object_ends(object, bytes_of(cache, object));
	if (keeps_word(cache))
		*km_observed_word(cache, object) = 0;
	return true;
}

static void asked(struct kmem_cache *cache, void *object, size_t bytes)
{
	size_t *word = km_observed_word(cache, object), before = keeps_word(cache) ? *word : 0;

	if (before <= bytes)
		return;
	*word = bytes;
	km_sanitizing.object_resized(object, before, bytes);
}

static size_t bytes(const struct kmem_cache *cache, const void *object)
{
	return cache->layout.engine->shared_pages ? 0 : bytes_of(cache, object);
}

const struct km_hooks km_sanitizer_hooks = { .on_alloc = comes, .on_free = goes, .asked = asked, .bytes = bytes };
