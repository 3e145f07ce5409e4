/*
 * <kmem/stats.h>: statistics. A snapshot stops no thread: each figure was exact at some moment during the call, but
 * not all figures at the same moment. All figures are exact if no other thread allocates.
 */
#ifndef KMEM_STATS_H
#define KMEM_STATS_H

#include <kmem/kmem.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One cache: the columns of /proc/slabinfo 2.1, and details. New members are added at the end only. */
struct kmem_cache_stats {
	char name[32];			/* NUL-terminated, cut if longer */
	const char *engine;
	unsigned long active_objects;	/* in use: taken from slabs and not in a sheaf */
	unsigned long total_objects;	/* in all slabs, and allocated guarded ones */
	unsigned long shelf_objects;	/* free, cached in the CPUs' sheaves and in barns */
	unsigned long active_slabs;	/* slab: with at least one object taken; others: all, as in SLUB */
	unsigned long total_slabs;
	unsigned long partial_slabs;	/* on the node's partial lists */
	unsigned long min_partial;
	unsigned int object_size;	/* bytes, as requested */
	unsigned int size;		/* bytes an object occupies; kmalloc of engine slob, of any size: 8 */
	unsigned int objects_per_slab;
	unsigned int pages_per_slab;
	unsigned int sheaf_capacity;
	unsigned long alloc_slab;	/* slabs allocated from the page allocator, ever; with the slabs of
					 * destroyed child caches, and of destroyed caches of the same name */
	unsigned long free_slab;	/* slabs released, ever, with the same */
	/* Engine slab; 0 for others. */
	unsigned int limit;		/* capacity of a CPU's array, in objects */
	unsigned int batchcount;	/* objects in one transfer */
	unsigned int shared_factor;	/* capacity of a node's shared array, in batches */
	unsigned long shared_avail;	/* objects in the shared arrays */
};

/* The whole process. */
struct kmem_stats {
	unsigned long caches;
	unsigned long arena_reserved_bytes;	/* address space */
	unsigned long arena_committed_bytes;	/* accessible: the pages below, and two reserved ones */
	unsigned long pages_used;		/* pages in slabs and large blocks */
	unsigned long pages_free_dirty;		/* free, and perhaps resident: used and not released since; with
						 * the pages of cached blocks above 4 MiB, and of each CPU's run
						 * for blocks that grow */
	unsigned long pages_free_clean;		/* free, and not resident (except locked memory): released or never
						 * touched; with pages kept for address reuse (own_addresses) */
	unsigned long large_blocks;		/* blocks of whole pages in use outside caches (large-<bytes>) */
	unsigned long large_bytes;		/* their bytes */
	unsigned long mapped_blocks;		/* of the large blocks: those in mappings of their own */
	unsigned long mapped_bytes;
	unsigned long meta_bytes;		/* the library's metadata, committed, less the released part */
	unsigned long purged_pages;		/* pages returned to the system, ever */
	unsigned long slob_pages;		/* pages shared by all caches and the kmalloc of engine slob */
	unsigned long slob_bytes;		/* ... and their bytes in use, headers too */
	unsigned long nodes;			/* memory nodes known to the library, or simulated */
	unsigned long bind_failures;		/* 4 MiB each: the system refused to bind them to their node */
	unsigned long mapped_spare_bytes;	/* address space kept for blocks above 4 MiB, without memory */
};

/*
 * The state of the slab at an address. Objects cached on CPUs and in barns count as in use. New members are added at
 * the end only.
 */
enum kmem_usage {
	KMEM_USAGE_NONE,	/* foreign, free pages, or the inside of a block */
	KMEM_USAGE_BLOCK,	/* pages of one allocation: a block of whole pages, a mapping, a guarded object */
	KMEM_USAGE_SLAB,	/* a slab; for engine slob a page shared by caches */
	KMEM_USAGE_CURRENT,	/* a slab in use for allocation: a CPU's, or the one of __GFP_FULLEST */
};
struct kmem_slab_usage {
	enum kmem_usage what;
	unsigned int size;		/* bytes of an object; slob: 8, the unit of objects and inuse */
	unsigned int objects, inuse;	/* of the slab: capacity; objects in use */
	const void *slab;		/* start of the slab; NULL: none */
	struct kmem_cache *cache;	/* cache of the slab; NULL: a page shared by caches, or no slab */
	/*
	 * The cache's slabs with free objects, in all nodes, without the CPU slabs of engine slub (which estimates
	 * from 64 slabs of a node); slob: all shared pages.
	 */
	unsigned long partial_slabs, partial_objects, partial_inuse;
};
/*
 * kmem_slab_usage - fill out[i] for pointers[i], of n pointers. Returns: the number of pointers into slabs.
 * A pointer may have any value: the call neither reads the memory, nor checks that the object is allocated. With one
 * memory node the call takes a lock once for up to 64 pointers. The result may be outdated when the call returns. In
 * a signal handler that interrupted the allocator all results are KMEM_USAGE_NONE.
 * Context: any thread.
 */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"	/* g++: a function with the name of a struct, like stat(2) */
KMEM_API size_t kmem_slab_usage(const void *const *pointers, size_t n, struct kmem_slab_usage *out);
#pragma GCC diagnostic pop
/*
 * kmem_usage_is_sparse - whether moving the object is worthwhile. Three conditions must hold: no allocation takes
 * from its slab; at most 7/8 of the slab's objects are in use; and at most 9/8 of the average of the cache's partial
 * slabs. The third is jemalloc's rule, in redis's form. A program that moves the selected objects with __GFP_FULLEST
 * terminates.
 */
static inline bool kmem_usage_is_sparse(const struct kmem_slab_usage *usage)
{
	return usage->what == KMEM_USAGE_SLAB && usage->inuse <= usage->objects - usage->objects / 8 &&
	       usage->inuse < usage->objects && usage->partial_slabs > 1 &&
	       (unsigned long)usage->inuse * usage->partial_slabs <= usage->partial_inuse + usage->partial_inuse / 8;
}

/* Events of one cache, for engines with event counters (kernel: /sys/kernel/slab/CACHE/<event>). */
enum kmem_event {
	KMEM_ALLOC_FASTPATH, KMEM_ALLOC_SLOWPATH, KMEM_FREE_FASTPATH, KMEM_FREE_SLOWPATH,
	KMEM_FREE_FROZEN, KMEM_FREE_ADD_PARTIAL, KMEM_FREE_REMOVE_PARTIAL, KMEM_ALLOC_FROM_PARTIAL,
	KMEM_ALLOC_SLAB, KMEM_ALLOC_REFILL, KMEM_ALLOC_NODE_MISMATCH, KMEM_FREE_SLAB,
	KMEM_CPUSLAB_FLUSH, KMEM_DEACTIVATE_FULL, KMEM_DEACTIVATE_EMPTY, KMEM_DEACTIVATE_TO_HEAD,
	KMEM_DEACTIVATE_TO_TAIL, KMEM_DEACTIVATE_REMOTE_FREES, KMEM_DEACTIVATE_BYPASS,
	KMEM_ORDER_FALLBACK, KMEM_CMPXCHG_DOUBLE_FAIL, KMEM_CMPXCHG_DOUBLE_CPU_FAIL,
	KMEM_CPU_PARTIAL_ALLOC, KMEM_CPU_PARTIAL_FREE, KMEM_CPU_PARTIAL_NODE, KMEM_CPU_PARTIAL_DRAIN,
	KMEM_SHEAF_FLUSH, KMEM_SHEAF_REFILL, KMEM_BARN_GET, KMEM_BARN_GET_FAIL,
	KMEM_BARN_PUT, KMEM_BARN_PUT_FAIL,
	KMEM_SHEAF_PREFILL_FAST, KMEM_SHEAF_PREFILL_SLOW, KMEM_SHEAF_PREFILL_OVERSIZE,
	KMEM_SHEAF_RETURN_FAST, KMEM_SHEAF_RETURN_SLOW,
	/* Engine slab: globalstat and cpustat of slabinfo. high and max_freeable are maxima. */
	KMEM_ALLOCS, KMEM_HIGH, KMEM_GROWN, KMEM_REAPED, KMEM_ERRORS, KMEM_MAX_FREEABLE,
	KMEM_NODE_ALLOCS, KMEM_NODE_FREES, KMEM_OVERFLOWS,
	KMEM_ALLOCHIT, KMEM_ALLOCMISS, KMEM_FREEHIT, KMEM_FREEMISS,
	/* All engines: slabs refused by kmem_cache_set_limit. Kernel: has no such limit. */
	KMEM_LIMIT,
	KMEM_NR_EVENTS
};

/*
 * kmem_cache_get_stats - fill *stats for the cache; cache NULL: zeros, and empty names. kmem_get_stats - fill *stats
 * for the process. Context: any thread; not from a signal handler.
 */
KMEM_API void kmem_cache_get_stats(struct kmem_cache *cache, struct kmem_cache_stats *stats);
KMEM_API void kmem_get_stats(struct kmem_stats *stats);
/* kmem_event_name - the kernel's name of an event ("alloc_fastpath"); NULL for KMEM_NR_EVENTS and above. */
KMEM_API const char *kmem_event_name(enum kmem_event event);
/*
 * kmem_cache_event - the number of events of the cache. The fastpath and sheaf *_fast events, allochit and freehit
 * are counted only with KMEM_OPTIONS=stats:1. kmem_cache_clear_events - set all event counters of the cache to 0.
 */
KMEM_API unsigned long kmem_cache_event(struct kmem_cache *cache, enum kmem_event event);
KMEM_API void kmem_cache_clear_events(struct kmem_cache *cache);

/*
 * kmem_cache_tune - engine slab: set the capacity of each CPU's array to `limit` objects, the size of a transfer to
 * `batchcount` objects, and a node's shared array to `shared` batches. The objects on CPUs and in shared arrays first
 * go to the slabs. kmem_cache_get_stats reads the values.
 * Returns: 0, or, with nothing changed:
 * -EINVAL: not 1 <= batchcount <= limit.
 * -ERANGE: limit above 126 and above the cache's sheaf_capacity (kernel: no bound), or shared above 65535.
 * -ENOMEM: no memory.
 * -EOPNOTSUPP: another engine, or a cache without per-CPU arrays.
 * The setting also applies to the child caches (kmem_cache_set_min_partial). A child cache without memory for the new
 * arrays keeps its old values.
 * Context: any thread, while others use the cache; not from a signal handler.
 */
KMEM_API int kmem_cache_tune(struct kmem_cache *cache, unsigned int limit, unsigned int batchcount,
			     unsigned int shared);
/*
 * kmem_slabinfo_write - kmem_cache_tune in the form of a write to the kernel's /proc/slabinfo: "NAME LIMIT BATCHCOUNT
 * SHARED", at most 128 bytes.
 * Returns: as kmem_cache_tune; -EINVAL also for other text and for an unknown name. Numbers that violate 1 <=
 * batchcount <= limit are ignored, with the result 0, as in the kernel.
 */
KMEM_API int kmem_slabinfo_write(const char *text);

/*
 * kmem_for_each_cache - visit every cache, oldest first, until visit returns non-zero. Returns: the last value of
 * visit, or 0.
 * Caches are neither created nor destroyed during the walk. visit must not create, destroy or shrink a cache, end a
 * private group, or lock the process's memory (mlockall). Allocations of visit may fail. visit may read and print all
 * statistics, start another walk, tune a cache, drain a group and set its limits. A thread that finds no memory waits
 * for the end of the walk, at most ten seconds: visit should not wait for other threads.
 */
KMEM_API int kmem_for_each_cache(int (*visit)(struct kmem_cache *cache, void *arg), void *arg);
/*
 * kmem_cache_walk - visit every allocated object of the cache, with objects in prefilled sheaves, and without objects
 * cached in sheaves. Objects of private groups are in child caches. Returns: the last value of visit, or 0;
 * -EOPNOTSUPP for engine slob, whose pages do not record the cache, and for blocks of whole pages (large-*).
 * Requires: no other thread uses the cache.
 */
KMEM_API int kmem_cache_walk(struct kmem_cache *cache,
			     int (*visit)(void *object, void *arg), void *arg);

/*
 * kmem_cache_of - the cache of an object; NULL for a foreign or invalid pointer, a block of pages, and an object
 * below a page of engine slob's caches.
 */
KMEM_API struct kmem_cache *kmem_cache_of(const void *object);

/*
 * kmem_print_slabinfo, kmem_print_json - write slabinfo 2.1, or JSON, to a file descriptor. Returns: 0 or -errno. The
 * functions allocate nothing, and hold no lock while writing: a cache created or destroyed meanwhile may be missing.
 */
KMEM_API int kmem_print_slabinfo(int fd);
KMEM_API int kmem_print_json(int fd);
/*
 * kmem_metrics - write the statistics to a file descriptor as OpenMetrics 1.0, the format of Prometheus;
 * kmem_stats(3) lists the families.
 * Caches of one name are one series, together with their child caches in private groups. Groups are named by their
 * path from the root. Series exist for the 1000 largest caches, and for the 1000 groups with the most memory.
 * kmem_caches_omitted and kmem_groups_omitted count the rest. A counter never decreases while its series exists, also
 * when caches are destroyed.
 * Returns: 0; -ENOMEM; -EBUSY in a signal handler that interrupted the allocator; or another negative errno of
 * writing: -EAGAIN for a full non-blocking descriptor, -EPIPE without a SIGPIPE, -EFBIG without a SIGXFSZ. After a
 * failed write the text has no "# EOF", and the written part remains.
 * The call allocates no object. Its buffer, some 200 bytes for each cache and 400 for each group, is a mapping,
 * unmapped before the return. The stack usage is 6 KiB. No lock is held while writing.
 * Context: any thread, also signal handlers and the child of fork. Kernel: none.
 */
KMEM_API int kmem_metrics(int fd);
/*
 * kmem_check_all - check all invariants of all data structures. Returns: 0, or -EIO with a line on stderr for each
 * damage. Requires: no other thread uses the library meanwhile.
 */
KMEM_API int kmem_check_all(void);
/*
 * kmem_cache_validate - check the cache's slabs, and for a debugged cache (SLAB_RED_ZONE, SLAB_POISON; KMEM_DEBUG)
 * the bytes in and around each object. Returns: the number of damages. Each damage is reported on stderr, and is a
 * bad call as to KMEM_OPTIONS=misuse: by default the first damage ends the process. A program linked with libkmem.a
 * has debugging if the program references this function.
 * Requires: no other thread uses the cache meanwhile. Context: not from a signal handler. Kernel:
 * /sys/kernel/slab/CACHE/validate.
 */
KMEM_API int kmem_cache_validate(struct kmem_cache *cache);
/*
 * kmem_cache_print_traces - write the allocation stacks of all allocated objects to a file descriptor. Each stack has
 * a line, most objects first: the number of objects, the place of the call, their ages in milliseconds (least,
 * average, most), the threads (lowest and highest number), and the stack. After 4096 stacks, or fewer if memory is
 * scarce, one line sums up the rest. The last line is "TOTAL " and the number of objects. Places are files with
 * offsets, the input of `kmem symbols`.
 * Returns: 0; -EINVAL for a cache without SLAB_STORE_USER (KMEM_DEBUG=U), and for engine slob; or another negative
 * errno.
 * Objects that remain when a program should have none are its leaks. Requires: no other thread uses the cache
 * meanwhile. Context: not from a signal handler. Kernel: /sys/kernel/debug/slab/CACHE/alloc_traces.
 */
KMEM_API int kmem_cache_print_traces(struct kmem_cache *cache, int fd);
/*
 * kmem_cache_set_debug - set the debugging of later allocations from the cache. The letters are those of KMEM_DEBUG:
 * F, Z, P, U, T, A; "" is FZPU, "-" none. Objects already allocated stay as they are, and their frees are handled as
 * before. The cache has one name, size and set of figures for both kinds of object. No other cache is affected. While
 * the cache is debugged, and until the last debugged object is freed, each call takes the slow path. The letters from
 * the creation of the cache are treated in the same way.
 * Returns: 0, or, with nothing changed:
 * -EINVAL: other letters, or a private group's cache.
 * -EOPNOTSUPP: a cache of large blocks, the kmalloc of engine slob, SLAB_NO_USER_FLAGS, a sanitizer in the process,
 * or no room in a slab for an object with its debug data.
 * -ENOMEM: no memory.
 * -EBUSY: a signal handler that interrupted the allocator.
 * Context: any thread, while others use the cache; except for -EBUSY, not from a signal handler. The first use of U
 * may load the compiler's unwinder (dlopen). Kernel: none. The files sanity_checks, red_zone, poison, store_user and
 * trace of /sys/kernel/slab/CACHE were writable until 5.9, for a cache without objects, and are read-only since.
 */
KMEM_API int kmem_cache_set_debug(struct kmem_cache *cache, const char *letters);
/*
 * kmem_cache_debug_flags - the debugging flags of an object allocated now: SLAB_CONSISTENCY_CHECKS, SLAB_RED_ZONE,
 * SLAB_POISON, SLAB_STORE_USER, SLAB_TRACE, SLAB_FAILSLAB. Context: any thread, also signal handlers.
 */
KMEM_API slab_flags_t kmem_cache_debug_flags(const struct kmem_cache *cache);

/*
 * kmem_print_leaks - write the allocation stacks of all caches with SLAB_STORE_USER, malloc's and kmalloc's included.
 * Stacks with the most bytes come first, each with its objects and bytes. The last line counts the blocks above 4
 * MiB, whose stacks are unknown. KMEM_LEAKS=FILE (`kmem run --leaks`) gives all caches SLAB_STORE_USER, and prints
 * this text when the program ends.
 * Returns: 0; -EINVAL: neither a cache nor a block of whole pages has SLAB_STORE_USER; -ENOMEM; or another negative
 * errno of writing.
 * Context: other threads may run; not from a signal handler. Kernel: none; the kernel has a file for each cache.
 */
KMEM_API int kmem_print_leaks(int fd);

/*
 * kmem_failslab - make later allocations fail on purpose. `settings` are words, separated by commas: interval=N,
 * probability=N (percent), space=N (bytes spared first), times=N (-1: without end), or these four as bare numbers in
 * this order; ignore-gfp-wait=Y|N, cache-filter=Y|N, require-start=ADDRESS, require-end=ADDRESS, verbose=0|1|2.
 * Beyond the kernel: fail-nth=N (only the N-th call), caller=NAME (a function or a file on the call's stack),
 * cache=NAME, seed=N. NULL or "": no allocation fails. The defaults are the kernel's: 1, 0, 0, 1, Y, N.
 * A cache is selected at its creation: by KMEM_FAILSLAB, with the same words, or by SLAB_FAILSLAB. The sheaves of
 * other caches are unaffected. A request with __GFP_NOFAIL never fails on purpose. While ignore-gfp-wait is Y, a
 * request that may wait does not fail either, and every request of malloc may wait. The call restarts the numbering
 * of calls. A program linked with libkmem.a has the function if the program references it.
 * Returns: 0; -EINVAL for an unknown word, with nothing changed. Requires: no concurrent call of the function.
 * Context: not from a signal handler. Kernel: failslab=, /sys/kernel/debug/failslab.
 */
KMEM_API int kmem_failslab(const char *settings);
/* kmem_failslab_failures - the number of allocations that failed on purpose, ever. Context: any. */
KMEM_API unsigned long kmem_failslab_failures(void);

#ifdef __cplusplus
}
#endif

#endif
