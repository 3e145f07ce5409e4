/*
 * <kmem/kmem.h>: the front door of libkmem, Linux's slab allocator in user space.
 *
 * In order of need: 1 a cache in five lines, 2 kmalloc, 3 bulk, 4 prefilled sheaves, 5 shrink and
 * information. Names and semantics are the kernel's (Documentation/core-api, Linux 7.x); where ours
 * differ, "Kernel:" says how. Compiles alone, as C11 and as C++17.
 *
 * Contexts, unless a function says otherwise: any thread, any time from before main() to after exit
 * handlers; both sides of fork(); with libkmem-malloc the child of vfork(). In a signal handler: a call that
 * hits the CPU's shelf works wherever the handler struck; one that misses while the interrupted code
 * was itself inside the allocator returns NULL with ENOMEM (alloc) or is queued and finished by the
 * next miss (free). Nothing here is a cancellation point, and, as of all functions but three of POSIX's,
 * nothing may be asynchronously cancelled: a thread of the type PTHREAD_CANCEL_ASYNCHRONOUS calls
 * pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED) before it comes here, malloc and free included, else a
 * cancellation leaves a lock taken for ever. Functions that return NULL set errno.
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
 * Attributes for -fanalyzer, _FORTIFY_SOURCE and gcc's warnings: which arguments say how large a block is, what may
 * free it, and how long an array is. The freeing function is not named in the library's own files (KMEM_BARE), for gcc
 * inlines no such function, nor with KMEM_INLINE, for to an analyzer what a sequence puts on a shelf is lost. krealloc
 * is none of those that free: an analyzer would think that it does where it fails.
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
/* Two types that are not to be mixed, for a compiler that looks (sparse); numbers for all others. */
#ifdef __CHECKER__
#define KMEM_BITWISE __attribute__((bitwise))
#define KMEM_GFP(bits) ((__attribute__((force)) gfp_t)(bits))
#define KMEM_SLAB(bits) ((__attribute__((force)) slab_flags_t)(bits))
#else
#define KMEM_BITWISE
#define KMEM_GFP(bits) bits
#define KMEM_SLAB(bits) bits
#endif

/* The things that may be done to get memory: a set of the bits below. Units: none. */
typedef unsigned int KMEM_BITWISE gfp_t;
/* The properties of a cache: a set of SLAB_ bits. */
typedef unsigned int KMEM_BITWISE slab_flags_t;

struct kmem_cache;
struct slab_sheaf;

/* A freeing function is named where memory is got, so these come first; below they are declared again, with all that is
 * to be said. */
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

/* ---- GFP bits. The first three change what a hit means. */
#define __GFP_ZERO KMEM_GFP(0x00000001u) /* the object reads as zeros, on a hit too; not a constructed one */
#define __GFP_ACCOUNT		KMEM_GFP(0x00000002u)	/* charge the group that is active: <kmem/memcg.h> */
#define __GFP_THISNODE		KMEM_GFP(0x00000004u)	/* this memory node or NULL */
#define __GFP_DIRECT_RECLAIM	KMEM_GFP(0x00000100u)	/* may call the system, wait for locks, run shrinkers */
#define __GFP_KSWAPD_RECLAIM	KMEM_GFP(0x00000200u)	/* accepted; no background reclaim here */
#define __GFP_HIGH		KMEM_GFP(0x00000400u)	/* of a group: charged beyond its max; no reserves here */
#define __GFP_IO		KMEM_GFP(0x00000800u)	/* accepted */
#define __GFP_FS		KMEM_GFP(0x00001000u)	/* accepted */
#define __GFP_NOWARN		KMEM_GFP(0x00002000u)	/* no line on stderr when it fails */
#define __GFP_RETRY_MAYFAIL	KMEM_GFP(0x00004000u)	/* of a group: its out-of-memory callback is not asked */
#define __GFP_NOFAIL		KMEM_GFP(0x00008000u)	/* never NULL: exhausted memory ends the process, with one line;
						 * of a group: charged beyond its max */
#define __GFP_NORETRY		KMEM_GFP(0x00010000u)	/* of a group: reclaim once, ask no callback */
#define __GFP_MEMALLOC		KMEM_GFP(0x00020000u)	/* accepted */
#define __GFP_NOMEMALLOC	KMEM_GFP(0x00040000u)	/* accepted */
#define __GFP_RECLAIMABLE	KMEM_GFP(0x00080000u)	/* accepted; kmalloc has no separate reclaimable caches */
#define __GFP_COMP		KMEM_GFP(0x00100000u)	/* accepted */
#define __GFP_FULLEST		KMEM_GFP(0x00200000u)	/* from a full slab, past what lies ready: kmem_slab_usage(3) */
#define __GFP_BITS_MASK		KMEM_GFP(0x003fff07u)	/* any other bit is a bad call */

#define GFP_ATOMIC	(__GFP_HIGH | __GFP_KSWAPD_RECLAIM)	/* no system call, no sleep, but for a lock whose
							 * holder gets no CPU, or for which a real-time
							 * thread waits; may fail */
#define GFP_NOWAIT	(__GFP_KSWAPD_RECLAIM | __GFP_NOWARN)	/* the same, and silent */
#define __GFP_RECLAIM	(__GFP_DIRECT_RECLAIM | __GFP_KSWAPD_RECLAIM)
#define GFP_NOIO	(__GFP_RECLAIM)
#define GFP_NOFS	(__GFP_RECLAIM | __GFP_IO)
#define GFP_KERNEL	(__GFP_RECLAIM | __GFP_IO | __GFP_FS)
#define GFP_USER	GFP_KERNEL
#define GFP_KERNEL_ACCOUNT (GFP_KERNEL | __GFP_ACCOUNT)

/* ---- SLAB_ bits: kept, or accepted and documented as not applicable (docs/kernel-map.md). */
#define SLAB_CONSISTENCY_CHECKS	KMEM_SLAB(0x00000100u)	/* every free is validated, on a hit too */
#define SLAB_RED_ZONE		KMEM_SLAB(0x00000400u)	/* bytes around each object are looked at: kmem(7), Debugging */
#define SLAB_POISON		KMEM_SLAB(0x00000800u)	/* free objects are filled, and looked at when they are taken */
#define SLAB_KMALLOC		KMEM_SLAB(0x00001000u)	/* internal: accepted, of no effect */
#define SLAB_HWCACHE_ALIGN	KMEM_SLAB(0x00002000u)	/* align to the cache line, halved while size <= line / 2 */
#define SLAB_CACHE_DMA		KMEM_SLAB(0x00004000u)	/* not applicable: accepted */
#define SLAB_CACHE_DMA32	KMEM_SLAB(0x00008000u)	/* not applicable: accepted */
#define SLAB_STORE_USER		KMEM_SLAB(0x00010000u)	/* each object has the stacks that allocated and freed it */
#define SLAB_RECLAIM_ACCOUNT KMEM_SLAB(0x00020000u) /* a mark; nothing is reclaimed. Engine slab: the lowest order */
#define SLAB_TEMPORARY		SLAB_RECLAIM_ACCOUNT
#define SLAB_PANIC		KMEM_SLAB(0x00040000u)	/* failing to create it ends the process */
#define SLAB_TYPESAFE_BY_RCU KMEM_SLAB(0x00080000u) /* its memory keeps this type for a grace period: <kmem/rcu.h> */
#define SLAB_DESTROY_BY_RCU	SLAB_TYPESAFE_BY_RCU	/* its name until 4.12 */
#define SLAB_TRACE		KMEM_SLAB(0x00200000u)	/* a line on stderr for each object that comes or goes */
#define SLAB_NOLEAKTRACE	KMEM_SLAB(0x00800000u)	/* kernel: also no sheaves */
#define SLAB_NO_MERGE		KMEM_SLAB(0x01000000u)	/* the default here: names are what people look at */
#define SLAB_FAILSLAB		KMEM_SLAB(0x02000000u)	/* its allocations may fail on purpose: kmem_failslab() */
#define SLAB_ACCOUNT KMEM_SLAB(0x04000000u) /* each object is charged to the group that is active: <kmem/memcg.h> */
#define SLAB_NODUMP KMEM_SLAB(0x08000000u) /* its slabs lie apart, and no core dump has them. Kernel: not there */
#define SLAB_NO_USER_FLAGS	KMEM_SLAB(0x10000000u)	/* KMEM_DEBUG does not speak of it */
#define SLAB_SKIP_KFENCE	KMEM_SLAB(0x20000000u)	/* no object of it is guarded (KMEM_OPTIONS=guard) */
#define SLAB_NO_OBJ_EXT		KMEM_SLAB(0x40000000u)	/* accepted */
#define SLAB_NO_SHEAVES		KMEM_SLAB(0x80000000u)	/* no per-CPU shelf: every call goes to the slabs */
#define SLAB_MEM_SPREAD		KMEM_SLAB(0u)		/* not applicable; the kernel has it no more since 6.9 */
#define SLAB_DEBUG_OBJECTS	KMEM_SLAB(0u)		/* not applicable: as in a kernel that is built without */
#define SLAB_KASAN		KMEM_SLAB(0u)		/* not applicable: the same */
#define SLAB_FLAGS_PERMITTED	KMEM_SLAB(0xffaffd00u)	/* kmem_cache_create refuses any other bit with EINVAL */

/* The result of kmalloc(0): not NULL, not readable, fine to kfree. */
#define ZERO_SIZE_PTR		((void *)16)
#define ZERO_OR_NULL_PTR(p)	((uintptr_t)(p) <= (uintptr_t)ZERO_SIZE_PTR)

#define KMALLOC_MAX_CACHE_SIZE	8192ul		/* bytes: larger requests are whole pages */
#define KMALLOC_MAX_SIZE	(4ul << 20)	/* bytes: kmalloc refuses more; kvmalloc does not */
#define KMALLOC_MIN_SIZE	8ul
#define ARCH_KMALLOC_MINALIGN	8ul		/* bytes: what any kmalloc is aligned to */
#define ARCH_SLAB_MINALIGN	8ul		/* bytes: what any cache's object is aligned to */
#define NUMA_NO_NODE		(-1)

/* ---------------------------------------------------------------- 1. A cache in five lines

	struct point { double x, y, z; };
	struct kmem_cache *points = KMEM_CACHE(point, 0);
	struct point *p = kmem_cache_alloc(points, GFP_KERNEL);
	kmem_cache_free(points, p);
	kmem_cache_destroy(points);
*/

/* Creation options; all zero means default. Grows at the end only. */
struct kmem_cache_args {
	unsigned int align;		/* bytes, power of two; 0: ARCH_SLAB_MINALIGN. At most 4096. */
	unsigned int useroffset;	/* the part of an object that may be copied: kmem_check_object_size; else */
	unsigned int usersize;		/* ... of no effect here. A bad pair counts as 0, 0, with a warning. */
	unsigned int freeptr_offset;	/* where an engine may put its free pointer, in a free object; */
	bool use_freeptr_offset;	/* ... only with SLAB_TYPESAFE_BY_RCU or ctor, below size, aligned to 8 */
	void (*ctor)(void *object);	/* runs once for each object when its slab is made; the caller
					 * gives objects back in constructed state. Engine slob: at
					 * every allocation. May allocate, but not from its own cache;
					 * eight may run within one another. No destructor undoes it. */
	unsigned int sheaf_capacity;	/* objects a shelf holds at least; 0: by size. At most 1022. */
	const char *engine;		/* "sheaf", "slub", "slab", "slob"; NULL: the process default */
};

/*
 * kmem_cache_create - make a cache of objects of `size` bytes.
 * `size`, `align`, `useroffset` and `usersize` are bytes. Two forms, as in the kernel since 6.12: (name, size, args,
 * flags), args NULL or a struct kmem_cache_args *; and the old (name, size, align, flags, ctor).
 * Returns the cache, or NULL with errno: EINVAL (no name, size 0, size over KMALLOC_MAX_SIZE, flags
 * outside SLAB_FLAGS_PERMITTED, bad align, freeptr_offset, sheaf_capacity or engine; or with SLAB_TYPESAFE_BY_RCU or a
 * ctor no room below that size for a pointer behind the object) or ENOMEM; one line on stderr says which.
 * SLAB_PANIC: a failure ends the process instead.
 * The name is copied: as many characters of UTF-8 as fit into 31 bytes, spaces and control characters as '_', other
 * characters that are not printable as '?'. A duplicate name is
 * warned about and allowed. Never merged with another cache unless
 * KMEM_OPTIONS=merge:1. Not from a signal handler.
 */
KMEM_API KMEM_CACHE_LIKE struct kmem_cache *
kmem_cache_create_args(const char *name, unsigned int size, const struct kmem_cache_args *args,
		       slab_flags_t flags);
KMEM_API KMEM_CACHE_LIKE struct kmem_cache *
kmem_cache_create_legacy(const char *name, unsigned int size, unsigned int align, slab_flags_t flags,
			 void (*ctor)(void *));
/* The second form with the part of an object that usercopy may touch: see struct kmem_cache_args. */
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
/* Any other number of arguments calls this, which does not compile. */
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
 * Objects still allocated: one report names the cache, their number and the first addresses, the
 * memory stays valid and is never reused (kernel: the same leak, on purpose), and errno is EBUSY; else errno is kept.
 * The caller must have
 * stopped all use of the cache. Where an RCU was set (<kmem/rcu.h>) it waits for what kfree_rcu has under way, and of a
 * cache with SLAB_TYPESAFE_BY_RCU for a grace period: not in a read-side critical section then. Not from a signal
 * handler.
 */
KMEM_API void kmem_cache_destroy(struct kmem_cache *cache);

/*
 * kmem_cache_alloc - one object, or NULL with ENOMEM. Constructed where the cache has a constructor, with __GFP_ZERO as
 * well (which is said once); else uninitialised, or with __GFP_ZERO zeros.
 * Aligned as the cache is. Bits outside __GFP_BITS_MASK are a bad call, found at every
 * call of this and the other functions that take a gfp, whatever lies ready. Kernel: found when a slab is made.
 */
KMEM_API KMEM_OBJECT_LIKE void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t gfp);
/* kmem_cache_zalloc - kmem_cache_alloc with __GFP_ZERO. */
KMEM_API KMEM_OBJECT_LIKE void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t gfp);
/*
 * kmem_cache_alloc_node - kmem_cache_alloc, preferably from memory node `node`, as the system numbers them
 * (getcpu(2)); when it has nothing, from the nearest that has; with __GFP_THISNODE only from it, or NULL. NUMA_NO_NODE:
 * any that is ready, then the caller's node; with __GFP_THISNODE the caller's only. A node that does not exist counts
 * as NUMA_NO_NODE, or with __GFP_THISNODE is NULL with ENOMEM; so is any number below NUMA_NO_NODE. Kernel: such a
 * number is a bug, and not looked for.
 */
KMEM_API KMEM_OBJECT_LIKE void *kmem_cache_alloc_node(struct kmem_cache *cache, gfp_t gfp, int node);

/*
 * kmem_cache_free - give `object` back to the cache it came from. errno is kept.
 * NULL, an object of another cache or one freed twice are bad calls: found when objects leave the
 * shelf (one freed twice: as its engine sees it, kmem(7)), or at once with SLAB_CONSISTENCY_CHECKS or
 * KMEM_OPTIONS=check:1; they end the process with one line. Kernel: the same, except that it warns and leaks.
 */
KMEM_API void kmem_cache_free(struct kmem_cache *cache, void *object);

/*
 * kmem_cache_alloc_nolock - an object without waiting for anything: no lock but one that is free, no system call. gfp:
 * no other bits than __GFP_ZERO and __GFP_ACCOUNT, else NULL with EINVAL. NULL with ENOMEM more often than another
 * call's: be ready for it. node: as kmem_cache_alloc_node. A cache that is debugged or named by KMEM_FAILSLAB, one
 * with SLAB_NODUMP or objects that are paid for, and each with KMEM_OPTIONS=own_addresses (hardened) gives only what
 * lies ready. Any context: also a signal handler that struck at any instruction, of this library or another. The first
 * call of all must not be this one. Kernel: there is such a form of kmalloc only.
 */
KMEM_API KMEM_OBJECT_LIKE void *kmem_cache_alloc_nolock(struct kmem_cache *cache, gfp_t gfp, int node);
/*
 * kmem_cache_free_nolock - give any object of the cache back in the same way: where the shelf does not take it, it is
 * left to the next miss of the cache. errno is kept. Any context, as above.
 */
KMEM_API void kmem_cache_free_nolock(struct kmem_cache *cache, void *object);

/* ---------------------------------------------------------------- 2. kmalloc */

/*
 * kmalloc - `size` bytes, or NULL with ENOMEM (or EINVAL above KMALLOC_MAX_SIZE). size 0 gives ZERO_SIZE_PTR. A power
 * of two is aligned to itself, any other size to its largest power-of-two divisor, at least to ARCH_KMALLOC_MINALIGN.
 * Above 8 KiB whole pages, as many as it takes (kernel: a power of two).
 */
KMEM_API KMEM_MALLOC_LIKE KMEM_SIZED(1) void *kmalloc(size_t size, gfp_t gfp);
/*
 * kmalloc_account - kmalloc for a gfp with __GFP_ACCOUNT: what lies ready and is paid for is looked at first. kmalloc
 * calls this one and kzalloc where gfp is a constant. Kernel: kmalloc is inline, too, and chooses by constants.
 */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1) void *kmalloc_account(size_t size, gfp_t gfp);
/* kzalloc - kmalloc with __GFP_ZERO. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1) void *kzalloc(size_t size, gfp_t gfp);
/* An inline function of the same name, so that &kmalloc, ::kmalloc() and a member named kmalloc are what they say. */
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
 * kmalloc_nolock - kmalloc without waiting for anything: see kmem_cache_alloc_nolock. Up to KMALLOC_MAX_CACHE_SIZE,
 * else NULL with EINVAL, as for other bits than __GFP_ZERO and __GFP_ACCOUNT. Where its cache has no object, the next
 * larger one is asked, once. Of engine slob less than a page. Kernel: the same.
 */
KMEM_API KMEM_MALLOC_LIKE KMEM_SIZED(1) void *kmalloc_nolock(size_t size, gfp_t gfp, int node);
/* kfree_nolock - kfree in the same way; errno is kept. Kernel: only of what kmalloc_nolock gave; here of any block. */
KMEM_API void kfree_nolock(const void *object);
/* kzalloc_node - kzalloc of memory node `node`, as kmem_cache_alloc_node. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1) void *kzalloc_node(size_t size, gfp_t gfp, int node);
/*
 * kmalloc_array - kmalloc of n * size bytes. Where the product overflows it is NULL with ENOMEM and no line on stderr;
 * with __GFP_NOFAIL the process ends. A product above KMALLOC_MAX_SIZE is EINVAL, as for kmalloc.
 */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1, 2) void *kmalloc_array(size_t n, size_t size, gfp_t gfp);
/* kcalloc - kzalloc of n * size bytes; an overflow as kmalloc_array's. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1, 2) void *kcalloc(size_t n, size_t size, gfp_t gfp);

/*
 * krealloc - grow or shrink to `size` bytes, keeping min(old, new). NULL or ZERO_SIZE_PTR: kmalloc. Aligned as kmalloc,
 * but for an object that becomes smaller and stays because there is no memory for another.
 * size 0 frees and returns ZERO_SIZE_PTR. On failure NULL, the old object stays. With __GFP_ZERO
 * everything beyond the old usable size reads as zeros; the caller must pass it in every call.
 */
KMEM_API KMEM_BLOCK_LIKE KMEM_SIZED(2) void *krealloc(void *object, size_t size, gfp_t gfp);
/* krealloc_array - krealloc to n * size bytes. An overflow is NULL with ENOMEM, and the old object stays as it was. */
KMEM_API KMEM_BLOCK_LIKE KMEM_SIZED(2, 3) void *krealloc_array(void *object, size_t n, size_t size, gfp_t gfp);

/*
 * kfree - free what kmalloc, a kv function or kmem_cache_alloc returned, but for objects of engine
 * slob's caches, which don't say whose they are. NULL and ZERO_SIZE_PTR do nothing. errno is kept.
 * A pointer that is not ours or not the start of an object ends the process with one line, always.
 */
KMEM_API void kfree(const void *object);
/* kfree_sensitive - kfree after zeroing all usable bytes, in a way that the compiler can't drop. */
KMEM_API void kfree_sensitive(const void *object);
/*
 * ksize - usable bytes of the object; 0 for NULL and ZERO_SIZE_PTR. To _FORTIFY_SOURCE a write beyond the size that was
 * asked for is an overflow: a program that wants all of it asks for kmalloc_size_roundup(size). Kernel: the same, since
 * 6.1. Like kfree it may wake a thread that waits for a lock.
 */
KMEM_API size_t ksize(const void *object);
/*
 * kmem_check_object_size - may `bytes` bytes at p be copied, out (to_user) or in? For callers of memcpy whose length
 * somebody else has chosen. p may lie anywhere in an object. False: they lead out of the object, or of the region that
 * its cache names (kmem_cache_create_usercopy), or p is in no object of its slab; also where nobody has the object, if
 * it is guarded, or with hardened:1. Then a line says so, and the process ends as for any bad call. An address that is
 * not ours, one inside of a block above 8 KiB, and 0 bytes: true. Takes no lock, makes no system call; also in a signal
 * handler. Kernel: check_object_size, and of a cache that names no region nothing may be copied.
 */
KMEM_API bool kmem_check_object_size(const void *p, size_t bytes, bool to_user);
/* kmalloc_size_roundup - what ksize would say of kmalloc(size): 0 for 0; above KMALLOC_MAX_SIZE, size itself. */
KMEM_API size_t kmalloc_size_roundup(size_t size);

/*
 * kvmalloc - kmalloc up to KMALLOC_MAX_SIZE, above that a mapping of its own, aligned to a page. At most INT_MAX bytes,
 * 2 GiB less one, as in the kernel: more is EINVAL, with a line that says so; mmap(2) is there for more. It is freed
 * with kvfree or kfree.
 */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1) void *kvmalloc(size_t size, gfp_t gfp);
/* kvzalloc - kvmalloc with __GFP_ZERO. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1) void *kvzalloc(size_t size, gfp_t gfp);
/* kvmalloc_node - kvmalloc of memory node `node`, as kmem_cache_alloc_node. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1) void *kvmalloc_node(size_t size, gfp_t gfp, int node);
/* kvmalloc_array - kvmalloc of n * size bytes; an overflow as kmalloc_array's, a product above INT_MAX is EINVAL. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1, 2) void *kvmalloc_array(size_t n, size_t size, gfp_t gfp);
/* kvcalloc - kvzalloc of n * size bytes, with kvmalloc_array's errors. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(1, 2) void *kvcalloc(size_t n, size_t size, gfp_t gfp);
/* kvrealloc - krealloc up to INT_MAX bytes, above 8 KiB aligned to a page; a mapping grows without a copy where the
 * system can. */
KMEM_API KMEM_BLOCK_LIKE KMEM_SIZED(2) void *kvrealloc(void *object, size_t size, gfp_t gfp);
/* kvfree - kfree. */
KMEM_API void kvfree(const void *object);
/* kvfree_sensitive - kvfree after zeroing the first `bytes` bytes, or all usable ones if that is less. */
KMEM_API void kvfree_sensitive(const void *object, size_t bytes);

/* kmemdup - a copy of `bytes` bytes, made with kmalloc; NULL in, NULL out. */
KMEM_API KMEM_KMALLOC_LIKE KMEM_SIZED(2) void *kmemdup(const void *source, size_t bytes, gfp_t gfp);
/* kstrdup - a copy of the string, made with kmalloc; NULL in, NULL out. */
KMEM_API KMEM_KMALLOC_LIKE char *kstrdup(const char *string, gfp_t gfp);
/* kstrndup - a copy of at most `max` bytes of the string, and a NUL; NULL in, NULL out. */
KMEM_API KMEM_KMALLOC_LIKE char *kstrndup(const char *string, size_t max, gfp_t gfp);

/*
 * kmem_owns - is this address in memory of libkmem's objects and blocks? For any address, in any context: takes no
 * lock, makes no system call, and writes nothing. True for an address inside of an object or block, and for an address
 * of a free object; false for a freed block above 4 MiB. Serves to choose between kfree and another allocator's free.
 * Costs a few loads, and for an address in no slab one more for each block above 4 MiB.
 */
KMEM_API bool kmem_owns(const void *address);

/* ---------------------------------------------------------------- 3. Bulk */

/*
 * kmem_cache_alloc_bulk - n objects into objects[0..n), all or nothing. Returns n; or 0 with ENOMEM, and the array's
 * contents are undefined. n == 0 returns 0; n above INT_MAX is ENOMEM. __GFP_ZERO is honoured.
 * Kernel: int, n or 0, from 4.4 to 7.1; bool since 7.2. Callers of either kind are served.
 */
KMEM_API KMEM_ARRAY(write_only, 4, 3)
int kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects);
/*
 * kmem_cache_free_bulk - free n objects of the cache. NULL entries are skipped (kernel: since 5.x not
 * allowed), the array is clobbered, n == 0 does nothing, cache NULL makes it kfree_bulk.
 */
KMEM_API KMEM_ARRAY(read_write, 3, 2) void kmem_cache_free_bulk(struct kmem_cache *cache, size_t n, void **objects);
/* kfree_bulk - free n objects of any caches, kmalloc sizes and large ones, mixed; NULL entries are skipped. */
KMEM_API KMEM_ARRAY(read_write, 2, 1) void kfree_bulk(size_t n, void **objects);
/* kmalloc_bulk - n objects of `size` bytes, all or nothing, like kmalloc. Returns n, or 0 with ENOMEM or EINVAL, as
 * kmalloc; n == 0 returns 0, n above INT_MAX is ENOMEM. Kernel: does not exist. */
KMEM_API KMEM_ARRAY(write_only, 4, 3) int kmalloc_bulk(size_t size, gfp_t gfp, size_t n, void **objects);

/* ---------------------------------------------------------------- 4. Prefilled sheaves

	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(points, GFP_KERNEL, 3);	here it may fail
	...
	p = kmem_cache_alloc_from_sheaf(points, GFP_NOWAIT, sheaf);		three times: never NULL
	...
	kmem_cache_return_sheaf(points, GFP_KERNEL, sheaf);			with what is left

 * A sheaf is a stack of objects that is the caller's alone: taking from it needs no CPU's memory, no
 * lock, no system call, and cannot fail while there is something in it. Any thread may use it, one at a
 * time. Its objects count as allocated; once taken they are freed like any other, not to the sheaf.
 * alloc_from_sheaf and sheaf_size may be called in signal handlers, the other three not.
 */

/*
 * kmem_cache_prefill_sheaf - a sheaf with at least n objects, or NULL: ENOMEM; where n is 0, EINVAL.
 * It is taken off the CPU or from the node's barn, or made, and filled up to the cache's capacity. More
 * than a block of the cache can hold ("oversize"; any n for an engine without blocks, and for a cache
 * that validates each free) come in an array of their own, at most 524284 objects, which is taken apart
 * when it is returned. Of gfp, __GFP_ZERO has no effect here.
 */
KMEM_API KMEM_CHECKED KMEM_FREED_BY(kmem_cache_return_sheaf, 3) struct slab_sheaf *
kmem_cache_prefill_sheaf(struct kmem_cache *cache, gfp_t gfp, unsigned int n);
/*
 * kmem_cache_refill_sheaf - see to it that *sheaf has at least n objects again.
 * Nothing is done where it has; else it is filled up to its capacity, or where n is beyond that exchanged
 * for an oversize one: *sheaf may change. 0; -ENOMEM: *sheaf is still the caller's, with at least what was
 * in it; -EINVAL: there is none.
 */
KMEM_API int kmem_cache_refill_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf **sheaf,
				     unsigned int n);
/*
 * kmem_cache_alloc_from_sheaf - an object of the sheaf; NULL with ENOMEM where it is empty: there is no
 * other source. Of gfp only __GFP_ZERO counts: its objects are charged when it is filled, to who is active then, those
 * of a cache with SLAB_ACCOUNT and those that are asked for with __GFP_ACCOUNT there (kernel: when they are taken).
 */
KMEM_API KMEM_OBJECT_LIKE void *kmem_cache_alloc_from_sheaf(struct kmem_cache *cache, gfp_t gfp,
							    struct slab_sheaf *sheaf);
/*
 * kmem_cache_return_sheaf - give a sheaf back, with what is left in it. NULL does nothing. errno is kept.
 * It lies ready on the CPU if no other does there; else it is filled up, as far as gfp allows, for the
 * barn, if that has room; else its objects go back to their slabs. A sheaf that is not this cache's, or
 * was returned before, is a bad call, as far as it can be told: one line, and the process ends.
 */
KMEM_API void kmem_cache_return_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf *sheaf);
/* kmem_cache_sheaf_size - objects left in it. */
KMEM_API unsigned int kmem_cache_sheaf_size(const struct slab_sheaf *sheaf);

/*
 * kmem_reserve - commit memory for n objects of the cache, more than is free now, and fault it in: after it so many
 * allocations by threads on CPUs where some of the program's ran make no page fault, neither they nor the first
 * writes to the objects, and with GFP_NOWAIT or GFP_ATOMIC no system call. It takes the place of what was reserved
 * for the cache before; 0 ends that, and so does the cache's destruction. Calling it again faults in again what was
 * used meanwhile. So many free pages stay resident, whatever is shrunk or decays. It is no promise: others may take
 * of it, which the next call of any thread that may wait and comes to the slow path, or frees, makes up for,
 * committed and not faulted in. (A prefilled sheaf is one.) Of a cache that was used before, objects that lie ready
 * go back to their slabs, and slabs that have free objects are faulted in whole: it takes as long as kmem_cache_shrink,
 * a look at each page and what the system takes. Page faults remain where
 * - the system refuses membarrier: objects stay ready on other CPUs, in pages that nobody touched, perhaps;
 * - the cache is SLAB_NODUMP: its slabs lie in blocks of their own; or a private group's objects are its own;
 * - own_addresses (hardened:1) is on: slabs that caches of this name had and gave up are taken first.
 * Memory of the node of the caller's CPU. A group pays as objects are allocated, and its limits hold then; a cgroup of
 * the system pays at once. 0, or -ENOMEM where the system refuses any part, and nothing is reserved more than before,
 * whoever else reserves for the same cache; memory that came by then goes as free memory does. It may call the system
 * and wait for locks; not from a signal handler, nor in a visit of kmem_for_each_cache; a child of fork has it as well,
 * and faults where it writes. In a handler of pthread_atfork also -ENOMEM where another thread reserves just then. The
 * kernel has min_free_kbytes for all, and mempools.
 */
KMEM_API int kmem_reserve(struct kmem_cache *cache, size_t n);

/* ---------------------------------------------------------------- 5. Shrink and information */

/*
 * For whoever moves objects together, so that slabs become empty and their memory goes back: kmem_slab_usage
 * (<kmem/stats.h>) says which are worth it, __GFP_FULLEST and kmem_malloc_fullest where to, kmem_free_to_slab lets the
 * old place go. With __GFP_FULLEST an allocation takes nothing that lies ready on a CPU or in a barn, but an object of
 * a slab that has few free ones: the fullest of up to 64 partly used ones of the caller's node, and of that until it is
 * full. Before another is chosen the node's barn goes home. Where no slab is partly used it is a new one. A
 * request above the largest cache, or out of a prefilled sheaf, is as without the bit. Kernel: none; its shrinking
 * sorts partial slabs so.
 *
 * kmem_malloc_fullest - malloc with __GFP_FULLEST, where libkmem is the process's malloc: a block like any other of
 * malloc's, paid for as malloc's are. NULL with ENOMEM; with ENOSYS where it is not. Contexts as malloc's.
 */
KMEM_API KMEM_MALLOC_LIKE KMEM_SIZED(1) void *kmem_malloc_fullest(size_t size);
/*
 * kmem_free_to_slab - kfree past what lies ready: the object goes to its slab at once, and a slab whose last object it
 * was goes, but for those that its cache keeps (min_partial). It takes whatever kfree takes, NULL as well, and what is
 * in no slab is freed as there. Objects that hardening keeps back (quarantine) stay so. errno is kept. Contexts as
 * kfree's.
 */
KMEM_API void kmem_free_to_slab(const void *object);

/*
 * kmem_cache_shrink - take back what lies on CPUs and give every empty slab back; of the cache, and of its twins in
 * private groups, and of kmalloc-cg-N with kmalloc-N.
 * Returns 0 if no slab of them remains, else 1. Not from a signal handler.
 */
KMEM_API int kmem_cache_shrink(struct kmem_cache *cache);
/* kmem_shrink_all - shrink every cache, and give all free pages back to the system. Returns the bytes given back. Not
 * from a signal handler. */
KMEM_API size_t kmem_shrink_all(void);
/*
 * kmem_idle - the program falls silent: what lies ready goes back, and free pages go to the system, as they would if
 * calls went on and nobody needed them. For a server before it waits for its next request, and others that do not call
 * the allocator for long: there is no thread that would do it, but with KMEM_OPTIONS=observer_thread:1, in a second.
 * Live objects, and debugged ones, are not touched; the next allocations are misses. It waits for no lock: where
 * another thread is just giving memory back, that one does it. One call visits 16,384 caches at most; where there are
 * more, the next call goes on. Does nothing where the program has forbidden itself system calls, and in a handler that
 * struck inside of the allocator. errno is kept. Any thread; not from a signal handler. Kernel: has shrinkers and a
 * timer.
 */
KMEM_API void kmem_idle(void);
/*
 * kmem_tick - what is due is given back: what nobody has used for a while, as a call that misses does now and then. For
 * a program that calls it from a timer, ten times a second, and whose other calls may all find something ready: those
 * give nothing back. Between two looks it reads a clock without a system call. Does nothing, and may be called, where
 * kmem_idle does and may. errno is kept. Kernel: the timer of cache_reap.
 */
KMEM_API void kmem_tick(void);
/* kmem_cache_size - bytes of one object, as asked for at creation. Any context. */
KMEM_API unsigned int kmem_cache_size(const struct kmem_cache *cache);
/* kmem_cache_name - the name, as it was stored; lives as long as the cache. Any context. */
KMEM_API const char *kmem_cache_name(const struct kmem_cache *cache);
/* slab_is_available - true from the first allocation on; false only where the library failed to start. */
KMEM_API bool slab_is_available(void);

/*
 * Slabs that a node keeps partly used or empty (kernel: /sys/kernel/slab/CACHE/min_partial). Readable and
 * writable at any time. As long as it was not written, engine sheaf keeps more of a cache whose slabs come and go by
 * turns. set: 0, or -EINVAL above 1048576. A number that is written to a cache, this one and the others of these
 * pages but a limit, is written to its twins in private groups (<kmem/memcg.h>) too, and one that is written to
 * kmalloc-N to kmalloc-cg-N. A twin that is made later starts with its cache's current values. In a visit of
 * kmem_for_each_cache, and in a handler that interrupted the allocator, only the named cache is changed.
 */
KMEM_API unsigned long kmem_cache_min_partial(const struct kmem_cache *cache);
KMEM_API int kmem_cache_set_min_partial(struct kmem_cache *cache, unsigned long count);
/*
 * The rule by which caches get their min_partial: "half" (half the base-2 logarithm of the size, but 5 to 10), "size"
 * (the logarithm), or "static" (5): Linux since 3.2, since 2.6.28, before. set: for the whole process, for caches to
 * come and for those there are, but for those to which kmem_cache_set_min_partial wrote; 0, -EINVAL for another name,
 * -ENOMEM where the library can't start, -EBUSY in a visit of kmem_for_each_cache or a handler that struck inside of
 * the allocator. Any thread. The rule at first is KMEM_OPTIONS=min_partial. Kernel: has one rule at a time.
 */
KMEM_API const char *kmem_min_partial_rule(void);
KMEM_API int kmem_set_min_partial_rule(const char *rule);

/*
 * Bytes of whole slabs that the cache may have, UINT64_MAX: any number, as at first. A caller that needs one more gets
 * ENOMEM, once what lies ready of the cache on all CPUs and in empty slabs was taken back (with GFP_NOWAIT: at once;
 * with __GFP_NOFAIL the process ends); the event "limit" counts slabs that were refused. Readable and writable at any
 * time; a limit below what there is takes nothing away, and lets nothing come. A twin of it in a private group
 * (<kmem/memcg.h>) has a limit of its own. set: 0; -EOPNOTSUPP for an engine whose caches share pages (slob), and for
 * kmalloc's blocks of whole pages (large-*). Kernel: has no such limit.
 */
KMEM_API uint64_t kmem_cache_limit(const struct kmem_cache *cache);
KMEM_API int kmem_cache_set_limit(struct kmem_cache *cache, uint64_t bytes);

/*
 * How often, in percent, a refill whose own node has no partly used slab may take one from another node before it gets
 * a new one of its own; another node gives only while it has more than min_partial of them. Kernel:
 * /sys/kernel/slab/CACHE/remote_node_defrag_ratio; as there 100, the default, is 1000 of 1024 times. Readable and
 * writable at any time; of no effect where there is one node. set: 0, or -EINVAL above 100.
 */
KMEM_API unsigned int kmem_cache_remote_node_defrag_ratio(const struct kmem_cache *cache);
KMEM_API int kmem_cache_set_remote_node_defrag_ratio(struct kmem_cache *cache, unsigned int percent);

/*
 * The per-CPU discipline in force ("rseq", "cmpxchg", "lock"), and in one sentence why, and whether areas go by
 * concurrency id (KMEM_OPTIONS=index:cid). Never NULL; the strings live for ever.
 */
KMEM_API __attribute__((returns_nonnull)) const char *kmem_percpu_discipline(void);
KMEM_API __attribute__((returns_nonnull)) const char *kmem_percpu_reason(void);

/* "0.1.0". */
KMEM_API __attribute__((returns_nonnull)) const char *kmem_version(void);
#pragma GCC diagnostic pop

#ifdef __cplusplus
}
#endif

#ifdef KMEM_INLINE
#include <kmem/inline.h>
#endif

#endif
