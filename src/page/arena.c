/*
 * arena.c: a buddy allocator over reserved ranges. Invariants: a free block is on the list of its order and
 * dirtiness, its head says FREE, and its buddy of the same order is not free; every page that is used or dirty
 * is counted once; the lock is held for no system call but the commit of fresh memory.
 */
#include "arena.h"

#include "../port/atomic.h"
#include "../port/bits.h"
#include "../port/die.h"
#include "../port/lock.h"
#include "../port/os.h"
#include "../port/pcpu.h"

#define MAX_RANGES	64u
#define BLOCK_PAGES	((size_t)1 << KM_MAX_ORDER)
#define BLOCK_BYTES	(BLOCK_PAGES << KM_PAGE_SHIFT)
#define COMMIT_STEP	((size_t)2 << 20)
/* Dirty memory allowed beyond what is in use: enough that a small program never purges. */
#define DIRTY_FLOOR_PAGES	1024u
/* Huge pages only from here on: a small program must not pay 2 MiB for a few pages. */
#define HUGE_FROM_PAGES	(2 * BLOCK_PAGES)

static struct {
	struct km_lock lock;
	unsigned ranges;
	struct km_range range[MAX_RANGES];
	struct km_list free[KM_MAX_ORDER + 1][2];	/* [order][dirty] */
	size_t map_ready[MAX_RANGES], page_ready[MAX_RANGES];	/* bytes committed of the arrays */
	size_t used_pages, dirty_pages, clean_pages, purged_pages;
	size_t kept_pages;		/* dirty when the system could last not take them back */
	bool huge;
	unsigned decay_ms;
} arena = { .lock = KM_LOCK_INIT(KM_RANK_ZONE), .huge = true, .decay_ms = 1000 };

static bool reserve_range(size_t bytes)
{
	struct km_range *range = &arena.range[arena.ranges];
	size_t pages = bytes >> KM_PAGE_SHIFT;
	size_t map_bytes = km_align_up(pages * sizeof(*range->map), COMMIT_STEP);
	size_t page_bytes = km_align_up(pages * sizeof(*range->page), COMMIT_STEP);

	char *base = km_os_reserve(bytes, BLOCK_BYTES);
	if (!base)
		return false;
	char *arrays = km_os_reserve(map_bytes + page_bytes, COMMIT_STEP);
	if (!arrays) {
		km_os_unmap(base, bytes);
		return false;
	}
	km_os_name(base, bytes, "libkmem: arena");
	km_os_name(arrays, map_bytes + page_bytes, "libkmem: page map");
	*range = (struct km_range){
		.base = base, .pages = pages, .map = (uint16_t *)arrays,
		.page = (struct km_page *)(arrays + map_bytes),
	};
	/* Release pairs with the acquire in km_page_of: who sees the count sees the range. */
	km_store_release(&arena.ranges, arena.ranges + 1);
	return true;
}

/* An eighth of what the limit leaves, or plenty; less where less is to be had. */
static bool new_range(void)
{
	size_t limit = km_os_address_limit(), bytes;

	if (arena.ranges == MAX_RANGES)
		return false;
	if (limit == SIZE_MAX)
		bytes = km_max((size_t)64 << 30, km_pow2_up(km_os_memory()) * 4);
	else
		bytes = limit / 8;
	bytes = km_max(km_align_down(bytes, BLOCK_BYTES), BLOCK_BYTES * 2);
	while (!reserve_range(bytes)) {
		bytes = km_align_down(bytes / 4, BLOCK_BYTES);
		if (bytes < BLOCK_BYTES * 2)
			return false;
	}
	return true;
}

/* Commit `*ready` of an array up to `need` bytes. */
static bool commit_array(void *array, size_t *ready, size_t need, size_t limit)
{
	size_t to = km_min(km_align_up(need, COMMIT_STEP), limit);

	if (*ready >= need)
		return true;
	if (km_os_commit((char *)array + *ready, to - *ready))
		return false;
	*ready = to;
	return true;
}

static struct km_range *range_of_page(const struct km_page *page)
{
	for (unsigned i = 0; i < arena.ranges; i++) {
		struct km_range *range = &arena.range[i];

		if (page >= range->page && page < range->page + range->pages)
			return range;
	}
	return NULL;
}

/* ------------------------------------------------------------------ the buddy; lock held */

static void insert_free(struct km_page *page, unsigned order, uint32_t dirty, uint32_t now)
{
	km_store(&page->type, (uint8_t)KM_PAGE_FREE);
	km_store(&page->order, (uint8_t)order);
	km_store(&page->dirty, dirty);
	km_store(&page->freed_ms, now);
	km_store(&arena.dirty_pages, arena.dirty_pages + dirty);
	km_store(&arena.clean_pages, arena.clean_pages + (((size_t)1 << order) - dirty));
	km_list_add_head(&page->list, &arena.free[order][dirty != 0]);
}

static void remove_free(struct km_page *page)
{
	km_store(&arena.dirty_pages, arena.dirty_pages - page->dirty);
	km_store(&arena.clean_pages,
		 arena.clean_pages - (((size_t)1 << page->order) - page->dirty));
	km_list_del(&page->list);
	km_store(&page->type, (uint8_t)KM_PAGE_NONE);
}

/* Insert, joined with every free buddy. */
static void merge_free(struct km_range *range, size_t index, unsigned order, uint32_t dirty,
		       uint32_t now)
{
	while (order < KM_MAX_ORDER) {
		size_t other = index ^ ((size_t)1 << order);
		struct km_page *buddy = &range->page[other];

		/* A block in use changes its type without the lock, never from or to FREE. */
		if (km_load(&buddy->type) != KM_PAGE_FREE || km_load(&buddy->order) != order)
			break;
		dirty += buddy->dirty;
		remove_free(buddy);
		index = km_min(index, other);
		order++;
	}
	insert_free(&range->page[index], order, dirty, now);
}

/* Commit the next largest block of the last range, or of a new one. */
static bool grow(void)
{
	struct km_range *range = arena.ranges ? &arena.range[arena.ranges - 1] : NULL;

	if (!range || range->ready + BLOCK_PAGES > range->pages) {
		if (!new_range())
			return false;
		range = &arena.range[arena.ranges - 1];
	}
	size_t i = (size_t)(range - arena.range), end = range->ready + BLOCK_PAGES;
	char *block = range->base + (range->ready << KM_PAGE_SHIFT);
	if (!commit_array(range->map, &arena.map_ready[i], end * sizeof(*range->map),
			  km_align_up(range->pages * sizeof(*range->map), COMMIT_STEP)) ||
	    !commit_array(range->page, &arena.page_ready[i], end * sizeof(*range->page),
			  km_align_up(range->pages * sizeof(*range->page), COMMIT_STEP)) ||
	    km_os_commit(block, BLOCK_BYTES))
		return false;
	if (arena.huge && end > HUGE_FROM_PAGES)
		km_os_huge(block, BLOCK_BYTES);
	insert_free(&range->page[range->ready], KM_MAX_ORDER, 0, 0);
	km_store_release(&range->ready, end);
	if (i == 0) {
		km_hot.arena = range->base;
		km_store_release(&km_hot.map, range->map);
		/* Last: before, no index passes. */
		km_store_release(&km_hot.pages, end);
	}
	return true;
}

/* Page 0 of the first range is never given out: its map entry says "foreign". */
static void keep_first_page(void)
{
	struct km_page *page = &arena.range[0].page[0];

	remove_free(page);
	for (unsigned order = KM_MAX_ORDER; order-- > 0;)
		insert_free(page + ((size_t)1 << order), order, 0, 0);
	km_store(&page->type, (uint8_t)KM_PAGE_NONE);
}

bool km_arena_start(void)
{
	for (unsigned order = 0; order <= KM_MAX_ORDER; order++)
		for (int dirty = 0; dirty < 2; dirty++)
			km_list_init(&arena.free[order][dirty]);
	if (!arena.ranges && !new_range())
		return false;
	if (!grow())
		return false;
	keep_first_page();
	return true;
}

/* The smallest block that will do, dirty before clean: it is resident already. */
static struct km_page *find_free(unsigned order)
{
	for (; order <= KM_MAX_ORDER; order++)
		for (int dirty = 1; dirty >= 0; dirty--)
			if (!km_list_empty(&arena.free[order][dirty]))
				return km_list_first(&arena.free[order][dirty], struct km_page,
						     list);
	return NULL;
}

/* Cut the block down to `order`, low half first, and return what is left. */
static uint32_t split(struct km_page *page, unsigned order)
{
	uint32_t dirty = page->dirty, now = page->freed_ms;
	unsigned have = page->order;

	remove_free(page);
	while (have > order) {
		uint32_t half = 1u << --have;

		/* Which half the dirty pages are in is not known, so each may have them all: a block
		 * said to be clean is taken for zeros. */
		dirty = km_min(dirty, half);
		insert_free(page + half, have, dirty, now);
	}
	return dirty;
}

struct km_page *km_pages_alloc(unsigned order, int node, bool may_wait, bool *zero)
{
	struct km_page *page;

	(void)node;
	if (order > KM_MAX_ORDER || !km_lock_may(&arena.lock, may_wait))
		return NULL;
	while (!(page = find_free(order)))
		if (!may_wait || !grow())
			break;
	if (page) {
		bool untouched = page->dirty == 0;

		split(page, order);
		if (zero)
			*zero = untouched;
		km_store(&page->order, (uint8_t)order);
		page->flags = 0;
		km_store(&page->cache, NULL);
		km_store(&arena.used_pages, arena.used_pages + ((size_t)1 << order));
	}
	km_unlock_may(&arena.lock, may_wait);
	return page;
}

void km_pages_free(struct km_page *page, unsigned order)
{
	uint32_t now = (uint32_t)km_os_now_ms();
	struct km_range *range = range_of_page(page);

	km_lock(&arena.lock);
	km_store(&arena.used_pages, arena.used_pages - ((size_t)1 << order));
	km_store(&page->type, (uint8_t)KM_PAGE_NONE);
	merge_free(range, (size_t)(page - range->page), order, 1u << order, now);
	km_unlock(&arena.lock);
}

struct km_page *km_pages_alloc_exact(size_t count, unsigned align_order, int node, bool may_wait,
				     bool *zero)
{
	unsigned order = km_max(count <= 1 ? 0u : km_ilog2(count - 1) + 1, align_order);
	struct km_page *page = km_pages_alloc(order, node, may_wait, zero);

	if (page && count < (size_t)1 << order)
		km_pages_free_exact(page + count, ((size_t)1 << order) - count);
	return page;
}

void km_pages_free_exact(struct km_page *page, size_t count)
{
	struct km_range *range = range_of_page(page);
	size_t index = (size_t)(page - range->page);

	while (count) {
		unsigned order = km_min(km_ilog2(count), KM_MAX_ORDER);

		if (index)
			order = km_min(order, (unsigned)__builtin_ctzll(index));
		km_pages_free(&range->page[index], order);
		index += (size_t)1 << order;
		count -= (size_t)1 << order;
	}
}

/* ------------------------------------------------------------------ addresses */

struct km_page *km_page_of(const void *p)
{
	unsigned ranges = km_load_acquire(&arena.ranges);

	for (unsigned i = 0; i < ranges; i++) {
		const struct km_range *range = &arena.range[i];
		size_t index = ((uintptr_t)p - (uintptr_t)range->base) >> KM_PAGE_SHIFT;

		if (index < km_load_acquire(&range->ready))
			return &range->page[index];
	}
	return NULL;
}

struct km_page *km_page_head(struct km_page *page)
{
	if (page->type == KM_PAGE_TAIL) {
		struct km_range *range = range_of_page(page);
		size_t index = (size_t)(page - range->page);

		page = &range->page[km_align_down(index, (size_t)1 << page->order)];
	}
	return page->type == KM_PAGE_SLAB || page->type == KM_PAGE_LARGE ? page : NULL;
}

void *km_page_address(const struct km_page *page)
{
	const struct km_range *range = range_of_page(page);

	return range->base + ((size_t)(page - range->page) << KM_PAGE_SHIFT);
}

void km_map_set(struct km_page *page, size_t count, uint16_t value)
{
	struct km_range *range = range_of_page(page);
	size_t index = (size_t)(page - range->page);

	for (size_t i = 0; i < count; i++)
		km_store(&range->map[index + i], value);
}

int km_pages_walk(int (*visit)(struct km_page *page, void *arg), void *arg)
{
	for (unsigned i = 0; i < km_load_acquire(&arena.ranges); i++) {
		struct km_range *range = &arena.range[i];

		for (size_t index = 0; index < range->ready; index++) {
			struct km_page *page = &range->page[index];

			if (page->type != KM_PAGE_SLAB && page->type != KM_PAGE_LARGE &&
			    page->type != KM_PAGE_SLOB)
				continue;
			int result = visit(page, arg);
			if (result)
				return result;
		}
	}
	return 0;
}

/* ------------------------------------------------------------------ giving back */

/* The oldest dirty block of 2^lowest pages or more that is at least `decay_ms` old, taken off its list; lock held. */
static struct km_page *take_old(uint32_t now, unsigned decay_ms, unsigned lowest)
{
	for (unsigned order = KM_MAX_ORDER + 1; order-- > lowest;) {
		struct km_list *list = &arena.free[order][1];

		if (km_list_empty(list))
			continue;
		struct km_page *page = km_list_last(list, struct km_page, list);
		if (decay_ms && now - page->freed_ms < decay_ms)
			continue;
		remove_free(page);
		return page;
	}
	return NULL;
}

static size_t purge_until(unsigned decay_ms, size_t enough_pages)
{
	/* What is smaller than the system's page waits for its neighbours: more would be given back than is free. */
	unsigned lowest = km_order_of(km_os_page_bytes());
	uint32_t now = (uint32_t)km_os_now_ms();
	size_t given = 0;

	while (given < enough_pages) {
		km_lock(&arena.lock);
		struct km_page *page = take_old(now, decay_ms, lowest);
		km_unlock(&arena.lock);
		if (!page) {
			if (lowest && !decay_ms)
				km_store(&arena.kept_pages, km_load(&arena.dirty_pages));
			break;
		}
		uint32_t dirty = page->dirty;
		unsigned order = page->order;
		struct km_range *range = range_of_page(page);
		bool gone = km_os_purge(km_page_address(page), KM_PAGE_SIZE << order) == 0;

		km_lock(&arena.lock);
		if (gone)
			km_store(&arena.purged_pages, arena.purged_pages + dirty);
		/* Where the system refuses (mlockall) it stays dirty, as fresh, for another period. */
		merge_free(range, (size_t)(page - range->page), order, gone ? 0 : dirty, now);
		km_unlock(&arena.lock);
		if (!gone) {
			km_store(&arena.kept_pages, km_load(&arena.dirty_pages));
			break;
		}
		given += dirty;
		km_store(&arena.kept_pages, (size_t)0);
	}
	return given;
}

size_t km_pages_purge(unsigned decay_ms)
{
	return purge_until(decay_ms, SIZE_MAX);
}

size_t km_pages_used(void)
{
	return km_load(&arena.used_pages);
}

/* A quarter of what is in use, and a floor. */
static size_t dirty_bound(void)
{
	return km_load(&arena.used_pages) / 4 + DIRTY_FLOOR_PAGES;
}

bool km_pages_too_dirty(void)
{
	/* What the system would not take just now is not offered again before there is more. */
	return km_load(&arena.dirty_pages) > km_max(dirty_bound(), km_load(&arena.kept_pages));
}

void km_pages_trim(void)
{
	size_t given = 1;

	/* Others free meanwhile, and more becomes dirty. Each round gives something or is the last. */
	while (given) {
		size_t dirty = km_load(&arena.dirty_pages), enough = dirty_bound() / 4;

		given = dirty > enough ? purge_until(0, dirty - enough) : 0;
	}
}

void km_arena_get_stats(struct km_arena_stats *stats)
{
	*stats = (struct km_arena_stats){
		.used_pages = km_load(&arena.used_pages),
		.dirty_pages = km_load(&arena.dirty_pages),
		.clean_pages = km_load(&arena.clean_pages),
		.purged_pages = km_load(&arena.purged_pages),
	};
	for (unsigned i = 0; i < km_load_acquire(&arena.ranges); i++) {
		stats->reserved_bytes += arena.range[i].pages << KM_PAGE_SHIFT;
		stats->committed_bytes += arena.range[i].ready << KM_PAGE_SHIFT;
	}
}

void km_arena_expose(struct km_arena_view *view)
{
	*view = (struct km_arena_view){
		.ranges = &arena.ranges, .range = arena.range,
		.used_pages = &arena.used_pages, .dirty_pages = &arena.dirty_pages,
		.clean_pages = &arena.clean_pages, .purged_pages = &arena.purged_pages,
	};
}

const struct km_range *km_arena_range(unsigned i)
{
	return i < km_load_acquire(&arena.ranges) ? &arena.range[i] : NULL;
}

void km_arena_set(bool huge, unsigned decay_ms)
{
	arena.huge = huge;
	arena.decay_ms = decay_ms;
}

unsigned km_arena_decay_ms(void)
{
	return arena.decay_ms;
}

void km_arena_fork(bool before, bool child)
{
	if (before)
		km_lock_fork(&arena.lock);
	else if (child)
		km_lock_init(&arena.lock, KM_RANK_ZONE);
	else
		km_unlock_fork(&arena.lock);
}

int km_arena_check(void)
{
	size_t dirty = 0, clean = 0;
	int damages = 0;

	for (unsigned order = 0; order <= KM_MAX_ORDER; order++)
		for (int list = 0; list < 2; list++)
			km_list_for_each(entry, &arena.free[order][list]) {
				struct km_page *page =
					km_container_of(entry, struct km_page, list);

				if (page->type != KM_PAGE_FREE || page->order != order ||
				    (page->dirty != 0) != list) {
					km_warn("check: free block %p is damaged", page);
					return damages + 1;
				}
				dirty += page->dirty;
				clean += ((size_t)1 << order) - page->dirty;
			}
	if (dirty != arena.dirty_pages || clean != arena.clean_pages) {
		km_warn("check: free pages counted %lu + %lu, kept %lu + %lu", dirty, clean,
			arena.dirty_pages, arena.clean_pages);
		damages++;
	}
	return damages;
}
