/*
 * lowest_order.c: slabs of the lowest order, made without a free block of the usual order: their objects are
 * allocated and freed as others, and kfree tells an object's start from its inside there, too, and still in the
 * cache's other slabs.
 */
#include "kit/api.h"
#include "cache/cache.h"
#include "os/os.h"
#include "kit/inside.h"

TEST_IS_INSIDE

static struct kmem_cache *cache;
static char *usual, *odd;

static bool refuse(const char *call)
{
	(void)call;
	return true;
}

#define APART 4

static struct km_page *page[1 << 16];
static unsigned char order_of[1 << 16];
static unsigned count;

/* Every page is taken, none can be had; then some pages of one block come back, no two of them neighbours. */
static void take_all_but(unsigned pages)
{
	km_os_fault = refuse;
	for (unsigned order = KM_MAX_ORDER + 1; order-- > 0;)
		while (count < 1 << 16 && (page[count] = km_pages_alloc(order, -1, false, NULL)))
			order_of[count++] = (unsigned char)order;
	NEED(count && count < 1 << 16);
	while (kmem_cache_alloc(cache, GFP_NOWAIT))
		;
	unsigned largest = 0;
	for (unsigned i = 0; i < count; i++)
		largest = order_of[i] > order_of[largest] ? i : largest;
	NEED(1u << order_of[largest] >= 2 * pages);
	for (unsigned i = 0; i < pages; i++)
		km_pages_free(page[largest] + 2 * i, 0);
	count--;
	page[largest] = page[count];
	order_of[largest] = order_of[count];
}

static void give_all_back(void)
{
	km_os_fault = NULL;
	while (count--)
		km_pages_free(page[count], order_of[count]);
}

/* One object in a slab of the usual order, one in a slab of the lowest. */
static void make_both(void)
{
	cache = make("fallback", 1024);
	usual = kmem_cache_alloc(cache, GFP_KERNEL);
	NEED(usual && cache->layout.order > 0);
	unsigned full = cache->layout.objects;
	for (unsigned i = 0; i < 2 * full; i++)
		NEED(kmem_cache_alloc(cache, GFP_KERNEL));
	take_all_but(1);
	odd = kmem_cache_alloc(cache, GFP_NOWAIT);
	NEED(odd && kmem_cache_event(cache, KMEM_ORDER_FALLBACK) == 1);
	NEED(km_page_head(km_page_of(odd))->order == 0);
	give_all_back();
}

/* SLAB's slabs are of one order, and slob's pages of none. */
static bool has_orders(void)
{
	struct kmem_cache *some = make("some", 1024);

	return some->layout.engine->front != KM_PERCPU_NONE && !some->layout.engine->array.tune;
}

static char *victim;

static void free_victim(void)
{
	kfree(victim);
}

static void needs_an_end(char *p, const char *phrase)
{
	char text[4096];
	int lines, status;

	victim = p;
	status = said(free_victim, text, &lines);
	NEED(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && lines == 1 && strstr(text, phrase));
}

static void boundaries(void)
{
	if (!has_orders())
		return;
	make_both();
	for (int offset = 8; offset < 1024; offset *= 2) {
		needs_an_end(odd + offset, "not the start of an object");
		needs_an_end(usual + offset, "not the start of an object");
	}
}

static void come_and_go(void)
{
	void *objects[64];

	if (!has_orders())
		return;
	make_both();
	NEED(kmem_cache_of(odd) == cache && ksize(odd) == 1024 && !kmem_cache_of(odd + 8));
	for (int round = 0; round < 3; round++) {
		kfree(odd);
		odd = kmem_cache_alloc(cache, GFP_KERNEL);
		NEED(odd);
		kmem_cache_free(cache, odd);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 64, objects));
		kfree_bulk(64, objects);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 64, objects));
		kmem_cache_free_bulk(cache, 64, objects);
		odd = kmem_cache_alloc(cache, GFP_KERNEL);
		NEED(odd);
	}
	NEED(kmem_check_all() == 0);
}

/* Several small slabs at the place of one slab of the usual order: each object goes to its own slab. */
static void mixed_array(void)
{
	void *objects[APART * 4], *mixed[APART * 4];

	if (!has_orders())
		return;
	cache = make("mixed", 1024);
	NEED(kmem_cache_alloc(cache, GFP_KERNEL) && cache->layout.order > 0);
	take_all_but(APART);
	for (unsigned i = 0; i < APART * 4; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_NOWAIT)));
	NEED(!kmem_cache_alloc(cache, GFP_NOWAIT));
	for (unsigned i = 0; i < APART * 4; i++)
		mixed[i] = objects[i % 4 * APART + i / 4];
	kmem_cache_free_bulk(cache, APART * 4, mixed);
	NEED(kmem_check_all() == 0);
	give_all_back();
	kmem_cache_shrink(cache);
	for (unsigned i = 0; i < APART * 4; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	NEED(kmem_check_all() == 0);
}

static const struct test_case cases[] = {
	{ "a mixed array", mixed_array },
	{ "boundaries", boundaries },
	{ "they come and go", come_and_go },
};

API_MAIN(cases)
