/*
 * malloc.h: shared by the files of malloc: from a size to its class (kmalloc/size_classes.h), and the fast path
 * inline. A class is a cache, malloc-<bytes>, made on its first request.
 */
#ifndef KM_MALLOC_H
#define KM_MALLOC_H

#include "memcg/objcg.h"
#include "cache/cache.h"
#include "kmalloc/size_classes.h"
#include "os/secret.h"

#define KM_MALLOC_ALIGN		16ul	/* alignment of each block */
#define KM_MALLOC_GFP		(GFP_KERNEL | __GFP_NOWARN)

/* Cache id by km_malloc_step; 0 where no cache exists yet. The last entry has an always empty sheaf and stands
 * for all other sizes. */
extern km_hidden uint16_t km_malloc_id[KM_MALLOC_STEPS + 1];

/* malloc_account.c: while mem_cgroup_account_malloc is on, blocks are charged to the current objcg; NULL: uncharged.
 * The table above is then empty, and km_malloc_uncharged_id has its entries. Charged blocks come from separate classes,
 * malloc-cg-<bytes>. A free goes by the address and so refunds exactly the charged bytes. */
#pragma weak km_objcg_root	/* NULL in a build without groups */
km_inline struct obj_cgroup *km_malloc_objcg(void)
{
	struct obj_cgroup *objcg;

	if (km_likely(!(km_load(&km_account_asks) & KM_ASKS_MALLOC)))
		return NULL;
	objcg = km_objcg_now();
	return objcg != &km_objcg_root ? objcg : NULL;
}
extern km_hidden uint16_t km_malloc_uncharged_id[KM_MALLOC_STEPS + 1];
/* Serve a miss of 0 < size <= KM_MALLOC_MAX_SMALL by objcg. `cache` is the entry of km_malloc_first. */
void *km_malloc_by_objcg(struct kmem_cache *cache, size_t size);
/* Returns: whether p is an uncharged large block. */
bool km_malloc_is_uncharged(const void *p) km_cold;
/* malloc_classes.c: rebuild km_malloc_first for the current km_account_asks. Context: registry locked. */
void km_malloc_show_first(void) km_cold;

/* Returns: the cache for 0 <= size <= KM_MALLOC_MAX_SMALL, after a miss. NULL if the cache can't be made, or if
 * its objects' requested bytes are recorded: km_malloc_observed then returns the cache. */
struct kmem_cache *km_malloc_cache(size_t size);
struct kmem_cache *km_malloc_observed(size_t size) km_cold;
/* The cache that a miss tries first, by km_malloc_step: a cache with validated frees, if fast paths go by CPU. While
 * malloc is charged: the charged cache, or, until it exists, a cache without validated frees. NULL: none. */
extern km_hidden struct kmem_cache *km_malloc_first[KM_MALLOC_STEPS + 1];
/* Allocate after a miss. km_malloc_missed: after a miss in km_malloc_first, too. Returns: NULL with ENOMEM. */
void *km_malloc_miss(size_t size);
void *km_malloc_missed(size_t size);
/* Allocate aligned to `align`, a power of two, after a miss. Returns: NULL with ENOMEM. */
void *km_malloc_aligned(size_t align, size_t size);
/* Free p after a miss. `function` is the function that the program called. */
void km_malloc_free_miss(void *p, const char *function) km_cold;
/* Free after a miss by a call that names the requested bytes and alignment. */
void km_malloc_free_sized_miss(void *p, size_t align, size_t size, const char *function, const void *caller) km_cold;
/* km_malloc_usable returns the usable bytes of a block. The others are libkmem's calloc and realloc, also if another
 * library interposes malloc. */
size_t km_malloc_usable(const void *p, const char *function);
void *km_malloc_calloc(size_t n, size_t size);
void *km_malloc_realloc(void *p, size_t size);

/* malloc_theirs.c: the program's own malloc serves this process; allocate and free by the program's malloc. */
extern km_hidden bool km_malloc_is_theirs;
void *km_malloc_by_them(size_t align, size_t size) km_cold;
void km_malloc_free_by_them(void *p) km_cold;
bool km_malloc_has_theirs(const void *p) km_cold;
km_inline bool km_malloc_is_foreign(const void *p)
{
	return km_unlikely(km_malloc_is_theirs) && km_malloc_has_theirs(p);
}
/* Allocate as km_malloc_aligned, for functions of the family: by the program's own malloc if km_malloc_is_theirs. */
void *km_malloc_family(size_t align, size_t size);
struct km_sized;
/* Returns: whether a malloc cache serves such a request; for other caches, whether the object has room. */
bool km_malloc_serves(const struct kmem_cache *cache, size_t have, const struct km_sized *call) km_cold;

/* malloc_info.c: bytes held by users, without mappings; the figures of each cache, visited with no lock held. */
size_t km_malloc_used(const struct kmem_stats *stats);
void km_malloc_rows(void (*see)(const struct kmem_cache_stats *row, void *arg), void *arg);

/* Returns: the size by which a request aligned to `align` (a power of two, at most a page) finds its class. A class for
 * a multiple of the alignment is itself a multiple. Among the first classes each multiple of the unit is a class.
 * Above, where the step between the classes of a doubling divides the alignment, each multiple of the alignment is a
 * class. Where the alignment divides the step, each class is a multiple. The same holds for the parts of a class, by
 * their width. Slabs begin on a page, so the objects are aligned. Any other alignment, also 0, gives 0: a miss. */
km_inline size_t km_malloc_aligned_size(size_t align, size_t size)
{
	size_t bad = (align & (align - 1)) | align >> (KM_PAGE_SHIFT + 1);

	return (size + align - 1) & -align & -(size_t)!bad;
}

/* Returns: the bytes of the canary behind each block (alloc/harden.h). The class is chosen for the size plus these
 * bytes. */
km_inline size_t km_malloc_canary(void)
{
	return km_unlikely(km_hardening.canary && km_hardening.live) ? sizeof(uint64_t) : 0;
}

/* Returns: whether no size has a fast path of its own. */
km_inline bool km_malloc_goes_by_call(void)
{
	return km_hardening.random_caches || km_malloc_canary();
}

/* Note the call site of a function that calls malloc for the program; the site selects the random cache. */
km_inline void km_malloc_note_site(uintptr_t site)
{
	if (km_unlikely(km_hardening.random_caches))
		km_thread.class_site = site;
}

/* Returns: the step of a size. Size 0 wraps to the last entry, which always misses. */
km_inline size_t km_malloc_step(size_t size)
{
	return km_min((size - 1) / KM_MALLOC_UNIT, KM_MALLOC_STEPS);
}

/* Allocate on the fast path. Returns: NULL on a miss. */
km_inline void *km_malloc_hit(size_t size)
{
	return km_alloc_id(km_malloc_id, km_malloc_step(size));
}

#endif
