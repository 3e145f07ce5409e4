/*
 * kfree_bulk.c: bulk calls with users' arrays: NULL entries, mixed caches, sizes. The code finds the cache of each
 * object and passes runs of one cache to the bulk free. Invariant: each entry is freed once or reported once.
 */
#include <limits.h>

#include "os/die.h"
#include "cache/cache.h"
#include "size_classes.h"

/* Objects of a mixed array sorted by cache at a time: enough to find several of one cache, few enough to stay in the
 * CPU's nearest cache. */
#define WINDOW 64u
/* If fewer objects than this were freed with the last object as one slab's, the array is not in order of slabs. */
#define FEW 4u

static size_t drop_nulls(size_t n, void **objects)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		objects[kept] = objects[i];
		kept += objects[i] != NULL;
	}
	return kept;
}

typedef uint32_t lanes __attribute__((vector_size(16)));

/* Returns: whether an entry may be NULL: a hint, seldom wrong and cheaply checked. Two pointers (four 32-bit
 * halves) per vector; 0.3 cycles an object. */
static bool may_have_null(size_t n, void *const *objects)
{
	lanes zeros = { 0 };
	size_t i = 0;

	for (; i + 4 <= n; i += 4) {
		lanes a, b;

		__builtin_memcpy(&a, objects + i, sizeof(a));
		__builtin_memcpy(&b, objects + i + 2, sizeof(b));
		zeros |= (lanes)(a == 0) | (lanes)(b == 0);
	}
	bool found = (zeros[0] | zeros[1] | zeros[2] | zeros[3]) != 0;
	for (; i < n; i++)
		found |= objects[i] == NULL;
	return found;
}

km_line_start void kmem_cache_free_bulk(struct kmem_cache *cache, size_t n, void **objects)
{
	if (km_unlikely(!cache)) {
		kfree_bulk(n, objects);
		return;
	}
	/* As in kmem_cache_alloc_bulk. */
	if (n == 1 && objects[0]) {
		kmem_cache_free(cache, objects[0]);
		return;
	}
	/* For engines with a freelist each object is checked at its free: skip the search for NULL. */
	const struct km_alloc_ops *ops = km_alloc_ops(cache);
	if (ops->give) {
		/* Hide the value from the compiler, so that the test above stays one instruction with its branch. */
		__asm__("" : "+r"(ops));
		if (ops->give(cache, n, objects))
			return;
	}
	if (km_unlikely(may_have_null(n, objects)))
		n = drop_nulls(n, objects);
	if (n)
		km_free_bulk(cache, n, objects);
}

/* Returns: whether all of objects[0, n) belong to the cache of this id. Branches never taken cost less than one sum of
 * all errors: 1.8 cycles an object against 3.3. Vectors of two addresses cost no less. No object has id 0. */
km_inline bool all_have_id(uintptr_t id, size_t n, void *const *objects)
{
	const uintptr_t arena = (uintptr_t)km_hot.arena, pages = km_load(&km_hot.pages);
	const uint16_t *map = km_hot.map;
	const uint64_t factor = *km_id_factor(id);
	const uint32_t mask = km_id_masks(id)->slab;
	uint64_t limit = (uint64_t)1 << KM_ID_SHIFT;

	/* Keep the limit in a register: one comparison with its branch, in place of a shift and a branch. */
	__asm__("" : "+r"(limit));
	for (size_t i = 0; i < n; i++) {
		uintptr_t index = ((uintptr_t)objects[i] - arena) >> KM_PAGE_SHIFT;

		if (km_unlikely(index >= pages) || km_unlikely(map[index] != id) ||
		    km_unlikely(((uint32_t)(uintptr_t)objects[i] & mask) * factor >= limit))
			return false;
	}
	return km_likely(km_load(&km_hot.caches[id]) != NULL);
}

/* The cache id of this thread's last array, usually the next one's as well. The branch is then predicted, and the code
 * does not wait for the chain of loads from object to cache. Objects of chains go slab by slab, with as_last_time. */
km_tls struct km_bulk_last km_bulk_last;

/* Returns: `cache`. Where the last array had the same cache, the result is taken from the thread's memory, so that the
 * code does not wait for the load of `cache`. The compiler must not know that both are equal. */
km_inline struct kmem_cache *as_last_time(struct kmem_cache *cache)
{
	struct kmem_cache *known = km_bulk_last.cache, *guess = known;

	__asm__("" : "+r"(guess));
	if (km_likely(cache == known))
		return guess;
	return km_bulk_last.cache = cache;
}

/* Returns: the cache of all of objects[0, n); NULL if mixed, or not found by the fast check. */
static struct kmem_cache *common_cache(size_t n, void *const *objects)
{
	struct kmem_cache *cache = km_quick_cache(objects[0]);

	if (!cache || !all_have_id(cache->fast.id, n, objects))
		return NULL;
	if (!km_alloc_ops(cache)->give_last)
		km_bulk_last.id = cache->fast.id;
	km_debug(cache->fast.id >= KM_MAP_FIRST, "a cache validated by an address has an id");
	return cache;
}

/* Free the objects of objects[0, n) in `cache`. Returns: the number left, at the front. */
static size_t free_run(struct kmem_cache *cache, struct kmem_cache **owners, size_t n, void **objects)
{
	void *run[WINDOW];
	size_t count = 0, left = 0;

	for (size_t i = 0; i < n; i++) {
		if (owners[i] == cache) {
			run[count++] = objects[i];
		} else {
			owners[left] = owners[i];
			objects[left++] = objects[i];
		}
	}
	km_free_bulk(cache, count, run);
	return left;
}

static void free_window(size_t n, void **objects)
{
	km_debug(n && n <= WINDOW, "a window is as long as its array");
	struct kmem_cache *owners[WINDOW], *common = common_cache(n, objects);

	if (km_likely(common)) {
		km_free_bulk(common, n, objects);
		return;
	}
	for (size_t i = 0; i < n; i++)
		owners[i] = km_quick_cache(objects[i]) ?: km_sized_owner(objects[i]);
	while (n) {
		if (owners[0]) {
			n = free_run(owners[0], owners, n, objects);
			continue;
		}
		/* A pointer without an entry in the page map: NULL, a large block, a foreign pointer, or a slab known
		 * by its page descriptor only. */
		km_free_any_miss(objects[0], "kfree_bulk");
		n--;
		owners[0] = owners[n];
		objects[0] = objects[n];
	}
}

/* Free the last object and nearby objects of the same slab, for engines with a freelist. Returns: the number of objects
 * left. */
km_inline size_t free_slab_of_last(size_t n, void **objects)
{
	struct kmem_cache *cache = as_last_time(km_quick_cache(objects[n - 1]));

	const struct km_alloc_ops *ops = cache ? km_alloc_ops(cache) : NULL;
	return ops && ops->give_last ? ops->give_last(cache, n, objects) : n;
}

/* Free the objects at the end of the array that are kmalloc blocks of an engine that serves by size. Returns: the
 * number left. */
static km_noinline size_t free_sized_last(size_t n, void **objects)
{
	size_t left = n;

	while (left && km_sized_owner(objects[left - 1]))
		left--;
	return left < n && km_alloc_give(km_kmalloc_sized, objects + left, n - left) ? left : n;
}

/* Free an array that is not of one cache, or not of the cache of the last array. */
static km_noinline void free_mixed(size_t n, void **objects)
{
	while (n) {
		size_t left = km_unlikely(km_kmalloc_sized != NULL) ? free_sized_last(n, objects) :
								    free_slab_of_last(n, objects);
		/* Go on by slabs while the last slab had several objects. */
		km_debug(left <= n, "at most n objects are left");
		bool try_again = left < n && n - left >= FEW;

		n = left;
		if (try_again || !n)
			continue;
		size_t count = km_min(n, (size_t)WINDOW);
		free_window(count, objects + n - count);
		n -= count;
	}
}

km_line_start void kfree_bulk(size_t n, void **objects)
{
	if (n == 1) {
		if (!km_free_any(objects[0]))
			km_free_any_miss(objects[0], "kfree_bulk");
		return;
	}
	uintptr_t id = km_bulk_last.id;
	if (km_likely(n - 1 < WINDOW) && km_likely(all_have_id(id, n, objects)))
		km_free_bulk(km_hot.caches[id], n, objects);
	else
		free_mixed(n, objects);
}

/* Allocate up to n objects at once from an engine that serves kmalloc by size, without the slow path. Returns: their
 * number. */
static size_t take_by_size(size_t size, gfp_t gfp, size_t n, void **objects)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);

	if (!km_boot() || !km_kmalloc_sized || !size || size >= KM_SIZED_END)
		return 0;
	request.bytes = (uint32_t)size;
	request.align = (uint32_t)km_natural_align(size);
	return km_alloc_take(km_kmalloc_sized, &request, objects, (unsigned)km_min(n, (size_t)4096));
}

int kmalloc_bulk(size_t size, gfp_t gfp, size_t n, void **objects)
{
	/* As in kmem_cache_alloc_bulk. */
	if (n == 1)
		return (objects[0] = kmalloc(size, gfp)) != NULL;
	if (km_unlikely(n - 1 >= INT_MAX)) {
		km_alloc_check_gfp("kmalloc_bulk", gfp, NULL);
		if (n)
			km_alloc_failed("kmalloc_bulk", SIZE_MAX, gfp, ENOMEM);
		return 0;
	}
	if (size && size <= KMALLOC_MAX_CACHE_SIZE && km_boot() && !km_kmalloc_sized &&
	    km_likely(!km_sanitizer.objects &&
		      (!km_observed_sizes || !(km_kmalloc_is_observed(size) || gfp & __GFP_ACCOUNT))))
		return km_alloc_bulk(km_kmalloc_cache_by(size, gfp), gfp, n, objects);
	for (size_t i = take_by_size(size, gfp, n, objects); i < n; i++) {
		objects[i] = kmalloc(size, gfp);
		if (!objects[i]) {
			km_calls_scope(was, km_gfp_may_wait(gfp));

			kfree_bulk(i, objects);
			return 0;
		}
	}
	return (int)n;
}
