/*
 * purge.c: resident free memory: its bound, its return to the system (purge), and the prefault of huge pages.
 * Invariants: a free page that the system has made resident counts as dirty, whoever touched the page first. Memory
 * is prefaulted only while the bound has room for more. A zone's lock is held for no system call except the prefault.
 */
#include "os/die.h"
#include "os/os.h"
#include "huge.h"
#include "deferred_free.h"
#include "nodump.h"
#include "huge_cache.h"
#include "zone.h"

#define LATER_MS	60000u	/* longer than any purge: a run freed so many ms after the purge's `now` counts as
				 * younger, not as old */
#define TRIM_ROUNDS	4
/* Limits of a purge in vain: after MOST_KEPT refused pages the purge leaves the run; after MOST_IN_VAIN runs without
 * a purged page the purge ends. */
#define MOST_KEPT	8u
#define MOST_IN_VAIN	16u
/* Dirty memory always allowed: 1 MiB. If use swings by more, km_pages_swing() soon raises the bound. */
#define DIRTY_FLOOR_PAGES	256u
/* A sweep begins when slabs, or free objects in slabs, have grown by this part of the pages in use, and by more than
 * DIRTY_FLOOR_PAGES. */
#define SWEEP_PART		32u
/* Descriptors of this many pages fill two pages of memory, so at least one of these two pages has no descriptor of
 * another run. */
#define LONG_PAGES		(2 * KM_PAGE_SIZE / sizeof(struct km_page))
/* No huge page is prefaulted while fewer pages are in use: a small program must not get 2 MiB for a few pages. */
#define HUGE_FROM_PAGES	(2 * KM_BLOCK_PAGES)

/* ------------------------------------------------------------------ counts, of all nodes */

size_t km_slab_clock;

size_t km_pages_used(void)
{
	return km_zones_sum(pages.used_pages);
}

size_t km_pages_there(void)
{
	size_t used = km_pages_used();

	return used - km_min(km_load(&km_arena.gone_pages), used);
}

/* Returns: the pages kept for reservations, with a margin, because the alignment of slabs leaves some pages unused. */
static size_t staying(void)
{
	size_t pages = km_load(&km_arena.reserved_pages);

	return pages ? pages + pages / 64 + 64 : 0;
}

/* Returns: the dirty pages of all nodes, less the pages kept for reservations. */
static size_t pages_dirty(void)
{
	size_t pages = km_zones_sum(pages.dirty_pages);

	return pages - km_min(staying(), pages);
}

size_t km_pages_reserve(long more)
{
	km_add(&km_arena.reserved_pages, (size_t)more);
	km_debug((long)km_load(&km_arena.reserved_pages) >= 0, "at most the reserved pages are released");
	return staying();
}

/* Returns: the bound of dirty pages: a quarter of the pages in use, plus a floor, less the pages cached on CPUs. These
 * lower the bound by half at most. */
static size_t dirty_bound(void)
{
	size_t bound = km_pages_there() / 4 + DIRTY_FLOOR_PAGES;

	return bound - km_min(km_load(&km_arena.ready_pages), bound / 2);
}

void km_pages_set_ready(size_t pages)
{
	km_store(&km_arena.ready_pages, pages);
}

void km_pages_slack(long bytes)
{
	km_add(&km_arena.slack.now, (size_t)bytes);
	if (bytes > 0)
		km_add(&km_slab_clock, (size_t)bytes);
}

void km_pages_slab(long bytes)
{
	km_add(&km_arena.slabs.now, (size_t)bytes);
	km_pages_slack(bytes);
}

void km_pages_retain(long bytes)
{
	km_add(&km_arena.retained, (size_t)bytes);
}

static size_t sweep_step(void)
{
	return km_max(km_pages_there() / SWEEP_PART, (size_t)DIRTY_FLOOR_PAGES) << KM_PAGE_SHIFT;
}

/* Returns whether the bytes grew by `step` since the last sweep, or since they were fewer. */
static bool has_grown(struct km_growth *bytes, size_t step)
{
	const size_t now = km_load(&bytes->now), swept = km_load(&bytes->swept);

	if (now < swept)
		km_store(&bytes->swept, now);
	return now > swept && now - swept > step;
}

/* Growth of slabs does not count without retained objects: other cached objects are few, and draining them would make
 * slabs come and go. */
static bool slabs_have_grown(void)
{
	const size_t step = sweep_step();

	return has_grown(&km_arena.slabs, step) && km_load(&km_arena.retained) > step;
}

bool km_pages_too_slack(void)
{
	return has_grown(&km_arena.slack, sweep_step()) || slabs_have_grown();
}

size_t km_pages_sweep_since(void)
{
	const size_t clock = km_load(&km_slab_clock), before = km_load(&km_arena.sweep_began);

	km_store(&km_arena.sweep_began, clock);
	return slabs_have_grown() ? clock - km_min(sweep_step(), clock) : before;
}

void km_pages_swept(void)
{
	km_store(&km_arena.slack.swept, km_load(&km_arena.slack.now));
	km_store(&km_arena.slabs.swept, km_load(&km_arena.slabs.now));
}

/* Returns: the swing: pages that trimming took and the program allocated again soon after. Dirty memory may exceed its
 * bound by the swing. Use must fall by more than the swing before the fall counts as a fall. The swing fades with the
 * decay time, and kmem_shrink_all() resets the swing. In-use pages, huge blocks and the swing together are at most five
 * quarters of the recent peak of use. */
size_t km_pages_swing(void)
{
	size_t used = km_pages_there() + km_huge_pages(), peak = km_max(km_load(&km_arena.peak_pages), used);

	km_store(&km_arena.peak_pages, peak);
	return km_min(km_zones_sum(missed), peak + peak / 4 - km_min(peak, used + km_load(&km_huge_cache.pages)));
}

bool km_pages_too_dirty(void)
{
	/* kept_pages: pages that the system refused to purge are not offered again before there are more dirty
	 * pages. */
	return pages_dirty() > km_max(dirty_bound() + km_pages_swing(), km_load(&km_arena.kept_pages)) ||
	       km_huge_cache_too_many((km_pages_there() + km_huge_pages()) << KM_PAGE_SHIFT);
}

/* Reduce the zone's swing by a quarter, or (whole) to 0. */
static void fade(struct km_zone *zone, bool whole)
{
	if (!km_load(&zone->trimmed) && !km_load(&zone->missed))
		return;
	km_lock_scope(&zone->lock);
	km_bump(&zone->trimmed, -(whole ? zone->trimmed : (zone->trimmed + 3) / 4));
	km_bump(&zone->missed, -(whole ? zone->missed : (zone->missed + 3) / 4));
}

/* ------------------------------------------------------------------ huge pages */

/* Prefault the huge page of index, if it lies in the free run [start, end), is untouched, and fits in the bound.
 * Returns: its pages, or 0. */
static size_t huge_at(struct km_zone *zone, struct km_range *range, size_t start, size_t end, size_t index)
{
	size_t first = km_align_down(index, KM_HUGE_PAGES);

	if (first < start || first + KM_HUGE_PAGES > end || km_bits_count(range->dirty, first, KM_HUGE_PAGES) ||
	    pages_dirty() + KM_HUGE_PAGES > dirty_bound())
		return 0;
	/* After a failure retry when half a huge page of small requests has followed. */
	if (!km_os_huge(range->base + (first << KM_PAGE_SHIFT), KM_HUGE_PAGES << KM_PAGE_SHIFT)) {
		zone->small = 0;
		return 0;
	}
	/* Count the whole huge page as resident, even if the system stopped half-way. */
	km_bits_change(range->dirty, first, KM_HUGE_PAGES, true);
	km_debug(first + KM_HUGE_PAGES <= range->ready, "a prefaulted huge page is committed");
	return KM_HUGE_PAGES;
}

size_t km_resident_ahead(struct km_zone *zone, struct km_range *range, size_t start, size_t end, size_t first,
			 size_t count)
{
	size_t last = first + count - 1;

	/* Larger blocks may take the prefaulted pages and never touch them. So each further huge page requires half a
	 * huge page of small requests: prefaulted memory is bounded by the memory of slabs. */
	km_debug(km_is_locked(&zone->lock), "memory is prefaulted under the lock of its node");

	if (!km_arena.huge || km_load(&km_arena.reserving) || count > KM_SMALL_PAGES ||
	    zone->small < KM_HUGE_PAGES / 2 || km_pages_used() < HUGE_FROM_PAGES)
		return 0;
	size_t more = huge_at(zone, range, start, end, first);
	if (!more && zone->small && first / KM_HUGE_PAGES != last / KM_HUGE_PAGES)
		more = huge_at(zone, range, start, end, last);
	if (more)
		zone->small = 0;
	return more;
}

/* ------------------------------------------------------------------ giving back */

/* The part of a run that can be purged: whole system pages, as indices of 4 KiB pages. */
struct span {
	size_t first, end;
};

/* Returns: the span without clean system pages at its start and end. */
static struct span narrow(const struct km_range *range, struct span span, size_t unit)
{
	while (span.first < span.end && !km_bits_count(range->dirty, span.first, unit))
		span.first += unit;
	while (span.first < span.end && !km_bits_count(range->dirty, span.end - unit, unit))
		span.end -= unit;
	return span;
}

/* Returns: the span, cut so that at most `most` resident pages are purged. */
static struct span cut(const struct km_range *range, struct span span, size_t most)
{
	size_t unit = km_os_page_bytes() >> KM_PAGE_SHIFT;

	if (km_likely(km_bits_count(range->dirty, span.first, span.end - span.first) <= most))
		return span;
	span = narrow(range, span, unit);
	span.end = km_min(span.end, span.first + km_align_down(most, unit));
	return span;
}

static struct span span_of(const struct km_range *range, const struct km_page *run)
{
	size_t first = (size_t)(run - range->page), end = first + run->run;
	size_t unit = km_os_page_bytes() >> KM_PAGE_SHIFT;

	return (struct span){ km_align_up(first, unit), km_max(km_align_down(end, unit), km_align_up(first, unit)) };
}

/* Returns: the oldest run of the bin, if its age is at least `decay_ms` and some of its resident pages can be purged,
 * else NULL. Requires: the lock of the zone is held. */
static struct km_page *oldest_in(struct km_zone *zone, unsigned bin, uint32_t now, unsigned decay_ms)
{
	struct km_list *list = &zone->bin[1][bin];

	for (;;) {
		struct km_page *run = km_list_last(list, struct km_page, list);
		struct km_range *range = km_range_of_page(run);
		struct span span = span_of(range, run);

		km_debug(run->dirty && run->dirty <= run->run, "a run of these bins has pages that may be resident");

		/* Stop also at a run freed after `now`: otherwise a purge would last as long as other threads free. */
		if (now - run->freed_ms + LATER_MS < decay_ms + LATER_MS)
			return NULL;
		if (span.end > span.first && km_bits_count(range->dirty, span.first, span.end - span.first))
			return run;
		/* The run is less than a system page: move the run to the front, as younger than this purge. */
		km_store(&run->freed_ms, now + 1);
		km_list_del(&run->list);
		km_list_add_head(&run->list, list);
	}
}

/* Take the oldest run of the highest bin of resident runs off its list. Returns: NULL if no run is old enough.
 * Requires: the lock of the zone is held. */
static struct km_page *take_old(struct km_zone *zone, uint32_t now, unsigned decay_ms)
{
	for (unsigned bin = km_run_bin_below(zone, true, KM_RUN_BINS - 1); bin < KM_RUN_BINS;
	     bin = bin ? km_run_bin_below(zone, true, bin - 1) : KM_RUN_BINS) {
		struct km_page *run = oldest_in(zone, bin, now, decay_ms);

		if (run) {
			km_run_count_out(zone, run);
			return run;
		}
	}
	return NULL;
}

/* A run taken off its list, while its memory is offered to the system. */
struct offer {
	struct km_zone *zone;
	struct km_range *range;
	bool refused;			/* the system refused a part of the run */
	unsigned kept;			/* single pages that the system refused */
};

static bool give(const struct offer *offer, struct span span, size_t dirty)
{
	size_t count = span.end - span.first;

	if (km_os_purge(offer->range->base + (span.first << KM_PAGE_SHIFT), count << KM_PAGE_SHIFT))
		return false;
	km_lock_scope(&offer->zone->lock);
	km_bits_change(offer->range->dirty, span.first, count, false);
	km_bump(&offer->zone->pages.purged_pages, dirty);
	return true;
}

/* Purge the span. If the system refuses a part, the program has locked a page in the part: purge the two halves, down
 * to single pages. A refused page stays. If the system refuses everything (mlockall), MOST_KEPT refused pages end the
 * attempt. Returns: the number of purged pages. */
static size_t give_parts(struct offer *offer, struct span span)
{
	size_t unit = km_os_page_bytes() >> KM_PAGE_SHIFT;

	if (offer->refused)
		span = narrow(offer->range, span, unit);
	size_t count = span.end - span.first, dirty = km_bits_count(offer->range->dirty, span.first, count);
	if (!dirty || offer->kept == MOST_KEPT)
		return 0;
	if (give(offer, span, dirty))
		return dirty;
	offer->kept += count == unit;
	if (count == unit)
		return 0;
	if (!offer->refused) {
		offer->refused = true;
		return give_parts(offer, span);
	}
	size_t middle = span.first + km_align_up(count / 2, unit);
	size_t given = give_parts(offer, (struct span){ span.first, middle });
	return given + give_parts(offer, (struct span){ middle, span.end });
}

/* Purge the records of the free pages [*first, *end), taken off all lists by the caller, by whole pages of the system.
 * A record of zeros means an unused page. The system may refuse. One page of the page map describes more pages than
 * most runs have, so clean runs on both sides are taken off their lists as well. *first and *end include these runs
 * afterwards. */
static void give_records(struct km_zone *zone, struct km_range *range, size_t *first, size_t *end)
{
	const size_t unit = km_os_page_bytes(), most = unit / sizeof(*range->map);
	size_t from = *first - km_min(*first, most), to = *end + most;
	struct km_page *run;

	km_debug(km_is_locked(&km_arena.purge), "pages are off their lists only under the purge lock");
	km_lock(&zone->lock);
	while (*first > from && (run = km_run_before(range, *first)) && !run->dirty) {
		*first -= run->run;
		km_run_count_out(zone, run);
	}
	while (*end < to && (run = km_run_at(range, *end)) && !run->dirty) {
		*end += run->run;
		km_run_count_out(zone, run);
	}
	km_unlock(&zone->lock);
	from = km_max(from, *first);
	to = km_min(to, *end);
	for (unsigned i = 0; i < KM_RANGE_ARRAYS && range->array[i]; i++) {
		const uintptr_t array = (uintptr_t)range->array[i];
		uintptr_t first_byte = km_align_up(array + from * km_range_bits[i] / 8, unit);
		uintptr_t end_byte = km_align_down(array + to * km_range_bits[i] / 8, unit);

		if (i != KM_RANGE_DIRTY && first_byte < end_byte)
			(void)km_os_purge((void *)first_byte, end_byte - first_byte);
	}
}

/* Purge one run. *given: its purged pages. Returns: false if no run is old enough. Requires: the purge lock is held;
 * a fork and the last resort of an allocation wait for the lock. */
static bool purge_run(struct km_zone *zone, uint32_t now, unsigned decay_ms, size_t *given)
{
	size_t most = pages_dirty();
	km_lock(&zone->lock);
	struct km_page *run = most ? take_old(zone, now, decay_ms) : NULL;
	km_unlock(&zone->lock);
	if (!run) {
		if (km_os_page_bytes() > KM_PAGE_SIZE && !decay_ms)
			km_store(&km_arena.kept_pages, pages_dirty());
		return false;
	}
	struct offer offer = { .zone = zone, .range = km_range_of_page(run) };
	size_t first = (size_t)(run - offer.range->page), end = first + run->run;
	struct span span = cut(offer.range, span_of(offer.range, run), most);
	*given = span.end > span.first ? give_parts(&offer, span) : 0;
	if (end - first >= LONG_PAGES && !offer.refused)
		give_records(zone, offer.range, &first, &end);

	km_lock(&zone->lock);
	km_run_put_back(zone, offer.range, first, end);
	/* If a page was refused, the joined run counts as freed now, so that this purge does not try again. */
	struct km_page *last = &offer.range->page[end - 1];
	if (offer.kept && last->type == KM_PAGE_FREE_LAST)
		last -= last->run - 1;
	if (offer.kept && last->type == KM_PAGE_FREE)
		km_store(&last->freed_ms, now + 1);
	km_unlock(&zone->lock);
	km_store(&km_arena.kept_pages, *given ? (size_t)0 : pages_dirty());
	return true;
}

static size_t purge_until(struct km_zone *zone, unsigned decay_ms, size_t enough_pages)
{
	uint32_t now = (uint32_t)km_os_now_ms();
	size_t given = 0;
	bool any = true;

	/* At most MOST_IN_VAIN runs without a purged page are tried. */
	for (unsigned in_vain = 0; any && given < enough_pages && in_vain < MOST_IN_VAIN;) {
		size_t pages = 0;

		km_lock(&km_arena.purge);
		any = purge_run(zone, now, decay_ms, &pages);
		km_unlock(&km_arena.purge);
		given += pages;
		in_vain += !pages;
	}
	return given;
}

size_t km_pages_purge(unsigned decay_ms)
{
	size_t given = 0;

	km_deferred_finish();
	km_nodump_release();
	size_t peak = km_load(&km_arena.peak_pages), fall = peak - km_min(peak, km_pages_there() + km_huge_pages());
	km_store(&km_arena.peak_pages, peak - (decay_ms ? (fall + 3) / 4 : fall));
	for (unsigned i = 0; i < km_node_count; i++) {
		fade(&km_arena.zone[i], !decay_ms);
		given += purge_until(&km_arena.zone[i], decay_ms, SIZE_MAX);
	}
	return given;
}

/* Purge `pages` pages, of each node in proportion to its share of the `dirty` pages. */
static size_t trim_by(size_t pages, size_t dirty)
{
	size_t given = 0;

	for (unsigned i = 0; i < km_node_count; i++) {
		struct km_zone *zone = &km_arena.zone[i];
		size_t own = km_min(km_load(&zone->pages.dirty_pages), dirty);

		size_t now = purge_until(zone, 0, (size_t)((unsigned __int128)own * pages / dirty));

		km_lock(&zone->lock);
		km_bump(&zone->trimmed, now);
		km_unlock(&zone->lock);
		given += now;
	}
	return given;
}

void km_pages_trim(void)
{
	size_t given = 1;

	if (km_load(&km_huge_cache.pages))
		km_huge_trim();
	/* Other threads free meanwhile. After TRIM_ROUNDS rounds the rest is left to these threads, or to the next
	 * trim. */
	for (int round = 0; given && round < TRIM_ROUNDS; round++) {
		size_t dirty = pages_dirty(), enough = dirty_bound() / 4 + km_pages_swing();

		given = dirty > enough ? trim_by(dirty - enough, dirty) : 0;
	}
}

bool km_pages_hollow(struct km_page *page, size_t count)
{
	struct km_zone *zone = km_zone_of_page(page);
	size_t gone = 0;

	if (km_os_purge(km_page_address(page), count << KM_PAGE_SHIFT))
		return false;
	for (size_t i = 0; i < count; i++) {
		km_debug(page[i].type != KM_PAGE_FREE && page[i].type != KM_PAGE_FREE_LAST, "hollow pages are in use");
		gone += !(page[i].flags & KM_PAGE_GONE);
	}
	/* Raise the count before the flags are set: if a signal handler forks in between, the child's count is never
	 * below the number of flags. */
	km_add(&km_arena.gone_pages, gone);
	for (size_t i = 0; i < count; i++)
		km_store(&page[i].flags, (uint8_t)(page[i].flags | KM_PAGE_GONE));
	km_lock_scope(&zone->lock);
	km_bump(&zone->pages.purged_pages, gone);
	return true;
}

void km_pages_fill(struct km_page *page, size_t count)
{
	size_t filled = 0;

	for (size_t i = 0; i < count; i++)
		if (page[i].flags & KM_PAGE_GONE) {
			km_store(&page[i].flags, (uint8_t)(page[i].flags & ~KM_PAGE_GONE));
			filled++;
		}
	if (!filled)
		return;
	km_debug(km_load(&km_arena.gone_pages) >= filled, "at most the gone pages are filled");
	km_sub(&km_arena.gone_pages, filled);
}
