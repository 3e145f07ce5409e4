/*
 * malloc_parts.c: many blocks of one size have little waste, at any size; a few blocks of each size use no more
 * caches than there are classes. A size with a cache of its own keeps the cache when sheaves are drained. Aligned
 * requests, also by threads at once, begin at the alignment, from any cache.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/malloc.h"
#include "kmalloc/size_classes.h"

#define LIVE		((size_t)16 << 20)	/* bytes of each size */
#define FEW		((size_t)1 << 20)
#define THREADS		4
#define MOST		KM_MALLOC_MAX_SMALL

static const size_t sizes[] = { 272, 592, 610, 1100, 2100, 4200, 5000, 7000, 10000, 17000, 20000, 30000 };
#define SIZES		(sizeof(sizes) / sizeof(sizes[0]))

static struct kmem_stats now(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return stats;
}

/* Blocks in a chain, by their first word. */
static void *hold(size_t size, size_t bytes, void *chain)
{
	for (size_t n = bytes / size; n; n--) {
		void *p = malloc(size);

		NEED(p);
		*(void **)p = chain;
		chain = p;
	}
	return chain;
}

static void drop(void *chain)
{
	for (void *next; chain; chain = next) {
		next = *(void **)chain;
		free(chain);
	}
}

/*
 * Different sizes in turns: no size leads. All together are fewer bytes than a cache of its own needs,
 * for each size.
 */
static void few_of_each(void)
{
	size_t caches, bytes = 0;
	void *chain = NULL;

	for (size_t size = 16; size <= MOST; size += 16)
		free(malloc(size));
	caches = now().caches;
	for (unsigned i = 0; bytes < FEW; i++) {
		size_t size = 16 + i * 7919u % (MOST - 15);

		chain = hold(size, size, chain);
		bytes += size;
	}
	NEED(now().caches == caches);
	drop(chain);
}

static void much_of(size_t size)
{
	size_t before = now().pages_used;
	void *chain = hold(size, LIVE, NULL);
	size_t bytes = (now().pages_used - before) * 4096;

	/* The bound fits a unit of 16 bytes. */
	NEED(bytes <= LIVE + LIVE / 20 + 40 * size + (64u << 10) + LIVE / size * (KM_MALLOC_UNIT - 16),
	     "(%zu bytes for %zu of %zu)", bytes, LIVE, size);
	/* The latest blocks have less than a 32nd to spare. */
	NEED(malloc_usable_size(chain) < size + size / 32 + KM_MALLOC_UNIT, "(%zu for %zu)", malloc_usable_size(chain),
	     size);
	size_t exact = malloc_usable_size(chain);
	drop(chain);
	kmem_shrink_all();
	chain = malloc(size);
	NEED(chain && malloc_usable_size(chain) == exact, "(after a drain)");
	free(chain);
}

static void aligned(unsigned seed)
{
	for (size_t align = 16; align <= 4096; align *= 2)
		for (size_t size = 257 + seed; size <= MOST; size += 61) {
			unsigned char *p = aligned_alloc(align, size);

			NEED(p && !((uintptr_t)p & (align - 1)), "(%zu bytes at a multiple of %zu)", size, align);
			NEED(malloc_usable_size(p) >= size);
			fill(p, 16, seed);
			fill(p + size - 16, 16, seed);
			NEED(is_filled(p, 16, seed));
			free(p);
		}
}

/* The first thread makes each size's cache. */
static void *work(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	void *chain = NULL;

	for (size_t size = 1200; size < 4000; size += 300)
		chain = hold(size, LIVE / 16, chain);
	aligned(seed);
	drop(chain);
	return NULL;
}

int main(void)
{
	pthread_t thread[THREADS];

	check_ours();
	few_of_each();
	for (size_t i = 0; i < SIZES && sizes[i] <= MOST; i++)
		much_of(sizes[i]);
	for (size_t i = 0; i < THREADS; i++)
		NEED(pthread_create(&thread[i], NULL, work, (void *)i) == 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	NEED(kmem_check_all() == 0);
	return 0;
}
