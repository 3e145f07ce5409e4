/*
 * usercopy.c: check whether `bytes` at p may be copied, for code that copies by a length from an untrusted source.
 * Kernel: the check before a copy to or from a user (__check_object_size). Invariant: a foreign address is always
 * allowed; inside the library's memory, a copy must stay within one object.
 */
#include "page/guard_range.h"
#include "page/alloc_map.h"
#include "os/die.h"
#include "cache/cache.h"

/* Reports a refused copy, in the kernel's words. */
static km_cold bool refuse(const void *p, const char *name, const char *what, bool to_user, size_t offset, size_t bytes)
{
	km_warn("usercopy: Kernel memory %s attempt detected %s %s%s%s%s (offset %lu, size %lu)!",
		to_user ? "exposure" : "overwrite", to_user ? "from" : "to", what, name ? " '" : "", name ?: "",
		name ? "'" : "", (unsigned long)offset, (unsigned long)bytes);
	km_misuse(KM_MISUSE_USERCOPY, "kmem_check_object_size", p, name);
	return false;
}

/* Check a copy within an object: only the usercopy region of the cache may be copied, or all of the usable bytes if the
 * cache names no region. Kernel: without a region only kmalloc objects may be copied. */
static bool check_region(const struct kmem_cache *cache, const void *p, const char *name, size_t offset, size_t bytes,
			 size_t usable, bool to_user)
{
	size_t from = cache ? cache->ext.useroffset : 0;
	size_t to = cache && cache->ext.usersize ? km_min(usable, from + cache->ext.usersize) : usable;

	km_debug(!cache || from + cache->ext.usersize <= cache->layout.size, "a region is inside of its object");
	if (offset >= from && offset <= to && bytes <= to - offset)
		return true;
	return refuse(p, name, "SLUB object", to_user, offset, bytes);
}

/* The region of a guarded object ends with the requested bytes. */
static km_cold bool check_guarded(const char *p, size_t bytes, bool to_user)
{
	struct km_guarded_object seen;

	if (!km_guard_ops->look(p, &seen))
		return refuse(p, NULL, "SLUB object not in SLUB page?!", to_user, 0, bytes);
	if (!seen.taken)
		return refuse(p, seen.name, "free SLUB object", to_user, 0, bytes);
	if (p < seen.start)
		return refuse(p, seen.name, "SLUB object in left red zone", to_user, 0, bytes);
	return check_region(seen.cache, p, seen.name, (size_t)(p - seen.start), bytes, seen.bytes, to_user);
}

static bool check_slab(struct km_page *slab, const char *p, size_t bytes, bool to_user)
{
	const struct kmem_cache *cache = km_load(&slab->cache);
	size_t offset;

	if (!cache)
		return refuse(p, NULL, "SLUB object not in SLUB page?!", to_user, 0, bytes);
	const char *first = km_slab_first(cache, slab);
	if (p < first - cache->ext.left || (size_t)(p - first) >= (size_t)slab->objects * cache->layout.size)
		return refuse(p, cache->registry.name, "SLUB object not in SLUB page?!", to_user, 0, bytes);
	offset = (size_t)(p - first + cache->ext.left) % cache->layout.size;
	if (offset < cache->ext.left)
		return refuse(p, cache->registry.name, "SLUB object in left red zone", to_user, offset, bytes);
	offset -= cache->ext.left;
	const uint8_t *byte = cache->layout.live_shift ? km_alloc_map_find(p - offset, cache->layout.live_shift) : NULL;
	if (km_unlikely(byte && !km_load(byte)))
		return refuse(p, cache->registry.name, "free SLUB object", to_user, offset, bytes);
	return check_region(cache, p, cache->registry.name, offset, bytes, km_usable_of(cache, p - offset), to_user);
}

bool kmem_check_object_size(const void *p, size_t bytes, bool to_user)
{
	struct km_page *page = bytes ? km_page_of(p) : NULL;
	struct km_page *head = km_page_head(page);

	if ((uintptr_t)p + bytes < (uintptr_t)p)
		return refuse(p, NULL, "wrapped address", to_user, 0, bytes);
	if (km_is_guarded(p) && bytes)
		return check_guarded(p, bytes, to_user);
	if (head && head->type == KM_PAGE_SLAB)
		return check_slab(head, p, bytes, to_user);
	if (page && page->type == KM_PAGE_SHARED && !km_sized_owner(p))
		return true;
	/* For a block of kmalloc by size or a large block, the length is known by its start only. */
	size_t most = !page ? 0 : page->type == KM_PAGE_SHARED ? km_engine_sized()->usable(p) :
		      page == head && page->type == KM_PAGE_LARGE && p == km_page_address(page) ?
								 km_large_page_bytes(p) : 0;
	return !most || bytes <= most || refuse(p, NULL, "SLUB object", to_user, 0, bytes);
}
