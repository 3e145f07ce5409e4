/*
 * call_sites: with random_caches each size of kmalloc and malloc has 16 caches: calls from one place share one, calls
 * from many places are spread, and what comes of them is as large, as aligned and as free to go as ever; a size above
 * 8 KiB has one cache. A copy has the kernel's name for it.
 */
#define _GNU_SOURCE
#include <malloc.h>

#include "kit/api.h"
#include "kit/tracer.h"

void *cxx_new(size_t size) __asm__("_Znwm");
void cxx_delete(void *p) __asm__("_ZdlPv");

#define FOUR(call)	do { *at++ = (call); *at++ = (call); *at++ = (call); *at++ = (call); } while (0)
#define SIXTEEN(call)	do { FOUR(call); FOUR(call); FOUR(call); FOUR(call); } while (0)
#define PLACES 64

static size_t size;
static void *many[PLACES];

/* Each of these is called from so many places. */
static void by_kmalloc(void) { void **at = many; SIXTEEN(kmalloc(size, GFP_KERNEL)); SIXTEEN(kmalloc(size, GFP_KERNEL));
			       SIXTEEN(kzalloc(size, GFP_KERNEL)); SIXTEEN(kzalloc(size, GFP_KERNEL)); }
static void by_malloc(void) { void **at = many; SIXTEEN(malloc(size)); SIXTEEN(malloc(size));
			      SIXTEEN(calloc(1, size)); SIXTEEN(realloc(NULL, size)); }
static void by_new(void) { void **at = many; SIXTEEN(cxx_new(size)); SIXTEEN(cxx_new(size));
			   SIXTEEN(cxx_new(size)); SIXTEEN(cxx_new(size)); }

static unsigned caches_of(void)
{
	const struct kmem_cache *seen[PLACES];
	unsigned count = 0, j;

	for (unsigned i = 0; i < PLACES; i++) {
		const struct kmem_cache *cache = kmem_cache_of(many[i]);

		NEED(cache);
		for (j = 0; j < count && seen[j] != cache; j++)
			;
		if (j == count)
			seen[count++] = cache;
	}
	return count;
}

static void spread(void (*take)(void), void (*give)(void *p), size_t (*room)(const void *p), const char *prefix)
{
	char name[64];
	unsigned copies = 0;

	for (size = 8; size <= 8192; size = size * 3 / 2) {
		take();
		CHECK(caches_of() > 4, "%zu bytes, 64 places: %u caches", size, caches_of());
		for (unsigned i = 0; i < PLACES; i++) {
			const char *is = kmem_cache_name(kmem_cache_of(many[i]));

			CHECK(room(many[i]) >= size, "%zu bytes of %zu", room(many[i]), size);
			snprintf(name, sizeof(name), "%s-rnd-", prefix);
			copies += !strncmp(is, name, strlen(name));
			memset(many[i], 1, size);
			give(many[i]);
		}
	}
	CHECK(copies > 200, "%u objects of copies", copies);
}

static size_t room_of(const void *p) { return malloc_usable_size((void *)p); }
static void kgive(void *p) { kfree(p); }
static void kmallocs(void) { if (!slob) spread(by_kmalloc, kgive, ksize, "kmalloc"); }
static void mallocs(void) { if (!slob) spread(by_malloc, free, room_of, "malloc"); }
static void news(void) { if (!slob) spread(by_new, cxx_delete, room_of, "malloc"); }

/* As under heaptrack: the caches are the same, with the tracer and after its end. */
static void traced(void)
{
	tracer_is(true);
	kmallocs();
	mallocs();
	news();
	tracer_is(false);
	kmallocs();
}

static __attribute__((noinline)) void *here(void)
{
	void *p = kmalloc(100, GFP_KERNEL);

	__asm__ volatile("" : "+r"(p));
	return p;
}

static void one_place_is_one_cache(void)
{
	for (unsigned i = 0; i < PLACES; i++)
		NEED(many[i] = here());
	CHECK_EQUAL(caches_of(), 1);
	for (unsigned i = 0; i < PLACES; i++)
		kfree(many[i]);
}

static void large_ones_are_not_split(void)
{
	size = 20000;
	by_malloc();
	if (!slob)
		CHECK_EQUAL(caches_of(), 1);
	for (unsigned i = 0; i < PLACES; i++)
		free(many[i]);
}

/* A charged request has caches of its own, as without call sites. */
static void others_are_as_ever(void)
{
	void *all[100], *p = kmalloc_node(100, GFP_KERNEL, 0);

	NEED(p && kmalloc_bulk(50, GFP_KERNEL, 100, all));
	kfree_bulk(100, all);
	NEED((p = krealloc(p, 5000, GFP_KERNEL)));
	kfree(p);
	NEED((p = aligned_alloc(256, 100)) && !((uintptr_t)p & 255));
	free(p);
}

static const struct test_case cases[] = {
	{ "kmalloc", kmallocs }, { "malloc", mallocs }, { "new", news }, { "one place", one_place_is_one_cache },
	{ "large ones", large_ones_are_not_split }, { "others", others_are_as_ever },
	{ "traced", traced },
};
API_MAIN_OPTIONS(cases, ",random_caches:1")
