/*
 * commit_ahead.c: memory committed ahead: the reservations, and a level that follows the demand of requests that may
 * not wait. The level is twice the demand between two top-ups. A request without success doubles the level. In each
 * decay time without demand the level falls by half. Invariants: without such requests and reservations no memory is
 * committed ahead. A refusal of the system ends a top-up. Committed, untouched pages cost no memory. While memory is
 * made resident no lock is held except `one`, for other threads that make memory resident.
 */
#include "commit_ahead.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "os/die.h"
#include "base/list.h"
#include "os/lock.h"
#include "os/os.h"
#include "zone.h"
#include "metadata.h"

#define STEP_PAGES	((size_t)1 << KM_MAX_ORDER)	/* pages committed by one step */
/* Lowest level while there is demand, 64 MiB: a thread that never waits may use this up before another thread gets a
 * CPU. */
#define LEAST_PAGES	(16 * STEP_PAGES)
/* Highest level beyond the pages in use, even if requests fail again and again. */
#define MOST_PAGES	(2 * LEAST_PAGES)
#define MOST_STEPS	32				/* most steps of one top-up */
/* Bytes of metadata to commit for each page committed ahead: slob's marks, slab's freelists. */
#define METADATA_BYTES	192u
#define METADATA_FLOOR	((size_t)64 << 10)

static struct {
	size_t asked;		/* pages allocated without waiting since the last top-up */
	bool missed;		/* a request that may not wait failed */
	bool left;		/* memory was left by a thread that is not in this process */
	uint32_t busy;		/* a thread tops up; other threads pass */
	size_t level, reserved;	/* pages */
	size_t most;		/* highest level wanted in this decay time */
	uint64_t next_ms;	/* end of this decay time */
} ahead;

void km_ahead_note(size_t pages, bool got)
{
	if (got)
		km_add(&ahead.asked, pages);
	else
		km_store(&ahead.missed, true);
}

size_t km_ahead_level(void)
{
	return km_load(&ahead.level) + km_load(&ahead.reserved);
}

static size_t free_pages(void)
{
	return km_zones_sum(pages.dirty_pages) + km_zones_sum(pages.clean_pages);
}

bool km_ahead_wanted(void)
{
	return km_load(&ahead.asked) || km_load(&ahead.missed) || km_ahead_level() || km_load(&ahead.left);
}

/* Raise the level to the demand of the requests since the last top-up. At the end of a decay time the level falls by
 * half, but not below the demand of this time. */
static void set_level(size_t asked, bool missed, uint64_t now)
{
	size_t want = asked ? km_max(2 * asked, LEAST_PAGES) : 0;

	/* With many free pages, the request failed because of a taken lock or fragmentation: no reason to raise
	 * the level. */
	if (missed && free_pages() < 2 * km_max(km_ahead_level(), LEAST_PAGES))
		want = km_max(want, km_max(2 * ahead.level, 2 * LEAST_PAGES));
	want = km_min(want, km_pages_used() + MOST_PAGES);
	km_debug(asked || missed || !want, "nothing is committed ahead without a request");
	size_t level = km_max(ahead.level, want);
	ahead.most = km_max(ahead.most, want);
	if (now >= ahead.next_ms) {
		if (ahead.next_ms)
			level = km_max(level / 2, ahead.most);
		level = level < STEP_PAGES ? 0 : level;
		ahead.most = 0;
		ahead.next_ms = now + km_arena_decay_ms();
	}
	km_debug(!level || level >= STEP_PAGES, "a faded level is 0");
	km_store(&ahead.level, level);
}

static bool records_ahead(void)
{
	return km_metadata_ahead(METADATA_FLOOR + km_ahead_level() * METADATA_BYTES);
}

static void free_left_pieces_now(void);

void km_ahead_top_up(void)
{
	uint32_t free = 0;

	if (km_unlikely(km_load(&ahead.left)))
		free_left_pieces_now();
	if (km_load(&ahead.busy) || !km_cas_acquire(&ahead.busy, &free, 1u))
		return;
	/* Read before the exchange: a write takes the cache line from the threads that note requests. */
	size_t asked = km_load(&ahead.asked) ? km_swap_acquire(&ahead.asked, (size_t)0) : 0;
	bool missed = km_load(&ahead.missed) && km_swap_acquire(&ahead.missed, false);

	set_level(asked, missed, km_os_now_ms());
	for (int steps = MOST_STEPS; steps && free_pages() < km_ahead_level(); steps--)
		if (!km_arena_commit(km_node_here()))
			break;
	records_ahead();
	km_store_release(&ahead.busy, 0u);
}

static bool commit(long pages)
{
	size_t steps = pages > 0 ? ((size_t)pages + STEP_PAGES - 1) / STEP_PAGES : 0;

	/* Refuse more than the machine's memory: the system would commit the pages step by step, but cannot supply
	 * them. */
	if (pages > 0 && (size_t)pages > km_os_memory() >> KM_PAGE_SHIFT)
		return false;
	/* Commit fresh pages, even if pages are free: fresh pages are contiguous. */
	for (; steps; steps--)
		if (!km_arena_commit(km_node_here()))
			return false;
	return true;
}

bool km_ahead_reserve(long pages)
{
	if (!commit(pages))
		return false;
	km_add(&ahead.reserved, (size_t)pages);
	if (pages <= 0 || records_ahead())
		return true;
	km_sub(&ahead.reserved, (size_t)pages);
	return false;
}

/* ------------------------------------------------------------------ made resident */

/* State of making memory resident. No lock that a fork takes is held while memory is faulted in, so a fork does not
 * wait. The child of such a fork frees the pieces that the thread had taken (free_left_pieces). */
static struct {
	struct km_lock one;	/* one thread at a time */
	struct km_lock lock;	/* of the following fields; held only while pages are taken, freed or counted */
	struct km_list taken;	/* taken pieces of pages */
	long more;		/* pages counted as reserved, but not yet in the count of a cache */
} touched = {
	.one = KM_LOCK_INIT(KM_RANK_RESIDENT), .lock = KM_LOCK_INIT(KM_RANK_TAKEN),
	.taken = { &touched.taken, &touched.taken },
};

/* Count `more` pages as reserved. Requires: `lock` is held, or there is no other thread. */
static void count(long more)
{
	km_add(&ahead.reserved, (size_t)more);
	km_debug((long)km_load(&ahead.reserved) >= 0, "at most the reserved pages are returned");
	km_pages_reserve(more);
	touched.more += more;
}

/* Returns: true if the page directly follows the piece in the same largest block (and so has the same node). */
static bool goes_on(const struct km_page *piece, const struct km_page *page)
{
	const uintptr_t block = KM_PAGE_SIZE << KM_MAX_ORDER;

	return piece + piece->pages == page &&
	       (uintptr_t)km_page_address(piece) / block == (uintptr_t)km_page_address(page) / block;
}

/* Take `pages` pages, and join them with the last taken piece if adjacent. Returns: false if there is no memory. */
static bool take(size_t pages, unsigned order)
{
	km_lock_scope(&touched.lock);
	km_store(&km_arena.reserving, true);
	struct km_page *page = km_pages_alloc_exact(pages, order, NUMA_NO_NODE, true, NULL), *last = NULL;
	km_store(&km_arena.reserving, false);
	if (page && !km_list_empty(&touched.taken))
		last = km_list_last(&touched.taken, struct km_page, list);
	if (last && goes_on(last, page)) {
		last->pages += pages;
	} else if (page) {
		page->pages = pages;
		km_list_add_tail(&page->list, &touched.taken);
	}
	return page != NULL;
}

/* Free the taken pieces, each under a hold of its own. The last piece is freed first: later allocations then find the
 * pages in the order in which this thread took them. */
static void give_taken_back(void)
{
	for (bool any = true; any;) {
		km_lock_scope(&touched.lock);
		any = !km_list_empty(&touched.taken);
		if (any) {
			struct km_page *page = km_list_last(&touched.taken, struct km_page, list);

			km_list_del(&page->list);
			km_pages_free_exact(page, page->pages);
		}
	}
}

/* In the child of fork: free the pieces taken by a thread that exists only in the parent. Requires: `one` is held, or
 * there is no other thread. */
static void free_left_pieces(void)
{
	if (km_likely(!km_load(&ahead.left)))
		return;
	km_store(&ahead.left, false);
	km_store(&km_arena.reserving, false);
	km_pages_stay_no_more();
	give_taken_back();
	/* Under the lock: a fork in between would count the pages twice. */
	km_lock_scope(&touched.lock);
	count(-touched.more);
}

static km_cold void free_left_pieces_now(void)
{
	if (!km_trylock(&touched.one))
		return;
	free_left_pieces();
	km_unlock(&touched.one);
}

#define LEAST_PIECE	16u
/* Take `pages` pages in pieces of `piece` pages; after a failure in pieces half as long, down to `least` pages. */
static bool take_all(size_t pages, size_t piece, size_t least, unsigned order)
{
	for (size_t now; pages; pages -= now)
		while (!take(now = km_min(pages, piece), order)) {
			if (piece <= least)
				return false;
			piece /= 2;
		}
	return true;
}

/* Take `pages` free pages, make them resident and free them: later allocations use these pages first. */
static bool touch_free_pages(size_t pages, size_t own, unsigned order, uint32_t live_shift)
{
	const size_t slab = (size_t)1 << order;

	/* Add a margin: the alignment of slabs leaves some pages unused (staying() in purge.c). */
	own = km_min(own + own / 64 + 64, pages);
	/* First take pieces of the size of the cache's slabs, so that the slabs later find free pieces of this size. */
	bool done = take_all(km_align_up(own, slab), slab, slab, order) &&
		    take_all(pages - own, STEP_PAGES, LEAST_PIECE, 0);

	/* Only this thread changes the list. */
	km_list_for_each_entry(struct km_page, page, &touched.taken, list)
		done = done && !km_pages_fault_in(page, page->pages, live_shift);
	give_taken_back();
	return done;
}

/* With `done` set the cache's count `*reserved` to `pages`; else undo count() of the new pages. */
static void settle(size_t *reserved, size_t pages, bool done)
{
	km_lock_scope(&touched.lock);
	if (done)
		km_store(reserved, pages);
	else
		count(-touched.more);
	touched.more = 0;
}

/* Undo settle() after a failure of rest(): subtract `more` pages from the cache's count and from the reserved pages. */
static void take_back(size_t *reserved, long more)
{
	km_lock_scope(&touched.lock);
	km_store(reserved, *reserved - (size_t)more);
	count(-more);
	touched.more = 0;
}

/* Become the only thread that makes memory resident. A fork does not take `one`. So a thread that holds the other lock
 * for a fork only tries: the holder of `one` may wait for this fork, and does not exist in the child. Returns: false if
 * this thread may not wait and `one` is taken. */
static bool be_the_one(void)
{
	if (km_lock_passes(&touched.lock))
		return km_trylock(&touched.one);
	km_lock(&touched.one);
	return true;
}

bool km_ahead_fault_in(size_t *reserved, const struct km_ahead_want *want)
{
	if (!be_the_one())
		return false;
	free_left_pieces();
	long more = (long)want->pages - (long)*reserved;
	bool done = commit(more);
	if (done) {
		km_lock(&touched.lock);
		count(more);
		km_unlock(&touched.lock);
		/* Make the reserved pages of all caches resident: free pages belong to no particular cache. */
		done = (more <= 0 || records_ahead()) &&
		       (!want->metadata_bytes ||
			(km_metadata_ahead(want->metadata_bytes) && km_metadata_fault_in(want->metadata_bytes) &&
			 touch_free_pages(km_pages_reserve(0), want->pages, want->order, want->live_shift)));
		/* A reduction always succeeds: the earlier reservation of these pages holds. */
		done |= more < 0;
		settle(reserved, want->pages, done);
		if (done && want->pages && !want->rest(want->cache) && more >= 0) {
			take_back(reserved, more);
			done = false;
		}
	}
	km_unlock(&touched.one);
	return done;
}

/* ------------------------------------------------------------------ slabs that are there */

struct visit {
	const struct kmem_cache *cache;
	bool (*wanted)(const struct kmem_cache *cache, const struct km_page *slab);
	uint32_t live_shift;
};

static int fault_in_slab(struct km_page *slab, void *arg)
{
	const struct visit *visit = arg;

	/* Compare before the lock: most pages belong to other caches. */
	if (km_load(&slab->cache) != visit->cache)
		return 0;
	km_page_hold(slab);
	/* Acquire pairs with km_slab_new_raw: the slab's descriptor is filled in. */
	bool wanted = km_load_acquire(&slab->type) == KM_PAGE_SLAB && km_load(&slab->cache) == visit->cache &&
		      visit->wanted(visit->cache, slab);
	const size_t pages = (size_t)1 << km_load(&slab->order);
	if (wanted)
		km_pages_stay(slab);
	km_page_let_go(slab);
	if (!wanted)
		return 0;
	int result = km_pages_fault_in(slab, pages, visit->live_shift);
	km_pages_stay_no_more();
	return result;
}

bool km_ahead_fault_in_slabs(const struct kmem_cache *cache, uint32_t live_shift,
			     bool (*wanted)(const struct kmem_cache *cache, const struct km_page *slab))
{
	struct visit visit = { cache, wanted, live_shift };

	km_debug(km_is_locked(&touched.one), "one thread makes memory resident");
	return !km_pages_walk(fault_in_slab, &visit);
}

void km_ahead_give_up(size_t pages)
{
	km_sub(&ahead.reserved, pages);
	km_pages_reserve(-(long)pages);
}

/* ------------------------------------------------------------------ fork */

/* Handle a fork. If a signal handler that interrupted the holder of `one` forks, the interrupted code goes on in the
 * child. */
void km_ahead_fork(bool before, bool child)
{
	bool others = child && km_fork_has(&touched.lock) && !km_lock_is_own(&touched.one);

	km_lock_around_fork(&touched.lock, before, child);
	if (!child)
		return;
	km_lock_around_fork(&touched.one, false, true);
	ahead.busy = 0;
	/* If the fork could not take `lock`, the list is dropped: its pieces stay allocated in the child, as other
	 * threads' memory. */
	if (km_lock_is_own(&touched.one))
		return;
	if (!others)
		km_list_init(&touched.taken);
	km_store(&ahead.left, true);
	/* A fork in a signal handler may have interrupted the holder of a page lock: then a later call frees the
	 * pieces. */
	if (!km_fork_is_nested())
		free_left_pieces();
}
