/*
 * zone.h: what the files of the page allocator share: a node's free pages, and the ranges that they lie in.
 *
 * Free pages are kept as runs. A run is as long as its pages are free and of one node, up to KM_RUN_MAX, or up to
 * KM_RUN_CLEAN if no page of the run may be resident. The type of the first page is FREE, of the last page FREE_LAST;
 * both have the length of the run. Each page of a range has a bit for "free, and may be resident": the bit is set when
 * the page is freed, and cleared when the page is handed out or given back to the system.
 */
#ifndef KM_PAGE_ZONE_H
#define KM_PAGE_ZONE_H

#include "base/atomic.h"
#include "base/bits.h"
#include "os/lock.h"
#include "arena.h"

#define KM_MAX_RANGES	256u	/* a limit that is raised adds a few each time */
#define KM_BLOCK_PAGES	((size_t)1 << KM_MAX_ORDER)
#define KM_BLOCK_BYTES	(KM_BLOCK_PAGES << KM_PAGE_SHIFT)
#define KM_RUN_MAX	(2 * KM_BLOCK_PAGES)
/* Of clean runs. The descriptors at the two ends of a run are resident: 4 or 8 KiB. */
#define KM_RUN_CLEAN	(64 * KM_BLOCK_PAGES)
/* Lengths of runs: a bin for each up to 64 pages, then eight for each doubling; the last is of KM_RUN_MAX and more. */
#define KM_RUN_EXACT	64u
#define KM_RUN_BINS	(KM_RUN_EXACT + 8 * 5 + 1)
#define KM_HUGE_PAGES	((size_t)512)	/* of ours in a huge page */
/* Requests for slabs, whose pages will all be touched. Of a larger block nobody knows how much its owner will touch. */
#define KM_SMALL_PAGES	((size_t)16)

/* A node's free pages. */
struct km_zone {
	struct km_lock lock;
	struct km_zone_counts pages;
	uint32_t small;			/* pages that small requests took, and have not freed, since a huge page came */
	size_t trimmed;			/* pages that the bound gave back to the system lately */
	size_t missed;			/* ... and that were taken anew since then: use swings by so much */
	uint64_t filled[2][2];		/* [may be resident]: a bit for each bin that is not empty */
	struct km_list bin[2][KM_RUN_BINS];	/* runs; the one that was put there last comes first */
} km_aligned(64);

/* All zeros at first, and what each process writes stands in front: none of the rest is resident. */
struct km_arena {
	struct km_lock purge;		/* held while free pages are on no list */
	struct km_lock grow;		/* the ranges, and what follows up to kept_pages; readers need none */
	unsigned ranges;
	size_t bind_failures;
	size_t ready_pages;		/* in use, as far as this floor knows, and may lie ready on CPUs */
	size_t empty_pages;		/* the same, and may lie in empty slabs that are kept */
	size_t slack, slack_swept;	/* bytes of free objects in slabs: now, and at the last sweep */
	size_t gone_pages;		/* pages in use with the flag KM_PAGE_GONE */
	size_t peak_pages;		/* in use, and in big blocks, lately */
	size_t kept_pages;		/* dirty when the system could last not take them back */
	struct km_page *staying;	/* pages that are not freed now; under the lock of their node */
	size_t staying_count;		/* ... but then, so many */
	bool reserving;			/* free pages are taken to be touched: no huge page comes, whoever takes some */
	size_t reserved_pages;		/* free and resident, so many, they stay so: who reserved them may come */
	bool huge;
	unsigned decay_ms;
	struct km_zone zone[KM_MAX_NODES];
	struct km_range range[KM_MAX_RANGES];
};
extern km_hidden struct km_arena km_arena;

struct km_range *km_range_of_page(const struct km_page *page);

/* A node's memory is one run of largest blocks after the other, so the block says whose a page is. */
km_inline unsigned km_range_node(const struct km_range *range, size_t index)
{
	return range->node ? range->node[index >> KM_MAX_ORDER] : 0;
}

/* ------------------------------------------------------------------ page_run.c; all with the zone's lock held */

/* Where `count` pages may be taken from: `first` of the run, aligned to 2^order pages. NULL: there are none. Looks at a
 * few runs whose place must be right by chance, and with `all` at each. */
struct km_page *km_run_find(const struct km_zone *zone, size_t count, unsigned order, bool all);
/* Take `count` pages, aligned so, out of a run that was found; what is left of it stays free. Counts them as used and
 * returns the first. *zero: nobody has touched any of them. May make memory resident where may_call. */
struct km_page *km_run_take(struct km_zone *zone, struct km_page *run, size_t count, unsigned order, bool may_call,
			    bool *zero);
/* Free pages, joined with what is free beside them. Their count as used is the caller's matter. */
void km_run_put(struct km_zone *zone, struct km_range *range, size_t index, size_t count, bool dirty);
/* Take `count` pages from index on, behind pages that are used, if all of them are free. Counts them as used, and
 * sets *zero as km_run_take does. */
bool km_run_extend(struct km_zone *zone, struct km_range *range, size_t index, size_t count, bool *zero);
/* Take a run off its list, whole: its pages are on none then, and are counted nowhere. */
void km_run_count_out(struct km_zone *zone, struct km_page *run);
/* The filled bin from `bin` on, or at most `bin`; KM_RUN_BINS: none. */
unsigned km_run_bin_above(const struct km_zone *zone, bool dirty, unsigned bin);
unsigned km_run_bin_below(const struct km_zone *zone, bool dirty, unsigned bin);
/* Pages come back whose bits say what of them may be resident. */
void km_run_put_back(struct km_zone *zone, struct km_range *range, size_t first, size_t end);
/* The free run that ends before index, if it is of the same node; NULL: none does. */
struct km_page *km_run_before(const struct km_range *range, size_t index);
/* The free run at index, behind pages of this node; NULL: the page at index begins no free run. */
struct km_page *km_run_at(const struct km_range *range, size_t index);
int km_run_check(unsigned node);

/* A bit for each page: how many are set, and setting or clearing all of them. */
size_t km_bits_count(const uint64_t *bits, size_t first, size_t count);
void km_bits_change(uint64_t *bits, size_t first, size_t count, bool set);

/* ------------------------------------------------------------------ arena.c */

/* Commit the next largest block of the range for the node, whose lock is held; false: it is full, or the system says
 * no. */
bool km_range_grow(struct km_range *range, unsigned node);

/* ------------------------------------------------------------------ purge.c */

/*
 * `count` pages from index `first` on are about to be taken out of the free run [start, end): let a huge page of the
 * run that they begin, and that nobody has touched, come at once, where the bound of what is free and resident has
 * room for it. Returns the pages that may be resident now and were not.
 */
size_t km_resident_ahead(struct km_zone *zone, struct km_range *range, size_t start, size_t end, size_t first,
			 size_t count);

#endif
