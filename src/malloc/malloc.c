/*
 * malloc.c: malloc and its family on the library's caches, for programs written for any malloc. Invariants: a block
 * of malloc is aligned to 16 and unique, also for size 0. A failure is NULL with ENOMEM, a success leaves errno
 * alone, and free never changes errno. free accepts every pointer of kmalloc or a cache, and kfree every pointer of
 * malloc.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "kmalloc/large_cache.h"
#include "page/guard_range.h"
#include "os/die.h"
#include "os/os.h"
#include "alloc/tracer.h"
#include "malloc.h"

/* A program linked with the archive gets KMEM_STATS as well (atexit.c). */
extern int kmem_copy_in_use;
__attribute__((used)) static int *const keep_statistics = &kmem_copy_in_use;
/* A program linked with the archive gets KMEM_OPTIONS=account as well. */
__attribute__((used)) static const struct obj_cgroup *const keep_account = &km_objcg_root;

/* Below this size a copy costs less than taking pages. */
#define GROWS_FROM		((size_t)8192)

uint16_t km_malloc_id[KM_MALLOC_STEPS + 1] km_ids_near = { [KM_MALLOC_STEPS] = KM_ID_EMPTY };
KM_ALLOC_NEAR(km_malloc_id)

static void free_missed(void *p, const char *function) km_cold;

/* ------------------------------------------------------------------ the hot path */

/* km_malloc_hit, from the table in this file. */
km_inline void *hit(size_t size)
{
	return km_alloc_km_malloc_id(km_malloc_step(size));
}

KMEM_API km_hit_path km_noinline void *malloc(size_t size)
{
	void *p = hit(size);

	if (km_likely(p)) {
		km_debug(!((uintptr_t)p & (KM_MALLOC_ALIGN - 1)), "malloc returns addresses aligned to 16");
		return p;
	}
	return km_malloc_miss(size);
}

KMEM_API km_hit_path void free(void *p)
{
	if (km_likely(km_free_any(p)))
		return;
	free_missed(p, "free");
}

/* ------------------------------------------------------------------ before there is an allocator */

/* A function called during the library's start may allocate, and the start can't wait for itself. Such blocks come from
 * this array, each behind its size, and are never freed. */
static struct {
	size_t used;
	char bytes[16384] km_aligned(KM_MALLOC_ALIGN);
} early km_sparse;

static void *early_alloc(size_t size)
{
	if (size > sizeof(early.bytes))
		return NULL;
	size_t bytes = km_align_up(size, KM_MALLOC_ALIGN) + KM_MALLOC_ALIGN;
	size_t at = km_add(&early.used, bytes);

	if (at + bytes > sizeof(early.bytes)) {
		km_sub(&early.used, bytes);
		return NULL;
	}
	km_debug(at % KM_MALLOC_ALIGN == 0 && at + bytes <= sizeof(early.bytes),
		 "an early block is aligned inside of its area");
	*(size_t *)(early.bytes + at) = bytes - KM_MALLOC_ALIGN;
	return early.bytes + at + KM_MALLOC_ALIGN;
}

static bool is_early(const void *p)
{
	return (uintptr_t)p - (uintptr_t)early.bytes < sizeof(early.bytes);
}

/* ------------------------------------------------------------------ allocation */

static km_cold void *no_memory(void)
{
	errno = ENOMEM;
	return NULL;
}

static gfp_t gfp_here(void)
{
	return KM_MALLOC_GFP | (km_malloc_objcg() ? __GFP_ACCOUNT : 0);
}

static void *large_alloc(size_t size, size_t align, gfp_t zero)
{
	if (size > PTRDIFF_MAX || align > PTRDIFF_MAX)
		return no_memory();
	return km_large_alloc(size ?: 1, km_max(align, KM_PAGE_SIZE), gfp_here() | zero) ?: no_memory();
}

/* Allocate by an engine that serves by size: no classes, a header with the size; whole pages from a page on. */
static void *alloc_sized(size_t size, size_t align, gfp_t gfp)
{
	size_t bytes = size ?: 1;

	if (align + bytes > KM_PAGE_SIZE || bytes >= KM_SIZED_END)
		return large_alloc(bytes, align, 0);
	return km_alloc_ops(km_kmalloc_sized)->alloc_sized(km_kmalloc_sized, bytes, align, gfp, NUMA_NO_NODE);
}

/* Allocate where the class records requested bytes, or could not be made. `by` is the size that selects the class. */
static km_cold void *alloc_observed(size_t size, size_t by)
{
	struct kmem_cache *cache = km_malloc_observed(by) ?: km_malloc_cache(by);
	void *p = cache ? km_alloc_miss(cache, KM_MALLOC_GFP) : NULL;

	return p ? km_observed_asked(p, size ?: 1) : no_memory();
}

static bool boot_or_early(size_t size, void **p)
{
	if (km_likely(km_boot()))
		return true;
	*p = (km_thread.busy ? early_alloc(size) : NULL) ?: no_memory();
	return false;
}

/* Allocate from the cache of size `by`, with the requested bytes, for a call that returns to `site`. */
static void *alloc_asked(size_t size, size_t align, size_t by, gfp_t gfp, uintptr_t site)
{
	if (!km_malloc_goes_by_call() && !km_swap_acquire(&km_direct.usual[KM_DOOR_MALLOC], KM_MALLOC_MAX_SMALL))
		km_alloc_want_sizes(false);
	struct kmem_cache *cache = km_malloc_cache(by);
	if (km_unlikely(km_hardening.random_caches) && cache)
		cache = km_site_cache(cache, site);
	return km_likely(cache) ? km_alloc_asked(cache, size ?: 1, align, gfp, NUMA_NO_NODE) : alloc_observed(size, by);
}

/* Serve the first request, large sizes, and all sizes while an object is to be guarded or caches go by call site. */
static km_noinline void *long_way(size_t size)
{
	uintptr_t site = km_site_take((uintptr_t)__builtin_return_address(0));

	km_alloc_note_site(site);
	const size_t by = size + km_malloc_canary();
	if (size > KM_MALLOC_MAX_SMALL || by > KM_MALLOC_MAX_SMALL)
		return large_alloc(size, 1, 0);
	return alloc_asked(size, KM_MALLOC_ALIGN, by, KM_MALLOC_GFP, site);
}

km_noinline void *km_malloc_missed(size_t size)
{
	void *p = size > KM_MALLOC_MAX_SMALL ? km_large_cache_hit(size, gfp_here()) : NULL;

	if (km_likely(p))
		return p;
	if (km_unlikely(!boot_or_early(size, &p)))
		return p;
	if (km_kmalloc_sized)
		return alloc_sized(size, KM_MALLOC_ALIGN, KM_MALLOC_GFP);
	if (km_unlikely(size > km_load(&km_direct.most[KM_DOOR_MALLOC])))
		return long_way(size);
	struct kmem_cache *cache = km_malloc_cache(size);
	return km_likely(cache) ? km_alloc_miss(cache, KM_MALLOC_GFP) : alloc_observed(size, size);
}

/* Acquire pairs with show_first (malloc_classes.c). The alloc ops differ while objects are observed. */
km_hit_path km_noinline void *km_malloc_miss(size_t size)
{
#ifdef KMEM_HAVE_RSEQ
	struct kmem_cache *cache = km_load_acquire(&km_malloc_first[km_malloc_step(size)]);

	if (km_likely(cache) && km_likely(km_load(&cache->layers[0]) == &km_ops_validated)) {
		void *p = kmem_pcs_pop(&cache->fast.pcs.inner, km_hot.percpu, km_rseq);

		if (km_likely(p))
			return km_likely(km_validated_take(cache, p)) ? p :
			       km_validated_handed(cache, KM_MALLOC_GFP, p);
	} else if (cache && km_load(&km_account_asks) & KM_ASKS_MALLOC) {
		return km_malloc_by_objcg(cache, size);
	}
#endif
	return km_malloc_missed(size);
}

static km_noinline void *calloc_missed(size_t bytes)
{
	void *p;

	if (bytes <= KM_MALLOC_MAX_SMALL) {
		km_malloc_note_site((uintptr_t)__builtin_return_address(0));
		p = km_malloc_miss(bytes);
		km_malloc_note_site(0);
		return km_likely(p) ? memset(p, 0, bytes) : NULL;
	}
	/* Early blocks are zeros, and fresh pages are not cleared again. */
	return boot_or_early(bytes, &p) ? large_alloc(bytes, 1, __GFP_ZERO) : p;
}

KMEM_API km_hit_path km_noinline void *calloc(size_t n, size_t size)
{
	size_t bytes;

	if (km_unlikely(__builtin_mul_overflow(n, size, &bytes)))
		return no_memory();
	void *p = hit(bytes);
	if (km_likely(p))
		return memset(p, 0, bytes);
	return calloc_missed(bytes);
}

/* ------------------------------------------------------------------ from a pointer */

static void free_missed(void *p, const char *function)
{
	if (km_unlikely(is_early(p)))
		return;
	km_free_any_miss(p, function);
}

void km_malloc_free_miss(void *p, const char *function)
{
	if (km_unlikely(km_malloc_is_foreign(p)))
		km_malloc_free_by_them(p);
	else
		free_missed(p, function);
}

/* Check the size named by the call. A bad pointer or a free block goes on, because its free reports the mistake. */
void km_malloc_free_sized_miss(void *p, size_t align, size_t size, const char *function, const void *caller)
{
	const struct km_sized call = { .size = size ?: 1, .align = align, .resized = function[0] != 'o',
				       .function = function, .caller = caller, .serves = km_malloc_serves };

	if (km_unlikely(km_looks_closer | km_observed_sizes | (km_block_hooks != NULL) | km_is_guarded(p)) &&
	    km_options.check_sizes && !km_malloc_is_foreign(p) && !is_early(p))
		km_size_fits(p, &call);
	km_malloc_free_miss(p, function);
}

size_t km_malloc_usable(const void *p, const char *function)
{
	if (km_unlikely(is_early(p)))
		return *(const size_t *)((const char *)p - KM_MALLOC_ALIGN);
	return km_usable_size(p, function);
}

KMEM_API size_t malloc_usable_size(void *p)
{
	return p && !km_malloc_is_foreign(p) ? km_malloc_usable(p, "malloc_usable_size") : 0;
}

/* An object, and any block moved to or from one, stays while it fits and at least half is used. krealloc
 * (kmalloc/kmalloc.c) moves later, when three quarters are unused, because the kernel never moves such an object. */
static bool is_enough(size_t have, size_t size)
{
	return size <= have && size >= have / 2;
}

/* Allocate a growing block in pages that can grow in place, because a block that grew once usually grows again.
 * Requires: the block is large, and whole pages waste less than an eighth of the size. */
static void *get_grown(size_t size, size_t old)
{
	size_t waste = -size & (KM_PAGE_SIZE - 1);

	/* Not for charged blocks: they are freed to the system of pages at once, never kept for growth. */
	if (km_unlikely(km_malloc_objcg()))
		return NULL;
	if (size <= old || size < GROWS_FROM || size > KMALLOC_MAX_SIZE || waste > size / 8)
		return NULL;
	return km_large_grown(size);
}

/* Returns: the size plus an eighth, as room to grow, if no class serves the block, the block is no mapping, no
 * requested bytes are recorded, and the objcg has room. A last-resort reclaim must never run for the surplus. */
static size_t with_room_to_grow(size_t size, size_t old)
{
	size_t more = size + size / 8;
	bool exact = (km_kmalloc_sized || old > KM_MALLOC_MAX_SMALL) && !km_observed_sizes;

	return exact && size > old && more <= KMALLOC_MAX_SIZE && km_large_may_have(more, gfp_here()) ? more : size;
}

/* Resize a large block in place. An uncharged block is charged before it grows. If it can't grow here, it becomes
 * uncharged again, because the move charges a new block. *refused: the objcg has no room for the growth, and so none
 * for a new block. */
static void *resize_here(void *p, size_t size, size_t old, bool *refused)
{
	const gfp_t gfp = gfp_here();
	bool uncharged = km_unlikely(size > old && gfp & __GFP_ACCOUNT) && km_malloc_is_uncharged(p);

	*refused = uncharged && !km_large_charge(p, gfp);
	if (km_unlikely(*refused))
		return NULL;
	void *same = km_large_resize(p, size, gfp, refused);
	if (km_unlikely(uncharged && !same))
		km_large_uncharge(p);
	return same;
}

/* Keeps a block at its address for another size. Returns: p; NULL if the block must move. */
static void *stays(void *p, size_t size)
{
	return km_likely(!km_observed_sizes) ? p : km_observed_asked(p, size);
}

static void *resize(void *p, size_t size)
{
	/* Under debugging or a sanitizer, a block has exactly the requested bytes. */
	size_t old = km_likely(!km_observed_sizes && !km_sanitizer.objects) ? km_large_page_bytes(p) : 0;
	bool large = old != 0;

	if (!large)
		old = km_malloc_usable(p, "realloc");
	if (km_unlikely(!old))
		return no_memory();
	/* Large blocks are resized in place or moved by large.c's rules; early blocks are never so large. */
	if ((large || old > KM_MALLOC_MAX_SMALL) && size > km_min(old, KM_MALLOC_MAX_SMALL)) {
		bool refused;
		void *same = resize_here(p, size, old, &refused);

		if (same)
			return same;
		if (km_unlikely(refused))
			return no_memory();
	} else if (is_enough(old, size) && ((uintptr_t)p % KM_MALLOC_ALIGN == 0 || size < KM_MALLOC_ALIGN)) {
		return stays(p, size);
	}
	size_t bytes = size;
	void *moved = get_grown(size, old);
	if (!moved)
		moved = malloc(bytes = with_room_to_grow(size, old));
	/* Try again with the requested size: there may be no memory for more, or another thread took the room. */
	if (km_unlikely(!moved && bytes > size))
		moved = km_malloc_miss(size);
	if (km_unlikely(!moved && size > old))
		return NULL;
	if (km_unlikely(!moved)) {
		km_store(&km_left_longer, true);
		return stays(p, size);
	}
	km_debug(moved != p && km_malloc_usable(moved, "realloc") >= km_min(size, old),
		 "a moved block has room for its content");
	memcpy(moved, p, km_min(size, old));
	free(p);
	return moved;
}

static km_noinline void *realloc_slowly(void *p, size_t size)
{
	km_malloc_note_site((uintptr_t)__builtin_return_address(0));
	if (!size) {
		free(p);
		return NULL;
	}
	if (km_unlikely(size > PTRDIFF_MAX))
		return no_memory();
	int saved_errno = errno;
	void *moved = resize(p, size);
	km_malloc_note_site(0);
	if (moved)
		errno = saved_errno;
	return moved;
}

/* The objcg refused the charge and is not asked again. */
static km_cold void *move_refused(void *p, size_t size, size_t old, int saved_errno)
{
	if (size > old)
		return NULL;
	errno = saved_errno;
	return p;
}

/* Move an object by two fast paths and one copy. */
static km_hit_path km_noinline void *move_object(void *p, size_t size, size_t old, uintptr_t id)
{
	void *moved = hit(size);

	if (!moved && km_load(&km_account_asks) & KM_ASKS_MALLOC && size < GROWS_FROM && !km_malloc_goes_by_call()) {
		int saved_errno = errno;

		moved = km_malloc_miss(size);
		if (km_unlikely(!moved) && km_malloc_objcg())
			return move_refused(p, size, old, saved_errno);
	}
	if (km_unlikely(!moved))
		return realloc_slowly(p, size);
	km_debug(moved != p, "a moved block has another address");
	memcpy(moved, p, km_min(size, old));
	km_free_of(id, p);
	return moved;
}

/* realloc(p, 0) frees and returns NULL, as glibc's; errno stays. */
KMEM_API km_hit_path void *realloc(void *p, size_t size)
{
	if (km_unlikely(!p))
		return malloc(size);
	uintptr_t id = km_id_of(p);
	const struct kmem_cache *cache = km_load(&km_hot.caches[id]);

	/* The ordinary case: from an object to an object. */
	if (km_unlikely(!cache) || km_unlikely(!km_id_valid(id, p)) || km_unlikely(size - 1 >= KM_MALLOC_MAX_SMALL) ||
	    km_unlikely(km_looks_closer))
		return realloc_slowly(p, size);
	size_t old = km_room_of(cache);
	return is_enough(old, size) ? p : move_object(p, size, old, id);
}

/* C23: the size is the caller's promise; a miss may check it. */
KMEM_API km_hit_path void free_sized(void *p, size_t size)
{
	if (km_likely(km_alloc_push_any(p)))
		return;
	km_malloc_free_sized_miss(p, 1, size, "free_sized", __builtin_return_address(0));
}

KMEM_API km_hit_path void free_aligned_sized(void *p, size_t align, size_t size)
{
	if (km_likely(km_alloc_push_any(p)))
		return;
	km_malloc_free_sized_miss(p, align, size, "free_aligned_sized", __builtin_return_address(0));
}

KMEM_API void cfree(void *p)
{
	if (km_unlikely(km_malloc_is_foreign(p)))
		km_malloc_free_by_them(p);
	else
		free(p);
}

/* ------------------------------------------------------------------ aligned */

void *km_malloc_aligned(size_t align, size_t size)
{
	if (align <= KM_MALLOC_ALIGN)
		return km_malloc_miss(size);
	if (km_unlikely(!km_boot()))
		return no_memory();
	if (km_kmalloc_sized)
		return alloc_sized(size, align, KM_MALLOC_GFP);
	size_t by = km_malloc_aligned_size(align, (size ?: 1) + km_malloc_canary());
	if (align > KM_PAGE_SIZE || size > KM_MALLOC_MAX_SMALL || by > KM_MALLOC_MAX_SMALL)
		return large_alloc(size, align, 0);
	if (km_unlikely(by > km_load(&km_direct.most[KM_DOOR_MALLOC])))
		return alloc_asked(size, align, by, KM_MALLOC_GFP,
				   km_site_take((uintptr_t)__builtin_return_address(0)));
	struct kmem_cache *cache = km_malloc_cache(by);
	return km_likely(cache) ? kmem_cache_alloc(cache, KM_MALLOC_GFP) : alloc_observed(size, by);
}

void *km_malloc_family(size_t align, size_t size)
{
	return km_unlikely(km_malloc_is_theirs) ? km_malloc_by_them(align, size) : km_malloc_aligned(align, size);
}

static km_noinline int memalign_missed(void **result, size_t align, size_t size)
{
	int saved_errno = errno;

	if (!km_is_pow2(align) || align % sizeof(void *))
		return EINVAL;
	void *p = km_malloc_family(align, size);
	if (!p)
		return ENOMEM;
	errno = saved_errno;
	km_debug(!((uintptr_t)p & (align - 1)), "a block has the requested alignment");
	*result = p;
	return 0;
}

KMEM_API km_hit_path km_noinline int posix_memalign(void **result, size_t align, size_t size)
{
	/* An alignment that is no multiple of a pointer's size is refused: a miss. */
	size_t wanted = align & -(size_t)(align % sizeof(void *) == 0);
	void *p = hit(km_malloc_aligned_size(wanted, size));

	if (km_unlikely(!p))
		return memalign_missed(result, align, size);
	km_debug(!((uintptr_t)p & (align - 1)), "a hit has the requested alignment");
	*result = p;
	return 0;
}

static km_noinline void *aligned_missed(size_t align, size_t size)
{
	if (!km_is_pow2(align)) {
		errno = EINVAL;
		return NULL;
	}
	return km_malloc_family(align, size);
}

KMEM_API km_hit_path void *aligned_alloc(size_t align, size_t size)
{
	void *p = hit(km_malloc_aligned_size(align, size));

	if (km_likely(p)) {
		km_debug(!((uintptr_t)p & (align - 1)), "a hit has the requested alignment");
		return p;
	}
	return aligned_missed(align, size);
}

/* Reports a block to heaptrack, which wraps neither memalign nor pvalloc. Returns: p. */
static void *tell(void *p, size_t size)
{
	if (km_unlikely(km_load(&km_alloc_probing)))
		km_tracer_comes(p, size);
	return p;
}

typedef void *aligned_fn(size_t align, size_t size);

/* Rounds an alignment up to a power of two, as glibc does. */
km_inline void *memalign_by(aligned_fn *get, size_t align, size_t size)
{
	if (align > SIZE_MAX / 2 + 1) {
		errno = EINVAL;
		return NULL;
	}
	return tell(get(km_pow2_up(km_max(align, KM_MALLOC_ALIGN)), size), size);
}

km_inline void *pvalloc_by(aligned_fn *get, size_t size)
{
	if (size > PTRDIFF_MAX)
		return no_memory();
	return tell(get(km_os_page_bytes(), km_align_up(size ?: 1, km_os_page_bytes())), size);
}

KMEM_API void *memalign(size_t align, size_t size)
{
	return memalign_by(aligned_alloc, align, size);
}

KMEM_API void *valloc(size_t size)
{
	return aligned_alloc(km_os_page_bytes(), size);
}

KMEM_API void *pvalloc(size_t size)
{
	return pvalloc_by(aligned_alloc, size);
}

/* ------------------------------------------------------------------ for defragmenters */

/* Allocates in the fullest partial slab; without a class for the size, as malloc. */
void *kmem_malloc_fullest(size_t size)
{
	const gfp_t gfp = KM_MALLOC_GFP | __GFP_FULLEST;
	const size_t by = size + km_malloc_canary();

	if (km_unlikely(km_malloc_is_theirs))
		return km_malloc_by_them(1, size);
	if (by < size || by > KM_MALLOC_MAX_SMALL || km_unlikely(!km_boot()))
		return malloc(size);
	if (km_kmalloc_sized)
		return alloc_sized(size, KM_MALLOC_ALIGN, gfp);
	return alloc_asked(size, KM_MALLOC_ALIGN, by, gfp, (uintptr_t)__builtin_return_address(0));
}

/* ------------------------------------------------------------------ other names, with one copy of the fast path */

void *km_malloc_calloc(size_t n, size_t size) { return calloc(n, size); }
void *km_malloc_realloc(void *p, size_t size) { return realloc(p, size); }

/* glibc also exports these names. A program may pass their blocks to free, and the reverse; wrappers of malloc do.
 * Other C libraries keep such names private. Here malloc is libkmem's own, even behind another malloc of the
 * program. */
#ifdef __GLIBC__
KMEM_API void *__libc_malloc(size_t size) { return malloc(size); }
KMEM_API void __libc_free(void *p) { free(p); }
KMEM_API void *__libc_calloc(size_t n, size_t size) { return calloc(n, size); }
KMEM_API void *__libc_realloc(void *p, size_t size) { return realloc(p, size); }
KMEM_API void *__libc_memalign(size_t align, size_t size) { return memalign_by(km_malloc_aligned, align, size); }
KMEM_API void *__libc_valloc(size_t size) { return km_malloc_aligned(km_os_page_bytes(), size); }
KMEM_API void *__libc_pvalloc(size_t size) { return pvalloc_by(km_malloc_aligned, size); }
KMEM_API int __posix_memalign(void **result, size_t align, size_t size)
{
	return posix_memalign(result, align, size);
}
#endif
