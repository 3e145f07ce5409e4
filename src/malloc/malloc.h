/*
 * malloc.h: what the files of malloc share: from a size to its class, and the hit as an inline.
 *
 * Classes are finer than kmalloc's: steps of 16 bytes up to 128, then eight steps in each doubling up to 32 KiB, so
 * that above 128 bytes less than an eighth is wasted. A class is a cache, malloc-<bytes>, made when first asked for;
 * a size of which there is much may have one of its own (malloc_classes.c).
 */
#ifndef KM_MALLOC_H
#define KM_MALLOC_H

#include "memcg/objcg.h"
#include "cache/cache.h"
#include "os/secret.h"

#define KM_MALLOC_ALIGN		16ul
#define KM_MALLOC_MAX_SMALL	32768ul
#define KM_MALLOC_STEPS		(KM_MALLOC_MAX_SMALL / KM_MALLOC_ALIGN)
#define KM_MALLOC_CLASSES	72u
#define KM_MALLOC_GFP		(GFP_KERNEL | __GFP_NOWARN)

/* By (size - 1) / 16: the cache's id; 0 where there is none yet. The last entry, of a shelf that is empty for
 * ever, is for all other sizes. */
extern km_hidden uint16_t km_malloc_id[KM_MALLOC_STEPS + 1];

/*
 * malloc_account.c: blocks have payers while mem_cgroup_account_malloc says so: who pays here, NULL: nobody. Then the
 * table above is empty, and what was in it stands in the other one. Blocks that somebody pays for come from classes of
 * their own, malloc-cg-<bytes>, so that a free, which goes by the address, pays back what was paid, nothing else.
 */
#pragma weak km_objcg_root	/* a build without groups has none */
km_inline struct obj_cgroup *km_malloc_objcg(void)
{
	struct obj_cgroup *objcg;

	if (km_likely(!(km_load(&km_account_asks) & KM_ASKS_MALLOC)))
		return NULL;
	objcg = km_objcg_now();
	return objcg != &km_objcg_root ? objcg : NULL;
}
extern km_hidden uint16_t km_malloc_unpaid_id[KM_MALLOC_STEPS + 1];
/* A miss of 0 < size <= KM_MALLOC_MAX_SMALL, by who pays; the cache is km_malloc_first's. */
void *km_malloc_by_objcg(struct kmem_cache *cache, size_t size);
/* Is p a large block that nobody pays for? */
bool km_malloc_is_unpaid(const void *p) km_cold;
/* malloc_classes.c: km_malloc_first is as km_account_asks says. With the registry locked. */
void km_malloc_show_first(void) km_cold;

/* The cache that serves 0 <= size <= KM_MALLOC_MAX_SMALL, after a miss; NULL: it can't be made, or the bytes that are
 * asked for of its objects count: then watched says which it is. */
struct kmem_cache *km_malloc_cache(size_t size);
struct kmem_cache *km_malloc_observed(size_t size) km_cold;
/*
 * By the same steps a cache that a miss tries first: one whose frees are proved, and hits go by CPU; or, while blocks
 * have payers, that of what is paid for, and where there is none yet one that is not proved. NULL: none.
 */
extern km_hidden struct kmem_cache *km_malloc_first[KM_MALLOC_STEPS + 1];
/* `size` bytes, having missed; NULL with ENOMEM. And the same, having found nothing there. */
void *km_malloc_miss(size_t size);
void *km_malloc_missed(size_t size);
/* Aligned to `align`, a power of two, having missed; NULL with ENOMEM. */
void *km_malloc_aligned(size_t align, size_t size);
/* Free p, having missed; `function` is who the caller called. */
void km_malloc_free_miss(void *p, const char *function) km_cold;
/* The same of a call that names the bytes, and the alignment, that were asked for. */
void km_malloc_free_sized_miss(void *p, size_t align, size_t size, const char *function, const void *caller) km_cold;
/* Usable bytes; libkmem's calloc and realloc, also if another library interposes malloc. */
size_t km_malloc_usable(const void *p, const char *function);
void *km_malloc_calloc(size_t n, size_t size);
void *km_malloc_realloc(void *p, size_t size);

/* malloc_theirs.c: the program's own malloc serves this process; a block and a free by the program's malloc. */
extern km_hidden bool km_malloc_is_theirs;
void *km_malloc_by_them(size_t align, size_t size) km_cold;
void km_malloc_free_by_them(void *p) km_cold;
bool km_malloc_has_theirs(const void *p) km_cold;
km_inline bool km_malloc_is_foreign(const void *p)
{
	return km_unlikely(km_malloc_is_theirs) && km_malloc_has_theirs(p);
}
/* km_malloc_aligned, for functions of the family: by the program's own malloc in a process with km_malloc_is_theirs. */
void *km_malloc_family(size_t align, size_t size);
struct km_sized;
/* Is it malloc's, and did it serve such a request? Any that it had room for, where it is another's. */
bool km_malloc_serves(const struct kmem_cache *cache, size_t have, const struct km_sized *call) km_cold;

/* malloc_info.c: bytes that users have, without mappings; each cache's figures, with no lock held. */
size_t km_malloc_used(const struct kmem_stats *stats);
void km_malloc_rows(void (*see)(const struct kmem_cache_stats *row, void *arg), void *arg);

/*
 * The size that a request aligned to `align`, a power of two of at most a page, goes by: a class that serves a multiple
 * of the alignment is itself one. (Up to 128 bytes each multiple of 16 is a class. Above, where the step between the
 * classes of a doubling divides the alignment, each multiple of it is a class; where the alignment divides the step,
 * each class is a multiple. The same holds for the parts of a class, by their width.) Slabs begin on a page, so its
 * objects are aligned. Any other alignment, also 0: 0, a miss.
 */
km_inline size_t km_malloc_aligned_size(size_t align, size_t size)
{
	size_t bad = (align & (align - 1)) | align >> (KM_PAGE_SHIFT + 1);

	return (size + align - 1) & -align & -(size_t)!bad;
}

/* Bytes that each block has behind its user's (alloc/harden.h): it goes by a size that is so much larger. */
km_inline size_t km_malloc_canary(void)
{
	return km_unlikely(km_hardening.canary && km_hardening.live) ? sizeof(uint64_t) : 0;
}

/* No size is a hit by itself. */
km_inline bool km_malloc_goes_by_call(void)
{
	return km_hardening.random_caches || km_malloc_canary();
}

/* A function that calls malloc in another's name, by whose address the object goes then. */
km_inline void km_malloc_note_site(uintptr_t site)
{
	if (km_unlikely(km_hardening.random_caches))
		km_site_noted = site;
}

/* Size 0 wraps to the last entry: it is rare, and so a miss. */
km_inline size_t km_malloc_step(size_t size)
{
	return km_min((size - 1) / KM_MALLOC_ALIGN, KM_MALLOC_STEPS);
}

/* A hit, or NULL. */
km_inline void *km_malloc_hit(size_t size)
{
	return km_alloc_id(km_malloc_id, km_malloc_step(size));
}

#endif
