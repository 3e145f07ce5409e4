/*
 * debug_toggle.c: debugging of a cache that is used, as users ask for it: kmem_cache_set_debug. Invariant: a cache
 * that can't have it, and letters that mean nothing, change nothing.
 */
#include <errno.h>

#include <kmem/stats.h>

#include "os/die.h"
#include "os/sanitizer.h"
#include "debug.h"
#include "debug_shadow.h"

/* A program that is linked with the archive and names the function below has all of debugging. */
__attribute__((used)) static const struct km_debug_ops *const keep_debugging = &km_debugging;

int km_switch_flags(struct kmem_cache *cache, slab_flags_t flags)
{
	if (cache->dead || cache->child_of || cache->shadow_of)
		return -EINVAL;
	/* Blocks of whole pages have nothing around them, kmalloc's of slob a header in front. A sanitizer has the
	 * place, and the hooks. */
	if (cache->engine->whole_pages || cache == km_kmalloc_sized || cache->flags & SLAB_NO_USER_FLAGS ||
	    km_sanitizer.objects)
		return -EOPNOTSUPP;
	/* The settings of failing on purpose outlive it. */
	return km_shadows_switch(cache, flags | (cache->flags & SLAB_FAILSLAB));
}

int kmem_cache_set_debug(struct kmem_cache *cache, const char *letters)
{
	slab_flags_t flags;

	if (km_unlikely(cache->dead)) {
		km_misuse(KM_MISUSE_DEAD_CACHE, "kmem_cache_set_debug", cache, cache->name);
		return -EINVAL;
	}
	if (!letters || !km_debug_letters(letters, &flags))
		return -EINVAL;
	if (km_thread_busy)
		return -EBUSY;
	km_registry_scope();
	return km_switch_flags(cache, flags);
}

slab_flags_t kmem_cache_debug_flags(const struct kmem_cache *cache)
{
	return km_load(&cache->carried);
}
