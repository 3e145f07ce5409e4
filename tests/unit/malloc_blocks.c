/*
 * malloc_blocks.c: the sheaves of malloc's caches are as large as misses make them, and no larger, because malloc
 * has no requests for many objects at once, and each class has some sheaves on each CPU. Sheaves of kmalloc's caches
 * serve kmalloc_bulk, and grow to the size of bulk requests.
 */
#include <stdlib.h>

#include "cache/cache.h"

#include "kit/check.h"

#define PAGE	4096u
#define LEAST	256u

/* As many pointers, the NULL and the header. */
static size_t bytes_for(unsigned capacity)
{
	size_t bytes = 8;

	while (bytes < (capacity + 2) * sizeof(void *))
		bytes *= 2;
	return bytes;
}

static size_t bytes_of_blocks(void *(*get)(size_t size), void (*put)(void *), size_t least, size_t most)
{
	size_t sum = 0;

	for (size_t size = least; size <= most; size *= 2) {
		void *p = get(size);
		NEED(p);
		struct kmem_cache *cache = kmem_cache_of(p);
		NEED(cache);
		size_t bytes = cache->fast.pcs.sheaf_mask + 1;

		CHECK(bytes == bytes_for(cache->tune.max_capacity));
		CHECK(cache->tune.max_capacity >= cache->tune.busy_capacity);
		if (get == malloc)
			CHECK(bytes == bytes_for(cache->tune.busy_capacity));
		sum += bytes;
		put(p);
	}
	return sum;
}

static void *get_kmalloc(size_t size)
{
	return kmalloc(size, GFP_KERNEL);
}

static void put_kmalloc(void *p)
{
	kfree(p);
}

int main(void)
{
	/* Up to LEAST bytes, misses grow a sheaf as far as bulk requests do. */
	bytes_of_blocks(malloc, free, 16, LEAST);
	size_t ours = bytes_of_blocks(malloc, free, LEAST, 2 * PAGE);
	size_t bulk = bytes_of_blocks(get_kmalloc, put_kmalloc, LEAST, 2 * PAGE);

	printf("a sheaf of each power of two up to %u: malloc's %zu bytes, kmalloc's %zu\n", 2 * PAGE, ours, bulk);
	CHECK(ours * 3 <= bulk * 2);
	return failures != 0;
}
