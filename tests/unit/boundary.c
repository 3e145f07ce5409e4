/*
 * boundary.c: what kfree's hit believes of an address. For caches of very many sizes, and every byte of a slab: the one
 * comparison of km_entry_valid, and the index by reciprocal of km_object_index, agree with a plain division.
 */
#include <stdio.h>
#include <string.h>

#include <kmem/kmem.h>

#include "engine/engine.h"

static unsigned long looked_at, wrong;

static void complain(const struct kmem_cache *cache, uint32_t offset, const char *what)
{
	if (wrong++ < 20)
		printf("FAIL size %u, %u objects, offset %u: %s\n", cache->size, cache->objects, offset,
		       what);
}

static void look(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;
	char *object = kmem_cache_alloc(cache, GFP_KERNEL);
	struct km_page *slab = object ? km_page_head(km_page_of(object)) : NULL;

	if (!slab || cache->id < KM_MAP_FIRST) {
		complain(cache, 0, "no slab, or no id");
		return;
	}
	const struct km_entry *entry = &km_hot.entries[cache->id];
	char *base = km_slab_first(cache, slab);
	uint32_t bytes = (uint32_t)KM_PAGE_SIZE << slab->order;
	kmem_cache_get_stats(cache, &stats);
	for (uint32_t offset = 0; offset < bytes; offset++) {
		bool start = offset % cache->size == 0 && offset / cache->size < cache->objects;
		int index = km_object_index(cache, slab, base, base + offset);

		if (km_entry_valid(entry, base + offset) != (start && !cache->colours))
			complain(cache, offset, "km_entry_valid");
		if (index != (start ? (int)(offset / cache->size) : -1))
			complain(cache, offset, "km_object_index");
		looked_at++;
	}
	kmem_cache_free(cache, object);
}

int main(void)
{
	for (uint32_t size = 1; size < 100000; size += size < 2100 ? 8 : size / 16 + 8) {
		static const char *const engines[] = { "sheaf", "slub", "slab" };

		for (int i = 0; i < 3; i++) {
			struct kmem_cache_args args = { .engine = engines[i] };
			struct kmem_cache *cache = kmem_cache_create("size", size, &args, 0);

			if (!cache)
				return 1;
			look(cache);
			kmem_cache_destroy(cache);
		}
	}
	for (uint32_t size = 8; size <= 32768; size *= 2) {
		struct kmem_cache *cache = kmem_cache_create("power", size, NULL, 0);

		look(cache);
		kmem_cache_destroy(cache);
	}
	printf("%lu addresses, %lu wrong\n", looked_at, wrong);
	return wrong != 0;
}
