/*
 * malloc_classes.c: from a size to the cache that serves it, for misses. A class is made when it is first asked for.
 * Its sizes differ by an eighth at most, and its slabs are small; where it has much of one size, and would waste much
 * by that, that size gets a cache of its own, with dense slabs: a part of the class. So who has many blocks of one size
 * has little waste, and who has a few of each size has few caches and small slabs. Invariant: what serves a size is a
 * multiple of each power of two that the size is a multiple of, up to a page (km_malloc_aligned_size relies on it); a
 * part, once made, stays.
 */
#include <string.h>

#include "../port/bits.h"
#include "../port/die.h"
#include "../watch/print.h"
#include "malloc.h"

/* A class's sizes are in so many parts of equal width, of 16 bytes at least. */
#define PARTS		8u
/* As much, and four objects, would the class waste if all of it were of that size: a cache more has free objects in a
 * slab or two, and records. */
#define WORTH_BYTES	((size_t)64 << 10)
/* Misses by which one size is ahead of all others of its class: each brings some dozens of blocks. */
#define AHEAD		16u

struct kmem_cache *km_malloc_proved[KM_MALLOC_STEPS + 1] km_sparse;
static struct kmem_cache *cache_of_class[KM_MALLOC_CLASSES];
/* Those whose users' bytes count, which have nothing there. */
static struct kmem_cache *watched_of_class[KM_MALLOC_CLASSES] km_sparse;
static struct kmem_cache *cache_of_part[KM_MALLOC_CLASSES][PARTS];
/* The class whose misses are ahead, and by how many; a hint, so races do no harm. And which parts were tried: once is
 * enough. */
static struct {
	uint8_t part, by, tried;
} race[KM_MALLOC_CLASSES];

/* 0 <= size <= KM_MALLOC_MAX_SMALL. */
static unsigned class_of(size_t size)
{
	size_t most = size ? size - 1 : 0;

	km_debug(size <= KM_MALLOC_MAX_SMALL, "a class has a size that is small");

	if (most < 128)
		return (unsigned)(most / KM_MALLOC_ALIGN);
	unsigned log = km_ilog2(most);
	return (log - 7) * 8 + 8 + (unsigned)(most >> (log - 3) & 7);
}

static size_t bytes_of(unsigned class)
{
	km_debug(class < KM_MALLOC_CLASSES, "a class is one of those there are");
	if (class < 8)
		return (class + 1) * KM_MALLOC_ALIGN;
	unsigned log = (class - 8) / 8 + 7;
	return ((size_t)1 << log) + ((size_t)((class & 7) + 1) << (log - 3));
}

static struct kmem_cache *make(size_t bytes, bool dense)
{
	/* A class is a multiple of it; an object with something around it is aligned as well. */
	unsigned align = (unsigned)km_min(bytes & -bytes, KM_PAGE_SIZE);
	struct km_creation creation = { .args = { .align = align }, .internal = true, .dense = dense,
					.singly = true, .canary = true };
	char name[KM_NAME_BYTES];
	int error;

	km_format(name, sizeof(name), "malloc-%lu", (unsigned long)bytes);
	return km_cache_create(name, (uint32_t)(bytes - km_malloc_canary()), SLAB_KMALLOC, &creation, &error);
}

/* Two threads may have come here at once: one cache stays. Release pairs with the loads of who looks for it. */
static bool is_first(struct kmem_cache *cache, struct kmem_cache **at)
{
	struct kmem_cache *none = NULL;

	if (km_cas_release(at, &none, cache))
		return true;
	kmem_cache_destroy(cache);
	return false;
}

/* As km_kmalloc_watch. Of a part the bytes that were asked for are not told: it is cut as finely as can be. */
static void watch(struct kmem_cache *cache, bool watched)
{
	for (unsigned class = 0; class < KM_MALLOC_CLASSES; class++)
		if (watched && km_load(&cache_of_class[class]) == cache) {
			km_store_release(&watched_of_class[class], cache);
			km_store_release(&cache_of_class[class], NULL);
		} else if (!watched && km_load(&watched_of_class[class]) == cache && !km_is_debugged(cache)) {
			km_store_release(&cache_of_class[class], cache);
		}
}

/* From then on its sizes hit its shelf, but where each call goes by where it returns to. Release pairs with the load in
 * km_malloc_miss: it is built. */
static void show(struct kmem_cache *cache, size_t low, size_t bytes,
		 void (*by_id)(struct kmem_cache *cache, uint16_t *id, size_t steps))
{
	const size_t first = low / KM_MALLOC_ALIGN, end = bytes / KM_MALLOC_ALIGN;

	if (km_malloc_goes_by_call())
		return;
	by_id(cache, &km_malloc_id[first], end - first);
	for (size_t step = first; cache->live_shift && step < end; step++)
		km_store_release(&km_malloc_proved[step], cache);
}

static km_cold struct kmem_cache *make_class(unsigned class)
{
	if (km_front_busy || km_load(&watched_of_class[class]))
		return NULL;
	km_store(&km_malloc_watch, watch);
	bool was = km_busy_begin();
	size_t low = class ? bytes_of(class - 1) : 0, bytes = bytes_of(class);
	struct kmem_cache *cache = make(bytes, false);
	/* From then on each size of the class hits its shelf, but where each call is to be seen. */
	if (cache && km_is_debugged(cache))
		is_first(cache, &watched_of_class[class]);
	else if (cache && is_first(cache, &cache_of_class[class])) {
		km_debug(cache->size >= bytes && low % KM_MALLOC_ALIGN == 0 && bytes > low,
			 "a class serves the sizes above those of the one below");
		show(cache, low, bytes, km_front_show_sizes);
	}
	km_busy_end(was);
	return km_load_acquire(&cache_of_class[class]);
}

/* Memory that an object takes, with what its slab has left over. */
static size_t cost(const struct kmem_cache *cache)
{
	km_debug(cache->objects && cache->slab_pages, "a slab has objects");
	return ((size_t)cache->slab_pages << KM_PAGE_SHIFT) / cache->objects;
}

/* Sizes above `low` up to `bytes`. Where that saves next to nothing, as slabs are cut, they stay with the class. */
static km_cold struct kmem_cache *make_part(unsigned class, unsigned part, size_t low, size_t bytes,
					    struct kmem_cache *whole)
{
	if (km_front_busy)
		return whole;
	bool was = km_busy_begin();
	km_store(&race[class].tried, (uint8_t)(race[class].tried | 1u << part));
	struct kmem_cache *cache = make(bytes, true);
	if (cache && (km_is_debugged(cache) || cost(cache) > cost(whole) - cost(whole) / 32))
		kmem_cache_destroy(cache);
	else if (cache && is_first(cache, &cache_of_part[class][part])) {
		km_debug(low >= bytes_of(class - 1) && bytes <= bytes_of(class),
			 "a part's sizes are of its class");
		show(cache, low, bytes, km_front_show_part);
	}
	km_busy_end(was);
	return km_load_acquire(&cache_of_part[class][part]) ?: whole;
}

/* One more miss of this part. Is it far ahead of the class's others? */
static bool is_ahead(unsigned class, unsigned part)
{
	unsigned by = km_load(&race[class].by);

	if (km_load(&race[class].part) == part)
		by++;
	else if (by)
		by--;
	else
		km_store(&race[class].part, (uint8_t)part);
	km_store(&race[class].by, (uint8_t)(by % AHEAD));
	return by == AHEAD;
}

static struct kmem_cache *cache_for_part(unsigned class, size_t size, struct kmem_cache *whole)
{
	size_t low = bytes_of(class - 1), width = km_max((bytes_of(class) - low) / PARTS, KM_MALLOC_ALIGN);
	unsigned part = (unsigned)((size - 1 - low) >> km_ilog2(width));
	km_debug(part < PARTS && size > low, "a size is in one of its class's parts");
	size_t first = low + part * width, has = km_load(&whole->slab_bytes);

	/* Acquire pairs with is_first. */
	struct kmem_cache *own = km_load_acquire(&cache_of_part[class][part]);
	if (own)
		return own;
	km_debug(size > first && size <= first + width, "a part serves the sizes between two steps");
	/* An object takes less than twice the class's size. */
	if (km_likely(has < WORTH_BYTES * 2) || km_load(&race[class].tried) >> part & 1)
		return whole;
	size_t each = cost(whole);
	if (has / each * (each - first - width) < WORTH_BYTES + 4 * each || !is_ahead(class, part))
		return whole;
	return make_part(class, part, first, first + width, whole);
}

struct kmem_cache *km_malloc_cache(size_t size)
{
	unsigned class = class_of(size);
	struct kmem_cache *cache = km_load_acquire(&cache_of_class[class]) ?: make_class(class);

	km_debug(bytes_of(class) >= size && (!class || bytes_of(class - 1) < size),
		 "a class serves the sizes above those of the one below");
	km_debug(bytes_of(class) % km_min(size ? size & -size : 1, KM_PAGE_SIZE) == 0,
		 "a class is a multiple of the powers of two that its sizes are");

	/* Below, the next class is as near as a part would be. */
	return size <= 256 || km_unlikely(!cache) ? cache : cache_for_part(class, size, cache);
}

/* Of the classes' and parts' own: that of the sizes up to `size`, which part may have come later. */
static bool serves_size(const struct kmem_cache *cache, size_t size)
{
	unsigned class = class_of(size);

	if (cache == km_load(&cache_of_class[class]) || cache == km_load(&watched_of_class[class]))
		return true;
	if (size <= 256)
		return false;
	size_t low = bytes_of(class - 1), width = km_max((bytes_of(class) - low) / PARTS, KM_MALLOC_ALIGN);
	unsigned part = (unsigned)((size - 1 - low) >> km_ilog2(width));

	km_debug(part < PARTS, "a size is in one of its class's parts");
	return cache == km_load(&cache_of_part[class][part]);
}

/* As malloc goes from a size to a cache; or as realloc leaves a block where it is (is_enough, malloc.c). */
bool km_malloc_serves(const struct kmem_cache *cache, size_t have, const struct km_sized *call)
{
	const size_t bytes = call->size + km_malloc_canary();
	const size_t by = call->align <= KM_MALLOC_ALIGN ? bytes : km_malloc_aligned_size(call->align, bytes);

	cache = km_site_plain(cache->sibling_of ?: cache);
	if (call->size > have)
		return false;
	if (call->resized && call->size >= have / 2)
		return true;
	if (cache == km_kmalloc_sized)
		return km_align_up(call->size, KM_SIZED_UNIT) == have;
	if (!(cache->flags & SLAB_KMALLOC))
		return true;
	if (!serves_size(cache, cache->object_size))
		return call->size > have / 4 || have <= 64;
	return by <= KM_MALLOC_MAX_SMALL && serves_size(cache, by);
}

struct kmem_cache *km_malloc_watched(size_t size)
{
	/* Acquire pairs with is_first. */
	return km_load_acquire(&watched_of_class[class_of(size)]);
}
