/*
 * zone.h: internals of the page allocator: the free pages of a node, and the ranges.
 *
 * Free pages are kept as runs. A run consists of adjacent free pages of one node: up to KM_RUN_MAX pages, or up to
 * KM_RUN_CLEAN if no page of the run may be resident. The type of the first page is FREE, of the last page FREE_LAST;
 * both pages store the length of the run. Each page of a range has a bit for "free, and may be resident": the bit is
 * set when the page is freed, and cleared when the page is allocated or given back to the system.
 */
#ifndef KM_PAGE_ZONE_H
#define KM_PAGE_ZONE_H

#include "base/atomic.h"
#include "base/bits.h"
#include "os/lock.h"
#include "arena.h"

#define KM_MAX_RANGES	256u	/* most ranges: a few are added each time an address space limit is raised */
#define KM_BLOCK_PAGES	((size_t)1 << KM_MAX_ORDER)
#define KM_BLOCK_BYTES	(KM_BLOCK_PAGES << KM_PAGE_SHIFT)
#define KM_RUN_MAX	(2 * KM_BLOCK_PAGES)
/* Length limit of a run without resident pages. The descriptors at the two ends of a run are resident: 4 or 8 KiB. */
#define KM_RUN_CLEAN	(64 * KM_BLOCK_PAGES)
/* Bins by length of run: one for each length up to 64 pages, then eight for each doubling. Runs of KM_RUN_MAX and
 * more share the last bin. */
#define KM_RUN_EXACT	64u
#define KM_RUN_BINS	(KM_RUN_EXACT + 8 * 5 + 1)
#define KM_HUGE_PAGES	((size_t)512)	/* pages of 4096 bytes in a huge page */
/* Largest request that counts as small, one for a slab: all its pages will be touched. The touched part of a larger
 * block is unknown. */
#define KM_SMALL_PAGES	((size_t)16)

/* A zone: the free pages of one node. */
struct km_zone {
	struct km_lock lock;
	struct km_zone_counts pages;
	uint32_t small;			/* pages of small requests since the last prefault of a huge page, less pages
					 * freed */
	size_t trimmed;			/* pages that trimming gave back to the system, fading with the decay time */
	size_t missed;			/* pages of these allocated again since: the swing */
	uint64_t filled[2][2];		/* filled[0]: bins of clean runs, filled[1]: bins of runs with dirty pages; a
					 * bit for each bin that is not empty */
	struct km_list bin[2][KM_RUN_BINS];	/* free runs by length, [1]: with dirty pages; the run added last is
						 * first */
} km_aligned(64);

/* Bytes whose growth begins a sweep: now, and at the last sweep or fewer. */
struct km_growth {
	size_t now, swept;
};

/* All zeros at first. The fields that each process writes are at the front, so the rest is not resident. */
struct km_arena {
	struct km_lock purge;		/* held while free pages are on no list (taken by a purge) */
	struct km_lock grow;		/* protects the ranges and the fields up to kept_pages */
	unsigned ranges;
	size_t bind_failures;
	size_t ready_pages;		/* pages in use that may be cached on CPUs */
	struct km_growth slack;		/* bytes of free objects in slabs */
	struct km_growth slabs;		/* bytes of slabs */
	size_t sweep_began;		/* km_slab_clock at the beginning of the last sweep */
	size_t retained;		/* bytes of objects that caches may keep because their use alternates */
	size_t gone_pages;		/* pages in use with the flag KM_PAGE_GONE */
	size_t peak_pages;		/* recent peak of pages in use and in huge blocks */
	size_t kept_pages;		/* dirty pages at the last purge that the system refused */
	struct km_page *staying;	/* head of the slab of km_pages_stay, under the lock of its node */
	size_t staying_count;		/* pages of this slab to free afterwards */
	/* A reservation takes pages now: no huge page is prefaulted, because that would exceed the bound of dirty
	 * pages. */
	bool reserving;
	size_t reserved_pages;		/* free resident pages that are kept for a reservation */
	bool huge;
	unsigned decay_ms;
	struct km_zone zone[KM_MAX_NODES];
	struct km_range range[KM_MAX_RANGES];
};
extern km_hidden struct km_arena km_arena;

extern km_hidden const uint16_t km_range_bits[KM_RANGE_ARRAYS];	/* bits of an entry of each array */

/* Sum of a field of all zones. */
#define km_zones_sum(field) ({                                                                     \
	size_t sum_ = 0;                                                                           \
	for (unsigned node_ = 0; node_ < km_node_count; node_++)                                   \
		sum_ += km_load(&km_arena.zone[node_].field);                                      \
	sum_;                                                                                      \
})

struct km_range *km_range_of_page(const struct km_page *page);
/* Returns: the range of committed memory at p, or NULL. *index: of the page in the range. */
struct km_range *km_range_of(const void *p, size_t *index);
struct km_zone *km_zone_of_page(const struct km_page *page);

/* Reset the descriptor of a block's first page for a new owner of the block. */
km_inline void km_page_begin(struct km_page *page, unsigned order, unsigned node)
{
	km_store(&page->order, (uint8_t)order);
	page->flags = 0;
	page->node = (uint8_t)node;
	km_store(&page->cache, NULL);
}

/* The node argument of an allocation: the first node to try; and whether no other node may serve. */
km_inline unsigned km_first_node(int node)
{
	return node < 0 ? km_node_here() : (unsigned)node & ~(unsigned)KM_NODE_ONLY;
}

km_inline bool km_is_only_node(int node)
{
	return node >= 0 && node & KM_NODE_ONLY;
}

/* Returns: the node of a page. Each largest block belongs to one node, so the block's entry gives the node. */
km_inline unsigned km_range_node(const struct km_range *range, size_t index)
{
	return range->node ? range->node[index >> KM_MAX_ORDER] : 0;
}

/* ------------------------------------------------------------------ page_run.c; all with the zone's lock held */

/* Find a free run that holds `count` pages aligned to 2^order pages. Short runs fit only by chance, depending on
 * their alignment: a few such runs are tried, or with `all` each one. Returns: the run, or NULL. */
struct km_page *km_run_find(const struct km_zone *zone, size_t count, unsigned order, bool all);
/* Take `count` aligned pages out of a run that km_run_find() returned. The rest of the run stays free. Counts the pages
 * as used. May make memory resident if may_call. Returns: the first page. *zero: none of the pages was ever touched. */
struct km_page *km_run_take(struct km_zone *zone, struct km_page *run, size_t count, unsigned order, bool may_call,
			    bool *zero);
/* Add `count` free pages to the lists, joined with adjacent free runs. The caller must adjust the count of used
 * pages. */
void km_run_put(struct km_zone *zone, struct km_range *range, size_t index, size_t count, bool dirty);
/* Take the `count` pages from index on, behind pages in use, if all of them are free. Counts the pages as used, and
 * sets *zero as km_run_take() does. */
bool km_run_extend(struct km_zone *zone, struct km_range *range, size_t index, size_t count, bool *zero);
/* Take a whole run off its list. Afterwards its pages are in no list and in no count of the zone. */
void km_run_count_out(struct km_zone *zone, struct km_page *run);
/* Returns: the lowest filled bin from `bin` on (above), or the highest up to `bin` (below); KM_RUN_BINS if none. */
unsigned km_run_bin_above(const struct km_zone *zone, bool dirty, unsigned bin);
unsigned km_run_bin_below(const struct km_zone *zone, bool dirty, unsigned bin);
/* Add the pages [first, end) to the lists again, after a purge. The bits of the pages tell resident from clean
 * pages. */
void km_run_put_back(struct km_zone *zone, struct km_range *range, size_t first, size_t end);
/* Returns: the free run of the same node that ends before index, or NULL. */
struct km_page *km_run_before(const struct km_range *range, size_t index);
/* Returns: the free run that begins at index and has the node of the page before index, or NULL. */
struct km_page *km_run_at(const struct km_range *range, size_t index);
int km_run_check(unsigned node);

/* Bit arrays with a bit for each page: count the set bits; set or clear `count` bits. */
size_t km_bits_count(const uint64_t *bits, size_t first, size_t count);
void km_bits_change(uint64_t *bits, size_t first, size_t count, bool set);

/* ------------------------------------------------------------------ arena.c */

/* Commit the next largest block of the range for the node. Requires: the lock of the node is held. Returns: false if
 * the range is full or the system refuses. */
bool km_range_grow(struct km_range *range, unsigned node);

/* ------------------------------------------------------------------ purge.c */

/* Prefault a huge page for `count` pages from index `first` on, before these pages are taken from the free run [start,
 * end). The huge page must contain the first or the last of these pages, lie in the run, be untouched, and fit in the
 * bound of dirty memory. Returns: the pages that may be resident now and were not before. */
size_t km_resident_ahead(struct km_zone *zone, struct km_range *range, size_t start, size_t end, size_t first,
			 size_t count);

#endif
