/*
 * malloc_switched.c: malloc's blocks are debugged while a program runs. New blocks have a red zone directly behind
 * the requested bytes; a size with a cache of its own is not served by another cache meanwhile; older blocks are
 * resized and freed as before. After debugging is off, all is as before. Disciplines: all
 */
#define _GNU_SOURCE
#include <malloc.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "cache/cache.h"
#include "kit/malloc.h"

#define MANY 4000

static void *blind(void *p)
{
	__asm__ volatile("" : "+r"(p));
	return p;
}

static void a_class(void)
{
	char *before = malloc(50), *next = malloc(200);
	struct kmem_cache *cache = kmem_cache_of(before), *other = kmem_cache_of(next);

	NEED(cache && cache != other && malloc_usable_size(before) == 64);
	NEED(kmem_cache_set_debug(cache, "FZPU") == 0);
	char *during = malloc(50), *zeros = calloc(7, 7), *aligned = aligned_alloc(64, 64);
	NEED(km_cache_of(during)->ext.shadow_of == cache && km_cache_of(zeros)->ext.shadow_of == cache);
	NEED(malloc_usable_size(during) == 50 && malloc_usable_size(zeros) == 49 && !((uintptr_t)aligned & 63));
	for (int i = 0; i < 49; i++)
		NEED(!zeros[i]);
	((char *)blind(during))[50] ^= 1;
	NEED(kmem_cache_validate(cache) == 1 && kmem_cache_validate(cache) == 0);
	memset(during, 'd', 50);
	memset(before, 'b', 50);
	during = realloc(during, 60);
	before = realloc(before, 60);
	NEED(malloc_usable_size(during) == 60 && during[49] == 'd' && before[49] == 'b');
	during = realloc(during, 1000);
	NEED(during[49] == 'd' && kmem_cache_of(during) != cache);
	/* No other class knows. */
	NEED(!other->ext.shadows && kmem_cache_of(next) == other && malloc_usable_size(next) == other->layout.size);
	free(before);
	free(during);
	free(zeros);
	free(aligned);
	NEED(kmem_cache_set_debug(cache, "-") == 0);
	kmem_cache_shrink(cache);
	NEED(!cache->ext.shadows->out);
	char *after = malloc(50);
	NEED(km_cache_of(after) == cache && malloc_usable_size(after) == 64);
	free(after);
	free(next);
}

/* Many blocks of one size have a cache of their own, beside the class's cache. */
static void a_part(void)
{
	static void *blocks[MANY];
	void *first[20];
	struct kmem_cache *class, *part;

	for (int i = 0; i < 20; i++)
		first[i] = malloc(1040);
	class = kmem_cache_of(first[0]);
	for (int i = 0; i < MANY; i++)
		NEED((blocks[i] = malloc(1040)));
	part = kmem_cache_of(blocks[MANY - 1]);
	if (part == class) {
		/* With this cut of the slabs a separate cache would save no memory. */
		puts("1040 bytes have no cache of their own");
		return;
	}
	NEED(kmem_cache_set_debug(part, "FZ") == 0);
	/* The class's sheaves open anew, and have objects: the sheaves must not serve this size. */
	kmem_cache_shrink(class);
	for (int i = 0; i < 20; i++)
		free(first[i]);
	for (int i = 0; i < 300; i++) {
		char *p = malloc(1040);

		NEED(km_cache_of(p)->ext.shadow_of == part);
		free(p);
	}
	NEED(kmem_cache_set_debug(part, "-") == 0);
	kmem_cache_shrink(part);
	kmem_cache_shrink(class);
	for (int i = 0; i < 300; i++) {
		char *p = malloc(1040);

		NEED(km_cache_of(p) == part);
		free(p);
	}
	for (int i = 0; i < MANY; i++)
		free(blocks[i]);
}

int main(void)
{
	setenv("KMEM_OPTIONS", "misuse:warn", 1);
	km_option_apply("misuse", "warn");
	a_class();
	a_part();
	NEED(kmem_check_all() == 0);
	return 0;
}
