/*
 * malloc_classes.c: find the cache for a size, for misses (spacing: kmalloc/size_classes.h). A class is made on its
 * first request, with small slabs. If one size dominates a class and wastes much memory there, the size gets a cache of
 * its own with dense slabs: a part of the class. So a program with many blocks of one size has little waste, and a
 * program with a few blocks of each size has few caches and small slabs. Invariant: a part has the alignment of its
 * sizes, as a class. A part, once made, stays.
 */
#include <string.h>

#include "base/bits.h"
#include "os/die.h"
#include "inspect/stats_print.h"
#include "malloc.h"

/* Waste that justifies a part, if the whole class had this size (plus four objects): another cache costs records,
 * and free objects in a slab or two. */
#define WORTH_BYTES	((size_t)64 << 10)
/* Lead in misses over the other parts of the class that makes a part's cache. Each miss brings some dozens of
 * blocks. */
#define AHEAD		16u

struct kmem_cache *km_malloc_first[KM_MALLOC_STEPS + 1] km_sparse;

/* A class and its parts: uncharged (mostly), or charged. */
struct class {
	struct kmem_cache *cache;
	struct kmem_cache *observed;	/* set while requested bytes are recorded; `cache` is then NULL */
	struct kmem_cache *part[KM_MALLOC_PARTS];
	/* ahead: the part with the most misses; by: its lead. Both are hints, so races do no harm. tried: bits of
	 * the parts tried, each once. */
	uint8_t ahead, by, tried;
};
static struct class plain[KM_MALLOC_CLASSES];
static struct class charged_classes[KM_MALLOC_CLASSES] km_sparse;

static bool is_charged(const struct class *class)
{
	return (uintptr_t)class - (uintptr_t)charged_classes < sizeof(charged_classes);
}

static unsigned number_of(const struct class *class)
{
	size_t number = (size_t)(class - (is_charged(class) ? charged_classes : plain));

	km_debug(number < KM_MALLOC_CLASSES, "a class has a valid number");
	return (unsigned)number;
}

/* Returns: the class of a size. Requires: 0 <= size <= KM_MALLOC_MAX_SMALL. */
static struct class *class_of(size_t size, bool charged)
{
	const size_t below = size ? (size - 1) / KM_MALLOC_UNIT : 0;

	km_debug(size <= KM_MALLOC_MAX_SMALL, "a class has a small size");
	return &(charged ? charged_classes : plain)[km_class_of(below, KM_MALLOC_EVEN, KM_MALLOC_SPLIT)];
}

/* The sizes of a cache: above `low`, up to `bytes`. */
struct span {
	size_t low, bytes;
};

static struct span span_of(const struct class *class)
{
	const unsigned number = number_of(class);
	size_t low = number ? km_class_units(number - 1, KM_MALLOC_EVEN, KM_MALLOC_SPLIT) : 0;

	return (struct span){ low * KM_MALLOC_UNIT,
			      km_class_units(number, KM_MALLOC_EVEN, KM_MALLOC_SPLIT) * KM_MALLOC_UNIT };
}

static size_t width_of_parts(struct span class)
{
	return km_max((class.bytes - class.low) / KM_MALLOC_PARTS, KM_MALLOC_UNIT);
}

static struct span span_of_part(struct span class, unsigned part)
{
	const size_t width = width_of_parts(class), low = class.low + part * width;

	km_debug(part < KM_MALLOC_PARTS, "a class has a few parts");
	return (struct span){ low, low + width };
}

/* Make a cache for a class or part. A charged cache is tuned with the uncharged cache at `leader`; an uncharged cache
 * is about to be published there, and has no leader. */
static struct kmem_cache *make(const struct class *class, size_t bytes, bool dense, struct kmem_cache *const *leader)
{
	/* The cache's alignment: the largest power of two, up to a page, that divides the class's size; also with a
	 * canary or red zone behind the object. */
	unsigned align = (unsigned)km_min(bytes & -bytes, KM_PAGE_SIZE);
	struct km_creation creation = { .args = { .align = align }, .internal = true, .dense = dense, .singly = true,
					.canary = true,
					.tuned_with = is_charged(class) ? km_load_acquire(leader) : NULL };
	char name[KM_NAME_BYTES];

	km_format(name, sizeof(name), is_charged(class) ? "malloc-cg-%lu" : "malloc-%lu", (unsigned long)bytes);
	return km_cache_create(name, (uint32_t)(bytes - km_malloc_canary()),
			       SLAB_KMALLOC | (is_charged(class) ? SLAB_ACCOUNT : 0), &creation);
}

/* The function behind km_malloc_watch: as km_kmalloc_watch, for malloc's classes. A part records no requested bytes,
 * because its sizes differ least. */
static void watch(struct kmem_cache *cache, bool observed)
{
	for (unsigned i = 0; i < 2 * KM_MALLOC_CLASSES; i++) {
		struct class *class = i < KM_MALLOC_CLASSES ? &plain[i] : &charged_classes[i - KM_MALLOC_CLASSES];

		if (observed && km_load(&class->cache) == cache) {
			km_store_release(&class->observed, cache);
			km_store_release(&class->cache, NULL);
		} else if (!observed && km_load(&class->observed) == cache && !km_is_debugged(cache)) {
			km_store_release(&class->cache, cache);
		}
	}
}

/* Let misses of these sizes try the cache first, if the mode allows. While malloc is charged, a charged cache precedes
 * an uncharged one, and no cache with validated frees is listed: misses would use the cache without checking the mode.
 * Context: registry locked. Release pairs with the load in km_malloc_miss: the cache is complete. */
static void show_first(struct kmem_cache *cache, const struct class *class, struct span sizes)
{
	const bool asked = km_account_asks & KM_ASKS_MALLOC;

	if (!cache || (asked ? !is_charged(class) && cache->layout.live_shift :
			       is_charged(class) || !cache->layout.live_shift))
		return;
	for (size_t step = sizes.low / KM_MALLOC_UNIT; step < sizes.bytes / KM_MALLOC_UNIT; step++) {
		const struct kmem_cache *now = km_load(&km_malloc_first[step]);

		if (!asked || is_charged(class) || !now || !(now->layout.flags & SLAB_ACCOUNT))
			km_store_release(&km_malloc_first[step], cache);
	}
}

/* Open the fast path for the sizes of the cache, unless caches go by call site. */
static void show(struct kmem_cache *cache, const struct class *class, struct span sizes,
		 void (*by_id)(struct kmem_cache *cache, uint16_t *id, size_t steps))
{
	km_debug(cache->layout.size >= sizes.bytes && sizes.low < sizes.bytes, "a cache serves its sizes");
	km_debug(is_charged(class) == !!(cache->layout.flags & SLAB_ACCOUNT) || km_options.account,
		 "hits without an owner check find uncharged objects");
	if (km_malloc_goes_by_call())
		return;
	km_registry_scope();
	if (!is_charged(class))
		by_id(cache, &km_malloc_id[sizes.low / KM_MALLOC_UNIT], (sizes.bytes - sizes.low) / KM_MALLOC_UNIT);
	show_first(cache, class, sizes);
}

static void show_class_first(const struct class *class)
{
	const struct span all = span_of(class);

	show_first(km_load_acquire(&class->cache), class, all);
	for (unsigned part = 0; part < KM_MALLOC_PARTS; part++)
		show_first(km_load_acquire(&class->part[part]), class, span_of_part(all, part));
}

void km_malloc_show_first(void)
{
	for (size_t step = 0; step < KM_MALLOC_STEPS; step++)
		km_store(&km_malloc_first[step], NULL);
	for (unsigned i = 0; i < KM_MALLOC_CLASSES && !km_malloc_goes_by_call(); i++) {
		show_class_first(&plain[i]);
		show_class_first(&charged_classes[i]);
	}
}

static km_cold struct kmem_cache *make_class(struct class *class)
{
	if (km_thread.busy || km_load(&class->observed))
		return NULL;
	km_store(&km_malloc_watch, watch);
	km_busy_scope(was);
	const struct span sizes = span_of(class);
	struct kmem_cache *cache = make(class, sizes.bytes, false, &plain[number_of(class)].cache);
	/* A debugged cache becomes `observed`: no size of the class has a fast path. */
	if (cache && km_is_debugged(cache))
		km_cache_publish(&class->observed, cache);
	else if (cache && km_cache_publish(&class->cache, cache))
		show(cache, class, sizes, km_alloc_show_sizes);
	return km_load_acquire(&class->cache);
}

/* Returns: the bytes of an object, with its share of the slab's surplus. */
static size_t cost(const struct kmem_cache *cache)
{
	km_debug(cache->layout.objects && cache->form.slab_pages, "a slab has objects");
	return ((size_t)cache->form.slab_pages << KM_PAGE_SHIFT) / cache->layout.objects;
}

/* Make a part. If the slabs' layout saves next to nothing, the sizes stay with the class. */
static km_cold struct kmem_cache *make_part(struct class *class, unsigned part, struct span sizes,
					    struct kmem_cache *whole)
{
	if (km_thread.busy)
		return whole;
	km_busy_scope(was);
	km_store(&class->tried, (uint8_t)(class->tried | 1u << part));
	struct kmem_cache *cache = make(class, sizes.bytes, true, &plain[number_of(class)].part[part]);
	if (cache && (km_is_debugged(cache) || cost(cache) > cost(whole) - cost(whole) / 32))
		km_cache_discard(cache);
	else if (cache && km_cache_publish(&class->part[part], cache))
		show(cache, class, sizes, km_alloc_show_part);
	return km_load_acquire(&class->part[part]) ?: whole;
}

/* Count a miss of the part. Returns: whether the part leads the other parts far enough. */
static bool is_ahead(struct class *class, unsigned part)
{
	unsigned by = km_load(&class->by);

	if (km_load(&class->ahead) == part)
		by++;
	else if (by)
		by--;
	else
		km_store(&class->ahead, (uint8_t)part);
	km_store(&class->by, (uint8_t)(by % AHEAD));
	return by == AHEAD;
}

/* Returns: the part for a size, of a class with parts. */
static unsigned part_of(struct span class, size_t size)
{
	unsigned part = (unsigned)((size - 1 - class.low) >> km_ilog2(width_of_parts(class)));

	km_debug(part < KM_MALLOC_PARTS && size > class.low && size <= class.bytes,
		 "a size is in one of its class's parts");
	return part;
}

static struct kmem_cache *cache_for_part(struct class *class, size_t size, struct kmem_cache *whole)
{
	const struct span all = span_of(class);
	const unsigned part = part_of(all, size);
	size_t has = km_load(&whole->state.slab_bytes);

	/* Acquire pairs with km_cache_publish. */
	struct kmem_cache *own = km_load_acquire(&class->part[part]);
	if (own)
		return own;
	/* Not worth a part even if each object takes twice the class's size, or already tried. */
	if (km_likely(has < WORTH_BYTES * 2) || km_load(&class->tried) >> part & 1)
		return whole;
	const struct span sizes = span_of_part(all, part);
	size_t each = cost(whole);
	if (has / each * (each - sizes.bytes) < WORTH_BYTES + 4 * each || !is_ahead(class, part))
		return whole;
	return make_part(class, part, sizes, whole);
}

struct kmem_cache *km_malloc_cache(size_t size)
{
	struct class *class = class_of(size, km_malloc_objcg());
	struct kmem_cache *cache = km_load_acquire(&class->cache) ?: make_class(class);

	km_debug(span_of(class).bytes % km_min(size ? size & -size : 1, KM_PAGE_SIZE) == 0,
		 "a class is a multiple of the alignment of its sizes");
	return size <= KM_MALLOC_UNDIVIDED || km_unlikely(!cache) ? cache : cache_for_part(class, size, cache);
}

/* Returns: whether the cache is that of the sizes around `size`: the class, its observed cache, or the part,
 * possibly made later. */
static bool serves_size(const struct kmem_cache *cache, size_t size)
{
	const struct class *class = class_of(size, cache->layout.flags & SLAB_ACCOUNT && !km_options.account);

	if (cache == km_load(&class->cache) || cache == km_load(&class->observed))
		return true;
	return size > KM_MALLOC_UNDIVIDED && cache == km_load(&class->part[part_of(span_of(class), size)]);
}

/* Follow malloc's way from a size to a cache, or the rule by which realloc keeps a block in place (is_enough,
 * malloc.c). */
bool km_malloc_serves(const struct kmem_cache *cache, size_t have, const struct km_sized *call)
{
	const size_t bytes = call->size + km_malloc_canary();
	const size_t by = call->align <= KM_MALLOC_ALIGN ? bytes : km_malloc_aligned_size(call->align, bytes);

	cache = km_site_plain(cache->ext.shadow_of ?: cache);
	if (call->size > have)
		return false;
	if (call->resized && (call->size >= have / 2 || km_load(&km_left_longer)))
		return true;
	if (cache == km_kmalloc_sized)
		return km_align_up(call->size, KM_SIZED_UNIT) == have;
	if (!(cache->layout.flags & SLAB_KMALLOC))
		return true;
	if (!serves_size(cache, cache->layout.object_size))
		return call->size > have / 4 || have <= 64;
	return by <= KM_MALLOC_MAX_SMALL && serves_size(cache, by);
}

struct kmem_cache *km_malloc_observed(size_t size)
{
	return km_load_acquire(&class_of(size, km_malloc_objcg())->observed);
}
