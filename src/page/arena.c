/*
 * arena.c: ranges of address space, their committed part, and the lookup from an address to its page. Invariants: a
 * page is used, or in a free run (page_run.c), or taken by a purge (purge.c). Each used or free page is counted
 * once. A largest block never changes its node.
 */
#include "arena.h"

#include "os/die.h"
#include "os/secret.h"
#include "percpu/id_table.h"
#include "os/os.h"
#include "percpu/pcpu.h"
#include "os/sanitizer.h"
#include "commit_ahead.h"
#include "metadata.h"
#include "nodump.h"
#include "addr_reuse.h"
#include "zone.h"

#define COMMIT_STEP	((size_t)2 << 20)
#define ARRAY_ALIGN	((size_t)64 << 10)	/* largest page size of Linux */
#define FOREIGN_PAGES	((size_t)2)		/* pages at the start of the first range that are never allocated: a
						 * foreign address is looked up as page 0 or 1 */
#define MAP_SKEW	(KM_MAP_SKEW / sizeof(uint16_t))	/* entries before the page map's first page, unused */

_Static_assert(KM_ID_TABLES % ((size_t)64 << 10) == 0, "what lies behind them is aligned as they are");

struct km_arena km_arena km_sparse km_aligned(KM_PAGE_SIZE) = {
	.purge = KM_LOCK_INIT(KM_RANK_PURGE), .grow = KM_LOCK_INIT(KM_RANK_GROW),
};

/* Reserve address space anew for an unmapped range of at most `bytes` bytes. The range's arrays still exist. */
static bool revive_range(size_t bytes)
{
	for (unsigned i = 1; i < km_arena.ranges; i++) {
		struct km_range *range = &km_arena.range[i];

		if (range->base || range->pages > bytes >> KM_PAGE_SHIFT)
			continue;
		size_t all = range->pages << KM_PAGE_SHIFT;
		char *base = km_os_reserve(all, KM_BLOCK_BYTES);
		if (base) {
			km_os_name(base, all, "libkmem: arena");
			km_tell_root(root_comes, base, all);
			km_store(&range->base, base);
			return true;
		}
	}
	return false;
}

#define LIVE_BITS(shift)	((uint16_t)(8u << (KM_PAGE_SHIFT - (shift))))

const uint16_t km_range_bits[KM_RANGE_ARRAYS] = {
	8 * sizeof(uint16_t), 8 * sizeof(struct km_page), 8 * sizeof(uint64_t), 1,
	LIVE_BITS(3), LIVE_BITS(4), LIVE_BITS(5), LIVE_BITS(6), LIVE_BITS(7),
};
_Static_assert(KM_ALLOC_MAP_LOW == 3 && KM_ALLOC_MAP_HIGH == 7, "the table has the bits of each map");

/* Returns: bytes from the start of the i-th array's memory to the entry of `page`. */
static size_t bytes_to(unsigned i, size_t page)
{
	return ((i == KM_RANGE_MAP ? MAP_SKEW : 0) + page) * km_range_bits[i] / 8;
}

static char *start_of(const struct km_range *range, unsigned i)
{
	return (char *)range->array[i] - bytes_to(i, 0);
}

/* Reserve address space for the arrays [first, end) of the range: `front` other bytes, then each array, with `gap`
 * bytes behind. Returns: the reserved bytes, or 0. */
static size_t reserve_arrays(struct km_range *range, unsigned first, unsigned end, size_t front, size_t gap,
			     const char *name)
{
	size_t bytes = front;

	for (unsigned i = first; i < end; i++)
		bytes += km_align_up(bytes_to(i, range->pages), ARRAY_ALIGN) + gap;
	char *at = km_os_reserve(bytes, ARRAY_ALIGN);
	if (!at)
		return 0;
	km_os_name(at, bytes, name);
	at += front;
	for (unsigned i = first; i < end; i++) {
		range->array[i] = at + bytes_to(i, 0);
		at += km_align_up(bytes_to(i, range->pages), ARRAY_ALIGN) + gap;
	}
	return bytes;
}

static bool reserve_range(size_t bytes)
{
	struct km_range *range = &km_arena.range[km_arena.ranges];

	if (revive_range(bytes))
		return true;
	if (km_arena.ranges == KM_MAX_RANGES)
		return false;
	char *base = km_os_reserve(bytes, KM_BLOCK_BYTES);
	if (!base)
		return false;
	struct km_range reserved = { .base = base, .pages = bytes >> KM_PAGE_SHIFT };
	size_t front = km_arena.ranges ? 0 : KM_ID_TABLES;
	size_t array_bytes = reserve_arrays(&reserved, 0, KM_RANGE_LIVE, front, 0, "libkmem: page map");
	if (array_bytes && km_node_count > 1)
		reserved.node = km_metadata_alloc(reserved.pages >> KM_MAX_ORDER, true);
	/* The allocation state maps are in a mapping of their own, away from all other memory. */
	if (!array_bytes || (km_node_count > 1 && !reserved.node) ||
	    (km_hardening.live && !reserve_arrays(&reserved, KM_RANGE_LIVE, KM_RANGE_ARRAYS, 0, ARRAY_ALIGN,
						  "libkmem: live objects"))) {
		if (array_bytes)
			km_os_unmap(start_of(&reserved, 0) - front, array_bytes);
		km_os_unmap(base, bytes);
		return false;
	}
	km_debug(!((uintptr_t)base & (KM_BLOCK_BYTES - 1)) && reserved.pages % KM_BLOCK_PAGES == 0,
		 "a range has whole blocks");
	km_os_name(base, bytes, "libkmem: arena");
	km_tell_root(root_comes, base, bytes);
	*range = reserved;
	/* Release pairs with the acquire in km_page_of_any: a thread that sees the count sees the range. */
	km_store_release(&km_arena.ranges, km_arena.ranges + 1);
	return true;
}

/* Reserve a new range: an eighth of the address space limit, or four times the memory (at least 64 GiB). Where the
 * system refuses, a quarter of that, and so on. */
static bool new_range(void)
{
	size_t limit = km_os_address_room(), bytes;

	if (limit == SIZE_MAX)
		bytes = km_max((size_t)64 << 30, km_pow2_up(km_os_memory()) * 4);
	else
		bytes = limit / 8;
	/* The fast path of kfree computes a page index of 32 bits. */
	bytes = km_min(bytes, KM_PAGE_SIZE << 32);
	/* Do not waste one of the KM_MAX_RANGES ranges on a small rest of a large limit. */
	size_t least = km_max(limit == SIZE_MAX ? 0 : km_align_down(limit / 256, KM_BLOCK_BYTES), KM_BLOCK_BYTES * 2);
	bytes = km_max(km_align_down(bytes, KM_BLOCK_BYTES), least);
	while (!reserve_range(bytes)) {
		if (bytes == least)
			return false;
		bytes = km_max(km_align_down(bytes / 4, KM_BLOCK_BYTES), least);
	}
	return true;
}

static void fit_range(struct km_range *range, size_t limit)
{
	size_t had = range->pages;
	size_t pages = range->ready + (km_align_down(limit / 8, KM_BLOCK_BYTES) >> KM_PAGE_SHIFT);

	km_debug(pages >= range->ready, "committed memory stays committed");

	if (pages < had) {
		km_store(&range->pages, pages);
		km_os_unmap(range->base + (pages << KM_PAGE_SHIFT), (had - pages) << KM_PAGE_SHIFT);
		for (unsigned i = 0; i < KM_RANGE_ARRAYS && range->array[i]; i++) {
			size_t old = km_align_up(bytes_to(i, had), ARRAY_ALIGN);
			size_t left = km_align_up(bytes_to(i, pages), ARRAY_ALIGN);

			if (left < old)
				km_os_unmap(start_of(range, i) + left, old - left);
		}
	}
}

/* An unmapped range has no address space to give back. */
void km_arena_fit(size_t limit)
{
	km_lock_scope(&km_arena.grow);
	for (unsigned i = 0; i < km_arena.ranges; i++)
		if (km_arena.range[i].base && !km_arena.range[i].leaving)
			fit_range(&km_arena.range[i], limit);
}

/* Commit an array of `all` bytes up to `need` bytes, in multiples of `step`. *ready: the array's committed bytes. */
static bool commit_array(char *start, size_t *ready, size_t need, size_t all, size_t step)
{
	size_t to = km_min(km_align_up(need, step), km_align_up(all, ARRAY_ALIGN));

	km_debug(need <= all, "an array has a member for each page of its range");

	if (*ready >= need)
		return true;
	if (km_os_commit(start + *ready, to - *ready))
		return false;
	*ready = to;
	return true;
}

/* Commit the i-th array of the range up to page `end`. */
static bool commit_to(struct km_range *range, unsigned i, size_t end)
{
	return commit_array(start_of(range, i), &range->array_ready[i], bytes_to(i, end), bytes_to(i, range->pages),
			    i == KM_RANGE_DIRTY ? ARRAY_ALIGN : COMMIT_STEP);
}

static bool commit_arrays(struct km_range *range, size_t end)
{
	for (unsigned i = 0; i < KM_RANGE_ARRAYS && range->array[i]; i++)
		if (!commit_to(range, i, end))
			return false;
	return true;
}

struct km_range *km_range_of_page(const struct km_page *page)
{
	/* Acquire as in km_page_of_any: the page may be in a range that another node has just added. */
	for (unsigned i = 0; i < km_load_acquire(&km_arena.ranges); i++) {
		struct km_range *range = &km_arena.range[i];

		if (page >= range->page && page < range->page + range->pages)
			return range;
	}
	return NULL;
}

/* Commit the tables by id up to this id, and the first map entries (of FOREIGN_PAGES), all of which say "foreign".
 * Then publish the map, before the first lookup of a cache by id or of a page. */
static bool reach_id(size_t id)
{
	static size_t ready[2];
	struct km_range *range = &km_arena.range[0];
	const size_t need = KM_ID_SKEW + KM_MAP_SKEW + (id + 1) * sizeof(uint64_t);
	char *table = start_of(range, KM_RANGE_MAP) - KM_ID_TABLES;

	for (int i = 0; i < 2; i++, table += KM_ID_TABLES / 2)
		if (!commit_array(table, &ready[i], need, KM_ID_TABLES / 2, ARRAY_ALIGN))
			return false;
	if (!commit_to(range, KM_RANGE_MAP, FOREIGN_PAGES))
		return false;
	if (km_hot.map != range->map)
		km_store_release(&km_hot.map, range->map);
	return true;
}

bool km_id_tables_reach(size_t id)
{
	km_lock_scope(&km_arena.grow);
	return (km_arena.ranges || new_range()) && reach_id(id);
}

static bool has_room(const struct km_range *range)
{
	return range->base && !range->leaving && range->ready + KM_BLOCK_PAGES <= range->pages;
}

/* Commit the next largest block of the range for the node. Requires: the lock of the node and the grow lock are held.
 * The first FOREIGN_PAGES pages of the first range are never allocated: their map entries say "foreign". */
static bool commit_block(struct km_range *range, unsigned node)
{
	if (!has_room(range))
		return false;
	size_t end = range->ready + KM_BLOCK_PAGES;
	bool first = range == km_arena.range;
	char *block = range->base + (range->ready << KM_PAGE_SHIFT);
	if (!commit_arrays(range, end) || (first && !reach_id(KM_MAP_DESC)) ||
	    km_os_commit_node(block, KM_BLOCK_BYTES, node))
		return false;
	km_debug(km_is_locked(&km_arena.zone[node].lock) && km_is_locked(&km_arena.grow),
		 "a range grows under its lock and the lock of its node");
	km_debug(range->ready % KM_BLOCK_PAGES == 0, "a range is committed by whole blocks");
	/* If the system refuses to bind the block, the kernel places each page at first touch. */
	if (km_unlikely(km_nodes.bind) && km_node_bind(block, KM_BLOCK_BYTES, node))
		km_bump(&km_arena.bind_failures, 1);
	if (range->node)
		range->node[range->ready >> KM_MAX_ORDER] = (uint8_t)node;
	size_t kept = first && !range->ready ? FOREIGN_PAGES : 0;
	km_run_put(&km_arena.zone[node], range, range->ready + kept, KM_BLOCK_PAGES - kept, false);
	km_store_release(&range->ready, end);
	/* Set once, for the first range: afterwards other threads read these fields. */
	if (first && !km_hot.pages) {
		km_debug(range->ready == KM_BLOCK_PAGES, "the first block is published after its commit");
		km_hot.arena = range->base;
		km_hot.page = range->page;
		km_hot.owner = range->owner;
	}
	/* Publish the pages last: lookups compare a page index with km_hot.pages. */
	if (first)
		km_store_release(&km_hot.pages, end);
	return true;
}

/* Commit a largest block in a range with room, else in a new range. Requires: the lock of the node is held. */
static bool grow(unsigned node)
{
	km_lock_scope(&km_arena.grow);
	do
		for (unsigned i = km_arena.ranges; i-- > 0;)
			if (has_room(&km_arena.range[i]))
				return commit_block(&km_arena.range[i], node);
	while (new_range());
	return false;
}

bool km_range_grow(struct km_range *range, unsigned node)
{
	km_lock_scope(&km_arena.grow);
	return commit_block(range, node);
}

bool km_arena_commit(unsigned node)
{
	km_lock_scope(&km_arena.zone[node].lock);
	return grow(node);
}

bool km_arena_start(void)
{
	for (unsigned node = 0; node < km_node_count; node++)
		km_lock_init(&km_arena.zone[node].lock, KM_RANK_ZONE);
	return km_arena_commit(km_node_here());
}

/* ------------------------------------------------------------------ pages */

/* Allocate pages of the node: of a free run; else, if may_grow, of fresh memory; else of any run that fits
 * (km_run_find, all). Returns: NULL without memory, or with the lock taken and may_wait false. *zero: the pages read
 * as zeros. */
static struct km_page *alloc_on(unsigned node, size_t count, unsigned order, bool may_wait, bool may_grow, bool *zero)
{
	struct km_zone *zone = &km_arena.zone[node];
	struct km_page *page = NULL, *run;

	if (!km_lock_may(&zone->lock, may_wait))
		return NULL;
	while (!(run = km_run_find(zone, count, order, false)))
		if (!may_grow || !grow(node))
			break;
	if (km_unlikely(!run))
		run = km_run_find(zone, count, order, true);
	if (run) {
		page = km_run_take(zone, run, count, order, may_wait, zero);
		km_debug(page->type == KM_PAGE_NONE, "an allocated page was free");
		km_debug(!((uintptr_t)km_page_address(page) & ((KM_PAGE_SIZE << order) - 1)),
			 "a block has the requested alignment");
		km_debug(km_page_node(km_page_address(page)) == node, "a page belongs to the requested node");
		km_page_begin(page, order, node);
	}
	km_unlock_may(&zone->lock, may_wait);
	return page;
}

/* Allocate pages of the other nodes, the nearest first. */
km_cold static struct km_page *alloc_elsewhere(unsigned node, size_t count, unsigned order, bool may_wait,
					       bool may_grow, bool *zero)
{
	struct km_page *page = NULL;

	for (unsigned i = 1; i < km_node_count && !page; i++)
		page = alloc_on(km_node_near(node, i), count, order, may_wait, may_grow, zero);
	return page;
}

static struct km_page *alloc_any(size_t count, unsigned order, int node, bool may_wait, bool *zero)
{
	const unsigned first = km_first_node(node);
	const bool only = km_is_only_node(node);

	if (!count || count > KM_BLOCK_PAGES || order > KM_MAX_ORDER)
		return NULL;
	struct km_page *page = alloc_on(first, count, order, may_wait, may_wait, zero);
	if (km_likely(page))
		return page;
	/* Try the free pages of all nodes before fresh memory. */
	for (int grow = 0; grow <= may_wait && !page && !only; grow++)
		page = alloc_elsewhere(first, count, order, may_wait, grow, zero);
	if (page || !may_wait)
		return page;
	/* As a last resort wait for a purge in progress: its pages are on no list until its end. */
	km_lock_scope(&km_arena.purge);
	page = alloc_on(first, count, order, true, false, zero);
	return page || only ? page : alloc_elsewhere(first, count, order, true, false, zero);
}

struct km_page *km_pages_alloc_exact(size_t count, unsigned order, int node, bool may_wait, bool *zero)
{
	struct km_page *page = alloc_any(count, order, node, may_wait, zero);

	if (!may_wait)
		km_ahead_note(count, page != NULL);
	return page;
}

/* Returns: how many pages from `page` on are all gone (KM_PAGE_GONE), or all resident. *gone: which. */
km_cold static size_t alike(const struct km_page *page, size_t count, bool *gone)
{
	size_t same = 1;

	*gone = page->flags & KM_PAGE_GONE;
	while (same < count && !(page[same].flags & KM_PAGE_GONE) == !*gone)
		same++;
	return same;
}

void km_pages_free_exact(struct km_page *page, size_t count)
{
	struct km_range *range = km_range_of_page(page);
	size_t index = (size_t)(page - range->page);
	struct km_zone *zone = &km_arena.zone[km_range_node(range, index)];

	km_lock_quick_scope(&zone->lock);
	km_debug(page->type != KM_PAGE_FREE && page->type != KM_PAGE_FREE_LAST, "a page is freed once");
	/* `staying` may be stale only if its page is of another node, and then differs from this page, which is
	 * held. */
	if (km_unlikely(page == km_load(&km_arena.staying))) {
		km_debug(!km_arena.staying_count, "held pages are freed once");
		km_arena.staying_count = count;
		return;
	}
	km_debug(index + count <= range->ready && zone->pages.used_pages >= count, "freed pages were in use");
	km_debug(!km_bits_count(range->dirty, index, count), "a page in use has no dirty bit");
	km_debug(!range->map[index] && !range->map[index + count - 1], "the page map has no entry for a free page");
	km_bump(&zone->pages.used_pages, -count);
	km_store(&page->type, (uint8_t)KM_PAGE_NONE);
	const bool holes = page->flags & KM_SLAB_HOLES;
	for (size_t now; count; index += now, count -= now) {
		bool gone = false;

		now = km_min(count, KM_RUN_MAX);
		if (km_unlikely(holes)) {
			now = alike(&range->page[index], now, &gone);
			km_pages_fill(&range->page[index], now);
		}
		km_run_put(zone, range, index, now, !gone);
	}
	if (km_unlikely(holes))
		page->flags = 0;
}

bool km_pages_grow(struct km_page *page, size_t have, size_t want, bool *zero)
{
	struct km_range *range = km_range_of_page(page);
	size_t index = (size_t)(page - range->page);
	struct km_zone *zone = &km_arena.zone[km_range_node(range, index)];

	km_debug(want > have && page->type != KM_PAGE_FREE, "a growing block is in use");

	km_lock_quick_scope(&zone->lock);
	return km_run_extend(zone, range, index + have, want - have, zero);
}

/* ------------------------------------------------------------------ addresses */

struct km_range *km_range_of(const void *p, size_t *index)
{
	unsigned ranges = km_load_acquire(&km_arena.ranges);

	for (unsigned i = 0; i < ranges; i++) {
		struct km_range *range = &km_arena.range[i];
		/* Load ready before base: a reused range has another base. Acquire pairs with the release in
		 * commit_block. */
		size_t ready = km_load_acquire(&range->ready);

		*index = ((uintptr_t)p - (uintptr_t)km_load(&range->base)) >> KM_PAGE_SHIFT;
		if (*index < ready)
			return range;
	}
	return NULL;
}

struct km_page *km_page_of_any(const void *p)
{
	size_t index;
	const struct km_range *range = km_range_of(p, &index);

	return range ? &range->page[index] : NULL;
}

struct km_page *km_page_head(struct km_page *page)
{
	if (!page)
		return NULL;
	if (km_load(&page->type) == KM_PAGE_TAIL) {
		struct km_range *range = km_range_of_page(page);
		size_t index = (size_t)(page - range->page);

		page = &range->page[km_align_down(index, (size_t)1 << km_load(&page->order))];
	}
	const uint8_t type = km_load(&page->type);
	return type == KM_PAGE_SLAB || type == KM_PAGE_LARGE ? page : NULL;
}

void *km_page_address(const struct km_page *page)
{
	size_t index = ((uintptr_t)page - (uintptr_t)km_hot.page) / sizeof(*page);

	/* Most pages are in the first range. Acquire as in km_page_of. */
	if (km_likely(index < km_load_acquire(&km_hot.pages)))
		return (char *)km_hot.arena + (index << KM_PAGE_SHIFT);
	const struct km_range *range = km_range_of_page(page);
	return range->base + ((size_t)(page - range->page) << KM_PAGE_SHIFT);
}

unsigned km_page_node(const void *p)
{
	size_t index;
	const struct km_range *range = km_likely(km_node_count == 1) ? NULL : km_range_of(p, &index);

	return range ? km_range_node(range, index) : 0;
}

void km_map_set(struct km_page *page, size_t count, uint16_t value)
{
	struct km_range *range = km_range_of_page(page);
	size_t index = (size_t)(page - range->page);

	km_debug(index + count <= range->pages, "the map has an entry for each page of its range");

	for (size_t i = 0; i < count; i++)
		km_store(&range->map[index + i], value);
}

/* Make the system's pages of a part of an array resident. */
static int fault_in(const void *array, size_t bytes)
{
	uintptr_t unit = km_os_page_bytes(), first = km_align_down((uintptr_t)array, unit);

	return km_os_fault_in((void *)first, km_align_up((uintptr_t)array + bytes, unit) - first);
}

int km_pages_fault_in(struct km_page *page, size_t count, uint32_t live_shift)
{
	const struct km_range *range = km_range_of_page(page);
	size_t index = (size_t)(page - range->page);

	km_debug(index + count <= range->ready, "only committed pages are made resident");
	int result = fault_in(km_page_address(page), count << KM_PAGE_SHIFT);
	for (unsigned i = 0; !result && i < KM_RANGE_ARRAYS && range->array[i]; i++)
		if (i < KM_RANGE_DIRTY || (live_shift && i == KM_RANGE_LIVE + live_shift - KM_ALLOC_MAP_LOW))
			result = fault_in((char *)range->array[i] + index * km_range_bits[i] / 8,
					  count * km_range_bits[i] / 8);
	return result;
}

struct km_zone *km_zone_of_page(const struct km_page *page)
{
	const struct km_range *range = km_range_of_page(page);

	return &km_arena.zone[km_range_node(range, (size_t)(page - range->page))];
}

void km_page_hold(const struct km_page *page)
{
	km_lock(&km_zone_of_page(page)->lock);
}

void km_page_let_go(const struct km_page *page)
{
	km_unlock(&km_zone_of_page(page)->lock);
}

/* Requires: the lock of the page's zone is held. */
void km_pages_stay(struct km_page *page)
{
	km_debug(km_is_locked(&km_zone_of_page(page)->lock) && !km_arena.staying && !km_arena.staying_count,
		 "pages of one slab at a time are held");
	km_store(&km_arena.staying, page);
}

void km_pages_stay_no_more(void)
{
	struct km_page *page = km_load(&km_arena.staying);

	/* In the child of a fork from a signal handler that interrupted the holder of this lock, the next reservation
	 * does the work. */
	if (!page || km_lock_is_own(&km_zone_of_page(page)->lock))
		return;
	km_page_hold(page);
	size_t count = km_arena.staying_count;
	km_arena.staying_count = 0;
	km_store(&km_arena.staying, NULL);
	/* The pages are resident now: they are gone no more. */
	if (count)
		km_pages_fill(page, count);
	km_page_let_go(page);
	if (count)
		km_pages_free_exact(page, count);
}

int km_pages_walk(int (*visit)(struct km_page *page, void *arg), void *arg)
{
	for (unsigned i = 0; i < km_load_acquire(&km_arena.ranges); i++) {
		struct km_range *range = &km_arena.range[i];

		for (size_t index = 0; index < km_load_acquire(&range->ready); index++) {
			struct km_page *page = &range->page[index];
			uint8_t type = km_load(&page->type);

			if (type != KM_PAGE_SLAB && type != KM_PAGE_LARGE && type != KM_PAGE_SHARED)
				continue;
			int result = visit(page, arg);
			if (result)
				return result;
		}
	}
	return 0;
}

void km_arena_get_stats(struct km_arena_stats *stats)
{
	*stats = (struct km_arena_stats){
		.pages = {
			.used_pages = km_zones_sum(pages.used_pages),
			.dirty_pages = km_zones_sum(pages.dirty_pages),
			.clean_pages = km_zones_sum(pages.clean_pages),
			.purged_pages = km_zones_sum(pages.purged_pages),
		},
		.bind_failures = km_load(&km_arena.bind_failures),
	};
	for (unsigned i = 0; i < km_load_acquire(&km_arena.ranges); i++) {
		const struct km_range *range = &km_arena.range[i];

		stats->reserved_bytes += km_load(&range->base) ? range->pages << KM_PAGE_SHIFT : 0;
		stats->committed_bytes += km_load(&range->ready) << KM_PAGE_SHIFT;
	}
}

void km_arena_expose(struct km_arena_view *view)
{
	*view = (struct km_arena_view){
		.ranges = &km_arena.ranges, .range = km_arena.range, .nodes = &km_node_count,
		.bind_failures = &km_arena.bind_failures,
	};
	for (unsigned i = 0; i < KM_MAX_NODES; i++)
		view->zone[i] = &km_arena.zone[i].pages;
}

const struct km_range *km_arena_range(unsigned i)
{
	return i < km_load_acquire(&km_arena.ranges) ? &km_arena.range[i] : NULL;
}

void km_arena_set(bool huge, unsigned decay_ms)
{
	km_arena.huge = huge;
	km_arena.decay_ms = decay_ms;
}

unsigned km_arena_decay_ms(void)
{
	return km_arena.decay_ms;
}

/* Takes or frees the locks of purge, nodes and ranges around fork, in the order of their ranks. */
void km_arena_fork(bool before, bool child)
{
	km_lock_around_fork(&km_nodump_lock, before, child);
	km_lock_around_fork(&km_addr_reuse_lock, before, child);
	km_lock_around_fork(&km_arena.purge, before, child);
	for (unsigned node = 0; node < km_node_count; node++)
		km_lock_around_fork(&km_arena.zone[node].lock, before, child);
	km_lock_around_fork(&km_arena.grow, before, child);
}

int km_arena_check(void)
{
	size_t bits = 0, dirty = km_zones_sum(pages.dirty_pages), gone = 0;
	struct km_arena_stats stats;
	int damages = 0;

	for (unsigned node = 0; node < km_node_count; node++)
		damages += km_run_check(node);
	for (unsigned i = 0; i < km_arena.ranges; i++) {
		bits += km_bits_count(km_arena.range[i].dirty, 0, km_arena.range[i].ready);
		for (size_t index = 0; index < km_arena.range[i].ready; index++)
			gone += !!(km_arena.range[i].page[index].flags & KM_PAGE_GONE);
	}
	if (bits != dirty) {
		km_warn("check: %lu pages have a dirty bit, but %lu free pages are counted as dirty", bits, dirty);
		damages++;
	}
	/* In the child of a fork from a signal handler the count may exceed the flags. */
	if (gone > km_arena.gone_pages) {
		km_warn("check: %lu pages are flagged as gone, but %lu are counted", gone, km_arena.gone_pages);
		damages++;
	}
	km_arena_get_stats(&stats);
	size_t counted = stats.pages.used_pages + stats.pages.dirty_pages + stats.pages.clean_pages + FOREIGN_PAGES;
	if (counted << KM_PAGE_SHIFT != stats.committed_bytes) {
		km_warn("check: %lu of %lu committed pages are counted as used or "
			"free", counted, stats.committed_bytes >> KM_PAGE_SHIFT);
		damages++;
	}
	return damages;
}
