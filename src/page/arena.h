/*
 * arena.h: the page allocator: allocation of whole pages, and the lookup from an address to its page descriptor.
 *
 * Each NUMA node has free lists and a lock of its own. Memory is committed in largest blocks (4 MiB). Each largest
 * block is bound to one node when the block is committed, and never changes its node.
 *
 * A range is reserved address space with arrays that have an entry for each page. One array holds the descriptors
 * (struct km_page, the kernel's struct page). The map holds 16-bit values: the id of the cache that owns the page's
 * slab. The fast path of kfree reads the map of the first range and nothing else.
 *
 *	map value	0 not an object: foreign, free, or the inside of a large block
 *			1 see the descriptor: large blocks, caches without an id, slabs of less than the usual order
 *			>= 2 id of the cache; first page of a large block: id of its class (kmalloc/large_cache.h)
 */
#ifndef KM_PAGE_ARENA_H
#define KM_PAGE_ARENA_H

#include "base/cc.h"
#include "percpu/cpu_freelist.h"
#include "base/list.h"
#include "percpu/node.h"
#include "percpu/pcpu.h"

#define KM_MAX_ORDER	10u	/* largest block: 4 MiB */
#define KM_MAP_NONE	0u
#define KM_MAP_DESC	1u
#define KM_MAP_FIRST	2u

struct kmem_cache;

enum km_page_type {
	KM_PAGE_NONE,	/* never used, or the inside of a free run or a large block */
	KM_PAGE_FREE,	/* first page of a free run */
	KM_PAGE_SLAB,	/* head of a slab */
	KM_PAGE_TAIL,	/* page of a slab behind the head; `order` leads to the head */
	KM_PAGE_LARGE,	/* head of a large block */
	KM_PAGE_SHARED,	/* a page that several caches and kmalloc share (slob) */
	KM_PAGE_FREE_LAST, /* last page of a free run of more than one */
};

#define KM_PAGE_ENGINE_BYTES	32u

/* One page of 4096 bytes. Fields below `type` belong to the owner of the block's head, unless noted. */
struct km_page {
	struct kmem_cache *cache;	/* cache of the slab, in the slab's head */
	struct km_list list;		/* free run: link in the zone's bin; slab: link in a list of the engine */
	uint16_t inuse;			/* slab: number of allocated objects */
	uint16_t objects;		/* slab: number of objects */
	uint8_t type;			/* enum km_page_type; every page of a slab has one */
	uint8_t order;			/* large block or slab: 2^order pages; set in every page of a slab */
	uint8_t flags;			/* KM_SLAB_ flags */
	uint8_t node;			/* head of an allocated block: NUMA node of its memory */
	union {
		/* Slab or shared page: private data of the engine. The engine's header declares the layout. */
		unsigned char engine[KM_PAGE_ENGINE_BYTES];
		struct {		/* free run */
			uint32_t dirty;	/* pages of the run that may be resident */
			uint32_t freed_ms; /* time of free in ms: average of the resident pages */
			uint32_t run;	/* length of the run in pages; also in the last page */
		};
		struct {		/* large block */
			uint64_t pages;
			uint64_t requested;
		};
	} km_aligned(16);
} km_aligned(64);

#define KM_SLAB_PARTIAL	0x01	/* the slab is on the node's partial list */
#define KM_SLAB_DEAD	0x02	/* the slab is damaged, or its cache was destroyed: never used again */
#define KM_SLAB_HOLES	0x04	/* some pages of the slab are marked (slab/sheaf_holes.c), or gone */
#define KM_PAGE_GONE	0x08	/* the page is in use, and its memory was given back to the system; no object was made
				 * there since */

/* Shifts of the allocation state maps (alloc_map.h): one table for each shift from LOW to HIGH. */
#define KM_ALLOC_MAP_LOW	3u
#define KM_ALLOC_MAP_HIGH	7u
#define KM_ALLOC_MAP_TABLES	(KM_ALLOC_MAP_HIGH - KM_ALLOC_MAP_LOW + 1)

/* The arrays of a range: an entry for each page, in each array. */
enum {
	KM_RANGE_MAP,
	KM_RANGE_PAGE,
	KM_RANGE_OWNER,
	KM_RANGE_DIRTY,
	KM_RANGE_LIVE,
	KM_RANGE_ARRAYS = KM_RANGE_LIVE + KM_ALLOC_MAP_TABLES
};

struct km_range {
	char *base;		/* first address of the range; NULL: the range was unmapped */
	size_t pages;		/* reserved pages */
	size_t ready;		/* committed pages; a multiple of a largest block */
	union {
		struct {
			uint16_t *map;
			struct km_page *page;
			uint64_t *owner;	/* objcg word of each page: page/obj_cgroups.h */
			/* A bit for each page: free, and may be resident. Changes under the lock of the node. */
			uint64_t *dirty;
			uint8_t *live[KM_ALLOC_MAP_TABLES];	/* allocation state maps by shift; NULL: frees are not
								 * validated */
		};
		void *array[KM_RANGE_ARRAYS];	/* the arrays above, for loops over all arrays */
	};
	size_t array_ready[KM_RANGE_ARRAYS];	/* committed bytes of each array */
	uint8_t *node;		/* node of each largest block; NULL: the machine has one node */
	bool pinned;		/* a thread may read a page of the range after its free: the range is never unmapped */
	bool leaving;		/* being unmapped; afterwards base is NULL, and a new range reuses the arrays */
};

/* Reserve the first range. Returns: false if there is no address space. */
bool km_arena_start(void);
/* Give reserved address space beyond an eighth of limit back, because the program has limited its address space.
 * Memory in use stays. */
void km_arena_fit(size_t limit);

/* Allocate `count` contiguous pages (at most 2^KM_MAX_ORDER), the first aligned to 2^align_order. node: the preferred
 * node; NUMA_NO_NODE: the node of this CPU. If the node has no memory, the other nodes are tried, the nearest first.
 * With KM_NODE_ONLY no other node is tried. Returns: the first page, or NULL. The memory may be dirty unless *zero is
 * set to true. Context: without may_wait no system call is made. */
#define KM_NODE_ONLY	0x100
struct km_page *km_pages_alloc_exact(size_t count, unsigned align_order, int node, bool may_wait, bool *zero);
/* Commit one more largest block for the node, free and fresh. Returns: false if the system refuses. */
bool km_arena_commit(unsigned node);
/* Free `count` pages from `page` on: a whole block or a part of a block. Gone pages of a slab with KM_SLAB_HOLES are
 * freed as clean pages. */
void km_pages_free_exact(struct km_page *page, size_t count);
/* Allocate any number of contiguous pages, for blocks that get no mapping of their own: from free pages of adjacent
 * largest blocks, or from the uncommitted part of a range. Looks at each range. */
struct km_page *km_pages_alloc_long(size_t count, unsigned align_order, int node, bool *zero);
/* Extend a block in place from `have` to `want` pages. Returns: false if the pages behind the block are not free. The
 * new pages may be dirty unless *zero is set to true. */
bool km_pages_grow(struct km_page *page, size_t have, size_t want, bool *zero);

/* Allocate a block of 2^order pages, aligned to its size. */
km_inline struct km_page *km_pages_alloc(unsigned order, int node, bool may_wait, bool *zero)
{
	return km_pages_alloc_exact((size_t)1 << order, order, node, may_wait, zero);
}

km_inline void km_pages_free(struct km_page *page, unsigned order)
{
	km_pages_free_exact(page, (size_t)1 << order);
}

/* Returns: the descriptor of the page of p, or NULL if p is not in committed memory of a range. */
struct km_page *km_page_of_any(const void *p);
km_inline struct km_page *km_page_of(const void *p)
{
	size_t index = km_page_index(p);

	/* Acquire pairs with the release in commit_block: a thread that sees the count sees the descriptors. */
	return km_likely(index < km_load_acquire(&km_hot.pages)) ? &km_hot.page[index] : km_page_of_any(p);
}
/* Returns: the head of page's slab or large block, or NULL if the page is free, unknown or NULL. */
struct km_page *km_page_head(struct km_page *page);
void *km_page_address(const struct km_page *page);
/* Returns: the node of allocated memory at p. Reads one byte of a dense table. */
unsigned km_page_node(const void *p);
void km_map_set(struct km_page *page, size_t count, uint16_t value);
/* Commit the tables in front of the map up to this id (percpu/id_table.h). Returns: false if there is no memory. */
bool km_id_tables_reach(size_t id);

/* Hold all pages of page's node: until km_page_let_go() no page of the node is allocated or freed. A page with the type
 * KM_PAGE_SLAB remains the head of the same slab. The slab's objects, its objcg word and its cache may still go (the
 * memory of the last two is elsewhere). Context: for some hundred instructions, with km_thread.busy set. Takes the lock
 * of the node. */
void km_page_hold(const struct km_page *page);
void km_page_let_go(const struct km_page *page);
/* Postpones the free of a slab: if the slab is freed, its pages stay in use until km_pages_stay_no_more(), which then
 * frees them. Only one slab at a time. Requires: the page is held. */
void km_pages_stay(struct km_page *page);
void km_pages_stay_no_more(void);
/* Call visit for every head of a slab or large block, and every shared page, until visit returns non-zero. */
int km_pages_walk(int (*visit)(struct km_page *page, void *arg), void *arg);

/* Give dirty pages back to the system after `decay_ms` of being free (0: all). Returns: the pages given back. */
size_t km_pages_purge(unsigned decay_ms);
/* Returns: the pages in use: of slabs, of large blocks, and km_addr_reuse_pages. */
size_t km_pages_used(void);
/* Returns: km_pages_used() less the gone pages (KM_PAGE_GONE). Bounds are fractions of this number. */
size_t km_pages_there(void);
/* Unmap ranges whose pages are all free. With `clean`: only ranges whose memory went back to the system before. The
 * first range and pinned ranges are never unmapped. Under RLIMIT_DATA also take free blocks at the end of each range
 * off the limit. Returns: false if there was nothing to release. Context: any thread, no locks held. */
bool km_ranges_release(bool clean);
/* Pin the range of the page: a late reader may read the page after its free, so the range is never unmapped. */
void km_page_pin(const struct km_page *page);
/* Returns: the swing in pages: pages that trimming gave back and the program soon allocated again. */
size_t km_pages_swing(void);
/* Returns: true if dirty memory exceeds its bound: a quarter of the memory in use, a floor, and the swing. */
bool km_pages_too_dirty(void);
/* Make pages in use resident, with their descriptors, map entries and objcg words. With a live_shift also the
 * allocation state map. Returns: 0 or -errno. */
int km_pages_fault_in(struct km_page *page, size_t count, uint32_t live_shift);
/* Add to the number of free resident pages that are kept for a reservation (negative: subtract). Returns: the number of
 * kept pages, with a margin for the alignment of slabs. */
size_t km_pages_reserve(long pages);
/* Set the number of pages in use that may be cached on CPUs. Such pages count as dirty, and lower the bound of dirty
 * memory. Requires: the caller holds a lock since before the count. */
void km_pages_set_ready(size_t pages);
/* Add to (negative: subtract from): slack: the bytes of free objects in slabs. slab: also the bytes of slabs. retain:
 * the bytes of objects that caches may keep because their use alternates. */
void km_pages_slack(long bytes);
void km_pages_slab(long bytes);
void km_pages_retain(long bytes);
/* A clock for the age of cached objects: the bytes of all new slabs, and of all objects that returned to slabs. */
extern size_t km_slab_clock;
/* Returns: true if a sweep is due. Since the last sweep free objects in slabs grew by a 32nd of km_pages_there(), and
 * 1 MiB at least; or slabs did, and caches retain as much. */
bool km_pages_too_slack(void);
/* Begin a sweep. Returns: the time by km_slab_clock since when a cache must have been wanted to keep its objects. */
size_t km_pages_sweep_since(void);
/* Record the end of a sweep: the present bytes become the base of the comparison. */
void km_pages_swept(void);
/* Give the oldest dirty pages back until a quarter of the bound and the swing are left. */
void km_pages_trim(void);
/* Give the memory of `count` pages in use back to the system. The pages are gone afterwards (KM_PAGE_GONE), and read
 * as zeros. Requires: no object is live there. Returns: false if the system refuses. */
bool km_pages_hollow(struct km_page *page, size_t count);
/* Count gone pages as resident again, because the caller is about to write to the pages. */
void km_pages_fill(struct km_page *page, size_t count);

/* Page counts of one node. Written under the lock of the node, read without. */
struct km_zone_counts {
	size_t used_pages, dirty_pages, clean_pages, purged_pages;
};

struct km_arena_stats {
	size_t reserved_bytes, committed_bytes;
	struct km_zone_counts pages;	/* counts summed over all nodes */
	size_t bind_failures;		/* largest blocks that the system refused to bind to their node */
};
void km_arena_get_stats(struct km_arena_stats *stats);
/* Addresses of the counters, for a reader in another process (`kmem info`). */
struct km_arena_view {
	const unsigned *ranges;
	const struct km_range *range;
	const unsigned *nodes;
	const struct km_zone_counts *zone[KM_MAX_NODES];
	const size_t *bind_failures;
};
void km_arena_expose(struct km_arena_view *view);
const struct km_range *km_arena_range(unsigned i);	/* Returns: the i-th range; NULL beyond the last range. */
void km_arena_set(bool huge, unsigned decay_ms);
unsigned km_arena_decay_ms(void);
void km_arena_fork(bool before, bool child);
/* Check the free lists and descriptors of all zones. Returns: the number of errors found; prints a line for each. */
int km_arena_check(void);

#endif
