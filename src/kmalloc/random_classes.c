/*
 * random_classes.c: 16 caches for each size of kmalloc and malloc. The return address of a call and the secret of the
 * process select the cache. Objects of different parts of a program therefore seldom share slabs, and an attacker
 * can't predict which parts do. Kernel: CONFIG_RANDOM_KMALLOC_CACHES; the copies have the kernel's names
 * (kmalloc-rnd-01-64). The first of the 16 is the plain cache of the size; another is made on its first request.
 * Invariant: a copy has the size and alignment of the plain cache, and is tuned with it. The plain cache serves if
 * there is no memory for a copy, or in a signal handler.
 */
#include "page/metadata.h"
#include "os/die.h"
#include "os/secret.h"
#include "cache/cache.h"

#define COPIES 16u

/* Returns: the table of a plain cache's copies, made at the first call. Several threads may race: one table stays. */
static struct kmem_cache **copies_of(struct kmem_cache *plain)
{
	struct kmem_cache **copies = km_load_acquire(&plain->ext.copies), **none = NULL;

	if (copies)
		return copies;
	copies = km_metadata_alloc(COPIES * sizeof(*copies), true);
	/* Release pairs with the loads: the entries are NULL. */
	if (copies && !km_cas_release(&plain->ext.copies, &none, copies))
		km_metadata_free(copies, COPIES * sizeof(*copies));
	return km_load_acquire(&plain->ext.copies);
}

static struct kmem_cache *make_copy(struct kmem_cache *plain, struct kmem_cache **copies, unsigned which)
{
	struct km_creation creation = { .args = { .align = plain->form.align }, .internal = true, .tuned_with = plain };
	struct kmem_cache *copy;
	char name[KM_NAME_BYTES];

	/* The copy's name: "kmalloc-64" becomes "kmalloc-rnd-01-64". */
	const char *size = __builtin_strchr(plain->registry.name, '-');
	if (!size)
		return NULL;
	km_format(name, KM_NAME_BYTES, "%s-rnd-%02u%s", *plain->registry.name == 'k' ? "kmalloc" : "malloc", which,
		  size);
	copy = km_cache_create(name, plain->layout.object_size, plain->layout.flags & (SLAB_KMALLOC | SLAB_ACCOUNT),
			       &creation);
	if (copy)
		km_cache_publish(&copies[which], copy);
	km_debug(!copy || copies[which]->layout.object_size == plain->layout.object_size,
		 "a copy has the size of its cache");
	return km_load_acquire(&copies[which]);
}

struct kmem_cache *km_site_cache(struct kmem_cache *plain, uintptr_t site)
{
	const unsigned which = km_random_of(site, COPIES);
	struct kmem_cache **copies = km_load_acquire(&plain->ext.copies), *copy = NULL;

	km_debug(which < COPIES && !plain->memcg.child_of, "the cache of a call site has a valid index");
	if (!which || plain->layout.object_size > KMALLOC_MAX_CACHE_SIZE || km_is_hooked(plain))
		return plain;
	if (km_likely(copies != NULL))
		copy = km_load_acquire(&copies[which]);
	if (km_likely(copy != NULL) || km_thread.busy)
		return copy ?: plain;
	km_busy_scope(was);
	copies = copies_of(plain);
	if (copies)
		copy = km_load_acquire(&copies[which]) ?: make_copy(plain, copies, which);
	return copy ?: plain;
}

/* Finds the plain cache by the tuning, because a copy is tuned with its plain cache. */
const struct kmem_cache *km_site_plain(const struct kmem_cache *cache)
{
	return cache->tune.tuned_with && cache->layout.flags & SLAB_KMALLOC ? cache->tune.tuned_with : cache;
}
