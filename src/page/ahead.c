/*
 * ahead.c: how much is committed ahead: what was reserved, and a level that follows the requests that may not wait:
 * twice what they take between two top-ups; where one found nothing, the level doubles; without demand it falls by
 * half in each decay time. Invariants: a program that makes no such request, and reserves nothing, has nothing
 * committed ahead; a refusal of the system ends a top-up. A page that is committed and not touched costs no memory.
 */
#include "ahead.h"

#include "../port/atomic.h"
#include "../port/bits.h"
#include "../port/die.h"
#include "../port/os.h"
#include "arena.h"
#include "meta.h"

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
	return km_load(&ahead.asked) || km_load(&ahead.missed) || km_ahead_level();
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

void km_ahead_top_up(void)
{
	uint32_t free = 0;

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

bool km_ahead_reserve(long pages)
{
	size_t steps = pages > 0 ? ((size_t)pages + STEP_PAGES - 1) / STEP_PAGES : 0;

	/* More than the machine has would be committed step by step, and never be there. */
	if (pages > 0 && (size_t)pages > km_os_memory() >> KM_PAGE_SHIFT)
		return false;
	/* Fresh ones, whatever is free: they are together. */
	for (; steps; steps--)
		if (!km_arena_commit(km_node_here()))
			return false;
	km_add(&ahead.reserved, (size_t)pages);
	km_debug((long)km_load(&ahead.reserved) >= 0, "no more is given back than was reserved");
	if (pages <= 0 || records_ahead())
		return true;
	km_sub(&ahead.reserved, (size_t)pages);
	return false;
}

/* Free pages are taken, touched and given back: they are the first that are taken then. */
#define LEAST_PIECE	16u
static bool touch_free_pages(size_t pages, uint32_t live_shift)
{
	size_t piece = STEP_PAGES;
	struct km_list taken;
	bool done = true;

	km_list_init(&taken);
	while (pages && done) {
		size_t count = km_min(pages, piece);
		struct km_page *page = km_pages_alloc_exact(count, 0, NUMA_NO_NODE, true, NULL);

		done = page || piece > LEAST_PIECE;
		if (!page) {
			piece /= 2;
			continue;
		}
		page->pages = count;
		km_list_add_tail(&page->list, &taken);
		done = !km_pages_fault_in(page, count, live_shift);
		pages -= count;
	}
	km_list_for_each_safe(entry, &taken) {
		struct km_page *page = km_container_of(entry, struct km_page, list);

		km_list_del(entry);
		km_pages_free_exact(page, page->pages);
	}
	return done;
}

bool km_ahead_fault_in(long more, size_t meta_bytes, uint32_t live_shift)
{
	if (!km_ahead_reserve(more))
		return false;
	size_t pages = km_pages_reserve(more);
	/* Of all caches: what is resident is whose it comes to be. */
	bool resident = !meta_bytes || (km_meta_ahead(meta_bytes) && km_meta_fault_in(meta_bytes) &&
					touch_free_pages(pages, live_shift));

	/* Fewer pages than before: what was reserved for those holds. */
	if (resident || more < 0)
		return true;
	/* Not by a call of km_ahead_reserve, which may be refused. */
	km_pages_reserve(-more);
	km_sub(&ahead.reserved, (size_t)more);
	return false;
}

void km_ahead_fork_child(void)
{
	ahead.busy = 0;
}
