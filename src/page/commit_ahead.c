/*
 * commit_ahead.c: how much is committed ahead: what was reserved, and a level that follows the requests that may not
 * wait: twice what they take between two top-ups; where one found nothing, the level doubles; without demand it falls
 * by half in each decay time. Invariants: a program that makes no such request, and reserves nothing, has nothing
 * committed ahead; a refusal of the system ends a top-up. A page that is committed and not touched costs no memory.
 * While memory is made resident no lock is held but that of those who do the same.
 */
#include "commit_ahead.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "os/die.h"
#include "base/list.h"
#include "os/lock.h"
#include "os/os.h"
#include "arena.h"
#include "metadata.h"

#define STEP_PAGES	((size_t)1 << KM_MAX_ORDER)	/* what is committed at once */
/* With any demand: a thread that never waits may use it up before another one gets a CPU. 64 MiB. */
#define LEAST_PAGES	(16 * STEP_PAGES)
/* So much beyond what is in use a request that finds nothing, again and again, can drive the level to. */
#define MOST_PAGES	(2 * LEAST_PAGES)
#define MOST_STEPS	32				/* of one top-up */
/* Our own memory for each page: slob's marks, slab's freelists; and for blocks of shelves. */
#define META_BYTES	192u
#define META_FLOOR	((size_t)64 << 10)

static struct {
	size_t asked;		/* pages they got since the last top-up */
	bool missed;		/* one of them got none */
	bool left;		/* what is made resident, by a thread that is not in this process */
	uint32_t busy;		/* somebody tops up; the others pass */
	size_t level, reserved;	/* pages */
	size_t most;		/* asked, in this decay time */
	uint64_t next_ms;	/* its end */
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
	size_t pages = 0;

	for (unsigned i = 0; i < km_node_count; i++) {
		const struct km_zone_counts *counts = km_arena_zone(i);

		pages += km_load(&counts->dirty_pages) + km_load(&counts->clean_pages);
	}
	return pages;
}

bool km_ahead_wanted(void)
{
	return km_load(&ahead.asked) || km_load(&ahead.missed) || km_ahead_level() || km_load(&ahead.left);
}

static size_t wanted_for(size_t asked)
{
	return asked ? km_max(2 * asked, LEAST_PAGES) : 0;
}

static void decay(uint64_t now)
{
	if (now < ahead.next_ms)
		return;
	size_t level = km_max(ahead.level / 2, wanted_for(ahead.most));

	if (ahead.next_ms)
		km_store(&ahead.level, level < STEP_PAGES ? 0 : km_min(level, ahead.level));
	ahead.most = 0;
	km_debug(!ahead.level || ahead.level >= STEP_PAGES, "a level that faded is no level");
	ahead.next_ms = now + km_arena_decay_ms();
}

static void set_level(size_t asked, bool missed)
{
	size_t want = wanted_for(asked);

	km_debug(asked || !want, "nothing is committed ahead where nobody asked");

	/* Where much is free, it found a lock taken, or no piece large enough. */
	missed = missed && free_pages() < 2 * km_max(km_ahead_level(), LEAST_PAGES);
	if (missed)
		want = km_max(want, km_max(2 * ahead.level, 2 * LEAST_PAGES));
	want = km_min(want, km_pages_used() + MOST_PAGES);
	km_store(&ahead.level, km_max(ahead.level, want));
	ahead.most = km_max(ahead.most, missed ? want / 2 : asked);
}

static bool records_ahead(void)
{
	return km_meta_ahead(META_FLOOR + km_ahead_level() * META_BYTES);
}

static void adopt_now(void);

void km_ahead_top_up(void)
{
	uint32_t free = 0;

	if (km_unlikely(km_load(&ahead.left)))
		adopt_now();
	if (km_load(&ahead.busy) || !km_cas_acquire(&ahead.busy, &free, 1u))
		return;
	/* Looked at first: a write to them costs those who note. */
	size_t asked = km_load(&ahead.asked) ? km_swap_acquire(&ahead.asked, (size_t)0) : 0;
	bool missed = km_load(&ahead.missed) && km_swap_acquire(&ahead.missed, false);

	set_level(asked, missed);
	decay(km_os_now_ms());
	for (int steps = MOST_STEPS; steps && free_pages() < km_ahead_level(); steps--)
		if (!km_arena_commit(km_node_here()))
			break;
	records_ahead();
	km_store_release(&ahead.busy, 0u);
}

static bool commit(long pages)
{
	size_t steps = pages > 0 ? ((size_t)pages + STEP_PAGES - 1) / STEP_PAGES : 0;

	/* More than the machine has would be committed step by step, and never be there. */
	if (pages > 0 && (size_t)pages > km_os_memory() >> KM_PAGE_SHIFT)
		return false;
	/* Fresh ones, whatever is free: they are together. */
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

/* Nothing that others wait for is held while memory comes in: a fork does not wait for it either, and in its child what
 * this thread had in hand is given back. */
static struct {
	struct km_lock one;	/* one thread at a time */
	struct km_lock lock;	/* of what follows; for no longer than pages are taken, given back, or counted */
	struct km_list taken;	/* pieces of pages; a list once there were any */
	long more;		/* counted as reserved, and no cache's yet */
} touched = { .one = KM_LOCK_INIT(KM_RANK_RESIDENT), .lock = KM_LOCK_INIT(KM_RANK_TAKEN) };

/* With the lock, or where nobody else is. */
static void count(long more)
{
	km_add(&ahead.reserved, (size_t)more);
	km_debug((long)km_load(&ahead.reserved) >= 0, "no more is given back than was reserved");
	km_pages_reserve(more);
	touched.more += more;
}

/* Does the piece end where the page is, in the same largest block, which is of one node? */
static bool goes_on(const struct km_page *piece, const struct km_page *page)
{
	const uintptr_t block = KM_PAGE_SIZE << KM_MAX_ORDER;

	return piece + piece->pages == page &&
	       (uintptr_t)km_page_address(piece) / block == (uintptr_t)km_page_address(page) / block;
}

/* So many pages more are in hand, with those in front of them where they lie side by side. */
static bool take(size_t pages, unsigned order)
{
	km_lock_scope(&touched.lock);
	km_pages_reserving(true);
	struct km_page *page = km_pages_alloc_exact(pages, order, NUMA_NO_NODE, true, NULL), *last = NULL;
	km_pages_reserving(false);
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

/* One at a time: who forks comes in between. The last that was taken is the first: so free pages are found in the order
 * in which they were found here. */
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

/* A thread that is not in this process had some in hand. With the lock of one, or where nobody else is. */
static void adopt(void)
{
	if (km_likely(!km_load(&ahead.left)))
		return;
	km_store(&ahead.left, false);
	km_pages_reserving(false);
	km_pages_stay_no_more();
	if (touched.taken.next)
		give_taken_back();
	/* A fork in the midst would count it twice. */
	km_lock_scope(&touched.lock);
	count(-touched.more);
}

static km_cold void adopt_now(void)
{
	if (!km_trylock(&touched.one))
		return;
	adopt();
	km_unlock(&touched.one);
}

/* As slabs of the cache will be: whatever lies about, be it in small pieces, is found again by those. */
static bool take_slabs(size_t pages, unsigned order)
{
	const size_t slab = (size_t)1 << order;

	for (size_t taken = 0; taken < pages; taken += slab)
		if (!take(slab, order))
			return false;
	return true;
}

#define LEAST_PIECE	16u
static bool take_pieces(size_t pages)
{
	for (size_t piece = STEP_PAGES, now; pages; pages -= now) {
		while (!take(now = km_min(pages, piece), 0)) {
			if (piece <= LEAST_PIECE)
				return false;
			piece /= 2;
		}
	}
	return true;
}

/* Free pages are taken, touched and given back: they are the first that are taken then. */
static bool touch_free_pages(size_t pages, size_t own, unsigned order, uint32_t live_shift)
{
	/* Some of a slab's neighbours serve nobody (page/purge.c). */
	own = km_min(own + own / 64 + 64, pages);
	bool done = take_slabs(own, order) && take_pieces(pages - own);

	/* Nobody but this thread changes the list. */
	km_list_for_each(entry, &touched.taken) {
		struct km_page *page = km_container_of(entry, struct km_page, list);

		done = done && !km_pages_fault_in(page, page->pages, live_shift);
	}
	give_taken_back();
	return done;
}

/* Pages that were counted are the cache's, or nobody's. */
static void settle(size_t *reserved, size_t pages, bool done)
{
	km_lock_scope(&touched.lock);
	if (done)
		km_store(reserved, pages);
	else
		count(-touched.more);
	touched.more = 0;
}

/* They were the cache's, and are not, after all. */
static void take_back(size_t *reserved, long more)
{
	km_lock_scope(&touched.lock);
	km_store(reserved, *reserved - (size_t)more);
	count(-more);
	touched.more = 0;
}

/* No fork takes this lock. So a thread whose fork has the other lock only tries: the holder may wait for this fork, and
 * in the child the holder is not there. */
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
	adopt();
	long more = (long)want->pages - (long)*reserved;
	bool done = commit(more);
	if (done) {
		km_lock(&touched.lock);
		if (!touched.taken.next)
			km_list_init(&touched.taken);
		count(more);
		km_unlock(&touched.lock);
		/* Of all caches: what is resident is whose it comes to be. */
		done = (more <= 0 || records_ahead()) &&
		       (!want->meta_bytes ||
			(km_meta_ahead(want->meta_bytes) && km_meta_fault_in(want->meta_bytes) &&
			 touch_free_pages(km_pages_reserve(0), want->pages, want->order, want->live_shift)));
		/* Fewer pages than before: what was reserved for those holds. */
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

	/* Most pages are others', and their lock is not wanted. */
	if (km_load(&slab->cache) != visit->cache)
		return 0;
	km_page_hold(slab);
	/* Acquire pairs with km_slab_new_raw: what the slab says is filled in. */
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

/* A thread that was struck while it made memory resident goes on with it in its handler's child. */
void km_ahead_fork(bool before, bool child)
{
	bool others = child && km_fork_has(&touched.lock) && !km_lock_is_own(&touched.one);

	km_lock_around_fork(&touched.lock, before, child);
	if (!child)
		return;
	km_lock_around_fork(&touched.one, false, true);
	ahead.busy = 0;
	/* Where its fork did not get that lock what is in the list is lost, as all that others had in hand then. */
	if (km_lock_is_own(&touched.one))
		return;
	if (!others)
		touched.taken.next = NULL;
	km_store(&ahead.left, true);
	/* A handler's fork may have struck under the lock of the pages: then they go back when that is free. */
	if (!km_fork_is_nested())
		adopt();
}
