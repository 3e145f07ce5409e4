/*
 * prefill.c: prefilled sheaves: stacks of objects held by the caller, so that taking an object needs no CPU, no lock
 * and no memory. Invariants: a sheaf held by the caller is on no CPU and in no barn. While a sheaf is out, `top`
 * points into the sheaf's own memory; the header of any other sheaf does not. So a second return of a sheaf is found.
 *
 *	a sheaf of the cache	[ .. | obj | obj | NULL | top ]				size 2^k: top at the end
 *	an array ("oversize")	[ .. | obj | obj | NULL | top | cache | capacity ]	where no sheaf will do
 *
 * The address of the word `top` tells the two kinds apart: 8 bytes before a multiple of 32 in a sheaf, 24 bytes
 * before one in an array.
 *
 * Taking an object from a sheaf cannot fail. The sheaf is detached from the CPUs, so no other thread can reach the
 * sheaf. Taking moves `top`, a word in the sheaf's own header. The NULL below the last object is always there, and ends
 * the sheaf. A signal handler may take from a sheaf of its own while its thread is anywhere in the library.
 *
 * The first choice is the CPU's spare: full or half full, and detached by one sequence. A returned sheaf becomes the
 * spare again if the CPU has none. Else a barn with room gets the sheaf, topped up first, because a barn keeps full
 * sheaves. The engine empties a sheaf without room in the barn.
 *
 * If the cache has no such sheaves, or the largest sheaf is too small, the prefilled sheaf is an array in the
 * library's own memory, filled and emptied by bulk requests. Charged and observed caches, and caches with other alloc
 * ops, have no such sheaves. The calls are the same, and slower.
 */
#include <errno.h>

#include "page/guard_range.h"
#include "page/metadata.h"
#include "alloc_ops.h"

struct array_sheaf {
	struct slab_sheaf sheaf;
	struct kmem_cache *cache;
	size_t capacity;
};
_Static_assert(sizeof(struct array_sheaf) == 24, "is told from a block by its address");

#define MAX_ARRAY_BYTES ((size_t)4 << 20)	/* most bytes of an array: the kernel's maximum of kmalloc */

km_inline bool is_sheaf(const struct slab_sheaf *sheaf)
{
	return ((uintptr_t)sheaf & 16) != 0;
}

km_inline void **bottom_of(const struct slab_sheaf *sheaf)
{
	return (void **)sheaf - 1;
}

static size_t size_of(const struct slab_sheaf *sheaf)
{
	return (size_t)(bottom_of(sheaf) - sheaf->top);
}

static struct slab_sheaf *sheaf_of_sheaf(const struct kmem_cache *cache, void **top)
{
	struct slab_sheaf *sheaf = (struct slab_sheaf *)km_sheaf_header(&cache->fast.pcs, top);

	km_debug(is_sheaf(sheaf), "the address of a prefilled sheaf distinguishes sheaves and arrays");
	sheaf->top = top;
	return sheaf;
}

static size_t capacity_of(const struct kmem_cache *cache, const struct slab_sheaf *sheaf)
{
	return is_sheaf(sheaf) ? km_mask_capacity(cache->fast.pcs.sheaf_mask) :
				 ((const struct array_sheaf *)sheaf)->capacity;
}

static size_t array_bytes(size_t capacity)
{
	return km_pow2_up((capacity + 1) * sizeof(void *) + sizeof(struct array_sheaf));
}

static char *memory_of(const struct kmem_cache *cache, const struct slab_sheaf *sheaf)
{
	if (is_sheaf(sheaf))
		return (char *)km_sheaf_base(&cache->fast.pcs, (void **)sheaf);
	const struct array_sheaf *array = (const struct array_sheaf *)sheaf;
	return (char *)(array + 1) - array_bytes(array->capacity);
}

/* Checks that the program holds the sheaf, and that the sheaf is of this cache. Reports misuse. The header word of a
 * sheaf held by the program is `top`, a pointer into the sheaf. On a CPU the word is the offset of the spare, in a barn
 * a link; neither value points into the sheaf. */
static bool is_ours(struct kmem_cache *cache, struct slab_sheaf *sheaf, const char *function)
{
	const uint32_t mask = cache->fast.pcs.sheaf_mask;
	int index;

	if (km_unlikely(cache->layout.dead)) {
		km_misuse(KM_MISUSE_DEAD_CACHE, function, sheaf, cache->registry.name);
		return false;
	}
	bool fits = is_sheaf(sheaf) ? ((uintptr_t)sheaf & mask) == mask - 7 :
				      ((struct array_sheaf *)sheaf)->cache == cache;
	if (km_unlikely(!fits || (char *)sheaf->top < memory_of(cache, sheaf) ||
			sheaf->top > bottom_of(sheaf))) {
		km_misuse(KM_MISUSE_SHEAF, function, sheaf, cache->registry.name);
		return false;
	}
	/* An array names its cache. Sheaves of other caches may look the same; their objects do not. */
	return !is_sheaf(sheaf) || !*sheaf->top || km_is_guarded(*sheaf->top) ||
	       km_slab_of(cache, *sheaf->top, &index, function);
}

km_inline void count_fast(struct kmem_cache *cache, enum kmem_event event)
{
	if (km_unlikely(km_layout_options.count_events))
		km_count(cache, event);
}

/* ------------------------------------------------------------------ blocks; km_thread.busy is set */

/* Returns: true if the caller may get a sheaf of the cache. False: the cache has no sheaves, its sheaves have a pad, or
 * a layer must see each object. */
static bool has_sheaves(const struct kmem_cache *cache)
{
	return cache->fast.pcs.slot && km_alloc_ops(cache)->pcs && !km_alloc_lone(cache);
}

/* Fills a sheaf up to its capacity, or to n objects if n is larger. top: the sheaf to fill; NULL or empty: takes
 * another sheaf. Returns: the top, with fewer objects if memory ran out; NULL: no sheaf before, and none now. */
static void **fill(struct kmem_cache *cache, const struct km_request *request, void **top, size_t n)
{
	if (!top || !*top) {
		void **sheaf = cache->layout.engine->array.refill(cache, request, top);

		if (!sheaf)
			return top;
		top = sheaf;
	}
	size_t count = km_sheaf_objects(&cache->fast.pcs, top);
	km_debug(km_thread.busy && n <= km_mask_capacity(cache->fast.pcs.sheaf_mask),
		 "a sheaf is filled up to its capacity");
	if (count >= n)
		return top;
	unsigned room = (unsigned)(km_max(n, (size_t)km_mask_capacity(km_alloc_mask(cache))) - count);
	unsigned got = cache->layout.engine->take(cache, request, top - room, room);
	if (got < room)
		__builtin_memmove(top - got, top - room, got * sizeof(*top));
	km_count(cache, KMEM_SHEAF_REFILL);
	return top - got;
}

/* Fills a sheaf as fill() does; while it has fewer than n objects, drains other caches and tries again. */
static void **fill_or_press(struct kmem_cache *cache, const struct km_request *request, void **top, size_t n)
{
	km_calls_scope(was, request->may_wait);
	unsigned tries = 0;

	top = fill(cache, request, top, n);
	while (km_unlikely(!top || km_sheaf_objects(&cache->fast.pcs, top) < n) && request->may_wait &&
	       km_alloc_relieve(cache, &tries))
		top = fill(cache, request, top, n);
	if (request->may_wait)
		km_alloc_tick_rarely();
	return top;
}

/* Takes a sheaf from the CPU or the engine, with n objects. If n is above the sheaves' capacity, enlarges the capacity
 * for later sheaves. */
static struct slab_sheaf *prefill_sheaf(struct kmem_cache *cache, const struct km_request *request, size_t n)
{
	void **top = km_pcs_take_spare(&cache->fast.pcs);

	if (top && km_sheaf_objects(&cache->fast.pcs, top) >= n) {
		count_fast(cache, KMEM_SHEAF_PREFILL_FAST);
		return sheaf_of_sheaf(cache, top);
	}
	km_count(cache, KMEM_SHEAF_PREFILL_SLOW);
	km_alloc_note(cache, KM_MISS_POINTS);
	/* Make the sheaves large enough for one such request. */
	if (n > km_mask_capacity(km_alloc_mask(cache)))
		km_alloc_resize(cache, (unsigned)n);
	top = fill_or_press(cache, request, top, n);
	if (km_likely(top && km_sheaf_objects(&cache->fast.pcs, top) >= n))
		return sheaf_of_sheaf(cache, top);
	if (top)
		cache->layout.engine->array.retire(cache, top);
	return NULL;
}

/* Gives a sheaf back: as the CPU's spare, else full to a barn with room, else to be emptied. */
static void return_sheaf(struct kmem_cache *cache, const struct km_request *request, void **top)
{
	if (km_pcs_put_spare(&cache->fast.pcs, top)) {
		count_fast(cache, KMEM_SHEAF_RETURN_FAST);
		return;
	}
	km_count(cache, KMEM_SHEAF_RETURN_SLOW);
	if (cache->layout.engine->array.has_room && cache->layout.engine->array.has_room(cache))
		top = fill(cache, request, top, km_mask_capacity(km_alloc_mask(cache)));
	cache->layout.engine->array.retire(cache, top);
}

/* ------------------------------------------------------------------ arrays */

/* Adds `more` objects to an array with room for them, all or none. */
static bool fill_array(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf *sheaf, size_t more)
{
	km_debug((char *)(sheaf->top - more) >= memory_of(cache, sheaf), "an array is filled up to its capacity");
	if (!km_alloc_bulk(cache, gfp, more, sheaf->top - more))
		return false;
	sheaf->top -= more;
	return true;
}

/* Stores NULL to `top` first, so that a second return is found, even while the objects are freed. */
static void free_array(struct kmem_cache *cache, struct slab_sheaf *sheaf)
{
	size_t count = size_of(sheaf), bytes = array_bytes(((struct array_sheaf *)sheaf)->capacity);
	void **top = sheaf->top;
	char *memory = memory_of(cache, sheaf);

	sheaf->top = NULL;
	((struct array_sheaf *)sheaf)->cache = NULL;
	if (count)
		km_free_bulk(cache, count, top);
	km_metadata_free(memory, bytes);
}

static struct slab_sheaf *prefill_array(struct kmem_cache *cache, gfp_t gfp, size_t n)
{
	size_t bytes = array_bytes(n);

	if (bytes > MAX_ARRAY_BYTES || km_thread.busy)
		return NULL;
	char *memory = km_metadata_alloc(bytes, km_gfp_may_wait(gfp));
	if (!memory)
		return NULL;
	struct array_sheaf *array = (struct array_sheaf *)(memory + bytes) - 1;
	*array = (struct array_sheaf){ { (void **)array - 1 }, cache, n };
	km_debug(!is_sheaf(&array->sheaf) && memory_of(cache, &array->sheaf) == memory,
		 "the address of a prefilled sheaf distinguishes sheaves and arrays");
	km_count(cache, KMEM_SHEAF_PREFILL_OVERSIZE);
	if (fill_array(cache, gfp, &array->sheaf, n))
		return &array->sheaf;
	free_array(cache, &array->sheaf);
	return NULL;
}

/* ------------------------------------------------------------------ the interface */

/* The gfp bits of a fill. Zeroing is done when an object is taken. Charging is done when the sheaf is filled. */
static gfp_t fill_gfp(const struct kmem_cache *cache, gfp_t gfp, const char *function)
{
	km_alloc_check_gfp(function, gfp, cache->registry.name);
	return gfp & __GFP_BITS_MASK & ~__GFP_ZERO;
}

/* Allocates a sheaf of the cache if the cache has sheaves of this size, else an array. */
static struct slab_sheaf *prefill(struct kmem_cache *cache, gfp_t gfp, size_t n)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);
	struct slab_sheaf *sheaf = NULL;
	bool was = km_calls_begin(request.may_wait);

	km_alloc_enter_thread(request.may_wait);
	/* With __GFP_ACCOUNT the cache gets the layer CHARGE, and from then on arrays are used. */
	km_ops_for(cache, gfp);
	if (!has_sheaves(cache) || n > km_mask_capacity(cache->fast.pcs.sheaf_mask)) {
		/* __GFP_NOWARN, because the caller reports the failure. */
		sheaf = prefill_array(cache, gfp | __GFP_NOWARN, n);
	} else if (km_miss_enter()) {
		sheaf = prefill_sheaf(cache, &request, n);
		km_busy_end_clear();
	}
	km_calls_end(was);
	if (km_unlikely(!sheaf))
		km_alloc_failed(cache->registry.name, n * cache->layout.object_size, gfp, ENOMEM);
	return sheaf;
}

struct slab_sheaf *kmem_cache_prefill_sheaf(struct kmem_cache *cache, gfp_t gfp, unsigned int n)
{
	gfp = fill_gfp(cache, gfp, "kmem_cache_prefill_sheaf");
	if (km_unlikely(cache->layout.dead))
		km_misuse(KM_MISUSE_DEAD_CACHE, "kmem_cache_prefill_sheaf", cache, cache->registry.name);
	if (km_unlikely(!n || cache->layout.dead)) {
		errno = EINVAL;
		return NULL;
	}
	return prefill(cache, gfp, n);
}

/* Frees a sheaf and its objects. Keeps errno. */
static void give_back(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf *sheaf)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);
	km_calls_scope(calls, request.may_wait);
	km_errno_scope(saved_errno);

	if (is_sheaf(sheaf)) {
		void **top = sheaf->top;

		km_debug(top, "a returned sheaf was given out");
		sheaf->top = NULL;
		km_alloc_enter_thread(request.may_wait);
		km_busy_scope(was);
		return_sheaf(cache, &request, top);
	} else {
		free_array(cache, sheaf);
	}
}

/* Refills a sheaf of the cache to n objects. Returns: the sheaf, or another one in its place. */
static struct slab_sheaf *refill_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf *sheaf, size_t n)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);

	if (!km_miss_enter())
		return sheaf;
	void **top = fill_or_press(cache, &request, sheaf->top, n);
	km_busy_end_clear();
	return sheaf_of_sheaf(cache, top);
}

/* Fills a larger sheaf before the old one is freed, so that a failure leaves the caller's sheaf unchanged. */
int kmem_cache_refill_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf **sheaf, unsigned int n)
{
	static const char function[] = "kmem_cache_refill_sheaf";
	struct slab_sheaf *old = sheaf ? *sheaf : NULL;

	gfp = fill_gfp(cache, gfp, function);
	if (!old || !is_ours(cache, old, function))
		return -EINVAL;
	if (size_of(old) >= n)
		return 0;
	size_t capacity = capacity_of(cache, old);
	/* A sheaf is filled with uncharged, unobserved objects, so a charged or observed request needs an array. */
	bool other = is_sheaf(old) && (km_unlikely(gfp & __GFP_ACCOUNT) || !has_sheaves(cache));
	if (n > capacity || km_unlikely(other)) {
		struct slab_sheaf *larger = prefill(cache, gfp, n);

		if (!larger)
			return -ENOMEM;
		*sheaf = larger;
		give_back(cache, gfp, old);
		return 0;
	}
	km_calls_scope(was, km_gfp_may_wait(gfp));
	if (is_sheaf(old))
		*sheaf = refill_sheaf(cache, gfp, old, n);
	else
		fill_array(cache, gfp, old, capacity - size_of(old));
	return size_of(*sheaf) >= n ? 0 : -ENOMEM;
}

km_cold static void *sheaf_is_empty(void)
{
	errno = ENOMEM;
	return NULL;
}

km_cold static void *taken_oddly(const struct kmem_cache *cache, gfp_t gfp, void *object)
{
	km_alloc_check_gfp("kmem_cache_alloc_from_sheaf", gfp, cache->registry.name);
	if (gfp & __GFP_ZERO && cache->layout.cleared)
		__builtin_memset(object, 0, cache->layout.cleared);
	return object;
}

void *kmem_cache_alloc_from_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf *sheaf)
{
	void *object = *sheaf->top;

	if (km_unlikely(!object))
		return sheaf_is_empty();
	sheaf->top++;
	if (km_unlikely(gfp & (__GFP_ZERO | ~__GFP_BITS_MASK)))
		return taken_oddly(cache, gfp, object);
	return object;
}

void kmem_cache_return_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf *sheaf)
{
	gfp = fill_gfp(cache, gfp, "kmem_cache_return_sheaf");
	if (sheaf && is_ours(cache, sheaf, "kmem_cache_return_sheaf"))
		give_back(cache, gfp, sheaf);
}

unsigned int kmem_cache_sheaf_size(const struct slab_sheaf *sheaf)
{
	return (unsigned int)size_of(sheaf);
}
