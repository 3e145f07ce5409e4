/*
 * lookup.c: find what a pointer is: free any object of kmalloc or malloc, find usable bytes and cache, and name the
 * mistake of a bad pointer. Invariant: every lookup validates the pointer; no unchecked way leads from an address to
 * a slab.
 */
#include <errno.h>

#include "page/huge.h"
#include "page/guard_range.h"
#include "os/die.h"
#include "alloc/tracer.h"
#include "large_cache.h"

/* Returns: the cache of a slab object whose start is p; NULL if p is none. */
static struct kmem_cache *cache_of_object(const void *p)
{
	struct km_page *slab = km_page_head(km_page_of(p));

	if (!slab || slab->type != KM_PAGE_SLAB)
		return NULL;
	struct kmem_cache *cache = slab->cache;
	return cache && km_object_index(cache, slab, km_slab_first(cache, slab), p) >= 0 ? cache : NULL;
}

/* Report a bad pointer with the most exact misuse known. */
static void bad_pointer(const void *p, const char *function)
{
	struct km_page *page = km_page_of(p);
	struct km_page *head = km_page_head(page);

	if (head && head->type == KM_PAGE_SLAB)
		km_refuse(head, p, head->flags & KM_SLAB_DEAD ? KM_MISUSE_DEAD_CACHE : KM_MISUSE_INTERIOR, function,
			  head->cache ? head->cache->registry.name : NULL);
	else if (head || (!page && km_huge_inside(p)))
		km_misuse(KM_MISUSE_INTERIOR, function, p, NULL);
	else
		km_misuse(KM_MISUSE_FOREIGN, function, p, NULL);
}

static bool in_shared_page(const void *p)
{
	struct km_page *page = km_page_of(p);

	return page && km_load_acquire(&page->type) == KM_PAGE_SHARED;
}

struct kmem_cache *km_sized_owner(const void *p)
{
	return km_kmalloc_sized && in_shared_page(p) && km_engine_sized()->owns(km_page_of(p), p) ? km_kmalloc_sized :
												   NULL;
}

/* Validate a pointer into a page shared by caches. Returns: true if p is a kmalloc object; otherwise the misuse is
 * reported. */
static bool is_sized(const void *p, const char *function)
{
	const struct km_sized_engine *sized = km_engine_sized();
	struct km_page *page = km_page_of(p);

	if (km_likely(sized->owns(page, p)))
		return true;
	/* A signal handler inside the allocator must not wait for the lock that the exact answer needs. */
	km_busy_scope(was);
	km_unreported_scope();
	enum km_misuse what = km_was_busy(was) ? KM_MISUSE_INTERIOR : sized->mistake(page, p);
	km_misuse(what, function, p, NULL);
	return false;
}

static km_noinline void free_any(const void *p, const char *function)
{
	if (km_unlikely(ZERO_OR_NULL_PTR(p)))
		return;
	if (km_is_guarded(p)) {
		km_guard_ops->free(NULL, (void *)p, function);
		return;
	}
	if (in_shared_page(p)) {
		if (km_likely(is_sized(p, function)))
			km_free_miss(km_kmalloc_sized, (void *)p);
		return;
	}
	struct kmem_cache *cache = cache_of_object(p);
	if (km_unlikely(cache && cache->layout.engine->shared_pages)) {
		km_misuse(KM_MISUSE_NOT_KMALLOC, function, p, cache->registry.name);
		return;
	}
	if (km_likely(cache)) {
		km_free_miss(cache, (void *)p);
		return;
	}
	int saved_errno = errno;
	if (km_unlikely(km_load(&km_alloc_probing)))
		km_tracer_goes(p);
	struct km_busy_was was = km_busy_begin();
	bool freed = km_was_busy(was) ? km_large_defer((void *)p) : km_large_free(p);
	if (!km_was_busy(was))
		km_large_finish_deferred();
	km_busy_end(was);
	errno = saved_errno;
	if (!freed)
		bad_pointer(p, function);
}

void km_free_any_miss(const void *p, const char *function)
{
	struct kmem_cache *sized = km_kmalloc_sized, *cache;

	if (sized && in_shared_page(p) && km_likely(km_free_sized(sized, (void *)p)))
		return;
	cache = sized ? NULL : km_quick_cache(p);
	if (km_unlikely(!cache))
		free_any(p, function);
	else
		km_free_miss(cache, (void *)p);
}

static km_noinline size_t usable_size_missed(const void *p, const char *function)
{
	if (ZERO_OR_NULL_PTR(p))
		return 0;
	if (km_is_guarded(p)) {
		struct km_guarded_object seen;

		if (!km_guarded_at(p, &seen))
			km_misuse(KM_MISUSE_INTERIOR, function, p, NULL);
		return seen.bytes;
	}
	if (in_shared_page(p))
		return is_sized(p, function) ? km_engine_sized()->usable(p) : 0;
	struct kmem_cache *cache = cache_of_object(p);
	if (cache)
		return km_bytes_if_out(cache, p, function);
	if (km_unlikely(km_sanitizer.objects) && km_large_asked((void *)p))
		return *km_large_asked((void *)p);
	size_t bytes = km_large_look(p);
	/* Unknown: the handler interrupted the holder of the lock of the mapping table. */
	if (bytes == SIZE_MAX)
		return 0;
	if (!bytes)
		bad_pointer(p, function);
	if (km_likely(!km_block_hooks) || !bytes)
		return bytes;
	/* A freed block in quarantine counts as free. */
	bytes = km_block_hooks->asked(p, bytes);
	if (km_unlikely(!bytes))
		km_misuse(KM_MISUSE_DOUBLE_FREE, function, p, "large");
	return bytes;
}

size_t km_usable_size(const void *p, const char *function)
{
	struct kmem_cache *cache = km_quick_cache(p);

	if (km_unlikely(!cache))
		return usable_size_missed(p, function);
	if (km_likely(cache->layout.usable))
		return cache->layout.usable;
	return cache->layout.live_shift ? km_bytes_if_out(cache, p, function) : km_usable_of(cache, p);
}

/* The caller may free the object by kmem_cache_free, without any check of bytes. A guarded object may have fewer
 * bytes than other objects of the cache. */
static km_cold struct kmem_cache *guarded_cache(const void *object)
{
	struct km_guarded_object seen;

	if (km_guarded_at(object, &seen) && seen.cache && seen.cache->layout.flags & SLAB_KMALLOC)
		km_alloc_see_frees(seen.cache);
	return seen.cache;
}

struct kmem_cache *km_cache_of(const void *object)
{
	if (km_is_guarded(object))
		return guarded_cache(object);
	return cache_of_object(object) ?: km_sized_owner(object);
}

/* Returns: the cache known to the user; never a debug shadow cache. */
struct kmem_cache *kmem_cache_of(const void *object)
{
	struct kmem_cache *cache = km_cache_of(object);

	return cache && cache->ext.shadow_of ? cache->ext.shadow_of : cache;
}

/* Free pages count as well, so a caller can tell a block freed by mistake from another allocator's block. */
bool kmem_owns(const void *p)
{
	return km_is_guarded(p) || km_page_of(p) || km_huge_inside(p);
}

size_t ksize(const void *object)
{
	return km_usable_size(object, "ksize");
}
