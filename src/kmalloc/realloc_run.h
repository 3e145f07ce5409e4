/*
 * realloc_run.h: pages for blocks that grow. Each CPU keeps a run of pages, and a block moved by realloc is placed at
 * the start of the run. The pages behind the block belong to its CPU, so the block grows in place without a shared
 * lock. After its free, the block joins the run again.
 *
 * The page layer counts the pages of a run as in use, and as bytes of large blocks; statistics report them as free
 * and dirty. The pages are uncharged and may have been written.
 */
#ifndef KM_KMALLOC_REALLOC_RUN_H
#define KM_KMALLOC_REALLOC_RUN_H

#include "cache/cache.h"

/* Switch runs on, and allocate their per-CPU words. Context: called once, at the start. */
void km_growth_start(void);

/* Context of all functions below: km_thread.busy set, no lock of rank KM_RANK_GROWTH or above held. */

/* Take the first `pages` pages of this CPU's run for a block that will grow. Returns: NULL if not available. */
struct km_page *km_growth_take(size_t pages);
/* Extend the block at `page` from `have` to `want` pages: from this CPU's run, or from free pages behind the
 * block. In the second case the run then begins behind the block. Returns: false if neither has enough pages. */
bool km_growth_extend(struct km_page *page, size_t have, size_t want);
/* Join the pages of a freed block, or of its tail, to this CPU's run, if the run begins just behind them. Pages
 * beyond the run's bound become free pages. Returns: false if the run begins elsewhere. */
bool km_growth_put(struct km_page *page, size_t pages, unsigned node);
/* Free the pages of runs unused for the last `looks` calls; 0: of all runs. Returns: the number of pages. */
size_t km_growth_shed(unsigned looks);
/* Returns: the pages that all runs together may hold at present. */
size_t km_growth_pages(void);
/* Returns: the pages in all runs now. */
size_t km_growth_count(void);
/* The offset, in each CPU's area, of the number of pages of the CPU's run; 0: there are no runs. */
extern km_hidden uint32_t km_growth_at;
void km_growth_fork(bool before, bool child);

#endif
