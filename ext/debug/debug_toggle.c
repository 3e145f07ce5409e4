/*
 * debug_toggle.c: kmem_cache_set_debug, debugging of a live cache on request of the user. Invariant: an unsuitable
 * cache or an unknown letter changes nothing.
 */
#include <errno.h>

#include <kmem/stats.h>

#include "os/die.h"
#include "os/sanitizer.h"
#include "debug.h"
#include "debug_shadow.h"

/* Link all of debugging into a program of the archive that calls kmem_cache_set_debug. */
__attribute__((used)) static const struct km_debug_ops *const keep_debugging = &km_debugging;

int km_switch_flags(struct kmem_cache *cache, slab_flags_t flags)
{
	if (cache->layout.dead || cache->memcg.child_of || cache->ext.shadow_of)
		return -EINVAL;
	/* Large blocks have no bytes around them, and slob's kmalloc objects have a header in front. A sanitizer
	 * already uses the bytes and the hooks. */
	if (cache->layout.engine->whole_pages || cache == km_kmalloc_sized ||
	    cache->layout.flags & SLAB_NO_USER_FLAGS || km_sanitizer.objects)
		return -EOPNOTSUPP;
	/* The mark for injected failures stays. */
	return km_shadows_switch(cache, flags | (cache->layout.flags & SLAB_FAILSLAB));
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
