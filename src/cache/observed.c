/*
 * observed.c: flags and hooks of caches under debugging or a sanitizer (os/sanitizer.h), and the requested bytes of
 * objects. Invariant: if a sanitizer observes objects, caches have no debugging flags.
 */
#include "cache.h"

bool km_observed_sizes;
const struct km_block_hooks *km_block_hooks;

/* Warns, once, that flags have no effect, and why. */
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

	/* Flags of child caches and shadow caches are given. Large blocks have no slab. */
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
	/* A kmalloc object of such an engine has a size header, already checked, and no room for debugging data. */
	const bool blocks = engine->shared_pages && flags & SLAB_KMALLOC;
	if (km_debug_ops && !km_sanitizer.objects && !blocks)
		return flags;
	say_idle_flags(name, km_sanitizer.objects ? "a sanitizer checks the objects; KMEM_OPTIONS=sanitize:0 permits "
						    "debugging" :
		       blocks ? "kmalloc's engine has no room for debugging data; use engine:sheaf" :
						    "the program is linked without debugging; link with "
						    "-Wl,-u,km_debugging");
	return flags & ~hooked;
}

const struct km_hooks *km_observed_hooks_of(const struct kmem_cache *cache)
{
	if (km_is_observed(cache))
		return km_sanitizer_ops->hooks;
	if (cache->layout.flags & (KM_DEBUG_LAYOUT | SLAB_TRACE)) {
		if (cache->layout.flags & SLAB_KMALLOC)
			km_store(&km_observed_sizes, true);
		return km_debug_ops->hooks;
	}
	if (cache->memcg.child_of)
		return cache->memcg.child_of->ext.hooks;
	return km_load(&km_alloc_probing) ? &km_probe_hooks : NULL;
}

void *km_observed_asked(void *p, size_t bytes)
{
	struct kmem_cache *cache = ZERO_OR_NULL_PTR(p) ? NULL : km_cache_of(p);
	const struct km_hooks *hooks = cache ? km_load(&cache->ext.hooks) : NULL;
	size_t *asked, before;

	if (hooks && hooks->asked)
		hooks->asked(cache, p, bytes);
	if (km_block_hooks && !cache && !ZERO_OR_NULL_PTR(p) && (before = km_large_bytes(p)))
		km_block_hooks->shrinks(p, bytes, before);
	asked = km_sanitizer.objects && !cache && !ZERO_OR_NULL_PTR(p) ? km_large_asked(p) : NULL;
	before = asked ? *asked : 0;
	if (before > bytes) {
		*asked = bytes;
		km_tell(object_resized, p, before, bytes);
	}
	return p;
}

size_t km_observed_bytes(const struct kmem_cache *cache, const void *p)
{
	const struct km_hooks *hooks = km_load(&cache->ext.hooks);

	return hooks && hooks->bytes ? hooks->bytes(cache, p) : 0;
}

bool km_observed_grow(void *p, size_t bytes, gfp_t gfp)
{
	struct kmem_cache *cache = ZERO_OR_NULL_PTR(p) ? NULL : km_cache_of(p);
	const struct km_hooks *hooks = cache ? km_load(&cache->ext.hooks) : NULL;
	size_t before = hooks && hooks->grow ? hooks->bytes(cache, p) : 0;

	if (!before || !hooks->grow(cache, p, bytes))
		return false;
	if (gfp & __GFP_ZERO)
		__builtin_memset((char *)p + before, 0, bytes - before);
	return true;
}
