/*
 * realloc_run.c: each CPU's run of pages for blocks that grow. Invariants: a run's pages are of one node and of
 * nobody; what it may hold was taken off the bound of all runs before it came to hold that; with its lock free,
 * whoever finds the run's first page behind a block may give it to that block.
 *
 * A block takes as many pages from the free ones as it needs, and as many again, which become the run behind it: so a
 * block that grows by steps comes here as often as its size doubles. When it is freed all of that becomes the run, and
 * the next block that grows on this CPU finds it.
 */
#include "os/die.h"
#include "os/os.h"
#include "realloc_run.h"
#include "large_cache.h"

#define MOST_PAGES	((size_t)1 << KM_MAX_ORDER)	/* of a run: what the largest block of pages has */
/* The bound of what runs may hold in all: a part of what is in use, and these. */
#define PART		16u
#define FLOOR_PAGES	256u
/* ... and what they had, gave back, and took anew: where blocks grow again and again. */
#define MOST_SWUNG	(2 * MOST_PAGES)

struct run {
	struct km_lock lock;
	struct km_page *first;	/* where the run begins, or began when it last had a page */
	uint32_t pages;
	uint32_t allowed;	/* that it may hold */
	uint32_t gave;		/* pages that it gave back for the bound, and did not take anew since then */
	uint8_t node;
	uint8_t looks;		/* since it last changed */
} km_aligned(64);

static struct {
	uint32_t slot;		/* of a run in each CPU's area; 0: there are none */
	size_t allowed, swung;	/* of all runs; the latter fades */
	uint64_t forking[KM_MAX_CPUS / 64];	/* the locks that a fork holds */
} growth;

uint32_t km_growth_at;

static struct run *run_of(unsigned cpu)
{
	return (struct run *)(km_area(cpu) + growth.slot);
}

/* This CPU's, locked; NULL: there is none. */
static struct run *lock_here(void)
{
	unsigned cpu = km_cpu();

	if (!growth.slot || !km_cpu_is_online(cpu))
		return NULL;
	struct run *run = run_of(cpu);
	/* An area begins as zeros. */
	km_lock_rank(&run->lock, KM_RANK_GROWTH);
	km_lock(&run->lock);
	km_debug(run->pages <= MOST_PAGES && (!run->pages || run->first),
		 "a run begins somewhere and has a bound");
	km_debug(run->pages <= run->allowed, "a run holds what was taken off the bound");
	return run;
}

size_t km_growth_pages(void)
{
	return km_load(&growth.allowed);
}

size_t km_growth_count(void)
{
	size_t pages = 0;

	if (growth.slot)
		km_for_each_cpu(cpu)
			pages += km_load(&run_of(cpu)->pages);
	return pages;
}

/* How many the run may hold, if it is to hold `pages`. A run that was allowed once is not asked for again. */
static size_t allow(struct run *run, size_t pages)
{
	size_t all = km_load(&growth.allowed), more;
	size_t most = km_pages_there() / PART + FLOOR_PAGES + km_min(km_load(&growth.swung), MOST_SWUNG);

	pages = km_min(pages, MOST_PAGES);
	do {
		more = pages > run->allowed && all < most ? km_min(pages - run->allowed, most - all) : 0;
		if (!more)
			return run->allowed;
	} while (!km_cas_acquire(&growth.allowed, &all, all + more));
	km_debug(km_is_locked(&run->lock), "a run changes under its lock");
	km_bump(&run->allowed, more);
	km_large_cache_changed();
	return run->allowed;
}

static void set(struct run *run, struct km_page *first, size_t pages)
{
	km_store(&run->first, first);
	km_store(&run->pages, (uint32_t)pages);
	run->looks = 0;
	km_debug(pages <= MOST_PAGES && km_is_locked(&run->lock),
		 "a run changes under its lock, and has a bound");
}

/* A block wants so many: with them come as many again, where they may lie there. */
static size_t with_spare(struct run *run, size_t pages)
{
	uint32_t again = (uint32_t)km_min((size_t)run->gave, 2 * pages);

	run->gave -= again;
	if (again)
		km_add(&growth.swung, (size_t)again);
	return km_min(pages + km_min(allow(run, pages), pages), MOST_PAGES);
}

/* Free pages behind the run join it. False: that is not enough. */
static bool fill(struct run *run, size_t pages)
{
	size_t all = with_spare(run, pages), had = run->pages;

	if (!had || (!km_pages_grow(run->first, had, all, NULL) &&
		     !km_pages_grow(run->first, had, all = pages, NULL)))
		return false;
	km_large_count(all - had);
	set(run, run->first, all);
	return true;
}

/* It begins elsewhere, and what it had goes back. */
static void replace(struct run *run, struct km_page *first, size_t pages, unsigned node)
{
	if (run->pages)
		km_pages_free_exact(run->first, run->pages);
	km_large_count(pages - run->pages);
	km_debug(!pages || first->type == KM_PAGE_NONE, "a run's pages are nobody's");
	run->node = (uint8_t)node;
	set(run, first, pages);
}

static bool fill_anew(struct run *run, size_t pages)
{
	size_t all = with_spare(run, pages);
	struct km_page *page = km_pages_alloc_exact(all, 0, NUMA_NO_NODE, !km_no_calls, NULL);

	if (page)
		replace(run, page, all, page->node);
	return page != NULL;
}

/* ... behind a block, which gets pages of what is free there. */
static bool fill_behind(struct run *run, struct km_page *page, size_t have, size_t want)
{
	size_t all = with_spare(run, want);

	if (all <= want || !km_pages_grow(page, have, all, NULL))
		return false;
	km_large_count(want - have);
	replace(run, page + want, all - want, page->node);
	return true;
}

static struct km_page *cut(struct run *run, size_t pages)
{
	struct km_page *page = run->first;

	km_debug(pages <= run->pages, "a block is cut from a run that has as many");
	set(run, page + pages, run->pages - pages);
	return page;
}

struct km_page *km_growth_take(size_t pages)
{
	struct run *run = pages <= MOST_PAGES ? lock_here() : NULL;
	struct km_page *page = NULL;

	if (!run)
		return NULL;
	if (run->pages >= pages || fill(run, pages) || fill_anew(run, pages)) {
		page = cut(run, pages);
		km_debug(page->type == KM_PAGE_NONE, "a run's pages are nobody's");
		page->order = page->flags = 0;
		page->node = run->node;
		km_store(&page->cache, NULL);
	}
	km_unlock(&run->lock);
	return page;
}

bool km_growth_extend(struct km_page *page, size_t have, size_t want)
{
	struct run *run = lock_here();

	if (!run)
		return false;
	bool near = run->first == page + have && run->node == page->node && run->pages;
	bool grown = near ? run->pages >= want - have || fill(run, want - have) : fill_behind(run, page, have, want);
	if (near && grown)
		cut(run, want - have);
	km_unlock(&run->lock);
	return grown;
}

bool km_growth_put(struct km_page *page, size_t pages, unsigned node)
{
	struct run *run = lock_here();

	if (!run)
		return false;
	bool joins = run->first == page + pages && run->node == node;
	size_t all = joins ? run->pages + pages : 0, stay = joins ? km_min(allow(run, all), all) : 0;
	if (joins) {
		set(run, page, stay);
		run->gave = (uint32_t)km_min(run->gave + all - stay, MOST_PAGES);
	}
	km_unlock(&run->lock);
	if (all > stay) {
		km_large_count(stay - all);
		km_pages_free_exact(page + stay, all - stay);
	}
	return joins;
}

static size_t shed(struct run *run)
{
	size_t pages = run->pages, allowed = run->allowed;
	struct km_page *first = run->first;

	km_debug(km_load(&growth.allowed) >= allowed, "the runs' bounds are the sum of each");

	set(run, NULL, 0);
	km_store(&run->allowed, 0u);
	run->gave = 0;
	km_unlock(&run->lock);
	if (pages) {
		km_large_count(-pages);
		km_pages_free_exact(first, pages);
	}
	km_sub(&growth.allowed, allowed);
	km_large_cache_changed();
	return pages;
}

size_t km_growth_shed(unsigned looks)
{
	size_t pages = 0, swung = km_load(&growth.swung);

	km_store(&growth.swung, looks ? swung - (swung + 3) / 4 : 0);
	if (!km_load(&growth.allowed))
		return 0;
	km_for_each_cpu(cpu) {
		struct run *run = run_of(cpu);

		if (!km_load(&run->allowed))
			continue;
		km_lock(&run->lock);
		if (!looks || ++run->looks > looks)
			pages += shed(run);
		else
			km_unlock(&run->lock);
	}
	return pages;
}

void km_growth_start(void)
{
	growth.slot = km_percpu_alloc(sizeof(struct run));
	km_growth_at = growth.slot ? growth.slot + (uint32_t)offsetof(struct run, pages) : 0;
}

/* A CPU may begin meanwhile: what was locked is unlocked. */
void km_growth_fork(bool before, bool child)
{
	if (!growth.slot)
		return;
	if (km_fork_is_nested()) {
		km_for_each_cpu(cpu) {
			km_lock_rank(&run_of(cpu)->lock, KM_RANK_GROWTH);
			km_lock_around_fork(&run_of(cpu)->lock, before, child);
		}
		return;
	}
	if (before)
		km_for_each_cpu(cpu)
			growth.forking[cpu / 64] |= 1ull << cpu % 64;
	for (unsigned cpu = 0; cpu < km_percpu.cpus; cpu++)
		if (growth.forking[cpu / 64] >> cpu % 64 & 1)
			km_lock_around_fork(&run_of(cpu)->lock, before, child);
	if (!before)
		__builtin_memset(growth.forking, 0, sizeof(growth.forking));
}

