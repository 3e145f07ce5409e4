/*
 * deferred.h: frees of handlers that struck inside of the allocator, which wait in a list until it is left: freed twice
 * there, an object makes a circle. And circles on the freelists of a CPU and of a slab. Included by death.c, behind its
 * helpers.
 */
#ifndef DEATH_DEFERRED_H
#define DEATH_DEFERRED_H

#include "alloc/fast_path.h"

/* Twice of `first`, with another one between them, as by a handler; then `finish` finds it. */
static void free_in_handler(void *first, void *between)
{
	km_thread.busy = true;
	kfree(first);
	kfree(between);
	kfree(first);
	km_thread.busy = false;
	kvfree(blind(kvmalloc(5 << 20, GFP_KERNEL)));
	kmem_shrink_all();
}

static void deferred_pages(void)
{
	void *p = blind(kmalloc(20000, GFP_KERNEL)), *between = kmalloc(20000, GFP_KERNEL);

	NEED(p && between);
	expect("kfree(%p): object already free", p);
	free_in_handler(p, between);
}

static void deferred_mapping(void)
{
	void *p = blind(kvmalloc(8 << 20, GFP_KERNEL)), *between = kvmalloc(8 << 20, GFP_KERNEL);

	NEED(p && between);
	expect("kfree(%p): object already free", p);
	free_in_handler(p, between);
}

/* Objects of whole pages, which engine slob gives back at once: their links go with them. */
static void deferred_object(void)
{
	struct kmem_cache *cache = cache_of("deferred", 8000, SLAB_NO_SHEAVES);
	void *p = get(cache), *between = get(cache);

	expect("kmem_cache_free(deferred, %p): object already free", p);
	km_thread.busy = true;
	kmem_cache_free(cache, p);
	kmem_cache_free(cache, between);
	kmem_cache_free(cache, p);
	km_thread.busy = false;
	kmem_cache_shrink(cache);
}

/* A stranger's page is not written to, and a mapping can be wiped. */
static void handler_stranger(void)
{
	void *p = blind(mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	char *mapping = blind(kvmalloc(8 << 20, GFP_KERNEL));

	NEED(p != MAP_FAILED && mapping);
	mapping[5 << 20] = 1;
	km_thread.busy = true;
	NEED(ksize(mapping) == 8 << 20);
	kfree_sensitive(mapping);
	NEED(mapping[5 << 20] == 0);
	expect("kfree(%p): pointer is not from this allocator", p);
	kfree(p);
	after_warning();
	km_thread.busy = false;
	kmem_shrink_all();
}

/* Freed as first and as third: where a CPU has a freelist, a circle of two. */
static void double_free_circle(void)
{
	struct kmem_cache *cache = cache_of("circle", 64, 0);
	void *keep = get(cache), *p = get(cache), *between = get(cache);

	expect("kmem_cache_free(circle, %p): object already free", p);
	kmem_cache_free(cache, p);
	kmem_cache_free(cache, between);
	kmem_cache_free(cache, p);
	kmem_cache_shrink(cache);
	kmem_cache_free(cache, keep);
}

/* The same where the slab is no CPU's: all seem to be free while `keep` is not. Its slab must stay. */
static void double_free_uncounted(void)
{
	enum { COUNT = 500 };
	struct kmem_cache *cache = cache_of("uncounted", 64, 0);
	unsigned char *keep = get(cache);
	void *objects[COUNT];

	for (int i = 0; i < COUNT; i++)
		objects[i] = get(cache);
	expect("kmem_cache_free(uncounted, %p): object already free", objects[0]);
	for (int i = 0; i < COUNT; i++) {
		kmem_cache_free(cache, objects[i]);
		if (i == 1)
			kmem_cache_free(cache, objects[0]);
	}
	kmem_cache_shrink(cache);
	NEED(km_page_of(keep)->cache == cache || slob);
	for (int i = 0; i < COUNT; i++)
		NEED(get(cache) != keep);
	for (int i = 0; i < 64; i++)
		NEED(keep[i] == 0x5a);
	kmem_cache_free(cache, keep);
}

/* Its link was written over: only engine slub has one here; the others lose nothing. */
static void written_link(void)
{
	struct kmem_cache *cache = cache_of("written", 64, 0);
	void *keep = get(cache), *p = get(cache);

	kmem_cache_free(cache, p);
	if (km_options.engine->front == KM_PERCPU_FREELIST) {
		expect("kmem_cache_free(written, %p): free memory of this page was written to", p);
		memset(p, 0x5a, 64);
	} else {
		expect("kmem_cache_free(written, %p): object already free", p);
		kmem_cache_free(cache, p);
	}
	kmem_cache_shrink(cache);
	kmem_cache_free(cache, keep);
}

#endif
