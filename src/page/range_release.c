/*
 * range_release.c: economy of address space: blocks longer than a largest block, built from adjacent free pages, and
 * the release of whole ranges or of the ends of ranges. Invariant: a range is unmapped only while no page of the
 * range is used. Its descriptors stay mapped, so a stale descriptor reads as free.
 */
#include "os/die.h"
#include "os/os.h"
#include "os/sanitizer.h"
#include "zone.h"

/* ------------------------------------------------------------------ long blocks; the zone's lock held */

/* Returns: the number of pages to skip from a page that does not begin a free run. */
static size_t skip_of(const struct km_page *page)
{
	/* Acquire pairs with the release of a thread that turns the page into a block, without the lock. */
	uint8_t type = km_load_acquire(&page->type);

	if (type == KM_PAGE_LARGE)
		return km_max(km_load(&page->pages), (uint64_t)1);
	return type == KM_PAGE_SLAB ? (size_t)1 << page->order : 1;
}

/* Find `count` adjacent aligned free pages of the node. Returns: the first index, or SIZE_MAX. */
static size_t find_long(const struct km_range *range, unsigned node, size_t count, size_t align)
{
	size_t start = SIZE_MAX;

	for (size_t index = 0; index < range->ready;) {
		const struct km_page *page = &range->page[index];

		if (km_range_node(range, index) != node) {
			start = SIZE_MAX;
			index = km_align_down(index, KM_BLOCK_PAGES) + KM_BLOCK_PAGES;
		} else if (km_load(&page->type) != KM_PAGE_FREE) {
			start = SIZE_MAX;
			index += skip_of(page);
		} else {
			start = start == SIZE_MAX ? km_align_up(index, align) : start;
			km_debug(page->run && index + page->run <= range->ready, "a run ends in committed memory");
			index += page->run;
			if (start + count <= index)
				return start;
		}
	}
	return SIZE_MAX;
}

static struct km_page *take_long(struct km_zone *zone, struct km_range *range, size_t first, size_t count, bool *zero)
{
	size_t at = first, end;

	/* With an alignment the first run may begin before the block. */
	while (range->page[at].type != KM_PAGE_FREE)
		at--;
	size_t start = at;
	for (end = at; end < first + count; end += range->page[end].run)
		km_run_count_out(zone, &range->page[end]);
	km_debug(start <= first && end >= first + count, "the removed runs cover the block");
	size_t dirty = km_bits_count(range->dirty, first, count);
	km_run_put_back(zone, range, start, first);
	km_run_put_back(zone, range, first + count, end);
	km_bits_change(range->dirty, first, count, false);
	km_debug(range->page[first].type == KM_PAGE_NONE, "a page in use starts no free run");
	km_bump(&zone->pages.used_pages, count);
	*zero = !dirty;
	return &range->page[first];
}

/* Commit memory at the end of the range until `count` free pages are there. Returns: false if the range is too
 * short or the system refuses. */
static bool grow_tail(struct km_range *range, unsigned node, size_t count)
{
	size_t ready = range->ready, free = ready;
	const struct km_page *run;

	while (free && km_range_node(range, free - 1) == node && (run = km_run_before(range, free)))
		free -= run->run;
	if (range->pages - free < count)
		return false;
	while (range->ready - free < count)
		if (!km_range_grow(range, node))
			return false;
	return true;
}

static struct km_page *long_on(unsigned node, size_t count, size_t align, bool *zero)
{
	struct km_zone *zone = &km_arena.zone[node];
	struct km_page *page = NULL;

	km_lock_scope(&zone->lock);
	for (int grow = 0; grow < 2 && !page; grow++)
		for (unsigned i = 0; i < km_load_acquire(&km_arena.ranges) && !page; i++) {
			struct km_range *range = &km_arena.range[i];

			if (grow && !grow_tail(range, node, count + align - 1))
				continue;
			size_t first = find_long(range, node, count, align);
			if (first != SIZE_MAX)
				page = take_long(zone, range, first, count, zero);
		}
	if (page)
		km_page_begin(page, 0, node);
	return page;
}

struct km_page *km_pages_alloc_long(size_t count, unsigned align_order, int node, bool *zero)
{
	unsigned first = km_first_node(node), nodes = km_is_only_node(node) ? 1 : km_node_count;
	struct km_page *page = NULL;

	if (!count || count > SIZE_MAX >> (KM_PAGE_SHIFT + 1) || align_order > KM_MAX_ORDER)
		return NULL;
	for (unsigned i = 0; i < nodes && !page; i++)
		page = long_on(i ? km_node_near(first, i) : first, count, (size_t)1 << align_order, zero);
	return page;
}

/* ------------------------------------------------------------------ ranges that go */

/* Returns: true if all pages of the node below index `ready` are free (clean: and not resident). go: also take these
 * pages off the free lists. */
static bool leave(struct km_zone *zone, struct km_range *range, size_t ready, unsigned node, bool clean, bool go)
{
	for (size_t index = 0, next; index < ready; index = next) {
		struct km_page *run = &range->page[index];

		next = km_align_down(index, KM_BLOCK_PAGES) + KM_BLOCK_PAGES;
		if (km_range_node(range, index) != node)
			continue;
		if (km_load(&run->type) != KM_PAGE_FREE || (clean && run->dirty))
			return false;
		km_debug(run->run && index + run->run <= ready, "a run ends in committed memory");
		next = index + run->run;
		if (go)
			km_run_count_out(zone, run);
	}
	return true;
}

static bool leave_all(struct km_range *range, size_t ready, unsigned node, bool clean, bool go)
{
	struct km_zone *zone = &km_arena.zone[node];

	km_debug(km_is_locked(&km_arena.purge), "pages are off their lists only under the purge lock");

	km_lock_scope(&zone->lock);
	bool free = leave(zone, range, ready, node, clean, false);
	if (free && go)
		leave(zone, range, ready, node, clean, true);
	return free;
}

static void come_back(struct km_range *range, size_t ready, unsigned node)
{
	struct km_zone *zone = &km_arena.zone[node];

	km_debug(ready == range->ready || !range->base || range->ready % KM_BLOCK_PAGES == 0,
		 "a range is committed by whole blocks");

	km_lock_scope(&zone->lock);
	for (size_t index = 0; index < ready; index += KM_BLOCK_PAGES)
		if (km_range_node(range, index) == node)
			km_run_put_back(zone, range, index, index + KM_BLOCK_PAGES);
}

/* Unmap a range, unless more of the range was committed meanwhile. Requires: none of its pages is on a list. */
static bool unmap(struct km_range *range, size_t ready)
{
	char *base = range->base;

	km_debug(km_is_locked(&km_arena.purge), "pages are off their lists only under the purge lock");
	km_debug(range != &km_arena.range[0], "the first range is never released");

	km_lock(&km_arena.grow);
	bool goes = range->ready == ready;
	if (goes) {
		range->leaving = true;
		/* Release pairs with the acquire in km_page_of_any: a thread that sees 0 finds no page in the range. */
		km_store_release(&range->ready, (size_t)0);
	}
	km_unlock(&km_arena.grow);
	if (!goes)
		return false;
	km_tell_root(root_goes, base, range->pages << KM_PAGE_SHIFT);
	if (km_unlikely(km_sanitizer.address))
		km_tell(memory_on, base, ready << KM_PAGE_SHIFT);
	km_os_unmap(base, range->pages << KM_PAGE_SHIFT);
	km_bits_change(range->dirty, 0, ready, false);
	/* Purge the descriptors: a descriptor of zeros means an unused page. */
	km_os_purge(range->page, km_align_down(ready * sizeof(*range->page), km_os_page_bytes()));
	km_lock(&km_arena.grow);
	km_debug(range->leaving && !range->ready, "a released range has no committed memory");
	km_store(&range->base, (char *)NULL);
	range->leaving = false;
	km_unlock(&km_arena.grow);
	return true;
}

static bool release(struct km_range *range, bool clean)
{
	size_t ready = km_load_acquire(&range->ready);
	unsigned node;

	if (!ready || km_load(&range->pinned))
		return false;
	for (node = 0; node < km_node_count; node++)
		if (!leave_all(range, ready, node, clean, false))
			return false;
	for (node = 0; node < km_node_count; node++)
		if (!leave_all(range, ready, node, clean, true))
			break;
	if (node == km_node_count && unmap(range, ready))
		return true;
	while (node--)
		come_back(range, ready, node);
	return false;
}

/* Make clean free blocks at the end of a range read-only and uncommitted, so that they do not count against
 * RLIMIT_DATA. The pages stay readable, because a stale pointer may be followed. Returns: false if there are no such
 * blocks. */
static bool lower(struct km_range *range)
{
	size_t ready = km_load_acquire(&range->ready), first = ready;
	const unsigned node = ready ? km_range_node(range, ready - 1) : 0;
	struct km_zone *zone = &km_arena.zone[node];
	const struct km_page *run;

	km_lock_scope(&zone->lock);
	km_lock(&km_arena.grow);
	/* The block behind `ready` has no node yet: set the node, because km_run_before reads the node of its index. */
	if (range->node && ready == range->ready && ready < range->pages)
		km_store(&range->node[ready >> KM_MAX_ORDER], (uint8_t)node);
	while (ready == range->ready && first && km_range_node(range, first - 1) == node &&
	       (run = km_run_before(range, first)) && !run->dirty)
		first -= run->run;
	const size_t end = km_max(km_align_up(first, KM_BLOCK_PAGES), (size_t)KM_BLOCK_PAGES);
	char *block = range->base + (end << KM_PAGE_SHIFT);
	bool lowers = end < ready && !range->leaving && !km_os_protect(block, (ready - end) << KM_PAGE_SHIFT, true);
	if (lowers) {
		for (first = ready; first > end;) {
			struct km_page *gone = km_run_before(range, first);

			first -= gone->run;
			km_run_count_out(zone, gone);
		}
		km_run_put_back(zone, range, first, end);
		km_store_release(&range->ready, end);
		if (range == km_arena.range)
			km_store_release(&km_hot.pages, end);
	}
	km_unlock(&km_arena.grow);
	return lowers;
}

/* Releases from the second range on: the fast path of every lookup reads the first range. */
bool km_ranges_release(bool clean)
{
	bool any = false;

	if (km_os_limits_data()) {
		if (!clean)
			km_pages_purge(0);
		for (unsigned i = 0; i < km_load_acquire(&km_arena.ranges); i++)
			while (lower(&km_arena.range[i]))
				any = true;
	}
	if (km_load_acquire(&km_arena.ranges) < 2)
		return any;
	km_lock_scope(&km_arena.purge);
	for (unsigned i = 1; i < km_load_acquire(&km_arena.ranges); i++)
		any |= release(&km_arena.range[i], clean);
	return any;
}

void km_page_pin(const struct km_page *page)
{
	bool *pinned = &km_range_of_page(page)->pinned;

	if (km_unlikely(!km_load(pinned)))
		km_store(pinned, true);
}
