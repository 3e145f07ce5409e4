/*
 * fallback.c: slabs of the lowest order, made when no block of the usual order could be had: their objects come and go
 * like others, and kfree tells an object's start from its inside there, too, and in the cache's other slabs still.
 * Disciplines: all
 */
#include "api.h"
#include "cache/cache.h"
#include "port/os.h"

static struct kmem_cache *cache;
static char *usual, *odd;

static bool refuse(const char *call)
{
	(void)call;
	return true;
}

/* One object in a slab of the usual order, one in a slab of the lowest. */
static void make_both(void)
{
	static struct km_page *page[1 << 16];
	static unsigned char order_of[1 << 16];
	unsigned count = 0;

	cache = make("fallback", 1024);
	usual = kmem_cache_alloc(cache, GFP_KERNEL);
	NEED(usual && cache->order > 0);
	unsigned full = cache->objects;
	for (unsigned i = 0; i < 2 * full; i++)
		NEED(kmem_cache_alloc(cache, GFP_KERNEL));
	km_os_fault = refuse;
	for (unsigned order = KM_MAX_ORDER + 1; order-- > 0;)
		while (count < 1 << 16 && (page[count] = km_pages_alloc(order, -1, false, NULL)))
			order_of[count++] = (unsigned char)order;
	NEED(count && count < 1 << 16);
	while (kmem_cache_alloc(cache, GFP_NOWAIT))
		;
	/* Every page is taken: one comes back. */
	count--;
	km_pages_free(page[count] + ((1u << order_of[count]) - 1), 0);
	odd = kmem_cache_alloc(cache, GFP_NOWAIT);
	km_os_fault = NULL;
	NEED(odd && kmem_cache_event(cache, KMEM_ORDER_FALLBACK) == 1);
	NEED(km_page_head(km_page_of(odd))->order == 0);
	while (count--)
		km_pages_free(page[count], order_of[count]);
}

/* SLAB's slabs are of one order, and slob's pages of none. */
static bool has_orders(void)
{
	struct kmem_cache *some = make("some", 1024);

	return some->engine->front != KM_FRONT_NONE && !some->engine->tune;
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

static const struct api_case cases[] = {
	{ "boundaries", boundaries },
	{ "they come and go", come_and_go },
};

API_MAIN(cases)
