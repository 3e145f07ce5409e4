/*
 * arena.h: where whole pages come from, and which page an address is in.
 *
 * A node has free lists and a lock of its own; its memory comes in largest blocks, each bound to the node when it is
 * committed, so no block is ever of two nodes, and no page changes sides.
 *
 * A range is reserved address space with three arrays: the pages, a descriptor for each (struct km_page, the
 * kernel's struct page), and the map, two dense bytes for each: the id of the cache whose slab the page is in.
 * The hot path of kfree reads the map of the first range and nothing else.
 *
 *	map value	0 not an object: foreign, free, or the inside of a large block
 *			1 look in the descriptor: large blocks, caches without an id, slabs of less than the usual order
 *			>= 2 the cache's id; at a large block's first page its class's (kmalloc/large_cache.h)
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
	KM_PAGE_TAIL,	/* further page of a slab: order leads to the head */
	KM_PAGE_LARGE,	/* head of a large block */
	KM_PAGE_SHARED,	/* a page that caches share: blocks of theirs and of kmalloc, mixed */
	KM_PAGE_FREE_LAST, /* last page of a free run of more than one */
};

#define KM_PAGE_ENGINE_BYTES	32u

/* One page of 4096 bytes. Fields below `type` belong to the owner of the block's head, unless noted. */
struct km_page {
	struct kmem_cache *cache;	/* slab: its cache */
	struct km_list list;		/* free run: its bin's; else one of its engine's */
	uint16_t inuse;			/* slab: objects taken */
	uint16_t objects;		/* slab: objects in all */
	uint8_t type;			/* enum km_page_type; every page of a slab has one */
	uint8_t order;			/* block: 2^order pages; slab: on every page */
	uint8_t flags;			/* KM_SLAB_ flags */
	uint8_t node;			/* head of a block that was handed out: whose memory it is */
	union {
		/* Slab, or page that caches share: the engine's own, which draws it in its header. */
		unsigned char engine[KM_PAGE_ENGINE_BYTES];
		struct {		/* free run */
			uint32_t dirty;	/* pages of it that may be resident */
			uint32_t freed_ms; /* when, on the average of those */
			uint32_t run;	/* pages; also in its last one */
		};
		struct {		/* large block */
			uint64_t pages;
			uint64_t requested;
		};
	} km_aligned(16);
} km_aligned(64);

#define KM_SLAB_PARTIAL	0x01	/* on the node's partial list */
#define KM_SLAB_DEAD	0x02	/* damaged, or its cache is gone: never used again */
#define KM_SLAB_HOLES	0x04	/* some pages of the slab are marked (slab/sheaf_holes.c), or gone */
#define KM_PAGE_GONE	0x08	/* memory of a page in use went back to the system; no object was made there since */

/* Of the tables of alloc_map.h: shifts from LOW to HIGH, a table each. */
#define KM_ALLOC_MAP_LOW	3u
#define KM_ALLOC_MAP_HIGH	7u
#define KM_ALLOC_MAP_TABLES	(KM_ALLOC_MAP_HIGH - KM_ALLOC_MAP_LOW + 1)

struct km_range {
	char *base;		/* NULL: was given back */
	size_t pages;		/* reserved */
	size_t ready;		/* committed; multiple of a largest block */
	uint16_t *map;
	struct km_page *page;
	uint64_t *owner;	/* a word each: page/obj_cgroups.h */
	uint64_t *dirty;	/* a bit each: free, and may be resident; under the lock of its node */
	uint8_t *live[KM_ALLOC_MAP_TABLES];	/* alloc_map.h; NULL: frees are not looked at */
	uint8_t *node;		/* of each largest block; NULL: there is only one node */
	/* Bytes committed of the arrays. */
	size_t map_ready, page_ready, owner_ready, dirty_ready, live_ready[KM_ALLOC_MAP_TABLES];
	bool pinned;		/* who reads its pages may come late: it is never unmapped */
	bool leaving;		/* being unmapped; then its base is NULL, and its arrays serve another */
};

/* Reserve the first range. False: there is no address space. */
bool km_arena_start(void);
/* The program has limited its address space: what is reserved beyond an eighth of that goes back, and no memory. */
void km_arena_fit(size_t limit);

/*
 * `count` pages (at most 2^KM_MAX_ORDER) beside each other, the first aligned to 2^align_order; NULL: none. May be
 * dirty unless *zero comes back true. Without may_wait no system call is made. node: the one to begin with,
 * NUMA_NO_NODE: the CPU's; when it has nothing the others are asked, the nearest first; not so with KM_NODE_ONLY.
 */
#define KM_NODE_ONLY	0x100
struct km_page *km_pages_alloc_exact(size_t count, unsigned align_order, int node, bool may_wait,
				     bool *zero);
/* One more largest block for the node, free and fresh; false: the system refuses. */
bool km_arena_commit(unsigned node);
/* Give `count` pages, starting at `page`, back: of one block, or a part of one. Those of a slab that are gone are clean
 * (KM_SLAB_HOLES). */
void km_pages_free_exact(struct km_page *page, size_t count);
/*
 * The same of any count, for blocks that find no room as a mapping of their own: from free pages of neighbouring
 * blocks, or from what the ranges have left. Looks at each range.
 */
struct km_page *km_pages_alloc_long(size_t count, unsigned align_order, int node, bool *zero);
/*
 * Let `have` pages that are in use become `want`, where they lie; false: what lies behind them is not free. The pages
 * may be dirty unless *zero comes back true.
 */
bool km_pages_grow(struct km_page *page, size_t have, size_t want, bool *zero);

/* A block of 2^order pages, aligned to its size. */
km_inline struct km_page *km_pages_alloc(unsigned order, int node, bool may_wait, bool *zero)
{
	return km_pages_alloc_exact((size_t)1 << order, order, node, may_wait, zero);
}

km_inline void km_pages_free(struct km_page *page, unsigned order)
{
	km_pages_free_exact(page, (size_t)1 << order);
}

/* The descriptor of the page that p lies in, NULL where p is not in a committed part of an arena. */
struct km_page *km_page_of_any(const void *p);
km_inline struct km_page *km_page_of(const void *p)
{
	size_t index = km_page_index(p);

	/* Acquire pairs with the release in commit_block: who sees the count sees the descriptors. */
	return km_likely(index < km_load_acquire(&km_hot.pages)) ? &km_hot.page[index] : km_page_of_any(p);
}
/* The head of the slab or block that `page` belongs to; NULL where it is free or unknown. */
struct km_page *km_page_head(struct km_page *page);
void *km_page_address(const struct km_page *page);
/* The node of the memory at p, which was handed out: one byte of a dense table. */
unsigned km_page_node(const void *p);
void km_map_set(struct km_page *page, size_t count, uint16_t value);
/* There is a place for this id in the tables in front of the map (percpu/id_table.h). False: no memory for it. */
bool km_id_tables_reach(size_t id);

/*
 * Meanwhile no page of that one's node is handed out or comes back: a page whose type says that it begins a slab begins
 * that slab until it is let go, though the slab's objects, its owner word and its cache may go (the memory of the last
 * two elsewhere). For some hundred instructions, with km_thread_busy set.
 */
void km_page_hold(const struct km_page *page);
void km_page_let_go(const struct km_page *page);
/* The slab that begins at the page, which is held, may go from now on, but its pages stay in use: one slab at a time.
 * Then no more: if it went meanwhile they are free now. */
void km_pages_stay(struct km_page *page);
void km_pages_stay_no_more(void);
/* Visit every head of a slab or large block, and every page of slob, until visit returns non-zero. */
int km_pages_walk(int (*visit)(struct km_page *page, void *arg), void *arg);

/* Give dirty pages back that have been free for `decay_ms` (0: all). Returns pages given back. */
size_t km_pages_purge(unsigned decay_ms);
/* Pages in slabs and large blocks. */
size_t km_pages_used(void);
/* Pages in slabs and large blocks, less gone pages (KM_PAGE_GONE): bounds are in proportion to this number. */
size_t km_pages_there(void);
/*
 * Give the address space of ranges back of which every page is free, with `clean` only of those whose memory has gone
 * back before. Not of the first, and of none that is pinned. Under RLIMIT_DATA also take free blocks at the end of each
 * range off the limit. False: there was none. Any thread, outside of all locks.
 */
bool km_ranges_release(bool clean);
/* Somebody may read this page after it was freed: its range stays. */
void km_page_pin(const struct km_page *page);
/* By how many pages use swings: what the bound below took away, and the program took again soon after. */
size_t km_pages_swing(void);
/* More dirty memory than a quarter of what is used and a floor, and a swing? */
bool km_pages_too_dirty(void);
/* Make pages that are in use resident, and what is written to when they become slabs: their descriptors, and so on;
 * with a shift also the bytes by which frees are proved. 0 or -errno. */
int km_pages_fault_in(struct km_page *page, size_t count, uint32_t live_shift);
/* So many pages more, or fewer, that are free and resident stay so. How many that is in all, with those that serve
 * nobody where slabs are aligned. */
size_t km_pages_reserve(long pages);
/* Meanwhile no huge page comes with pages that are taken: what is free when these are back would be too much. */
void km_pages_reserving(bool reserving);
/* So many of the pages in use may lie ready on CPUs, and are as good as dirty: the bound is lower by them.
 * The caller holds a lock from before it counts them. */
void km_pages_set_ready(size_t pages);
/* So many more of them may lie in empty slabs of caches that need them by turns, and lower it as well. False: no, there
 * are too many. And: so many less. */
bool km_pages_keep(size_t pages);
void km_pages_keep_less(size_t pages);
/* Add to the bytes of free objects in slabs, or subtract. */
void km_pages_slack(long bytes);
/* Have the free objects grown since the last sweep, by more than a 32nd of km_pages_there and more than 1 MiB? */
bool km_pages_too_slack(void);
/* A sweep of the free objects has ended. */
void km_pages_swept(void);
/* Give the oldest dirty pages back until a quarter of that bound is left. */
void km_pages_trim(void);
/* Give the memory of `count` pages in use back to the system: the pages are gone (KM_PAGE_GONE), and read as zeros.
 * Requires: no object is live there. False: the system refuses. */
bool km_pages_hollow(struct km_page *page, size_t count);
/* The owner is about to write to these pages: a gone page among the pages counts as resident again. */
void km_pages_fill(struct km_page *page, size_t count);

/* Of one node. Written under its lock, read without. */
struct km_zone_counts {
	size_t used_pages, dirty_pages, clean_pages, purged_pages;
};

struct km_arena_stats {
	size_t reserved_bytes, committed_bytes;
	struct km_zone_counts pages;	/* of all nodes */
	size_t bind_failures;		/* largest blocks that the system would not bind to their node */
};
void km_arena_get_stats(struct km_arena_stats *stats);
/* Where they are kept, for readers outside of the process. */
struct km_arena_view {
	const unsigned *ranges;
	const struct km_range *range;
	const unsigned *nodes;
	const struct km_zone_counts *zone[KM_MAX_NODES];
	const size_t *bind_failures;
};
void km_arena_expose(struct km_arena_view *view);
const struct km_zone_counts *km_arena_zone(unsigned node);
const struct km_range *km_arena_range(unsigned i);	/* NULL beyond the last */
void km_arena_set(bool huge, unsigned decay_ms);
unsigned km_arena_decay_ms(void);
void km_arena_fork(bool before, bool child);
/* Walk free lists and descriptors; the number of damages, each with a line. */
int km_arena_check(void);

#endif
