/*
 * realloc_run.c: a run of pages on each CPU for blocks that grow. Invariants: the pages of a run are uncharged and of
 * one node. A run's bound is taken off the bound of all runs before the run holds the pages. Under the run's lock,
 * the run's first page may be given to the block just before the run.
 *
 * A block takes the needed pages from the free ones, and as many again as the run behind the block. So a block
 * growing by steps comes here as often as its size doubles. After the free, all pages of the block join the run, and
 * the next growing block on this CPU takes them.
 */
#include "os/die.h"
#include "os/os.h"
#include "realloc_run.h"
#include "large_cache.h"

#define MOST_PAGES	((size_t)1 << KM_MAX_ORDER)	/* most pages of a run: those of the largest block */
/* All runs together may hold this part of the pages in use, plus a floor, */
#define PART		16u
#define FLOOR_PAGES	256u
/* ... plus up to so many pages that were given back and soon taken again. */
#define MOST_SWUNG	(2 * MOST_PAGES)

struct run {
	struct km_lock lock;
	struct km_page *first;	/* first page of the run */
	uint32_t pages;
	uint32_t allowed;	/* pages that this run may hold */
	uint32_t gave;		/* pages given back because of the bound, and not taken again since */
	uint8_t node;
	uint8_t looks;		/* calls of km_growth_shed since the last change of the run */
} km_aligned(64);

static struct {
	uint32_t slot;		/* per-CPU offset of struct run; 0: no runs */
	size_t allowed, swung;	/* pages that all runs may hold; pages given back and taken again, which decays */
	uint64_t forking[KM_MAX_CPUS / 64];	/* CPUs whose run is locked by a fork */
} growth;

uint32_t km_growth_at;

static struct run *run_of(unsigned cpu)
{
	return (struct run *)(km_area(cpu) + growth.slot);
}

/* Lock the run of this CPU. Returns: NULL if there is none. */
static struct run *lock_here(void)
{
	unsigned cpu = km_cpu();

	if (!growth.slot || !km_cpu_is_online(cpu))
		return NULL;
	struct run *run = run_of(cpu);
	/* A new area is zeroed: set the rank first. */
	km_lock_rank(&run->lock, KM_RANK_GROWTH);
	km_lock(&run->lock);
	km_debug(run->pages <= MOST_PAGES && (!run->pages || run->first),
		 "a run begins somewhere and has a bound");
	km_debug(run->pages <= run->allowed, "a run has at most the allowed pages");
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

/* Raise the bound of a run towards `pages`. Returns: the pages allowed in the run. A granted bound stays. */
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
	km_large_cache_changed(0);
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

/* Returns: the pages to take from free pages for a block of `pages`: twice as many, as far as the run's bound
 * allows. */
static size_t with_spare(struct run *run, size_t pages)
{
	uint32_t again = (uint32_t)km_min((size_t)run->gave, 2 * pages);

	run->gave -= again;
	if (again)
		km_add(&growth.swung, (size_t)again);
	return km_min(pages + km_min(allow(run, pages), pages), MOST_PAGES);
}

/* Extend the run by the free pages behind its end, to `pages`. Returns: false if there are too few. */
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

/* Let the run begin at other pages, and free its old pages. */
static void replace(struct run *run, struct km_page *first, size_t pages, unsigned node)
{
	if (run->pages)
		km_pages_free_exact(run->first, run->pages);
	km_large_count(pages - run->pages);
	km_debug(!pages || first->type == KM_PAGE_NONE, "pages of a reserved run have type NONE");
	run->node = (uint8_t)node;
	set(run, first, pages);
}

static bool fill_anew(struct run *run, size_t pages)
{
	size_t all = with_spare(run, pages);
	struct km_page *page = km_pages_alloc_exact(all, 0, NUMA_NO_NODE, !km_thread.no_calls, NULL);

	if (page)
		replace(run, page, all, page->node);
	return page != NULL;
}

/* Extend a block by the free pages behind it, and make the rest of these pages this CPU's run. */
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

	km_debug(pages <= run->pages, "a block is cut from a run with enough pages");
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
		km_debug(page->type == KM_PAGE_NONE, "pages of a reserved run have type NONE");
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

	km_debug(km_load(&growth.allowed) >= allowed, "the sum of the bounds of all runs is right");

	set(run, NULL, 0);
	km_store(&run->allowed, 0u);
	run->gave = 0;
	km_unlock(&run->lock);
	if (pages) {
		km_large_count(-pages);
		km_pages_free_exact(first, pages);
	}
	km_sub(&growth.allowed, allowed);
	km_large_cache_changed(0);
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

void km_growth_fork(bool before, bool child)
{
	if (growth.slot)
		km_percpu_fork_locks(growth.slot + (uint32_t)offsetof(struct run, lock), KM_RANK_GROWTH, growth.forking,
				     before, child);
}

