/*
 * object_boundaries.c: what kfree's hit believes of an address. For caches of very many sizes, and every byte of a
 * slab: the product of km_id_valid, and the index by reciprocal of km_object_index, agree with a plain division. And
 * for slabs of each order, as options can make them: each size has a factor, which is right about where objects and
 * their neighbours begin, and about bytes at random.
 */
#include <stdio.h>
#include <string.h>

#include <kmem/kmem.h>

#include "slab/engine.h"
#include "kit/random.h"

static unsigned long looked_at, wrong;

static void complain(const struct kmem_cache *cache, uint32_t offset, const char *what)
{
	if (wrong++ < 20)
		printf("FAIL size %u, %u objects, offset %u: %s\n", cache->layout.size, cache->layout.objects, offset,
		       what);
}

static void look(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;
	char *object = kmem_cache_alloc(cache, GFP_KERNEL);
	struct km_page *slab = object ? km_page_head(km_page_of(object)) : NULL;

	if (!slab || cache->fast.id < KM_MAP_FIRST) {
		complain(cache, 0, "no slab, or no id");
		return;
	}
	char *base = km_slab_first(cache, slab);
	uint32_t bytes = (uint32_t)KM_PAGE_SIZE << slab->order;
	kmem_cache_get_stats(cache, &stats);
	for (uint32_t offset = 0; offset < bytes; offset++) {
		bool start = offset % cache->layout.size == 0 && offset / cache->layout.size < cache->layout.objects;
		int index = km_object_index(cache, slab, base, base + offset);

		if ((km_hot.caches[cache->fast.id] && km_id_valid(cache->fast.id, base + offset)) !=
		    (start && !cache->form.colours))
			complain(cache, offset, "km_id_valid");
		if (index != (start ? (int)(offset / cache->layout.size) : -1))
			complain(cache, offset, "km_object_index");
		looked_at++;
	}
	kmem_cache_free(cache, object);
}

/* One result of kfree's arithmetic, for a slab without a cache. */
static void try_offset(uint64_t factor, uint64_t size, uint64_t objects, uint64_t offset, uint64_t bytes)
{
	bool start = offset % size == 0 && offset / size < objects;

	looked_at++;
	if (offset < bytes && !(offset * factor >> KM_ID_SHIFT) != start && wrong++ < 20)
		printf("FAIL slab of %llu, %llu objects of %llu: offset %llu\n", (unsigned long long)bytes,
		       (unsigned long long)objects, (unsigned long long)size, (unsigned long long)offset);
}

static void try_slab(uint64_t bytes, uint64_t size, uint64_t objects)
{
	uint64_t factor = km_id_find_factor(size, objects, bytes), state = bytes + size;

	/* An array of indices in the slab can leave so little room, where a slab of 4 MiB has objects of 8 bytes. */
	if (!factor && objects != bytes / size && size * objects * objects > (uint64_t)1 << KM_ID_SHIFT)
		return;
	if (!factor && wrong++ < 20)
		printf("FAIL slab of %llu: no factor for %llu objects of %llu\n", (unsigned long long)bytes,
		       (unsigned long long)objects, (unsigned long long)size);
	for (uint64_t k = 0; k <= bytes / size; k = k < 3 || k + 3 >= objects ? k + 1 : objects - 3)
		for (uint64_t near = k ? k * size - 8 : 0; near < k * size + 8; near++)
			try_offset(factor, size, objects, near, bytes);
	for (int i = 0; i < 64; i++) {
		try_offset(factor, size, objects, random_next(&state) % bytes, bytes);
	}
}

static void try_orders(void)
{
	for (unsigned order = 0; order <= KM_MAX_ORDER; order++)
		for (uint64_t bytes = KM_PAGE_SIZE << order, size = 8; size <= bytes;
		     size += size < 4096 ? 8 : size / 32 & ~7u) {
			uint64_t most = bytes / size;

			try_slab(bytes, size, most);
			try_slab(bytes, size, 1);
			try_slab(bytes, size, most - most / 8);
		}
}

int main(void)
{
	try_orders();
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
