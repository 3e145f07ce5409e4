/*
 * <kmem/kmem.h>: the main header of libkmem, Linux's slab allocator in user space.
 *
 * Sections, in order of need: 1 a cache in five lines, 2 kmalloc, 3 bulk, 4 prefilled sheaves, 5 shrink and
 * information. Names and semantics are the kernel's (Documentation/core-api, Linux 7.x). A sentence that begins with
 * "Kernel:" states a difference. The header compiles alone, as C11 and as C++17.
 *
 * Contexts, unless a function states otherwise: any thread, from before main() until after the exit handlers; both
 * sides of fork(); with libkmem-malloc also the child of vfork(). In a signal handler, a call on the fast path works
 * wherever the handler interrupted the program. A call on the slow path that interrupted the allocator itself fails:
 * an allocation returns NULL with ENOMEM. A free is queued, and the next slow path completes the free.
 * No function here is a cancellation point. No function may be cancelled asynchronously, malloc and free included;
 * POSIX allows asynchronous cancellation of three functions only. A thread of the type PTHREAD_CANCEL_ASYNCHRONOUS
 * must call pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED) before a call of the library, else a cancellation leaves a
 * lock held for ever.
 * Functions that return NULL set errno.
 */
#ifndef KMEM_KMEM_H
#define KMEM_KMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KMEM_VERSION_MAJOR 0
#define KMEM_VERSION_MINOR 1
#define KMEM_VERSION_PATCH 0
#define KMEM_VERSION "0.1.0"

#ifndef KMEM_API
#define KMEM_API __attribute__((visibility("default")))
#endif
#define KMEM_CHECKED __attribute__((warn_unused_result))
#define KMEM_MALLOC_LIKE __attribute__((malloc, warn_unused_result))
/*
 * Attributes for -fanalyzer, _FORTIFY_SOURCE and the warnings of gcc. The attributes name the arguments with the size
 * of an allocation, the functions that may free the allocation, and the length of an array. The library's own files
 * (KMEM_BARE) do not name the freeing function, because gcc inlines no such function. With KMEM_INLINE the freeing
 * function is not named either, because an analyzer loses an object that a sequence stores in a sheaf. krealloc is
 * not a freeing function here: an analyzer would assume that a failed krealloc frees the object.
 */
#define KMEM_SIZED(...) __attribute__((alloc_size(__VA_ARGS__), assume_aligned(8)))
#define KMEM_FREED_BY(function, argument)
#define KMEM_ARRAY(mode, pointer, count)
#if !defined(KMEM_BARE) && !defined(__clang__) && !defined(__CHECKER__) && __GNUC__ >= 11
#undef KMEM_ARRAY
#define KMEM_ARRAY(mode, pointer, count) __attribute__((access(mode, pointer, count)))
#ifndef KMEM_INLINE
#undef KMEM_FREED_BY
#define KMEM_FREED_BY(function, argument) __attribute__((malloc(function, argument)))
#endif
#endif
/* Two types that must not be mixed: sparse checks the types; for other compilers both are numbers. */
#ifdef __CHECKER__
#define KMEM_BITWISE __attribute__((bitwise))
#define KMEM_GFP(bits) ((__attribute__((force)) gfp_t)(bits))
#define KMEM_SLAB(bits) ((__attribute__((force)) slab_flags_t)(bits))
#else
#define KMEM_BITWISE
#define KMEM_GFP(bits) bits
#define KMEM_SLAB(bits) bits
#endif

/* Allocation flags: a set of __GFP_ bits. The flags state what the allocator may do to get memory. Unit: none. */
typedef unsigned int KMEM_BITWISE gfp_t;
/* Properties of a cache: a set of SLAB_ bits. */
typedef unsigned int KMEM_BITWISE slab_flags_t;

struct kmem_cache;
struct slab_sheaf;

/*
 * Allocating functions name the freeing functions in attributes, so these declarations come first. The commented
 * declarations are below.
 */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"
extern KMEM_API void kmem_cache_destroy(struct kmem_cache *cache);
extern KMEM_API void kmem_cache_free(struct kmem_cache *cache, void *object);
extern KMEM_API void kmem_cache_return_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf *sheaf);
extern KMEM_API void kfree(const void *object);
extern KMEM_API void kfree_sensitive(const void *object);
extern KMEM_API void kvfree(const void *object);
extern KMEM_API void kvfree_sensitive(const void *object, size_t bytes);
#define KMEM_BLOCK_LIKE                                                                            \
	KMEM_CHECKED KMEM_FREED_BY(kfree, 1) KMEM_FREED_BY(kfree_sensitive, 1) KMEM_FREED_BY(kvfree, 1) \
	KMEM_FREED_BY(kvfree_sensitive, 1)
#define KMEM_KMALLOC_LIKE KMEM_MALLOC_LIKE KMEM_BLOCK_LIKE
#define KMEM_OBJECT_LIKE                                                                           \
	KMEM_KMALLOC_LIKE KMEM_FREED_BY(kmem_cache_free, 2) __attribute__((assume_aligned(8), nonnull(1)))
#define KMEM_CACHE_LIKE KMEM_FREED_BY(kmem_cache_destroy, 1)

/* ---- GFP bits. The first three apply on the fast path as well. */
#define __GFP_ZERO KMEM_GFP(0x00000001u) /* the object reads as zeros, on a hit too; not a constructed one */
#define __GFP_ACCOUNT		KMEM_GFP(0x00000002u)	/* charge the active group: <kmem/memcg.h> */
#define __GFP_THISNODE		KMEM_GFP(0x00000004u)	/* this memory node or NULL */
#define __GFP_DIRECT_RECLAIM	KMEM_GFP(0x00000100u)	/* may call the system, wait for locks, run shrinkers */
#define __GFP_KSWAPD_RECLAIM	KMEM_GFP(0x00000200u)	/* accepted; no background reclaim here */
#define __GFP_HIGH		KMEM_GFP(0x00000400u)	/* groups: may exceed max; no reserves here */
#define __GFP_IO		KMEM_GFP(0x00000800u)	/* accepted */
#define __GFP_FS		KMEM_GFP(0x00001000u)	/* accepted */
#define __GFP_NOWARN		KMEM_GFP(0x00002000u)	/* no line on stderr when the allocation fails */
#define __GFP_RETRY_MAYFAIL	KMEM_GFP(0x00004000u)	/* groups: the out-of-memory callback is not called */
#define __GFP_NOFAIL		KMEM_GFP(0x00008000u)	/* never NULL: exhausted memory ends the process, with one
							 * line; groups: may exceed max */
#define __GFP_NORETRY		KMEM_GFP(0x00010000u)	/* groups: reclaim once, call no callback */
#define __GFP_MEMALLOC		KMEM_GFP(0x00020000u)	/* accepted */
#define __GFP_NOMEMALLOC	KMEM_GFP(0x00040000u)	/* accepted */
#define __GFP_RECLAIMABLE	KMEM_GFP(0x00080000u)	/* accepted; kmalloc has no separate reclaimable caches */
#define __GFP_COMP		KMEM_GFP(0x00100000u)	/* accepted */
#define __GFP_FULLEST		KMEM_GFP(0x00200000u)	/* from a full slab, not from cached objects:
							 * kmem_slab_usage(3) */
#define __GFP_BITS_MASK		KMEM_GFP(0x003fff07u)	/* any other bit is a bad call */

#define GFP_ATOMIC	(__GFP_HIGH | __GFP_KSWAPD_RECLAIM)	/* no system call and no sleep, except for a lock
								 * whose holder gets no CPU, or while a real-time
								 * thread waits for the lock; may fail */
#define GFP_NOWAIT	(__GFP_KSWAPD_RECLAIM | __GFP_NOWARN)	/* as GFP_ATOMIC, and silent */
#define __GFP_RECLAIM	(__GFP_DIRECT_RECLAIM | __GFP_KSWAPD_RECLAIM)
#define GFP_NOIO	(__GFP_RECLAIM)
#define GFP_NOFS	(__GFP_RECLAIM | __GFP_IO)
#define GFP_KERNEL	(__GFP_RECLAIM | __GFP_IO | __GFP_FS)
#define GFP_USER	GFP_KERNEL
#define GFP_KERNEL_ACCOUNT (GFP_KERNEL | __GFP_ACCOUNT)

/* ---- SLAB_ bits: kept, or accepted and documented as not applicable (docs/kernel-map.md). */
#define SLAB_CONSISTENCY_CHECKS	KMEM_SLAB(0x00000100u)	/* every free is validated, on a hit too */
#define SLAB_RED_ZONE		KMEM_SLAB(0x00000400u)	/* the bytes around each object are checked: kmem_debug(7),
							 * Debugging */
#define SLAB_POISON		KMEM_SLAB(0x00000800u)	/* free objects are filled; an allocation checks the
							 * pattern */
#define SLAB_KMALLOC		KMEM_SLAB(0x00001000u)	/* internal: accepted, of no effect */
#define SLAB_HWCACHE_ALIGN	KMEM_SLAB(0x00002000u)	/* align to the cache line, halved while size <= line / 2 */
#define SLAB_CACHE_DMA		KMEM_SLAB(0x00004000u)	/* not applicable: accepted */
#define SLAB_CACHE_DMA32	KMEM_SLAB(0x00008000u)	/* not applicable: accepted */
#define SLAB_STORE_USER		KMEM_SLAB(0x00010000u)	/* each object records the stacks of its allocation and its
							 * free */
#define SLAB_RECLAIM_ACCOUNT KMEM_SLAB(0x00020000u) /* a mark; nothing is reclaimed. Engine slab: the lowest order */
#define SLAB_TEMPORARY		SLAB_RECLAIM_ACCOUNT
#define SLAB_PANIC		KMEM_SLAB(0x00040000u)	/* a failed creation ends the process */
#define SLAB_TYPESAFE_BY_RCU KMEM_SLAB(0x00080000u) /* the memory keeps this type for a grace period: <kmem/rcu.h> */
#define SLAB_DESTROY_BY_RCU	SLAB_TYPESAFE_BY_RCU	/* the name until 4.12 */
#define SLAB_TRACE		KMEM_SLAB(0x00200000u)	/* a line on stderr for each allocation and each free */
#define SLAB_NOLEAKTRACE	KMEM_SLAB(0x00800000u)	/* kernel: also no sheaves */
#define SLAB_NO_MERGE		KMEM_SLAB(0x01000000u)	/* the default here: statistics need the names */
#define SLAB_FAILSLAB		KMEM_SLAB(0x02000000u)	/* allocations may fail on purpose: kmem_failslab() */
#define SLAB_ACCOUNT KMEM_SLAB(0x04000000u) /* each object is charged to the active group: <kmem/memcg.h> */
#define SLAB_NODUMP KMEM_SLAB(0x08000000u) /* the slabs are mapped apart, and no core dump has them. Kernel: none */
#define SLAB_NO_USER_FLAGS	KMEM_SLAB(0x10000000u)	/* KMEM_DEBUG does not apply to the cache */
#define SLAB_SKIP_KFENCE	KMEM_SLAB(0x20000000u)	/* no object of the cache is guarded (KMEM_OPTIONS=guard) */
#define SLAB_NO_OBJ_EXT		KMEM_SLAB(0x40000000u)	/* accepted */
#define SLAB_NO_SHEAVES		KMEM_SLAB(0x80000000u)	/* no per-CPU sheaves: every call goes to the slabs */
#define SLAB_MEM_SPREAD		KMEM_SLAB(0u)		/* not applicable; removed from the kernel in 6.9 */
#define SLAB_DEBUG_OBJECTS	KMEM_SLAB(0u)		/* not applicable: as in a kernel without debug objects */
#define SLAB_KASAN		KMEM_SLAB(0u)		/* not applicable: as in a kernel without KASAN */
#define SLAB_FLAGS_PERMITTED	KMEM_SLAB(0xffaffd00u)	/* kmem_cache_create refuses any other bit with EINVAL */

/* The result of kmalloc(0): not NULL, not readable, valid for kfree. */
#define ZERO_SIZE_PTR		((void *)16)
#define ZERO_OR_NULL_PTR(p)	((uintptr_t)(p) <= (uintptr_t)ZERO_SIZE_PTR)

#define KMALLOC_MAX_CACHE_SIZE	8192ul		/* bytes: larger requests are whole pages */
#define KMALLOC_MAX_SIZE	(4ul << 20)	/* bytes: kmalloc refuses more; kvmalloc does not */
#define KMALLOC_MIN_SIZE	8ul
#define ARCH_KMALLOC_MINALIGN	8ul		/* bytes: alignment of every kmalloc */
#define ARCH_SLAB_MINALIGN	8ul		/* bytes: alignment of every object of a cache */
#define NUMA_NO_NODE		(-1)

/* ---------------------------------------------------------------- 1. A cache in five lines

	struct point { double x, y, z; };
	struct kmem_cache *points = KMEM_CACHE(point, 0);
	struct point *p = kmem_cache_alloc(points, GFP_KERNEL);
	kmem_cache_free(points, p);
	kmem_cache_destroy(points);
*/

/* Creation options; all zero means default. New members are added at the end only. */
struct kmem_cache_args {
	unsigned int align;		/* bytes, power of two; 0: ARCH_SLAB_MINALIGN. At most 4096. */
	unsigned int useroffset;	/* bytes: start of the part of an object that may be copied
					 * (kmem_check_object_size); */
	unsigned int usersize;		/* ... and bytes of the part. An invalid pair counts as 0, 0, with a
					 * warning. */
	unsigned int freeptr_offset;	/* bytes: place of an engine's free pointer in a free object; */
	bool use_freeptr_offset;	/* ... only with SLAB_TYPESAFE_BY_RCU or ctor, below size, aligned to 8 */
	void (*ctor)(void *object);	/* constructor: runs once for each object when the slab is created. The
					 * caller must free objects in constructed state. Engine slob: runs at
					 * every allocation. The constructor may allocate, but not from the same
					 * cache. Constructors nest at most eight deep. There is no destructor. */
	unsigned int sheaf_capacity;	/* least number of objects in a sheaf; 0: by size. At most 1022. */
	const char *engine;		/* "sheaf", "slub", "slab", "slob"; NULL: the process default */
};

/*
 * kmem_cache_create - create a cache of objects of `size` bytes.
 * `size`, `align`, `useroffset` and `usersize` are bytes. There are two forms, as in the kernel since 6.12: (name,
 * size, args, flags), with args NULL or a struct kmem_cache_args *; and the old form (name, size, align, flags,
 * ctor).
 * Returns: the cache, or NULL with errno, and one line on stderr that states the reason:
 * - EINVAL: no name; size 0; size above KMALLOC_MAX_SIZE; flags outside SLAB_FLAGS_PERMITTED; invalid align,
 *   freeptr_offset, sheaf_capacity or engine; or, with SLAB_TYPESAFE_BY_RCU or a ctor, no room below KMALLOC_MAX_SIZE
 *   for a pointer behind the object.
 * - ENOMEM: no memory.
 * With SLAB_PANIC a failure ends the process instead.
 * The name is copied: as many UTF-8 characters as fit into 31 bytes. Spaces and control characters become '_', other
 * characters that are not printable become '?'. A duplicate name is allowed, with a warning. The cache is never
 * merged with another cache unless KMEM_OPTIONS=merge:1 is set.
 * Context: not from a signal handler.
 */
KMEM_API KMEM_CACHE_LIKE struct kmem_cache *
kmem_cache_create_args(const char *name, unsigned int size, const struct kmem_cache_args *args,
		       slab_flags_t flags);
KMEM_API KMEM_CACHE_LIKE struct kmem_cache *
kmem_cache_create_legacy(const char *name, unsigned int size, unsigned int align, slab_flags_t flags,
			 void (*ctor)(void *));
/* The second form, with the part of an object that usercopy may touch: see struct kmem_cache_args. */
KMEM_API KMEM_CACHE_LIKE struct kmem_cache *
kmem_cache_create_usercopy(const char *name, unsigned int size, unsigned int align, slab_flags_t flags,
			   unsigned int useroffset, unsigned int usersize, void (*ctor)(void *));

#ifdef __cplusplus
extern "C++" {
static inline struct kmem_cache *kmem_cache_create(const char *name, unsigned int size,
						   const struct kmem_cache_args *args, slab_flags_t flags)
{
	return kmem_cache_create_args(name, size, args, flags);
}
static inline struct kmem_cache *kmem_cache_create(const char *name, unsigned int size, unsigned int align,
						   slab_flags_t flags, void (*ctor)(void *))
{
	return kmem_cache_create_legacy(name, size, align, flags, ctor);
}
}
#else
/* Any other number of arguments calls this function, and the program does not compile. */
struct kmem_cache *kmem_cache_create_takes_4_or_5_arguments(char, char, char, char, char, char, char, char, char, char);
#define KMEM_CREATE_PICK(_1, _2, _3, _4, _5, _6, _7, _8, _9, which, ...) which
#define KMEM_CREATE_WRONG kmem_cache_create_takes_4_or_5_arguments
#define kmem_cache_create(...)                                                                     \
	KMEM_CREATE_PICK(__VA_ARGS__, KMEM_CREATE_WRONG, KMEM_CREATE_WRONG, KMEM_CREATE_WRONG,     \
			 KMEM_CREATE_WRONG, kmem_cache_create_legacy, kmem_cache_create_args,      \
			 KMEM_CREATE_WRONG, KMEM_CREATE_WRONG, KMEM_CREATE_WRONG, )(__VA_ARGS__)
#endif

#define KMEM_CACHE(structure, flags)                                                               \
	kmem_cache_create_legacy(#structure, sizeof(struct structure),                             \
				 KMEM_ALIGNOF(struct structure), (flags), NULL)
#define KMEM_CACHE_USERCOPY(structure, flags, field)                                               \
	kmem_cache_create_usercopy(#structure, sizeof(struct structure),                           \
				   KMEM_ALIGNOF(struct structure), (flags),                        \
				   offsetof(struct structure, field),                              \
				   sizeof(((struct structure *)0)->field), NULL)
#ifdef __cplusplus
#define KMEM_ALIGNOF(type) alignof(type)
#else
#define KMEM_ALIGNOF(type) _Alignof(type)
#endif

/*
 * kmem_cache_destroy - drain and free the cache; NULL does nothing.
 * If objects are still allocated, one report names the cache, the number of objects and the first addresses. Their
 * memory stays valid and is never reused (kernel: the same deliberate leak), and errno is EBUSY; otherwise errno is
 * kept.
 * Requires: the caller has stopped all use of the cache.
 * With an RCU (<kmem/rcu.h>) the call waits for pending kfree_rcu calls, and for a cache with SLAB_TYPESAFE_BY_RCU
 * for a grace period. The caller must then not be in a read-side critical section.
 * Context: not from a signal handler.
 */
KMEM_API void kmem_cache_destroy(struct kmem_cache *cache);

/*
 * kmem_cache_alloc - allocate one object, aligned as the cache requires.
 * Returns: the object, or NULL with ENOMEM. If the cache has a constructor, the object is constructed, with
 * __GFP_ZERO as well (one warning per process). Otherwise the object is uninitialised, or zeros with __GFP_ZERO.
 * Bits outside __GFP_BITS_MASK are a bad call. Every function that takes a gfp detects such bits at every call, on
 * the fast path too. Kernel: detected only when a slab is created.
 */
KMEM_API KMEM_OBJECT_LIKE void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t gfp);
/* kmem_cache_zalloc - kmem_cache_alloc with __GFP_ZERO. */
KMEM_API KMEM_OBJECT_LIKE void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t gfp);
/*
 * kmem_cache_alloc_node - kmem_cache_alloc, preferably from memory node `node`, in the numbering of the system
 * (getcpu(2)). If the node has no memory, the nearest node with memory serves the call. With __GFP_THISNODE only
 * `node` does, else NULL. With NUMA_NO_NODE any cached object serves, then the caller's node; with __GFP_THISNODE the
 * caller's node only. A node that does not exist counts as NUMA_NO_NODE, or with __GFP_THISNODE returns NULL with
 * ENOMEM. Numbers below NUMA_NO_NODE are treated alike. Kernel: a number below NUMA_NO_NODE is a bug, and not
 * checked.
 */
KMEM_API KMEM_OBJECT_LIKE void *kmem_cache_alloc_node(struct kmem_cache *cache, gfp_t gfp, int node);

/*
 * kmem_cache_free - free `object`, which must come from `cache`. errno is kept.
 * NULL, an object of another cache, or a double free is a bad call: the process ends with one line. Bad calls are
 * detected when objects leave the sheaf (double frees as far as the engine sees them, kmem_debug(7)), or at once with
 * SLAB_CONSISTENCY_CHECKS or KMEM_OPTIONS=check:1. Kernel: the same, but a warning and a leak.
 */
KMEM_API void kmem_cache_free(struct kmem_cache *cache, void *object);

/*
 * kmem_cache_alloc_nolock - allocate an object without waiting: the call takes only locks that are free, and makes no
 * system call.
 * gfp: __GFP_ZERO and __GFP_ACCOUNT only; other bits return NULL with EINVAL. node: as for kmem_cache_alloc_node.
 * Returns: the object, or NULL with ENOMEM. Failures are more frequent than of other calls, and the caller must
 * handle them. The following caches give cached objects only: a debugged cache, a cache named by KMEM_FAILSLAB, one
 * with SLAB_NODUMP or charged objects, and every cache with KMEM_OPTIONS=own_addresses (hardened).
 * Context: any, also a signal handler that interrupted any instruction, of this library or another. The first call of
 * the process to the library must not be this one. Kernel: has this form for kmalloc only.
 */
KMEM_API KMEM_OBJECT_LIKE void *kmem_cache_alloc_nolock(struct kmem_cache *cache, gfp_t gfp, int node);
/*
 * kmem_cache_free_nolock - free any object of the cache without waiting. If the sheaf has no room, the object is
 * queued for the next slow path of the cache. errno is kept.
 * Context: any, as for kmem_cache_alloc_nolock.
 */
KMEM_API void kmem_cache_free_nolock(struct kmem_cache *cache, void *object);

/* ---------------------------------------------------------------- 2. kmalloc */

/*
 * kmalloc - allocate `size` bytes.
 * Returns: the memory, or NULL with ENOMEM, or EINVAL above KMALLOC_MAX_SIZE. size 0 returns ZERO_SIZE_PTR.
 * A power of two is aligned to itself, any other size to its largest power-of-two divisor, and every size at least to
 * ARCH_KMALLOC_MINALIGN. Sizes above 8 KiB occupy whole pages, as many as necessary (kernel: a power of two).
 */
KMEM_API KMEM_MALLOC_LIKE KMEM_SIZED(1) void *kmalloc(size_t size, gfp_t gfp);
/*
 * kmalloc_account - kmalloc for a gfp with __GFP_ACCOUNT: looks for charged cached objects first. kmalloc calls
 * kmalloc_account or kzalloc if gfp is a constant. Kernel: kmalloc is inline, too, and selects by constants.
 */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1) void *kmalloc_account(size_t size, gfp_t gfp);
/* kzalloc - kmalloc with __GFP_ZERO. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1) void *kzalloc(size_t size, gfp_t gfp);
/* An inline function of the same name: &kmalloc, ::kmalloc() and a member named kmalloc keep their meaning. */
#if defined(__clang__) && !defined(KMEM_BARE)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wgcc-compat"
#ifdef __cplusplus
extern "C++" {
#endif
static __inline__ __attribute__((always_inline, overloadable, warn_unused_result)) KMEM_SIZED(1) void *
kmalloc(size_t size, gfp_t gfp) __attribute__((enable_if((gfp & __GFP_ACCOUNT) != 0, "a constant")))
{
	return kmalloc_account(size, gfp);
}
static __inline__ __attribute__((always_inline, overloadable, warn_unused_result)) KMEM_SIZED(1) void *
kmalloc(size_t size, gfp_t gfp)
	__attribute__((enable_if((gfp & (__GFP_ZERO | __GFP_ACCOUNT)) == __GFP_ZERO, "a constant")))
{
	return kzalloc(size, gfp);
}
#ifdef __cplusplus
}
#endif
#pragma clang diagnostic pop
#elif !defined(KMEM_BARE)
extern KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1) void *kmem_called_kmalloc(size_t size, gfp_t gfp) __asm__("kmalloc");
extern __inline__ __attribute__((gnu_inline, always_inline, artificial)) void *kmalloc(size_t size, gfp_t gfp)
{
	if (__builtin_constant_p(gfp) && (gfp & __GFP_ACCOUNT))
		return kmalloc_account(size, gfp);
	if (__builtin_constant_p(gfp) && (gfp & __GFP_ZERO))
		return kzalloc(size, gfp);
	return kmem_called_kmalloc(size, gfp);
}
#endif
/* kmalloc_node - kmalloc of memory node `node`, as kmem_cache_alloc_node. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1) void *kmalloc_node(size_t size, gfp_t gfp, int node);
/*
 * kmalloc_nolock - kmalloc without waiting: see kmem_cache_alloc_nolock. A size above KMALLOC_MAX_CACHE_SIZE returns
 * NULL with EINVAL, and so do bits other than __GFP_ZERO and __GFP_ACCOUNT. If the cache of the size has no object,
 * the next larger cache is tried, once. Engine slob serves less than a page. Kernel: the same.
 */
KMEM_API KMEM_MALLOC_LIKE KMEM_SIZED(1) void *kmalloc_nolock(size_t size, gfp_t gfp, int node);
/* kfree_nolock - kfree without waiting, for any object or block; errno is kept. Kernel: only for kmalloc_nolock's. */
KMEM_API void kfree_nolock(const void *object);
/* kzalloc_node - kzalloc of memory node `node`, as kmem_cache_alloc_node. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1) void *kzalloc_node(size_t size, gfp_t gfp, int node);
/*
 * kmalloc_array - kmalloc of n * size bytes. If the product overflows, the call returns NULL with ENOMEM and prints
 * no line on stderr; with __GFP_NOFAIL the process ends. A product above KMALLOC_MAX_SIZE is EINVAL, as for kmalloc.
 */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1, 2) void *kmalloc_array(size_t n, size_t size, gfp_t gfp);
/* kcalloc - kzalloc of n * size bytes; an overflow is handled as by kmalloc_array. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1, 2) void *kcalloc(size_t n, size_t size, gfp_t gfp);

/*
 * krealloc - resize an object to `size` bytes, and keep min(old, new) bytes of the contents. NULL or ZERO_SIZE_PTR:
 * as kmalloc. The result is aligned as by kmalloc, except when an object shrinks and stays in place because there is
 * no memory for another object.
 * size 0 frees the object and returns ZERO_SIZE_PTR. On failure the call returns NULL and leaves the old object. With
 * __GFP_ZERO everything beyond the old usable size reads as zeros; the caller must pass the flag in every call.
 */
KMEM_API KMEM_BLOCK_LIKE KMEM_SIZED(2) void *krealloc(void *object, size_t size, gfp_t gfp);
/* krealloc_array - krealloc to n * size bytes. An overflow returns NULL with ENOMEM and leaves the old object. */
KMEM_API KMEM_BLOCK_LIKE KMEM_SIZED(2, 3) void *krealloc_array(void *object, size_t n, size_t size, gfp_t gfp);

/*
 * kfree - free an object or block of kmalloc, a kv function or kmem_cache_alloc. Objects of engine slob's caches must
 * not be passed, because their pages do not record the cache. NULL and ZERO_SIZE_PTR do nothing. errno is kept.
 * A foreign pointer, or a pointer that is not the start of an object, always ends the process with one line.
 */
KMEM_API void kfree(const void *object);
/* kfree_sensitive - kfree after zeroing all usable bytes; the compiler can't remove the zeroing. */
KMEM_API void kfree_sensitive(const void *object);
/*
 * ksize - the usable bytes of an object; 0 for NULL and ZERO_SIZE_PTR.
 * To _FORTIFY_SOURCE a write beyond the requested size is an overflow: a program must request
 * kmalloc_size_roundup(size) bytes to use all of them. Kernel: the same, since 6.1. Like kfree, the call may wake a
 * thread that waits for a lock.
 */
KMEM_API size_t ksize(const void *object);
/*
 * kmem_check_object_size - check a copy of `bytes` bytes at p, out of the object (to_user) or into the object. The
 * function is for callers of memcpy that do not choose the length themselves. p may point anywhere into an object.
 * Returns: true if the copy is allowed. The copy is not allowed if the bytes leave the object, or leave the region of
 * its cache (kmem_cache_create_usercopy), or if p is in no object of its slab. With hardened:1, and for guarded
 * objects, a free object is not allowed either. Then one line states the reason, and the process ends as for any bad
 * call. Foreign addresses, addresses inside a block above 8 KiB, and 0 bytes return true.
 * Context: takes no lock, makes no system call; signal handlers may call it. Kernel: check_object_size; from a cache
 * without a region nothing may be copied.
 */
KMEM_API bool kmem_check_object_size(const void *p, size_t bytes, bool to_user);
/* kmalloc_size_roundup - the value of ksize(kmalloc(size)): 0 for 0; above KMALLOC_MAX_SIZE, size itself. */
KMEM_API size_t kmalloc_size_roundup(size_t size);

/*
 * kvmalloc - kmalloc up to KMALLOC_MAX_SIZE; above, a mapping of its own, aligned to a page. The limit is INT_MAX
 * bytes, 2 GiB less one, as in the kernel: a larger size is EINVAL, with one line. Use mmap(2) for larger sizes. Free
 * the memory with kvfree or kfree.
 */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1) void *kvmalloc(size_t size, gfp_t gfp);
/* kvzalloc - kvmalloc with __GFP_ZERO. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1) void *kvzalloc(size_t size, gfp_t gfp);
/* kvmalloc_node - kvmalloc of memory node `node`, as kmem_cache_alloc_node. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1) void *kvmalloc_node(size_t size, gfp_t gfp, int node);
/*
 * kvmalloc_array - kvmalloc of n * size bytes. An overflow is ENOMEM, as of kmalloc_array; a product above INT_MAX is
 * EINVAL.
 */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1, 2) void *kvmalloc_array(size_t n, size_t size, gfp_t gfp);
/* kvcalloc - kvzalloc of n * size bytes, with kvmalloc_array's errors. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1, 2) void *kvcalloc(size_t n, size_t size, gfp_t gfp);
/*
 * kvrealloc - krealloc up to INT_MAX bytes; above 8 KiB the result is aligned to a page. A mapping grows without a
 * copy where the system allows.
 */
KMEM_API KMEM_BLOCK_LIKE KMEM_SIZED(2) void *kvrealloc(void *object, size_t size, gfp_t gfp);
/* kvfree - kfree. */
KMEM_API void kvfree(const void *object);
/* kvfree_sensitive - kvfree after zeroing the first `bytes` bytes, or all usable bytes if fewer. */
KMEM_API void kvfree_sensitive(const void *object, size_t bytes);

/* kmemdup - a copy of `bytes` bytes, made with kmalloc; NULL in, NULL out. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(2) void *kmemdup(const void *source, size_t bytes, gfp_t gfp);
/* kstrdup - a copy of the string, made with kmalloc; NULL in, NULL out. */
KMEM_API KMEM_KMALLOC_LIKE char *kstrdup(const char *string, gfp_t gfp);
/* kstrndup - a copy of at most `max` bytes of the string, and a NUL; NULL in, NULL out. */
KMEM_API KMEM_KMALLOC_LIKE char *kstrndup(const char *string, size_t max, gfp_t gfp);

/*
 * kmem_owns - check an address: is the address in memory of libkmem's objects and blocks?
 * Returns: true for an address inside of an object or block, and for an address of a free object; false for a freed
 * block above 4 MiB. The result selects between kfree and another allocator's free.
 * The cost is a few loads, and for an address in no slab one more load for each block above 4 MiB.
 * Context: any. The function takes no lock, makes no system call and writes nothing; the address may be any.
 */
KMEM_API bool kmem_owns(const void *address);

/* ---------------------------------------------------------------- 3. Bulk */

/*
 * kmem_cache_alloc_bulk - allocate n objects into objects[0..n), all or none.
 * Returns: n, or 0 with ENOMEM, and the contents of the array are undefined. n == 0 returns 0; n above INT_MAX is
 * ENOMEM. __GFP_ZERO applies. Kernel: int, n or 0, from 4.4 to 7.1; bool since 7.2. Callers of both forms work.
 */
KMEM_API KMEM_ARRAY(write_only, 4, 3)
int kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects);
/*
 * kmem_cache_free_bulk - free n objects of the cache. NULL entries are skipped (kernel: not allowed since 5.x). The
 * array is clobbered. n == 0 does nothing; with cache NULL the call is kfree_bulk.
 */
KMEM_API KMEM_ARRAY(read_write, 3, 2) void kmem_cache_free_bulk(struct kmem_cache *cache, size_t n, void **objects);
/* kfree_bulk - free n objects of any caches, kmalloc sizes and large blocks, mixed; NULL entries are skipped. */
KMEM_API KMEM_ARRAY(read_write, 2, 1) void kfree_bulk(size_t n, void **objects);
/*
 * kmalloc_bulk - allocate n objects of `size` bytes, all or none, as kmalloc does. Returns: n, or 0 with ENOMEM or
 * EINVAL, as of kmalloc; n == 0 returns 0, n above INT_MAX is ENOMEM. Kernel: has no such function.
 */
KMEM_API KMEM_ARRAY(write_only, 4, 3) int kmalloc_bulk(size_t size, gfp_t gfp, size_t n, void **objects);

/* ---------------------------------------------------------------- 4. Prefilled sheaves

	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(points, GFP_KERNEL, 3);	here it may fail
	...
	p = kmem_cache_alloc_from_sheaf(points, GFP_NOWAIT, sheaf);		three times: never NULL
	...
	kmem_cache_return_sheaf(points, GFP_KERNEL, sheaf);			with the remaining objects

 * A sheaf is a private stack of objects of the caller. Taking an object needs no per-CPU memory, no lock and no
 * system call, and can't fail while the sheaf has objects. Any thread may use the sheaf, one thread at a time. The
 * objects count as allocated. An object taken out is freed like any other object, not to the sheaf.
 * Context: kmem_cache_alloc_from_sheaf and kmem_cache_sheaf_size may be called in signal handlers, the other three
 * functions must not.
 */

/*
 * kmem_cache_prefill_sheaf - get a sheaf with at least n objects.
 * Returns: the sheaf, or NULL with ENOMEM, or EINVAL if n is 0.
 * The sheaf is taken from the CPU or the node's barn, or allocated, and filled to the cache's capacity. If n exceeds
 * the greatest sheaf of the cache, the result is an oversize sheaf: an array of at most 524284 objects.
 * kmem_cache_return_sheaf takes an oversize sheaf apart. Any n is oversize for an engine without sheaves, and for a
 * cache that validates each free. __GFP_ZERO has no effect here.
 */
KMEM_API KMEM_CHECKED KMEM_FREED_BY(kmem_cache_return_sheaf, 3) struct slab_sheaf *
kmem_cache_prefill_sheaf(struct kmem_cache *cache, gfp_t gfp, unsigned int n);
/*
 * kmem_cache_refill_sheaf - refill *sheaf to at least n objects.
 * A sheaf with n objects or more is left unchanged. Otherwise the sheaf is filled to its capacity, or, if n exceeds
 * the capacity, replaced by an oversize sheaf: *sheaf may change.
 * Returns: 0; -ENOMEM: *sheaf still belongs to the caller, with no fewer objects than before; -EINVAL: there is no
 * sheaf.
 */
KMEM_API int kmem_cache_refill_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf **sheaf,
				     unsigned int n);
/*
 * kmem_cache_alloc_from_sheaf - take an object out of the sheaf.
 * Returns: the object, or NULL with ENOMEM if the sheaf is empty: there is no other source.
 * Only __GFP_ZERO of gfp has an effect. Objects are charged when the sheaf is filled, to the group that is active
 * then, if the cache has SLAB_ACCOUNT or the fill passed __GFP_ACCOUNT (kernel: charged when taken).
 */
KMEM_API KMEM_OBJECT_LIKE void *kmem_cache_alloc_from_sheaf(struct kmem_cache *cache, gfp_t gfp,
							    struct slab_sheaf *sheaf);
/*
 * kmem_cache_return_sheaf - return a sheaf with the remaining objects. NULL does nothing. errno is kept.
 * The sheaf becomes the CPU's spare if the CPU has none. Otherwise the sheaf is filled, as far as gfp allows, and put
 * into the barn, if the barn has room. Otherwise the objects go to their slabs. A sheaf of another cache, or a sheaf
 * returned twice, is a bad call as far as detectable: one line, and the process ends.
 */
KMEM_API void kmem_cache_return_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf *sheaf);
/* kmem_cache_sheaf_size - the number of objects left in the sheaf. */
KMEM_API unsigned int kmem_cache_sheaf_size(const struct slab_sheaf *sheaf);

/*
 * kmem_reserve - commit memory for n more objects of the cache than are free now, and fault the memory in.
 * Afterwards n allocations make no page fault, neither in the call nor at the first write to the object, and with
 * GFP_NOWAIT or GFP_ATOMIC no system call. This applies to threads on CPUs where threads of the program have run.
 * A reservation replaces the former reservation of the cache; n 0 ends the reservation, and so does the destruction
 * of the cache. A repeated call faults in again what was used meanwhile. The reserved number of free pages stays
 * resident through shrinking and decay.
 * A reservation is not a guarantee: other callers may use the pages. The next call of any thread that may wait and
 * takes the slow path, or frees, commits the missing pages again without faulting them in. (A prefilled sheaf is a
 * guarantee.)
 * In a cache that was used before, cached objects go to their slabs, and slabs with free objects are faulted in
 * whole. The call costs as much as kmem_cache_shrink, a check of each page, and the time of the system.
 * Page faults remain in these cases:
 * - The system refuses membarrier: objects stay cached on other CPUs, perhaps in pages that no thread has touched.
 * - The cache is SLAB_NODUMP, with slabs in blocks of their own; or the objects belong to a private group.
 * - own_addresses (hardened:1) is on: slabs that caches of the same name released are taken first.
 * The memory is of the node of the caller's CPU. A group is charged, and its limits apply, when objects are
 * allocated; a cgroup of the system is charged at once.
 * Returns: 0, or -ENOMEM if the system refuses any part. Then the reservation is not larger than before, even if
 * several threads reserve for the same cache; memory committed meanwhile is treated as free memory. In a handler of
 * pthread_atfork the result is also -ENOMEM if another thread reserves at the time.
 * Context: may call the system and wait for locks. Not from a signal handler, nor in a visit of kmem_for_each_cache.
 * A child of fork inherits the reservation, and takes a fault at each first write. Kernel: has min_free_kbytes for
 * the whole system, and mempools.
 */
KMEM_API int kmem_reserve(struct kmem_cache *cache, size_t n);

/* ---------------------------------------------------------------- 5. Shrink and information */

/*
 * Defragmentation: a program moves objects together, so that slabs become empty and their memory is released.
 * kmem_slab_usage (<kmem/stats.h>) selects the objects to move. __GFP_FULLEST and kmem_malloc_fullest select the new
 * place, and kmem_free_to_slab releases the old one.
 * An allocation with __GFP_FULLEST takes no cached object of a CPU or a barn, but an object of a slab with few free
 * objects: the fullest of up to 64 partial slabs of the caller's node. Later calls take from the same slab until the
 * slab is full. Before the next slab is chosen, the objects of the node's barn go to their slabs. If no slab is
 * partial, a new slab is allocated. The bit has no effect on requests above the largest cache, and on prefilled
 * sheaves. Kernel: none; the kernel's shrinking sorts partial slabs by the same rule.
 *
 * kmem_malloc_fullest - malloc with __GFP_FULLEST, if libkmem is the malloc of the process. The memory is an ordinary
 * block of malloc, and charged as such.
 * Returns: the block, or NULL with ENOMEM; ENOSYS if libkmem is not the malloc of the process. Context: as of malloc.
 */
KMEM_API KMEM_MALLOC_LIKE KMEM_SIZED(1) void *kmem_malloc_fullest(size_t size);
/*
 * kmem_free_to_slab - kfree without caching: the object goes to its slab at once. A slab that becomes empty is
 * released, except for the empty slabs that its cache keeps (min_partial). Every pointer valid for kfree is valid
 * here, NULL included; memory in no slab is freed as by kfree. Objects in the quarantine of the hardening stay there.
 * errno is kept.
 * Context: as of kfree.
 */
KMEM_API void kmem_free_to_slab(const void *object);

/*
 * kmem_cache_shrink - return the objects cached on CPUs to their slabs, and release every empty slab. The call
 * applies to the cache and to its child caches in private groups, and for kmalloc-N also to kmalloc-cg-N.
 * Returns: 0 if no slab of these caches remains, else 1. Context: not from a signal handler.
 */
KMEM_API int kmem_cache_shrink(struct kmem_cache *cache);
/*
 * kmem_shrink_all - shrink every cache, and return all free pages to the system. Returns: the bytes returned.
 * Context: not from a signal handler.
 */
KMEM_API size_t kmem_shrink_all(void);
/*
 * kmem_idle - release unused memory before the program becomes idle: cached objects go to their slabs, and free pages
 * to the system. The effect is the same as of many calls that leave the memory unused.
 * The function is for a server before a wait for the next request, and for programs that do not call the allocator
 * for long. No thread does this work, except with KMEM_OPTIONS=observer_thread:1, within a second. Allocated objects,
 * and debugged ones, are not touched. The next allocations take the slow path.
 * The call waits for no lock: if another thread is returning memory, that thread completes the work. One call visits
 * at most 16,384 caches; the next call continues. The call does nothing if the program has forbidden system calls to
 * itself, and in a handler that interrupted the allocator. errno is kept.
 * Context: any thread; not from a signal handler. Kernel: has shrinkers and a timer.
 */
KMEM_API void kmem_idle(void);
/*
 * kmem_tick - release memory that has not been used for a while, as slow paths do now and then. The function is for a
 * program that calls it from a timer, ten times a second, and whose other calls may all be hits, because a hit
 * releases nothing. Between two scans a call reads a clock without a system call. errno is kept.
 * Context: as of kmem_idle, with the same cases without effect. Kernel: the timer of cache_reap.
 */
KMEM_API void kmem_tick(void);
/* kmem_cache_size - the bytes of one object, as requested at creation. Context: any. */
KMEM_API unsigned int kmem_cache_size(const struct kmem_cache *cache);
/* kmem_cache_name - the stored name, valid as long as the cache. Context: any. */
KMEM_API const char *kmem_cache_name(const struct kmem_cache *cache);
/* slab_is_available - true from the first allocation on; false only if the library failed to start. */
KMEM_API bool slab_is_available(void);

/*
 * kmem_cache_min_partial - the number of partial or empty slabs that a node keeps (kernel:
 * /sys/kernel/slab/CACHE/min_partial). Both functions may be called at any time. Until a value is set, engine sheaf
 * keeps more empty slabs of a cache whose slabs come and go in turns.
 * kmem_cache_set_min_partial - set the number. Returns: 0, or -EINVAL above 1048576.
 * Every setting of this header but a limit also applies to the child caches of the cache in private groups
 * (<kmem/memcg.h>), and a setting of kmalloc-N to kmalloc-cg-N. A later child cache starts with the current values of
 * its cache. In a visit of kmem_for_each_cache, and in a handler that interrupted the allocator, only the named cache
 * changes.
 */
KMEM_API unsigned long kmem_cache_min_partial(const struct kmem_cache *cache);
KMEM_API int kmem_cache_set_min_partial(struct kmem_cache *cache, unsigned long count);
/*
 * kmem_min_partial_rule - the rule for the initial min_partial of caches: "half" (half the base-2 logarithm of the
 * size, between 5 and 10), "size" (the logarithm), or "static" (5). These are the rules of Linux since 3.2, since
 * 2.6.28, and before. The initial rule is KMEM_OPTIONS=min_partial.
 * kmem_set_min_partial_rule - set the rule of the whole process, for existing and later caches, except caches with a
 * value from kmem_cache_set_min_partial. Returns: 0; -EINVAL for another name; -ENOMEM if the library can't start;
 * -EBUSY in a visit of kmem_for_each_cache or a handler that interrupted the allocator.
 * Context: any thread. Kernel: has one rule at a time.
 */
KMEM_API const char *kmem_min_partial_rule(void);
KMEM_API int kmem_set_min_partial_rule(const char *rule);

/*
 * kmem_cache_limit - the limit on the cache's slabs, in bytes of whole slabs; UINT64_MAX, the default: no limit.
 * An allocation that needs a slab above the limit first releases the objects cached on all CPUs and the empty slabs
 * of the cache, and then fails with ENOMEM. With GFP_NOWAIT the allocation fails at once; with __GFP_NOFAIL the
 * process ends. The event "limit" counts the refused slabs. Both functions may be called at any time. A limit below
 * the current size releases nothing, and prevents new slabs. A child cache in a private group (<kmem/memcg.h>) has a
 * limit of its own.
 * kmem_cache_set_limit - set the limit. Returns: 0; -EOPNOTSUPP for an engine with shared pages (slob), and for
 * kmalloc's blocks of whole pages (large-*). Kernel: has no such limit.
 */
KMEM_API uint64_t kmem_cache_limit(const struct kmem_cache *cache);
KMEM_API int kmem_cache_set_limit(struct kmem_cache *cache, uint64_t bytes);

/*
 * kmem_cache_remote_node_defrag_ratio - how often a refill may take a partial slab from another node, in percent. The
 * ratio applies if the caller's node has no partial slab, before the refill allocates a new one. Another node gives
 * slabs only while it has more than min_partial. Kernel: /sys/kernel/slab/CACHE/remote_node_defrag_ratio; as there,
 * the default of 100 means 1000 of 1024 times. Both functions may be called at any time; with one node the ratio has
 * no effect.
 * kmem_cache_set_remote_node_defrag_ratio - set the ratio. Returns: 0, or -EINVAL above 100.
 */
KMEM_API unsigned int kmem_cache_remote_node_defrag_ratio(const struct kmem_cache *cache);
KMEM_API int kmem_cache_set_remote_node_defrag_ratio(struct kmem_cache *cache, unsigned int percent);

/*
 * The per-CPU discipline in force ("rseq", "cmpxchg", "lock"). kmem_percpu_reason - the
 * reason in one sentence, and whether areas are indexed by concurrency id (KMEM_OPTIONS=index:cid).
 * Returns: never NULL; the strings are valid for ever.
 */
KMEM_API __attribute__((returns_nonnull)) const char *kmem_percpu_discipline(void);
KMEM_API __attribute__((returns_nonnull)) const char *kmem_percpu_reason(void);

/* The version of the library, "0.1.0". */
KMEM_API __attribute__((returns_nonnull)) const char *kmem_version(void);
#pragma GCC diagnostic pop

#ifdef __cplusplus
}
#endif

#ifdef KMEM_INLINE
#include <kmem/inline.h>
#endif

#endif
