/*
 * <kmem/stats.h>: the numbers. A snapshot is taken without stopping anyone: each figure was true at some
 * moment during the call, their sum not necessarily at one. Exact when nobody else is allocating.
 */
#ifndef KMEM_STATS_H
#define KMEM_STATS_H

#include <kmem/kmem.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One cache, as /proc/slabinfo 2.1 has it, and what lies behind. Grows at the end only. */
struct kmem_cache_stats {
	char name[32];			/* NUL-terminated, cut where longer */
	const char *engine;
	unsigned long active_objects;	/* with users: taken from slabs and not on a shelf */
	unsigned long total_objects;	/* in all slabs, and guarded ones that are out */
	unsigned long shelf_objects;	/* free, ready on CPUs' shelves and in barns */
	unsigned long active_slabs;	/* slab: with at least one object taken; others: all, as SLUB says */
	unsigned long total_slabs;
	unsigned long partial_slabs;	/* on the node's partial lists */
	unsigned long min_partial;
	unsigned int object_size;	/* bytes, as asked for */
	unsigned int size;		/* bytes an object occupies; of kmalloc of engine slob, of any size: 8 */
	unsigned int objects_per_slab;
	unsigned int pages_per_slab;
	unsigned int sheaf_capacity;
	unsigned long alloc_slab;	/* slabs got from the page allocator, ever; with those of caches that are
					 * gone and were private groups' of this one, or of its name beside it */
	unsigned long free_slab;	/* slabs given back, ever, the same */
	/* Engine slab; 0 for others. */
	unsigned int limit;		/* objects that a CPU's array holds at most */
	unsigned int batchcount;	/* objects that come or go at once */
	unsigned int shared_factor;	/* batches that a node's shared array holds at most */
	unsigned long shared_avail;	/* objects in the shared arrays */
};

/* The whole process. */
struct kmem_stats {
	unsigned long caches;
	unsigned long arena_reserved_bytes;	/* address space */
	unsigned long arena_committed_bytes;	/* accessible: the pages that follow, and two that are nobody's */
	unsigned long pages_used;		/* pages in slabs and large blocks */
	unsigned long pages_free_dirty;		/* free, and may be resident: used and not given back since; with
						 * the pages of blocks above 4 MiB that lie ready, and of each
						 * CPU's run for blocks that grow */
	unsigned long pages_free_clean;		/* free, and not resident, but where memory is locked: given back or
						 * never touched; with pages kept for a name (own_addresses) */
	unsigned long large_blocks;		/* blocks of whole pages in use that are no cache's (large-<bytes>) */
	unsigned long large_bytes;		/* their bytes */
	unsigned long mapped_blocks;		/* of those, mappings of their own */
	unsigned long mapped_bytes;
	unsigned long meta_bytes;		/* our own memory, committed, without what went back to the system */
	unsigned long purged_pages;		/* pages given back to the system, ever */
	unsigned long slob_pages;		/* pages that all caches and the kmalloc of engine slob share */
	unsigned long slob_bytes;		/* ... of which so much is in use, headers too */
	unsigned long nodes;			/* memory nodes that the library knows, or pretends */
	unsigned long bind_failures;		/* 4 MiB each: the system would not bind them to their node */
	unsigned long mapped_spare_bytes;	/* address space kept for blocks above 4 MiB, without memory */
};

/*
 * How full the slab is that a pointer lies in. Objects that lie ready on CPUs and in barns are in use as far as slabs
 * know. Grows at the end only.
 */
enum kmem_usage {
	KMEM_USAGE_NONE,	/* not ours, free pages, or the inside of a block */
	KMEM_USAGE_BLOCK,	/* pages that are its own: a block of whole pages, a mapping, a guarded object */
	KMEM_USAGE_SLAB,	/* a slab; of engine slob a page that caches share */
	KMEM_USAGE_CURRENT,	/* one from which objects are allocated now: a CPU's, or the one of __GFP_FULLEST */
};
struct kmem_slab_usage {
	enum kmem_usage what;
	unsigned int size;		/* bytes that an object occupies; slob: 8, of which objects and inuse count */
	unsigned int objects, inuse;	/* of the slab: it has room for; are out of it */
	const void *slab;		/* where it begins; NULL: none */
	struct kmem_cache *cache;	/* whose it is; NULL: a page that caches share, or no slab */
	/* The cache's slabs with something free, in all nodes but those that CPUs of engine slub have (there estimated,
	 * by 64 of a node); slob: all pages that are shared. */
	unsigned long partial_slabs, partial_objects, partial_inuse;
};
/*
 * kmem_slab_usage - fill out[i] for pointers[i], of n; returns how many lie in slabs. A pointer may be anything: it is
 * not followed, nor looked at whether its object is out. A lock is taken once for up to 64 pointers, where there is one
 * memory node, and what was true then need not be when the call returns. In a signal handler that struck inside of the
 * allocator all are KMEM_USAGE_NONE. Any thread.
 */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"	/* g++: a function of a struct's name, as stat(2) is */
KMEM_API size_t kmem_slab_usage(const void *const *pointers, size_t n, struct kmem_slab_usage *out);
#pragma GCC diagnostic pop
/*
 * kmem_usage_is_sparse - is it worth while to move the object? Its slab is not allocated from, has at most 7/8 of its
 * objects in use, and at most 9/8 of what the cache's partly used slabs have on the average: the last is jemalloc's
 * rule, as redis has it. A program that moves what it says to where __GFP_FULLEST leads comes to an end.
 */
static inline bool kmem_usage_is_sparse(const struct kmem_slab_usage *usage)
{
	return usage->what == KMEM_USAGE_SLAB && usage->inuse <= usage->objects - usage->objects / 8 &&
	       usage->inuse < usage->objects && usage->partial_slabs > 1 &&
	       (unsigned long)usage->inuse * usage->partial_slabs <= usage->partial_inuse + usage->partial_inuse / 8;
}

/* Events of one cache, for engines that count them (kernel: /sys/kernel/slab/CACHE/<event>). */
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
	/* Engine slab: what slabinfo calls globalstat and cpustat. high and max_freeable are greatest values. */
	KMEM_ALLOCS, KMEM_HIGH, KMEM_GROWN, KMEM_REAPED, KMEM_ERRORS, KMEM_MAX_FREEABLE,
	KMEM_NODE_ALLOCS, KMEM_NODE_FREES, KMEM_OVERFLOWS,
	KMEM_ALLOCHIT, KMEM_ALLOCMISS, KMEM_FREEHIT, KMEM_FREEMISS,
	/* All: slabs that kmem_cache_set_limit refused. Kernel: has no such limit. */
	KMEM_LIMIT,
	KMEM_NR_EVENTS
};

/* Fill *stats for the cache; cache NULL: zeros, and empty names. Any thread; not from a signal handler. */
KMEM_API void kmem_cache_get_stats(struct kmem_cache *cache, struct kmem_cache_stats *stats);
KMEM_API void kmem_get_stats(struct kmem_stats *stats);
/* The kernel's name of an event ("alloc_fastpath"), or NULL beyond KMEM_NR_EVENTS. */
KMEM_API const char *kmem_event_name(enum kmem_event event);
/* How often it happened. The events that are called fast, and allochit and freehit, are counted only with
 * KMEM_OPTIONS=stats:1. */
KMEM_API unsigned long kmem_cache_event(struct kmem_cache *cache, enum kmem_event event);
KMEM_API void kmem_cache_clear_events(struct kmem_cache *cache);

/*
 * kmem_cache_tune - engine slab: from now on each CPU's array holds `limit` objects, `batchcount` come or go
 * at once, and a node's shared array holds `shared` batches. The objects on CPUs and in shared arrays go to the slabs
 * first. 0; or -EINVAL unless 1 <= batchcount <= limit; -ERANGE where limit is above 126 and above the cache's
 * sheaf_capacity (kernel: no bound), or shared above 65535; -ENOMEM; -EOPNOTSUPP for other engines and for caches
 * without a front. Then nothing was changed. Of caches that are tuned with this one, as its twins
 * (kmem_cache_set_min_partial), one for which there is no memory keeps what it had. Any thread, while others use the
 * cache; not from a signal handler. To read them: kmem_cache_get_stats.
 */
KMEM_API int kmem_cache_tune(struct kmem_cache *cache, unsigned int limit, unsigned int batchcount,
			     unsigned int shared);
/*
 * kmem_slabinfo_write - the same in the words that the kernel's /proc/slabinfo takes: "NAME LIMIT BATCHCOUNT
 * SHARED", at most 128 bytes. -EINVAL also for other words and for an unknown name; numbers against the first
 * rule are passed over, and 0 returned, as there.
 */
KMEM_API int kmem_slabinfo_write(const char *text);

/*
 * Visit every cache, oldest first, until visit returns non-zero; returns that, or 0. Caches are neither
 * made nor destroyed meanwhile: visit must not do so, nor shrink one, nor end a private group, nor lock the process's
 * memory (mlockall), and what it allocates may be refused. It may read and print whatever there is, visit all again,
 * tune a cache, drain a group and set its limits. A thread that finds no memory waits for the visit's end, for ten
 * seconds at most: so visit should not wait for other threads.
 */
KMEM_API int kmem_for_each_cache(int (*visit)(struct kmem_cache *cache, void *arg), void *arg);
/* Visit every allocated object of the cache (those on shelves not, those in prefilled sheaves too; what private
 * groups have of it is in caches of their own). Nobody else may use the cache. Engine slob: -EOPNOTSUPP, its pages
 * don't say whose an object is. */
KMEM_API int kmem_cache_walk(struct kmem_cache *cache,
			     int (*visit)(void *object, void *arg), void *arg);

/* The cache that a pointer of ours belongs to; NULL for a foreign pointer, a page block, a bad one, and
 * an object of engine slob's caches below a page. */
KMEM_API struct kmem_cache *kmem_cache_of(const void *object);

/* Write slabinfo 2.1, or JSON, to a file descriptor; 0 or -errno. Allocates nothing, and holds no lock while it writes:
 * a cache that comes or goes meanwhile may be left out. */
KMEM_API int kmem_print_slabinfo(int fd);
KMEM_API int kmem_print_json(int fd);
/*
 * kmem_metrics - write the numbers to a file descriptor as OpenMetrics 1.0, which Prometheus scrapes; kmem_stats(3)
 * lists the families. Caches of one name are one, with private groups' caches as the ones that they have them of;
 * groups go by their path from the root. Of the 1000 largest caches, and the 1000 groups with the most memory, there
 * are series; kmem_caches_omitted and kmem_groups_omitted say of how many there are none. Counters grow, also when
 * caches are destroyed, as long as their series is there. 0; -ENOMEM; -EBUSY in a signal handler that struck inside of
 * the allocator; or another negative errno of writing: -EAGAIN where a descriptor that does not wait is full, -EPIPE
 * without a SIGPIPE, -EFBIG without a SIGXFSZ; then the text has no "# EOF", and what was written stays. Allocates no
 * object: what it needs, some 200 bytes for each cache and 400 for each group, is a mapping that is gone when it
 * returns; 6 KiB of stack.
 * Holds no lock while it writes. Any thread, signal handlers as well, a child of fork. Kernel: none.
 */
KMEM_API int kmem_metrics(int fd);
/* Walk everything and check every invariant; 0, or -EIO with a line on stderr for each damage.
 * Nobody else may use the library meanwhile. */
KMEM_API int kmem_check_all(void);
/*
 * kmem_cache_validate - check the cache's slabs, and where it is debugged (SLAB_RED_ZONE, SLAB_POISON; KMEM_DEBUG) the
 * bytes in and around each object: how many damages there are, 0 for none. Each is told on stderr, and is a bad call as
 * far as KMEM_OPTIONS=misuse goes: by default the first one ends the process. Nobody else may use the cache meanwhile;
 * not from a signal handler. A program that is linked with libkmem.a has debugging if it names this function. Kernel:
 * /sys/kernel/slab/CACHE/validate.
 */
KMEM_API int kmem_cache_validate(struct kmem_cache *cache);
/*
 * kmem_cache_print_traces - write to a file descriptor by whom the objects were allocated that are out now: for each
 * stack, most objects first, a line with their number, the place of the call, their ages in milliseconds (least,
 * average, most) and the threads (lowest and highest number), and the stack; behind 4096 stacks, or fewer where there
 * is little memory, a line for all others; in the end "TOTAL " and how many there are. Places are files with offsets,
 * as `kmem symbols` takes them. 0; -EINVAL for a cache without SLAB_STORE_USER (KMEM_DEBUG=U), and of engine slob; or
 * another negative errno. Nobody else may use the cache meanwhile; not from a signal handler. Objects that are there
 * when a program should have none any more are its leaks. Kernel: /sys/kernel/debug/slab/CACHE/alloc_traces.
 */
KMEM_API int kmem_cache_print_traces(struct kmem_cache *cache, int fd);
/*
 * kmem_cache_set_debug - objects that are allocated from the cache from now on are debugged as these letters say, those
 * of KMEM_DEBUG: F, Z, P, U, T, A; "" is FZPU, "-" none. Those that are out stay as they are, and go as they come back.
 * The cache's name, size and figures are one for both; no other cache knows. While the cache is debugged, and until the
 * last object of that time is back, each of its calls is a miss. Letters that it was made with count as any others.
 * 0; -EINVAL for other letters, and for a private group's cache; -EOPNOTSUPP for a cache of large blocks, the kmalloc
 * of engine slob, SLAB_NO_USER_FLAGS, where a sanitizer is in the process, and where no slab has room for an object
 * with what is around it; -ENOMEM; -EBUSY from a signal handler that struck inside of the allocator. Then nothing was
 * changed. Any thread, while others use the cache; else not from a signal handler. Where U is asked for the first time
 * the compiler's unwinder may be loaded (dlopen). Kernel: none; /sys/kernel/slab/CACHE/sanity_checks, red_zone, poison,
 * store_user and trace were to be written to until 5.9, while the cache had no object, and are to be read since.
 */
KMEM_API int kmem_cache_set_debug(struct kmem_cache *cache, const char *letters);
/* The flags that an object carries which is allocated now: SLAB_CONSISTENCY_CHECKS, SLAB_RED_ZONE, SLAB_POISON,
 * SLAB_STORE_USER, SLAB_TRACE, SLAB_FAILSLAB. Any thread, signal handlers as well. */
KMEM_API slab_flags_t kmem_cache_debug_flags(const struct kmem_cache *cache);

/*
 * kmem_print_leaks - the same of all caches that have SLAB_STORE_USER, malloc's and kmalloc's among them: stacks with
 * the most bytes first, each with its objects and bytes; and how many blocks of more than 4 MiB there are, whose stacks
 * are not known. KMEM_LEAKS=FILE (`kmem run --leaks`) gives all caches SLAB_STORE_USER, and prints this when the
 * program ends. Other threads may go on; not from a signal handler. 0; -EINVAL: no cache has it, nor have blocks of
 * whole pages; -ENOMEM; or another negative errno of writing. Kernel: none, it has a file for each cache.
 */
KMEM_API int kmem_print_leaks(int fd);

/*
 * kmem_failslab - from now on allocations fail on purpose as `settings` say, in words with commas between them:
 * interval=N, probability=N (percent), space=N (bytes that are spared first), times=N (-1: for ever), or these four as
 * bare numbers in this order; ignore-gfp-wait=Y|N, cache-filter=Y|N, require-start=ADDRESS, require-end=ADDRESS,
 * verbose=0|1|2; and beyond the kernel fail-nth=N (the N-th call, and no other), caller=NAME (a function or a file on
 * the call's stack), cache=NAME, seed=N. NULL or "": none fails. Settings that are left out are the kernel's: 1, 0, 0,
 * 1, Y, N. The caches that may fail are chosen as they are made: by KMEM_FAILSLAB, which has the same words, and those
 * with SLAB_FAILSLAB; no shelf of any other is touched. A request with __GFP_NOFAIL never fails so; nor, while
 * ignore-gfp-wait is Y, one that may wait, as all of malloc's. 0; -EINVAL, and nothing changes, for a word that is
 * none. Call numbers begin anew. Nobody else may call it meanwhile; not from a signal handler. A program that is
 * linked with libkmem.a has it if it names this function. Kernel: failslab=, /sys/kernel/debug/failslab.
 */
KMEM_API int kmem_failslab(const char *settings);
/* kmem_failslab_failures - how many allocations have failed so, ever. Any context. */
KMEM_API unsigned long kmem_failslab_failures(void);

#ifdef __cplusplus
}
#endif

#endif
