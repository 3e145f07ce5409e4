/*
 * own_addresses: with the option own_addresses the address of a freed object, and of its slab, never serves a cache
 * of another name, nor any other block. A cache of the same name gets the address again; the memory goes back to the
 * system meanwhile, and counts against no bound. For each engine without shared pages. Where a request would fail at
 * a limit on address space or on data, the addresses of one size serve other sizes, and larger blocks.
 */
#include <errno.h>

#include "kit/api.h"

#define MANY 4000

static void *mine[MANY], *others[MANY];

static void fill(struct kmem_cache *cache, void **objects)
{
	for (size_t i = 0; i < MANY; i++) {
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		memset(objects[i], 1, kmem_cache_size(cache));
	}
}

/* Frees the objects and the cache, and all pages go back to the system. */
static void end(struct kmem_cache *cache, void **objects)
{
	for (size_t i = 0; i < MANY; i++)
		kmem_cache_free(cache, objects[i]);
	gone(cache);
	kmem_shrink_all();
}

static bool in_page_of(const void *p, void *const *objects)
{
	for (size_t i = 0; i < MANY; i++)
		if (((uintptr_t)p ^ (uintptr_t)objects[i]) >> 12 == 0)
			return true;
	return false;
}

static void no_other(void)
{
	struct kmem_cache *cache = make("mine", 120);

	fill(cache, mine);
	end(cache, mine);
	if (slob)
		return;
	struct kmem_cache *other = make("another", 120);
	fill(other, others);
	for (size_t i = 0; i < MANY; i++)
		NEED(!in_page_of(others[i], mine));
	for (size_t size = 64; size < 60000; size *= 2) {
		char *p = kmalloc(size, GFP_KERNEL);

		NEED(p && !in_page_of(p, mine) && !in_page_of(p + size - 1, mine));
	}
	end(other, others);
}

static void the_same(void)
{
	struct kmem_cache *cache = make("again", 120);
	size_t found = 0;

	fill(cache, mine);
	end(cache, mine);
	if (slob)
		return;
	unsigned char *old = mine[MANY / 2];
	NEED(!kmem_cache_of(old));
	/* Nothing was left there. */
	NEED(*old == 0);
	cache = make("again", 120);
	fill(cache, others);
	for (size_t i = 0; i < MANY; i++)
		found += in_page_of(others[i], mine);
	/* Some of the last slab's were never handed out before. */
	NEED(found > MANY - 200);
	end(cache, others);
}

/* Pages reserved for a name have no memory: other free resident pages do not stay on their account. */
static void no_memory_in_use(void)
{
	enum { OBJECTS = 64 << 10, BLOCKS = 120, BLOCK = 100000 };
	static void *many[OBJECTS], *blocks[BLOCKS];
	struct kmem_cache *cache = make("peak", 1000);
	struct kmem_stats stats;

	for (size_t i = 0; i < OBJECTS; i++)
		NEED((many[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (size_t i = 0; i < OBJECTS; i++)
		kmem_cache_free(cache, many[i]);
	gone(cache);
	kmem_shrink_all();
	for (size_t i = 0; i < BLOCKS; i++)
		NEED((blocks[i] = kzalloc(BLOCK, GFP_KERNEL)));
	for (size_t i = 0; i < BLOCKS; i++)
		kfree(blocks[i]);
	kmem_tick();
	kmem_get_stats(&stats);
	printf("%lu pages are free and may be resident\n", (unsigned long)stats.pages_free_dirty);
	NEED(stats.pages_free_dirty < (4 << 20) >> 12);
	NEED(kmem_check_all() == 0);
}

/* How many blocks there are until one is refused; all go back. */
static size_t most(size_t bytes)
{
	size_t count = 0;
	void **list = NULL, **block;

	while ((block = kvmalloc(bytes, GFP_KERNEL | __GFP_NOWARN))) {
		*block = list;
		list = block;
		count++;
	}
	NEED(errno == ENOMEM);
	for (; list; list = block) {
		block = *list;
		kvfree(list);
	}
	return count;
}

static void give_way(int resource)
{
	struct rlimit limit = { 64ul << 20, 64ul << 20 };

	NEED(setrlimit(resource, &limit) == 0);
	size_t small = most(100), middle = most(5000), large = most(1 << 20), larger = most(16 << 20);
	printf("%zu of 100 bytes, %zu of 5000, %zu of 1 MiB, %zu of 16 MiB\n", small, middle, large, larger);
	NEED(small > 300000 && middle * 5000 > 25ul << 20 && large > 28);
	NEED(most(100) > small - small / 8);
	NEED(kmem_check_all() == 0);
}

static void give_way_of_addresses(void)
{
	give_way(RLIMIT_AS);
}

static void give_way_of_data(void)
{
	give_way(RLIMIT_DATA);
}

static const struct test_case cases[] = {
	{ "no other has it", no_other },
	{ "the same name has it again", the_same },
	{ "what waits is not in use", no_memory_in_use },
	{ "they give way where addresses are limited", give_way_of_addresses },
	{ "they give way where data are limited", give_way_of_data },
};
API_MAIN_OPTIONS(cases, ",own_addresses:1")
