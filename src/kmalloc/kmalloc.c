/*
 * kmalloc.c: choose the cache for a size: kmalloc, kfree, krealloc, the kv family. Invariant: an object has at least
 * the requested bytes and the alignment that kmalloc promises for the size. lookup.c has the way back, from a pointer
 * to its cache.
 */
#include <errno.h>
#include <limits.h>

#include "os/die.h"
#include "os/secret.h"
#include "alloc/tracer.h"
#include "large_cache.h"
#include "size_classes.h"

static const uint16_t sizes[] = {
#define SIZE(size) size,
	KM_KMALLOC_SIZES(SIZE)
};
#define CLASSES km_array_count(sizes)

/* Cache id by km_kmalloc_step; 0 before the start. Entry 0 also stands for sizes that are too large. */
static uint16_t id_of_size[KM_KMALLOC_STEPS] km_ids_near = { KM_ID_EMPTY };
KM_ALLOC_NEAR(id_of_size)
/* Cache of each size; NULL for debugged caches, and while km_kmalloc_watch makes a cache observed: then calls take the
 * slow path. */
static struct kmem_cache *cache_of_size[KM_KMALLOC_STEPS];
/* Bytes that a hit with __GFP_ZERO clears, by size; the cache is not asked, because cache_of_size may be NULL. */
static uint16_t cleared_of_size[KM_KMALLOC_STEPS];
/* The cache of all blocks of kmalloc, with an engine that serves kmalloc by size; else NULL. If set, all entries above
 * are 0 and NULL. */
struct kmem_cache *km_kmalloc_sized;
/* Caches for __GFP_ACCOUNT, so that charged and uncharged objects never share a slab; NULL until a group exists. */
static struct kmem_cache *charged_of_size[KM_KMALLOC_STEPS] km_sparse;
static uint16_t charged_id_of_size[KM_KMALLOC_STEPS] km_ids_near = { KM_ID_EMPTY };
KM_ALLOC_OWNED_NEAR(charged_id_of_size)
/* All caches by class, plain [0] and charged [1], and the class of each size. */
static struct kmem_cache *made[2][CLASSES];
static uint8_t class_of_size[KM_KMALLOC_STEPS];
/* Largest size with a direct fast path. Larger sizes take the slow path. All sizes do under a sanitizer, and all
 * do, through kmalloc_node, while an object is to be guarded. */
#define most_direct (km_direct.most[KM_DOOR_KMALLOC])

void (*km_malloc_watch)(struct kmem_cache *cache, bool observed);

static void *kmalloc_slowly(size_t size, gfp_t gfp, int node);

/* ------------------------------------------------------------------ the hot path */

km_inline bool is_by_size(size_t size)
{
	return km_kmalloc_sized && km_likely(size - 1 < KM_SIZED_END - 1);
}

/* Allocate a block from the cache of an engine that serves by size. The engine aligns the block behind its size
 * header. */
km_inline void *alloc_by_size(size_t size, gfp_t gfp, int node)
{
	return km_alloc_ops(km_kmalloc_sized)->alloc_sized(km_kmalloc_sized, size, km_natural_align(size), gfp, node);
}

/* Free an allocated object that does not suit the request. */
km_cold static void put_back(const void *p, gfp_t gfp)
{
	km_calls_scope(was, km_gfp_may_wait(gfp));

	kfree(p);
}

/* Serve kmalloc_account when the fast path by size missed. */
static km_noinline void *account_missed(size_t size, gfp_t gfp)
{
	struct kmem_cache *cache = NULL;
	void *p = NULL;

	if (km_likely(size <= km_load(&most_direct)))
		cache = km_load_acquire(&charged_of_size[km_kmalloc_step(size)]);
	/* A cache with a debug shadow cache takes the slow path, which notes the requested bytes. */
	if (km_unlikely(!cache || km_alloc_has_out(cache))) {
		if (size > KMALLOC_MAX_CACHE_SIZE && km_likely(!(gfp & KMEM_GFP_ODD & ~(__GFP_ACCOUNT | __GFP_ZERO))))
			p = km_large_cache_hit_charged(size, km_natural_align(size), gfp);
		return km_likely(p) ? p : kmalloc_slowly(size, gfp, NUMA_NO_NODE);
	}
	if (gfp & __GFP_ZERO && km_objcg_here)
		return km_charged_zalloc(cache, gfp, km_objcg_here, cache->fast.pcs.front.rseq);
	return kmem_cache_alloc(cache, gfp);
}

/* The thread has no group, but popped an object charged to a group: move the charge to the process's default objcg.
 * Without a default objcg the object goes back and the request starts again. */
static km_noinline void *account_default(struct kmem_cache *cache, size_t size, gfp_t gfp, void *object)
{
	struct obj_cgroup *objcg = km_load(&km_objcg_default);
	uint64_t *word;

	if (km_likely(objcg != NULL))
		return km_likely(km_alloc_is_owner(cache, object, (uintptr_t)objcg, &word)) ? object :
		       km_layer(cache, KM_LAYER_CHARGE)->recharge(cache, gfp, objcg, object, word);
	put_back(object, gfp);
	return account_missed(size, gfp);
}

/* Allocate a charged object from the per-CPU charged sheaf (fast_path.h). Calls with __GFP_ACCOUNT come here directly,
 * other calls after a miss. While one objcg uses the sheaf, the sheaf names the objcg. With several objcgs, or a
 * foreign sheaf, the object's owner word decides. */
km_hit_path void *kmalloc_account(size_t size, gfp_t gfp)
{
	struct obj_cgroup *objcg = km_objcg_here;
	size_t step = km_kmalloc_step(size);
	uint64_t *word;
	bool own;

	/* One conditional branch in all: rare requests choose entry 0, which is empty. */
	step = km_evenly(size <= KMALLOC_MAX_CACHE_SIZE) ? step : 0;
	step = km_evenly(!(gfp & KM_CHARGED_ODD)) ? step : 0;
	void *object = km_alloc_owned_charged_id_of_size(step, objcg, &own);
	if (km_unlikely(!object))
		return account_missed(size, gfp);
	if (km_likely(own))
		return object;
	/* Acquire pairs with km_kmalloc_start_charged: a published id implies a published cache. */
	struct kmem_cache *cache = km_load_acquire(&charged_of_size[step]);
	if (km_likely(km_alloc_is_owner(cache, object, (uintptr_t)objcg, &word)))
		return object;
	if (km_unlikely(!objcg))
		return account_default(cache, size, gfp, object);
	return km_layer(cache, KM_LAYER_CHARGE)->recharge(cache, gfp, objcg, object, word);
}

/* Report a new object and its requested bytes to the tracer, the sanitizer and the debugging hooks. */
static void *shown(void *object, size_t size)
{
	if (km_unlikely(km_load(&km_alloc_probing)) && !ZERO_OR_NULL_PTR(object))
		km_tracer_comes(object, size);
	return km_likely(!km_sanitizer.objects && !km_observed_sizes) ? object : km_observed_asked(object, size);
}

/* Serve random_caches: choose the cache by call site, so that no call is a hit by size alone. Debugged caches,
 * large sizes and calls before the start take the slow path. */
static km_noinline void *kmalloc_by_site(size_t size, gfp_t gfp)
{
	uintptr_t site = (uintptr_t)__builtin_return_address(0);
	struct kmem_cache *plain = size - 1 < KMALLOC_MAX_CACHE_SIZE ? km_kmalloc_cache(size) : NULL;

	if (!plain || km_is_hooked(plain))
		return kmalloc_slowly(size, gfp, NUMA_NO_NODE);
	km_alloc_note_site(site);
	return shown(km_alloc_asked(km_site_cache(plain, site), size, km_natural_align(size), gfp, NUMA_NO_NODE), size);
}

/* Serve the rare kinds of misses. The function stays out of line, so that a hit saves no register for the call. Every
 * hit under the sized engine passes here, because no size has a cache, and goes to the engine at once. */
static km_noinline void *kmalloc_missed_oddly(size_t size, gfp_t gfp)
{
	if (km_unlikely(gfp & __GFP_ACCOUNT))
		return kmalloc_account(size, gfp);
	if (size > KMALLOC_MAX_CACHE_SIZE && km_likely(!(gfp & KMEM_GFP_ODD))) {
		void *p = km_large_cache_hit(size, gfp);

		if (km_likely(p && !((uintptr_t)p & (km_natural_align(size) - 1))))
			return p;
		if (p)
			put_back(p, gfp);
	}
	if (km_unlikely(km_hardening.random_caches))
		return kmalloc_by_site(size, gfp);
	return is_by_size(size) && km_likely(!km_load(&km_alloc_probing)) ?
		       alloc_by_size(size, gfp, NUMA_NO_NODE) : kmalloc_slowly(size, gfp, NUMA_NO_NODE);
}

static km_noinline void *kmalloc_missed(size_t size, gfp_t gfp)
{
	/* Acquire pairs with km_kmalloc_start. */
	struct kmem_cache *cache = km_likely(size <= km_load(&most_direct)) ?
					   km_load_acquire(&cache_of_size[km_kmalloc_step(size)]) : NULL;

	if (km_likely(cache != NULL) && km_likely(!(gfp & __GFP_ACCOUNT)))
		return km_alloc_miss(cache, gfp);
	return kmalloc_missed_oddly(size, gfp);
}

km_hit_path km_noinline void *kmalloc(size_t size, gfp_t gfp)
{
	size_t step = km_kmalloc_step(size);

	/* One conditional branch in all: rare requests choose entry 0, which is empty. */
	step = km_evenly(size <= KMALLOC_MAX_CACHE_SIZE) ? step : 0;
	step = km_evenly(!(gfp & KMEM_GFP_ODD)) ? step : 0;
	void *object = km_alloc_id_of_size(step);
	if (km_likely(object))
		return object;
	if (gfp & __GFP_ZERO)
		return kzalloc(size, gfp);
	return kmalloc_missed(size, gfp);
}

km_hit_path km_noinline void *kzalloc(size_t size, gfp_t gfp)
{
	/* One branch for size 0 and for sizes that are too large. */
	if (km_unlikely((gfp & KMEM_GFP_ODD & ~__GFP_ZERO) | (size - 1) / KMALLOC_MAX_CACHE_SIZE))
		return kmalloc_missed(size, gfp | __GFP_ZERO);
	size_t step = km_kmalloc_step(size);
	void *object = km_alloc_id_of_size(step);
	/* Acquire pairs with km_kmalloc_start: a published id implies a published entry. */
	if (km_likely(object))
		return __builtin_memset(object, 0, km_load_acquire(&cleared_of_size[step]));
	return kmalloc_missed(size, gfp | __GFP_ZERO);
}

km_hit_path void kfree(const void *object)
{
	if (km_likely(km_free_any((void *)object)))
		return;
	km_free_any_miss(object, "kfree");
}

/* ------------------------------------------------------------------ allocation */

/* Fail a request above the function's limit. No reclaim can help. Kernel: warns unless __GFP_NOWARN is set. */
km_cold static void *above_limit(const char *function, size_t size, size_t limit, gfp_t gfp)
{
	static struct km_ratelimit often;
	char reason[64], suffix[KM_RATELIMIT_SUFFIX];

	if (km_gfp_tells(gfp) && km_ratelimit(&often, suffix)) {
		km_format(reason, sizeof(reason), "limit of %s (%lu bytes)", function, (unsigned long)limit);
		km_alloc_tell_failed(function, size, gfp, reason, suffix);
	}
	return km_alloc_failed(function, size, gfp | __GFP_NOWARN, EINVAL);
}

/* Allocate whole pages for `function`: `bytes` for the requested `size`. */
static void *alloc_large(const char *function, size_t size, size_t limit, size_t bytes, size_t align, gfp_t gfp,
			 int node)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);
	void *p = NULL;

	km_alloc_check_gfp(function, gfp, NULL);
	if (size > limit)
		return above_limit(function, size, limit, gfp);
	if (km_boot() && km_request_resolve_node(&request, node))
		p = km_large_alloc_request(bytes, align, &request);
	return p ?: km_alloc_failed(function, size, request.gfp, ENOMEM);
}

static void *alloc_node(size_t size, gfp_t gfp, int node)
{
	if (is_by_size(size))
		return alloc_by_size(size, gfp, node);
	if (km_unlikely(!km_boot()))
		return km_alloc_failed("kmalloc", size, gfp, ENOMEM);
	if (km_unlikely(!size)) {
		km_alloc_check_gfp("kmalloc", gfp, NULL);
		return ZERO_SIZE_PTR;
	}
	if (km_unlikely(km_kmalloc_sized || size > KMALLOC_MAX_CACHE_SIZE))
		/* Kernel: a power of two of pages. libkmem: only the pages needed, with the promised alignment. */
		return alloc_large("kmalloc", size, KMALLOC_MAX_SIZE, km_align_up(size, KM_PAGE_SIZE),
				   km_max(km_natural_align(size), KM_PAGE_SIZE), gfp, node);
	return km_alloc_asked(km_kmalloc_cache_by(size, gfp), size, km_natural_align(size), gfp, node);
}

static km_noinline void *kmalloc_slowly(size_t size, gfp_t gfp, int node)
{
	km_alloc_note_site((uintptr_t)__builtin_return_address(0));
	return shown(alloc_node(size, gfp, node), size);
}

void *kmalloc_node(size_t size, gfp_t gfp, int node)
{
	return km_alloc_any_node(node, &gfp) ? kmalloc(size, gfp) : kmalloc_slowly(size, gfp, node);
}

void *kzalloc_node(size_t size, gfp_t gfp, int node)
{
	return km_alloc_any_node(node, &gfp) ? kzalloc(size, gfp) : kmalloc_slowly(size, gfp | __GFP_ZERO, node);
}

static size_t first_step(unsigned class)
{
	return class ? km_kmalloc_step(sizes[class - 1]) + 1 : 1;
}

/* Store a cache, or NULL, for each size of a class. Release pairs with the acquire loads: the cache is complete. */
static void set_sizes(struct kmem_cache **table, unsigned class, struct kmem_cache *cache)
{
	km_debug(!cache || cache->layout.object_size == sizes[class], "the sizes of a class find its cache");
	for (size_t step = first_step(class); step <= km_kmalloc_step(sizes[class]); step++)
		km_store_release(&table[step], cache);
}

/* Publish the cache's id for each size of a class, so that these sizes have a fast path. */
static void show(struct kmem_cache *cache, uint16_t *ids, unsigned class,
		 void (*by_id)(struct kmem_cache *cache, uint16_t *id, size_t steps))
{
	const size_t first = first_step(class);

	by_id(cache, &ids[first], km_kmalloc_step(sizes[class]) + 1 - first);
}

/* Make the cache of a class: plain, or charged with the tuning of the plain cache. */
static struct kmem_cache *make(unsigned class, struct kmem_cache *plain)
{
	const uint32_t size = sizes[class];
	struct km_creation creation = { .args = { .align = size & -size }, .internal = true, .tuned_with = plain };
	char name[KM_NAME_BYTES];

	km_format(name, sizeof(name), "kmalloc-%s%u%s", plain ? "cg-" : "", size < 1024 ? size : size / 1024,
		  size < 1024 ? "" : "k");
	struct kmem_cache *cache = km_cache_create(name, size, SLAB_KMALLOC | (plain ? SLAB_ACCOUNT : 0), &creation);
	km_debug(!cache || (cache->layout.object_size == size && cache->layout.size >= size),
		 "a cache of kmalloc's has its size");
	return cache;
}

static bool start_class(unsigned class)
{
	struct kmem_cache *cache = make(class, NULL);

	if (!cache)
		return false;
	for (size_t step = first_step(class); step <= km_kmalloc_step(sizes[class]); step++) {
		km_debug(sizes[class] % km_natural_align(step * ARCH_KMALLOC_MINALIGN) == 0,
			 "a class has the alignment promised for each of its sizes");
		class_of_size[step] = (uint8_t)class;
		km_store(&cleared_of_size[step], (uint16_t)cache->layout.cleared);
	}
	/* Release pairs with km_kmalloc_cache. */
	km_store_release(&made[0][class], cache);
	if (km_hardening.random_caches)
		return true;
	if (!km_is_debugged(cache))
		set_sizes(cache_of_size, class, cache);
	show(cache, id_of_size, class, km_alloc_show_sizes);
	return true;
}

bool km_kmalloc_start(void)
{
	struct km_creation creation = { .internal = true };
	bool all = true;

	km_looks_closer = km_sanitizer.objects || km_hardening.live;
	if (km_sanitizer.objects)
		most_direct = km_direct.usual[KM_DOOR_KMALLOC] = 0;
	if (km_options.engine->shared_pages) {
		km_kmalloc_sized = km_kmalloc_sized ?: km_cache_create("kmalloc", KMALLOC_MIN_SIZE, SLAB_KMALLOC,
								       &creation);
		return km_kmalloc_sized != NULL;
	}
	/* After a start that failed half-way, the caches made already stay. */
	for (unsigned class = 0; class < CLASSES && all; class++)
		all = made[0][class] || start_class(class);
	return all;
}

/* Requests that find no cache in cache_of_size take it from `made`. */
void km_kmalloc_watch(struct kmem_cache *cache, bool observed)
{
	for (unsigned class = 0; !km_hardening.random_caches && class < CLASSES; class++)
		if (made[0][class] == cache)
			set_sizes(cache_of_size, class, observed ? NULL : cache);
}

bool km_kmalloc_is_observed(size_t size)
{
	return !km_load(&cache_of_size[km_kmalloc_step(size)]);
}

/* Make the charged cache of a class. Several threads may race: one cache stays, and its thread opens the fast path. */
static bool start_charged_class(unsigned class)
{
	struct kmem_cache *cache = make(class, made[0][class]);

	if (!cache)
		return false;
	if (!km_cache_publish(&made[1][class], cache) || km_is_debugged(cache))
		return true;
	km_debug(cache->layout.flags & SLAB_ACCOUNT, "charged requests have caches of their own");
	set_sizes(charged_of_size, class, cache);
	show(cache, charged_id_of_size, class, km_alloc_show_charged);
	return true;
}

bool km_kmalloc_start_charged(void)
{
	km_busy_scope(was);
	bool all = true;

	for (unsigned class = CLASSES; class-- && all;) {
		const struct kmem_cache *plain = made[0][class];

		if (plain && !(plain->layout.flags & SLAB_ACCOUNT))
			all = km_load_acquire(&made[1][class]) || start_charged_class(class);
	}
	return all;
}

struct kmem_cache *km_kmalloc_cache(size_t size)
{
	return km_load_acquire(&made[0][class_of_size[km_kmalloc_step(size)]]);
}

struct kmem_cache *km_kmalloc_cache_by(size_t size, gfp_t gfp)
{
	struct kmem_cache *charged = NULL;

	if (km_unlikely(gfp & __GFP_ACCOUNT))
		charged = km_load_acquire(&made[1][class_of_size[km_kmalloc_step(size)]]);
	return charged ?: km_kmalloc_cache(size);
}

/* ------------------------------------------------------------------ sizes, and sensitive data */

size_t kmalloc_size_roundup(size_t size)
{
	if (!size || !km_boot())
		return 0;
	if (km_unlikely(km_sanitizer.objects || (km_block_hooks && size > KMALLOC_MAX_CACHE_SIZE)))
		return size;
	if (km_kmalloc_sized && size < KM_SIZED_END)
		return km_align_up(size, KM_SIZED_UNIT);
	if (!km_kmalloc_sized && size <= KMALLOC_MAX_CACHE_SIZE)
		return km_is_debugged(km_kmalloc_cache(size)) ? size : km_kmalloc_cache(size)->layout.size;
	struct km_request request = km_request_of(GFP_NOWAIT, NUMA_NO_NODE);
	const struct kmem_cache *class = km_large_cache_class(size, km_options.account, &request);
	return class ? class->layout.size : size <= KMALLOC_MAX_SIZE ? km_align_up(size, KM_PAGE_SIZE) : size;
}

void kvfree_sensitive(const void *object, size_t bytes)
{
	if (ZERO_OR_NULL_PTR(object))
		return;
	/* Bound the size by the object's; the kernel trusts the caller's size. */
	__builtin_memset((void *)object, 0, km_min(bytes, ksize(object)));
	/* The asm keeps the compiler from deleting the stores of the wipe as dead. */
	__asm__ volatile("" : : "r"(object) : "memory");
	kfree(object);
}

void kfree_sensitive(const void *object)
{
	kvfree_sensitive(object, SIZE_MAX);
}

/* ------------------------------------------------------------------ krealloc */

/* Finish a shrink in place. Kernel: with __GFP_ZERO the surplus bytes are zeroed, so that the bytes read as zeros
 * when the object grows again. */
static void *shrunk(void *object, size_t size, size_t usable, gfp_t gfp)
{
	if (km_unlikely(gfp & __GFP_ZERO))
		__builtin_memset((char *)object + size, 0, usable - size);
	if (km_unlikely(km_sanitizer.objects || km_observed_sizes))
		km_observed_asked(object, size);
	return object;
}

/* Allocate a growing object at a place with room to grow, because a block that grew once usually grows again.
 * Returns: NULL for alignments above a page and for sizes outside the range of whole pages. */
static void *get_grown(size_t size, size_t align, gfp_t gfp)
{
	if (size <= KMALLOC_MAX_CACHE_SIZE || size > KMALLOC_MAX_SIZE || align > KM_PAGE_SIZE || gfp & KMEM_GFP_ODD)
		return NULL;
	km_calls_scope(was, km_gfp_may_wait(gfp));
	return km_large_grown(size);
}

/* The differences of krealloc and kvrealloc: the function that allocates a new object, and the smallest and largest
 * size that large.c may resize. */
struct door {
	const char *name;
	void *(*get)(size_t size, gfp_t gfp);
	size_t least, most;
};

/* Returns: the alignment promised for an object of this size. kvrealloc promises at most a page for large objects, so
 * that a doubled object need not move for its alignment. */
static size_t promised_align(size_t size, const struct door *door)
{
	return size > KMALLOC_MAX_CACHE_SIZE && door->most > KMALLOC_MAX_SIZE ? KM_PAGE_SIZE : km_natural_align(size);
}

static bool is_aligned(const void *p, size_t size, const struct door *door)
{
	return !((uintptr_t)p & (promised_align(size, door) - 1));
}

static void *realloc_by(void *object, size_t size, gfp_t gfp, const struct door *door)
{
	if (!size) {
		kfree(object);
		return ZERO_SIZE_PTR;
	}
	size_t usable = ksize(object);
	int saved_errno = errno;
	if (!usable && !ZERO_OR_NULL_PTR(object))
		return NULL;
	/* The allocation function refuses a size above the largest, even if the object has room. */
	if (!usable || size > door->most)
		return door->get(size, gfp);
	const bool stays = is_aligned(object, size, door);
	/* Kernel: the same pointer while the object fits. libkmem moves an object that would waste most of its
	 * bytes, unless the object is a mapping and the caller forbids system calls. */
	if (size <= usable && stays && (size > usable / 4 || usable <= 64 ||
			       (usable > KMALLOC_MAX_SIZE && !km_gfp_may_wait(gfp))))
		return shrunk(object, size, usable, gfp);
	if (km_unlikely(km_observed_sizes) && size > usable && stays && km_observed_grow(object, size, gfp))
		return object;
	/* For a shrink the new object is optional: a failure is silent and does not drain other caches. */
	if (size <= usable)
		gfp = (gfp & ~__GFP_NOFAIL) | __GFP_NOWARN | __GFP_NORETRY;
	void *moved = (size > usable ? get_grown(size, promised_align(size, door), gfp) : NULL) ?:
		      door->get(size, gfp);
	if (!moved && size > usable)
		return NULL;
	if (!moved) {
		errno = saved_errno;
		km_store(&km_left_longer, true);
		return shrunk(object, size, usable, gfp);
	}
	km_debug(moved != object && ksize(moved) >= km_min(size, usable), "a moved block has another address");
	__builtin_memcpy(moved, object, km_min(size, usable));
	kfree(object);
	return moved;
}

/* Resize a block of whole pages in place, or a mapping by mremap. Returns: NULL if not possible; *refused is set
 * if a new block would be refused, too. */
static void *resize_large(void *object, size_t size, gfp_t gfp, bool *refused)
{
	size_t before = gfp & __GFP_ZERO ? ksize(object) : 0;
	void *moved = km_large_resize(object, size, gfp, refused);
	size_t kept = moved && before ? km_min(before, ksize(moved)) : 0;

	return size < kept ? shrunk(moved, size, kept, gfp) : moved;
}

/* Kernel: copies as soon as the object does not fit. libkmem may keep a block of whole pages in place. Frees on
 * the way obey `gfp`, too. */
static void *resize(void *object, size_t size, gfp_t gfp, const struct door *door)
{
	km_calls_scope(was, km_gfp_may_wait(gfp));
	bool refused = false;
	void *resized = NULL;

	km_alloc_check_gfp(door->name, gfp, NULL);
	gfp &= __GFP_BITS_MASK;
	if (size >= door->least && size <= door->most && !ZERO_OR_NULL_PTR(object) && is_aligned(object, size, door))
		resized = resize_large(object, size, gfp, &refused);
	return refused ? NULL : resized ?: realloc_by(object, size, gfp, door);
}

void *krealloc(void *object, size_t size, gfp_t gfp)
{
	static const struct door door = { "krealloc", kmalloc, KMALLOC_MAX_CACHE_SIZE + 1, KMALLOC_MAX_SIZE };

	return resize(object, size, gfp, &door);
}

/* ------------------------------------------------------------------ the kv family */

void *kvmalloc_node(size_t size, gfp_t gfp, int node)
{
	if (size <= KMALLOC_MAX_SIZE)
		return kmalloc_node(size, gfp, node);
	return alloc_large("kvmalloc", size, INT_MAX, size, KM_PAGE_SIZE, gfp, node);
}

void *kvmalloc(size_t size, gfp_t gfp)
{
	return size <= KMALLOC_MAX_SIZE ? kmalloc(size, gfp) : kvmalloc_node(size, gfp, NUMA_NO_NODE);
}

void *kvzalloc(size_t size, gfp_t gfp)
{
	return size <= KMALLOC_MAX_CACHE_SIZE ? kzalloc(size, gfp) :
						kvmalloc_node(size, gfp | __GFP_ZERO, NUMA_NO_NODE);
}

void *kvrealloc(void *object, size_t size, gfp_t gfp)
{
	static const struct door door = { "kvrealloc", kvmalloc, 1, INT_MAX };

	return resize(object, size, gfp, &door);
}

void kvfree(const void *object)
{
	kfree(object);
}
