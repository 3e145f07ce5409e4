/*
 * fullness.c: tell a program that compacts its objects how full their slabs are, and free objects directly to slabs.
 * Invariant: no user's pointer is dereferenced. A slab is read while its page is held, so the data belong to one
 * slab, and the slab's cache exists.
 */
#include <errno.h>

#include "page/huge.h"
#include "cache.h"

/* Pointers looked up during one hold of a page: some microseconds. */
#define AT_ONCE 64u

/* State from one pointer to the next: neighbours in an array are mostly of one cache. */
struct look {
	const struct km_page *held;
	unsigned left;			/* pointers to look up before the page is released */
	const struct kmem_cache *cache;	/* cache to which the sums in `of_all` belong */
	struct km_fullness of_all;
};

static void let_go(struct look *look)
{
	if (look->held)
		km_page_let_go(look->held);
	look->held = NULL;
}

/* Holds the page, and so all pages of its node. With one node a hold lasts for AT_ONCE pointers. */
static void hold(struct look *look, const struct km_page *page)
{
	if (look->held && look->left && km_node_count == 1) {
		look->left--;
		return;
	}
	let_go(look);
	km_page_hold(page);
	look->held = page;
	look->left = AT_ONCE - 1;
	look->cache = NULL;
}

static void fill(struct kmem_slab_usage *out, const struct km_page *page, const struct km_fullness *own,
		 const struct km_fullness *of_all)
{
	km_debug(own->inuse <= own->objects && of_all->inuse <= of_all->objects,
		 "a slab has at most as many used objects as objects");
	out->what = own->current ? KMEM_USAGE_CURRENT : KMEM_USAGE_SLAB;
	out->slab = km_page_address(page);
	out->objects = (unsigned)own->objects;
	out->inuse = (unsigned)own->inuse;
	out->partial_slabs = of_all->slabs;
	out->partial_objects = of_all->objects;
	out->partial_inuse = of_all->inuse;
}

/* Describe a slab. The result never names a debug shadow cache. Context: the page is held (km_page_hold). */
static void describe_slab(const struct km_page *slab, struct look *look, struct kmem_slab_usage *out)
{
	struct kmem_cache *cache = km_load(&slab->cache);
	struct km_fullness own = { 0 };

	if (!cache || km_load(&slab->flags) & KM_SLAB_DEAD)
		return;
	out->what = KMEM_USAGE_BLOCK;
	if (!cache->layout.engine->fullness)
		return;
	if (look->cache != cache)
		cache->layout.engine->partial(cache, &look->of_all);
	look->cache = cache;
	cache->layout.engine->fullness(cache, slab, &own);
	fill(out, slab, &own, &look->of_all);
	out->size = cache->layout.size;
	out->cache = cache->ext.shadow_of ?: cache;
}

/* Describes a page that several caches share: there is one engine of this kind. */
static void see_shared(const struct km_page *page, struct kmem_slab_usage *out)
{
	const struct km_sized_engine *sized = km_engine_sized();
	const size_t pages = km_load(sized->pages), most = pages * (KM_PAGE_SIZE / KM_SIZED_UNIT);
	const struct km_fullness of_all = { pages, most, km_min(km_load(sized->units), most), false };
	struct km_fullness own = { 0 };

	sized->fullness(page, &own);
	fill(out, page, &own, &of_all);
	out->size = KM_SIZED_UNIT;
}

static void see(const void *p, struct look *look, struct kmem_slab_usage *out)
{
	struct km_page *page = km_page_of(p);

	*out = (struct kmem_slab_usage){ .what = KMEM_USAGE_NONE };
	if (!page) {
		if (km_is_guarded(p) || km_huge_bytes(p))
			out->what = KMEM_USAGE_BLOCK;
		return;
	}
	hold(look, page);
	/* Acquire pairs with km_slab_new_raw and km_shared_page_comes: the page's fields are filled in. */
	if (km_load_acquire(&page->type) == KM_PAGE_SHARED) {
		see_shared(page, out);
		return;
	}
	const struct km_page *head = km_page_head(page);
	if (head && km_load(&head->type) == KM_PAGE_SLAB)
		describe_slab(head, look, out);
	else if (head)
		out->what = KMEM_USAGE_BLOCK;
}

size_t kmem_slab_usage(const void *const *pointers, size_t n, struct kmem_slab_usage *out)
{
	struct look look = { 0 };
	size_t in_slabs = 0;

	__builtin_memset(out, 0, n * sizeof(*out));
	if (!km_boot() || km_thread.busy)
		return 0;
	km_busy_scope(was);
	for (size_t i = 0; i < n; i++) {
		see(pointers[i], &look, &out[i]);
		in_slabs += out[i].what >= KMEM_USAGE_SLAB;
	}
	let_go(&look);
	return in_slabs;
}

/* Large blocks, and objects in shared pages, are freed as by kfree. */
void kmem_free_to_slab(const void *object)
{
	struct kmem_cache *cache = NULL;

	if (!ZERO_OR_NULL_PTR(object) && !km_is_guarded(object))
		cache = km_quick_cache(object) ?: km_cache_of(object);
	if (!cache || cache->layout.engine->whole_pages || cache->layout.engine->shared_pages)
		kfree(object);
	else
		km_ops_free_past(km_alloc_ops(cache), cache, (void *)object);
}

/* Overridden by malloc/malloc.c if libkmem is the process's malloc. */
__attribute__((weak)) void *kmem_malloc_fullest(size_t size km_unused)
{
	errno = ENOSYS;
	return NULL;
}
