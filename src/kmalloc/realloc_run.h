/*
 * realloc_run.h: pages for blocks that grow: each CPU keeps a run of pages, and a block that realloc moves comes to lie
 * where that run begins. So what lies behind it is its CPU's, and it grows in place without a lock that others take;
 * freed, it joins the run again.
 *
 * Pages of a run are in use, as far as the page floor knows, and count as bytes of large blocks there; statistics count
 * the pages as free and dirty. They are nobody's, and may have been written.
 */
#ifndef KM_KMALLOC_REALLOC_RUN_H
#define KM_KMALLOC_REALLOC_RUN_H

#include "cache/cache.h"

/* Called once, at the start: from here on there are runs. */
void km_growth_start(void);

/* All with km_thread_busy set, and without a lock of rank KM_RANK_GROWTH or above. */

/* `pages` pages, the first of this CPU's run, of which a block is to be made that will grow. NULL: not so. */
struct km_page *km_growth_take(size_t pages);
/* The block at `page` gets the pages behind it, up to `want` of `have`: out of this CPU's run, or out of what is free
 * there, and then the run begins behind it. False: neither has as many. */
bool km_growth_extend(struct km_page *page, size_t have, size_t want);
/* `pages` pages of `node` that were a block's, or its end, join this CPU's run, which begins behind them; false: it
 * does not. Where that is more than may lie there, the end of it goes back to the free pages. */
bool km_growth_put(struct km_page *page, size_t pages, unsigned node);
/* Pages that were not used for the last `looks` of these calls go back to the free pages; 0: all of them. Returns
 * pages. */
size_t km_growth_shed(unsigned looks);
/* Pages that may lie in the runs of all CPUs together, as far as these have grown. */
size_t km_growth_pages(void);
/* Pages that lie there now. */
size_t km_growth_count(void);
/* The offset, in each CPU's area, of the number of pages of the CPU's run; 0: there are no runs. */
extern km_hidden uint32_t km_growth_at;
void km_growth_fork(bool before, bool child);

#endif
