/*
 * sized_free.c: check the size named by a free against the object, and check whether an object is allocated.
 * Invariant: no object is refused without evidence. A free object or a bad pointer passes here, because its free
 * reports the mistake better.
 */
#include "page/guard_range.h"
#include "page/alloc_map.h"
#include "os/die.h"
#include "cache/cache.h"

bool km_looks_closer, km_left_longer;

/* Returns: whether the object is allocated, as far as known: frees of the cache are validated, or the cache is
 * debugged. */
static bool is_out(const struct kmem_cache *cache, const void *p)
{
	const struct km_hooks *hooks = km_load(&cache->ext.hooks);

	if (cache->layout.live_shift) {
		const uint8_t *byte = km_alloc_map_find(p, cache->layout.live_shift);

		return !byte || km_load(byte) == km_alloc_map_proof(p);
	}
	return !km_is_debugged(cache) || cache->layout.engine->shared_pages || !hooks || !hooks->may_be_free(cache, p);
}

size_t km_bytes_if_out(const struct kmem_cache *cache, const void *p, const char *function)
{
	if (km_likely(is_out(cache, p)))
		return (km_load(&cache->ext.hooks) ? km_observed_bytes(cache, p) : 0) ?: km_usable_of(cache, p);
	km_misuse(KM_MISUSE_DOUBLE_FREE, function, p, cache->registry.name);
	return 0;
}

/* Returns: whether a kmalloc object of `have` bytes may have been requested with `size`, also after a shrink by
 * krealloc. */
static bool fits_block(const struct kmem_cache *cache, size_t have, size_t size)
{
	return size <= have && (!(cache->layout.flags & SLAB_KMALLOC) || have <= 64 || size > have / 4 ||
				km_load(&km_left_longer));
}

/* Report the misuse in one line: the size and the caller stand behind the function's name. */
static bool refuse(const void *p, const char *name, const struct km_sized *call)
{
	char text[96];

	km_format(text, sizeof(text), "%s of %lu bytes, called from %p", call->function,
		  (unsigned long)call->size, call->caller);
	km_misuse(KM_MISUSE_SIZE, text, p, name);
	return false;
}

static bool check_object(const struct kmem_cache *cache, const void *p, const struct km_sized *call)
{
	const slab_flags_t narrowed = SLAB_KMALLOC | SLAB_RED_ZONE;

	if (!is_out(cache, p))
		return true;
	/* Compare with the requested bytes if they are known exactly. */
	size_t have = km_load(&cache->ext.hooks) && (cache->layout.flags & narrowed) == narrowed ?
			      km_observed_bytes(cache, p) : 0;
	if (have)
		return have == call->size || refuse(p, cache->registry.name, call);
	have = cache == km_kmalloc_sized ? cache->layout.engine->sized.usable(p)
					 : km_bytes_if_out(cache, p, call->function);
	bool fits = call->serves ? call->serves(cache, have, call) : fits_block(cache, have, call->size);
	return fits || refuse(p, cache->registry.name, call);
}

/* Check a large block. A block may be longer than needed, because a longer cached one may have been used. */
static bool check_pages(const void *p, const struct km_sized *call)
{
	size_t have = km_large_look(p);
	size_t asked = km_block_hooks && have && have != SIZE_MAX ? km_block_hooks->asked(p, have) : have;

	if (!asked || asked == SIZE_MAX)
		return true;
	size_t least = call->resized || call->align >= KM_PAGE_SIZE ? 0 : km_block_hooks ? asked : have / 2;
	return (call->size <= asked && call->size >= least) || refuse(p, NULL, call);
}

bool km_size_fits(const void *p, const struct km_sized *call)
{
	km_debug(call->size && call->function, "a sized free has a size above 0");
	if (km_sanitizer.objects || ZERO_OR_NULL_PTR(p))
		return true;
	if (km_is_guarded(p)) {
		struct km_guarded_object seen;
		size_t have = km_guarded_at(p, &seen) ? seen.bytes : 0;
		size_t least = !call->resized ? have : km_load(&km_left_longer) ? 0 : have / 2;

		return !have || (call->size <= have && call->size >= least) || refuse(p, NULL, call);
	}
	const struct kmem_cache *cache = km_cache_of(p);
	return cache ? check_object(cache, p, call) : check_pages(p, call);
}
