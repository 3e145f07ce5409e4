/*
 * page_run.c: the free pages of a node as runs: search by length, take, put back, join. Invariants, while the lock of
 * the zone is free: each free page is in one run. Each run is in the bin of its length and kind. Two runs of a node
 * are adjacent only if their sum would exceed the maximum length. The dirty count of a run equals the set bits of its
 * pages.
 */
#include "os/die.h"
#include "os/os.h"
#include "zone.h"

/* Number of runs tried whose alignment fits only by chance, before longer runs, which always fit. */
#define VISITS	16u

/* ------------------------------------------------------------------ bits */

/* Returns: a mask of `count` bits from bit `first` on. */
static uint64_t mask_of(size_t first, size_t count)
{
	return (count >= 64 ? ~0ull : (1ull << count) - 1) << first;
}

size_t km_bits_count(const uint64_t *bits, size_t first, size_t count)
{
	size_t sum = 0;

	if (km_likely(count == 1))
		return km_load(&bits[first >> 6]) >> (first & 63) & 1;
	while (count) {
		size_t at = first & 63, now = km_min(count, 64 - at);

		sum += (size_t)__builtin_popcountll(km_load(&bits[first >> 6]) & mask_of(at, now));
		first += now;
		count -= now;
	}
	return sum;
}

void km_bits_change(uint64_t *bits, size_t first, size_t count, bool set)
{
	while (count) {
		size_t at = first & 63, now = km_min(count, 64 - at);
		uint64_t *word = &bits[first >> 6], mask = mask_of(at, now);

		km_store(word, set ? *word | mask : *word & ~mask);
		first += now;
		count -= now;
	}
}

/* ------------------------------------------------------------------ bins */

static unsigned bin_of(size_t pages)
{
	km_debug(pages && pages <= KM_RUN_CLEAN, "a run has a page, and at most KM_RUN_CLEAN");

	if (pages <= KM_RUN_EXACT)
		return (unsigned)pages - 1;
	if (pages >= KM_RUN_MAX)
		return KM_RUN_BINS - 1;
	unsigned log = km_ilog2(pages);
	return KM_RUN_EXACT + (log - 6) * 8 + (unsigned)(pages >> (log - 3) & 7);
}

/* Returns: the first bin whose runs all have at least `pages` pages; KM_RUN_BINS if there is none. */
static unsigned bin_for(size_t pages)
{
	if (pages > KM_RUN_MAX)
		return KM_RUN_BINS;
	return pages == 1 ? 0 : bin_of(pages - 1) + 1;
}

unsigned km_run_bin_above(const struct km_zone *zone, bool dirty, unsigned bin)
{
	for (unsigned word = bin / 64; word < 2; bin = ++word * 64) {
		uint64_t bits = zone->filled[dirty][word] & ~mask_of(0, bin % 64);

		if (bits)
			return word * 64 + (unsigned)__builtin_ctzll(bits);
	}
	return KM_RUN_BINS;
}

unsigned km_run_bin_below(const struct km_zone *zone, bool dirty, unsigned bin)
{
	for (unsigned word = bin / 64; word < 2; bin = word-- * 64 - 1) {
		uint64_t bits = zone->filled[dirty][word] & mask_of(0, bin % 64 + 1);

		if (bits)
			return word * 64 + km_ilog2(bits);
	}
	return KM_RUN_BINS;
}

km_inline void link_run(struct km_zone *zone, struct km_page *run, size_t pages, size_t dirty, uint32_t freed_ms)
{
	struct km_page *last = run + pages - 1;
	unsigned bin = bin_of(pages);
	struct km_list *list = &zone->bin[dirty != 0][bin];
	uint64_t *filled = &zone->filled[dirty != 0][bin >> 6], bit = 1ull << (bin & 63);

	km_debug(km_is_locked(&zone->lock), "runs change under the lock of their node");
	km_debug(dirty <= pages, "a run has at most as many dirty pages as pages");

	if (!(*filled & bit)) {
		km_list_init(list);
		*filled |= bit;
	}
	km_store(&run->dirty, (uint32_t)dirty);
	km_store(&run->freed_ms, freed_ms);
	km_store(&last->run, (uint32_t)pages);
	km_store(&run->run, (uint32_t)pages);
	/* Set the type of the last page first: in a run of one page the type FREE must remain. */
	km_store(&last->type, (uint8_t)KM_PAGE_FREE_LAST);
	km_store(&run->type, (uint8_t)KM_PAGE_FREE);
	km_list_add_head(&run->list, list);
}

km_inline void unlink_run(struct km_zone *zone, struct km_page *run)
{
	unsigned bin = bin_of(run->run);
	bool dirty = run->dirty != 0;

	km_debug(km_is_locked(&zone->lock), "runs change under the lock of their node");
	km_debug(run->type == KM_PAGE_FREE && run[run->run - 1].run == run->run,
		 "the first and last page of a run have its length");
	km_debug(zone->filled[dirty][bin >> 6] >> (bin & 63) & 1, "a run is in the bin of its length and kind");

	km_list_del(&run->list);
	if (km_list_empty(&zone->bin[dirty][bin]))
		zone->filled[dirty][bin >> 6] &= ~(1ull << (bin & 63));
	km_store(&run[run->run - 1].type, (uint8_t)KM_PAGE_NONE);
	km_store(&run->type, (uint8_t)KM_PAGE_NONE);
}

static void count_free(struct km_zone *zone, size_t dirty, size_t clean)
{
	km_bump(&zone->pages.dirty_pages, dirty);
	km_bump(&zone->pages.clean_pages, clean);
	km_debug((long)zone->pages.dirty_pages >= 0 && (long)zone->pages.clean_pages >= 0,
		 "at most the counted free pages are taken");
}

void km_run_count_out(struct km_zone *zone, struct km_page *run)
{
	count_free(zone, -(size_t)run->dirty, (size_t)run->dirty - run->run);
	unlink_run(zone, run);
}

/* ------------------------------------------------------------------ taking */

static struct km_page *look_in(const struct km_list *list, size_t count, size_t align, unsigned *visits)
{
	km_list_for_each_entry(struct km_page, run, list, list) {
		/* An index in the range has the alignment of the page's address: the first page of a range is aligned
		 * to any block. */
		size_t start = align == 1 ? 0 : (size_t)(run - km_range_of_page(run)->page);

		if (!*visits)
			return NULL;
		--*visits;
		if (km_align_up(start, align) - start + count <= run->run)
			return run;
	}
	return NULL;
}

static struct km_page *find_kind(const struct km_zone *zone, bool dirty, size_t count, size_t align, unsigned visits)
{
	unsigned sure = bin_for(count + align - 1);
	unsigned bin = km_run_bin_above(zone, dirty, bin_of(count));

	for (; bin < sure && visits; bin = km_run_bin_above(zone, dirty, bin + 1)) {
		struct km_page *run = look_in(&zone->bin[dirty][bin], count, align, &visits);

		if (run)
			return run;
	}
	bin = km_run_bin_above(zone, dirty, km_max(bin, sure));
	return bin < KM_RUN_BINS ? km_list_first(&zone->bin[dirty][bin], struct km_page, list) : NULL;
}

/* Resident runs come first, whatever their length: fresh memory is the last choice. */
struct km_page *km_run_find(const struct km_zone *zone, size_t count, unsigned order, bool all)
{
	unsigned visits = all ? -1u : VISITS;

	return find_kind(zone, true, count, (size_t)1 << order, visits) ?:
	       find_kind(zone, false, count, (size_t)1 << order, visits);
}

/* Returns: the pages among `count` pages of a run that may be resident. */
km_inline size_t dirty_of(const struct km_range *range, const struct km_page *run, size_t first, size_t count)
{
	if (!run->dirty || !count)
		return 0;
	return run->dirty == run->run ? count : km_bits_count(range->dirty, first, count);
}

/* Count allocated pages that are not resident as `missed`, at most as many as were trimmed: trimming gave these pages
 * back too early. */
km_cold static void miss_trimmed(struct km_zone *zone, size_t pages)
{
	size_t again = km_min(zone->trimmed, pages);

	km_bump(&zone->trimmed, -again);
	km_bump(&zone->missed, again);
}

/* Returns: the index in the run [start, end) from which to take `count` aligned pages. A reservation wants resident
 * pages. So while one exists and only a part of the run is resident, the first resident page is chosen, if `count`
 * pages follow. */
static size_t place_in(const struct km_range *range, const struct km_page *run, size_t start, size_t end, size_t count,
		       size_t align)
{
	if (km_likely(!km_load(&km_arena.reserved_pages)) || !run->dirty || run->dirty == run->run)
		return km_align_up(start, align);
	for (size_t word = start / 64; word * 64 < end; word++) {
		uint64_t bits = range->dirty[word] & (word == start / 64 ? UINT64_MAX << start % 64 : UINT64_MAX);

		if (!bits)
			continue;
		size_t first = km_align_up(word * 64 + (unsigned)__builtin_ctzll(bits), align);
		if (first + count <= end)
			return first;
		break;
	}
	return km_align_up(start, align);
}

/* Take `count` pages out of the run, from page `first` of the range on. */
static struct km_page *take_from(struct km_zone *zone, struct km_page *run, size_t first, size_t count, bool may_call,
				 bool *zero)
{
	struct km_range *range = km_range_of_page(run);
	size_t start = (size_t)(run - range->page), end = start + run->run, after = first + count;
	size_t taken = dirty_of(range, run, first, count), before, dirty = run->dirty;
	uint32_t freed_ms = run->freed_ms;

	km_debug(first >= start && after <= end, "the taken pages are in the run");

	unlink_run(zone, run);
	if (count <= KM_SMALL_PAGES)
		zone->small += (uint32_t)count;
	if (taken < count && may_call) {
		size_t more = km_resident_ahead(zone, range, start, end, first, count);

		count_free(zone, more, -more);
		run->dirty += (uint32_t)more;
		dirty += more;
		taken = dirty_of(range, run, first, count);
	}
	before = dirty_of(range, run, start, first - start);
	if (taken)
		km_bits_change(range->dirty, first, count, false);
	if (first > start)
		link_run(zone, run, first - start, before, freed_ms);
	if (after < end)
		link_run(zone, &range->page[after], end - after, dirty - taken - before, freed_ms);
	km_debug(!km_bits_count(range->dirty, first, count), "a page in use has no dirty bit");
	km_debug(taken <= count && taken + before <= dirty, "the parts of a run have all dirty pages of the run");
	count_free(zone, -taken, taken - count);
	km_bump(&zone->pages.used_pages, count);
	if (km_unlikely(zone->trimmed) && taken < count)
		miss_trimmed(zone, count - taken);
	if (zero)
		*zero = !taken;
	return &range->page[first];
}

struct km_page *km_run_take(struct km_zone *zone, struct km_page *run, size_t count, unsigned order, bool may_call,
			    bool *zero)
{
	const struct km_range *range = km_range_of_page(run);
	size_t start = (size_t)(run - range->page);

	return take_from(zone, run, place_in(range, run, start, start + run->run, count, (size_t)1 << order), count,
			 may_call, zero);
}

/* ------------------------------------------------------------------ putting back */

/* The run that results from joining runs. Its age is the average age of the resident pages. */
struct joined {
	size_t start, end, dirty;
	uint32_t now, age_ms;
};

static bool may_join(const struct km_page *run, const struct joined *to)
{
	return run->run + (to->end - to->start) <= (run->dirty || to->dirty ? KM_RUN_MAX : KM_RUN_CLEAN);
}

static void join(struct km_zone *zone, struct joined *to, struct km_page *run, size_t start)
{
	size_t dirty = run->dirty + to->dirty;
	int32_t age = (int32_t)(to->now - run->freed_ms);

	km_debug(start + run->run == to->start || start == to->end, "joined runs are adjacent");
	km_debug(dirty <= to->end - to->start + run->run, "a run has at most as many dirty pages as pages");

	/* Mostly both ages are 0, and the division is skipped. */
	if (run->dirty && (age > 0 || to->age_ms))
		to->age_ms = (uint32_t)(((uint64_t)to->age_ms * to->dirty + (uint64_t)km_max(age, 0) * run->dirty) /
					dirty);
	to->dirty = dirty;
	to->start = km_min(to->start, start);
	to->end = km_max(to->end, start + run->run);
	unlink_run(zone, run);
}

/* Returns: NULL also for a run of another node, because such a run changes under another lock. */
struct km_page *km_run_before(const struct km_range *range, size_t index)
{
	if (!index || (!(index & (KM_BLOCK_PAGES - 1)) &&
		       km_range_node(range, index - 1) != km_range_node(range, index)))
		return NULL;
	struct km_page *last = &range->page[index - 1];
	uint8_t type = km_load(&last->type);
	return type == KM_PAGE_FREE || type == KM_PAGE_FREE_LAST ? last - (last->run - 1) : NULL;
}

struct km_page *km_run_at(const struct km_range *range, size_t index)
{
	/* Acquire pairs with the release in commit_block: a committed page has a descriptor and a node. */
	if (index >= km_load_acquire(&range->ready) ||
	    (!(index & (KM_BLOCK_PAGES - 1)) && km_range_node(range, index - 1) != km_range_node(range, index)))
		return NULL;
	/* The type may be of a block in use, and change meanwhile; but only under this lock from or to FREE. */
	return km_load(&range->page[index].type) == KM_PAGE_FREE ? &range->page[index] : NULL;
}

void km_run_put(struct km_zone *zone, struct km_range *range, size_t index, size_t count, bool dirty)
{
	struct joined to = { index, index + count, dirty ? count : 0, (uint32_t)km_os_now_ms(), 0 };
	struct km_page *left = km_run_before(range, index), *right = km_run_at(range, index + count);

	if (dirty)
		km_bits_change(range->dirty, index, count, true);
	if (dirty && count <= KM_SMALL_PAGES)
		zone->small -= km_min(zone->small, (uint32_t)count);
	km_debug(!left || km_range_node(range, index - 1) == km_range_node(range, index), "a run is of one node");
	count_free(zone, to.dirty, count - to.dirty);
	if (left && may_join(left, &to))
		join(zone, &to, left, index - left->run);
	if (right && may_join(right, &to))
		join(zone, &to, right, index + count);
	link_run(zone, &range->page[to.start], to.end - to.start, to.dirty, to.now - to.age_ms);
	km_debug(km_bits_count(range->dirty, to.start, to.end - to.start) == to.dirty,
		 "a run counts the pages with a dirty bit as dirty");
}

void km_run_put_back(struct km_zone *zone, struct km_range *range, size_t first, size_t end)
{
	km_debug(first >= end || end <= range->ready, "freed pages were committed");

	while (first < end) {
		bool dirty = km_bits_count(range->dirty, first, 1);
		size_t to = first + 1, most = dirty ? KM_RUN_MAX : KM_RUN_CLEAN;

		while (to < end && to - first < most && km_bits_count(range->dirty, to, 1) == dirty)
			to++;
		km_run_put(zone, range, first, to - first, dirty);
		first = to;
	}
}

bool km_run_extend(struct km_zone *zone, struct km_range *range, size_t index, size_t count, bool *zero)
{
	struct km_page *run = km_run_at(range, index);

	if (!run || run->run < count)
		return false;
	take_from(zone, run, index, count, false, zero);
	return true;
}

/* ------------------------------------------------------------------ checking */

static bool run_is_right(const struct km_page *run, unsigned node, unsigned bin, bool dirty)
{
	const struct km_range *range = km_range_of_page(run);

	if (!range || run->type != KM_PAGE_FREE || !run->run || run->run > KM_RUN_CLEAN || bin_of(run->run) != bin)
		return false;
	size_t start = (size_t)(run - range->page);
	const struct km_page *last = run + run->run - 1;
	return start + run->run <= range->ready && km_range_node(range, start) == node && last->run == run->run &&
	       (run == last || last->type == KM_PAGE_FREE_LAST) && (run->dirty != 0) == dirty &&
	       km_bits_count(range->dirty, start, run->run) == run->dirty;
}

int km_run_check(unsigned node)
{
	const struct km_zone *zone = &km_arena.zone[node];
	const size_t kept = zone->pages.dirty_pages + zone->pages.clean_pages;
	size_t free[2] = { 0, 0 };

	for (unsigned kind = 0; kind < 2; kind++)
		for (unsigned bin = km_run_bin_above(zone, kind, 0); bin < KM_RUN_BINS;
		     bin = km_run_bin_above(zone, kind, bin + 1))
			/* A run has at least one page, so a longer list is damaged. */
			km_list_for_some(entry, &zone->bin[kind][bin], kept + 1) {
				struct km_page *run = km_container_of(entry, struct km_page, list);

				if (!run_is_right(run, node, bin, kind)) {
					km_warn("check: free run %p is damaged", run);
					return 1;
				}
				free[1] += run->dirty;
				free[0] += run->run - run->dirty;
			}
	if (free[1] == zone->pages.dirty_pages && free[0] == zone->pages.clean_pages)
		return 0;
	km_warn("check: node %u: the lists have %lu dirty and %lu clean free pages, but %lu and %lu are "
		"counted", node, free[1], free[0],
		zone->pages.dirty_pages, zone->pages.clean_pages);
	return 1;
}
