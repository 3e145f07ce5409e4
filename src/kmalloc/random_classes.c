/*
 * random_classes.c: kmalloc's and malloc's sizes in 16 caches each, of which a call gets one by where it returns to
 * and by the process's secret: so objects that different parts of a program ask for seldom share slabs, and nobody
 * knows before which do. Kernel: CONFIG_RANDOM_KMALLOC_CACHES, whose names the copies have (kmalloc-rnd-01-64). The
 * first of the 16 is the size's own cache; another is made when it is first asked for. Invariant: a copy is tuned as
 * the size's own cache, and has its size and alignment; where there is no memory for it, or a handler asks, that one
 * serves.
 */
#include "page/metadata.h"
#include "os/die.h"
#include "os/secret.h"
#include "cache/cache.h"

#define COPIES 16u

km_tls uintptr_t km_site_noted;

/* "kmalloc-64" becomes "kmalloc-rnd-01-64". */
static bool name_copy(char *name, const struct kmem_cache *plain, unsigned which)
{
	const char *size = __builtin_strchr(plain->name, '-');

	if (!size)
		return false;
	km_format(name, KM_NAME_BYTES, "%s-rnd-%02u%s", *plain->name == 'k' ? "kmalloc" : "malloc", which, size);
	return true;
}

/* Several threads may come at once: one of theirs stays. */
static struct kmem_cache **copies_of(struct kmem_cache *plain)
{
	struct kmem_cache **copies = km_load_acquire(&plain->copies), **none = NULL;

	if (copies)
		return copies;
	copies = km_meta_alloc(COPIES * sizeof(*copies), true);
	/* Release pairs with the loads: they are NULL. */
	if (copies && !km_cas_release(&plain->copies, &none, copies))
		km_meta_free(copies, COPIES * sizeof(*copies));
	return km_load_acquire(&plain->copies);
}

static struct kmem_cache *make_copy(struct kmem_cache *plain, struct kmem_cache **copies, unsigned which)
{
	struct km_creation creation = { .args = { .align = plain->align }, .internal = true, .tuned_with = plain };
	struct kmem_cache *none = NULL, *copy;
	char name[KM_NAME_BYTES];
	int error;

	if (!name_copy(name, plain, which))
		return NULL;
	copy = km_cache_create(name, plain->object_size, plain->flags & (SLAB_KMALLOC | SLAB_ACCOUNT), &creation,
			       &error);
	/* Release pairs with the loads: it is built. */
	if (copy && !km_cas_release(&copies[which], &none, copy))
		km_cache_discard(copy);
	km_debug(!copy || copies[which]->object_size == plain->object_size, "a copy has the size of its cache");
	return km_load_acquire(&copies[which]);
}

static km_cold struct kmem_cache *find_or_make(struct kmem_cache *plain, unsigned which)
{
	if (km_thread_busy)
		return NULL;
	km_busy_scope(was);
	struct kmem_cache **copies = copies_of(plain), *copy = NULL;
	if (copies)
		copy = km_load_acquire(&copies[which]) ?: make_copy(plain, copies, which);
	return copy;
}

struct kmem_cache *km_site_cache(struct kmem_cache *plain, uintptr_t site)
{
	const unsigned which = km_random_of(site, COPIES);
	struct kmem_cache **copies = km_load_acquire(&plain->copies), *copy = NULL;

	km_debug(which < COPIES && !plain->child_of, "a call's cache is one of those there are");
	if (!which || plain->object_size > KMALLOC_MAX_CACHE_SIZE || km_is_hooked(plain))
		return plain;
	if (km_likely(copies != NULL))
		copy = km_load_acquire(&copies[which]);
	return km_likely(copy != NULL) ? copy : find_or_make(plain, which) ?: plain;
}

/* Whoever it is tuned with has its sizes. */
const struct kmem_cache *km_site_plain(const struct kmem_cache *cache)
{
	return cache->tuned_with && cache->flags & SLAB_KMALLOC ? cache->tuned_with : cache;
}
