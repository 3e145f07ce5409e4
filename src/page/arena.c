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
#define ARRAY_ALIGN	((size_t)64 << 10)	/* the system's largest page */
#define FOREIGN_PAGES	((size_t)2)		/* first pages of the first range: unknown addresses map here */
#define MAP_SKEW	(KM_MAP_SKEW / sizeof(uint16_t))	/* members in front of the map that are no entries */

_Static_assert(KM_ID_TABLES % ((size_t)64 << 10) == 0, "what lies behind them is aligned as they are");

struct km_arena km_arena km_sparse km_aligned(KM_PAGE_SIZE) = {
	.purge = KM_LOCK_INIT(KM_RANK_PURGE), .grow = KM_LOCK_INIT(KM_RANK_GROW),
};

/* Reuse an unmapped range of at most `bytes` bytes: reserve its address space again. The arrays are still there. */
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

/* Bits for a page in the i-th allocation state map. */
static size_t live_bits(unsigned i)
{
	return (size_t)8 << (KM_PAGE_SHIFT - KM_ALLOC_MAP_LOW - i);
}

/* Reserve address space for the allocation state maps, in a mapping of their own, away from all other memory. */
static bool reserve_live(struct km_range *range)
{
	size_t bytes = 0;

	if (!km_hardening.live)
		return true;
	for (unsigned i = 0; i < KM_ALLOC_MAP_TABLES; i++)
		bytes += km_align_up(range->pages * live_bits(i) / 8, ARRAY_ALIGN) + ARRAY_ALIGN;
	uint8_t *tables = km_os_reserve(bytes, ARRAY_ALIGN);
	if (!tables)
		return false;
	km_os_name(tables, bytes, "libkmem: live objects");
	for (unsigned i = 0; i < KM_ALLOC_MAP_TABLES; i++) {
		range->live[i] = tables;
		tables += km_align_up(range->pages * live_bits(i) / 8, ARRAY_ALIGN) + ARRAY_ALIGN;
	}
	return true;
}

static bool reserve_range(size_t bytes)
{
	struct km_range *range = &km_arena.range[km_arena.ranges];

	if (revive_range(bytes))
		return true;
	if (km_arena.ranges == KM_MAX_RANGES)
		return false;
	size_t pages = bytes >> KM_PAGE_SHIFT;
	size_t table_bytes = km_arena.ranges ? 0 : KM_ID_TABLES;
	size_t map_bytes = table_bytes + km_align_up((MAP_SKEW + pages) * sizeof(*range->map), ARRAY_ALIGN);
	size_t page_bytes = km_align_up(pages * sizeof(*range->page), ARRAY_ALIGN);
	size_t owner_bytes = km_align_up(pages * sizeof(*range->owner), ARRAY_ALIGN);
	size_t array_bytes = map_bytes + page_bytes + owner_bytes + km_align_up(pages / 8, ARRAY_ALIGN);

	char *base = km_os_reserve(bytes, KM_BLOCK_BYTES);
	if (!base)
		return false;
	char *arrays = km_os_reserve(array_bytes, ARRAY_ALIGN);
	uint8_t *node = NULL;
	if (arrays && km_node_count > 1)
		node = km_meta_alloc(pages >> KM_MAX_ORDER, true);
	struct km_range reserved = { .base = base, .pages = pages };
	if (!arrays || (km_node_count > 1 && !node) || !reserve_live(&reserved)) {
		if (arrays)
			km_os_unmap(arrays, array_bytes);
		km_os_unmap(base, bytes);
		return false;
	}
	km_debug(!((uintptr_t)base & (KM_BLOCK_BYTES - 1)) && pages % KM_BLOCK_PAGES == 0,
		 "a range has whole blocks");
	km_os_name(base, bytes, "libkmem: arena");
	km_tell_root(root_comes, base, bytes);
	km_os_name(arrays, array_bytes, "libkmem: page map");
	reserved.map = (uint16_t *)(arrays + table_bytes) + MAP_SKEW;
	reserved.page = (struct km_page *)(arrays + map_bytes);
	reserved.owner = (uint64_t *)(arrays + map_bytes + page_bytes);
	reserved.dirty = (uint64_t *)(arrays + map_bytes + page_bytes + owner_bytes);
	reserved.node = node;
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
	/* A small rest of a large limit is not worth one of the KM_MAX_RANGES ranges. */
	size_t least = km_max(limit == SIZE_MAX ? 0 : km_align_down(limit / 256, KM_BLOCK_BYTES), KM_BLOCK_BYTES * 2);
	bytes = km_max(km_align_down(bytes, KM_BLOCK_BYTES), least);
	while (!reserve_range(bytes)) {
		if (bytes == least)
			return false;
		bytes = km_max(km_align_down(bytes / 4, KM_BLOCK_BYTES), least);
	}
	return true;
}

/* Shrink an array from `from` to `to` members: unmap the rest. */
static void cut_array(void *array, size_t from, size_t to, size_t bits)
{
	size_t old = km_align_up(from * bits / 8, ARRAY_ALIGN), left = km_align_up(to * bits / 8, ARRAY_ALIGN);

	if (left < old)
		km_os_unmap((char *)array + left, old - left);
}

static void fit_range(struct km_range *range, size_t limit)
{
	size_t had = range->pages;
	size_t pages = range->ready + (km_align_down(limit / 8, KM_BLOCK_BYTES) >> KM_PAGE_SHIFT);

	km_debug(pages >= range->ready, "committed memory stays committed");

	if (pages < had) {
		km_store(&range->pages, pages);
		km_os_unmap(range->base + (pages << KM_PAGE_SHIFT), (had - pages) << KM_PAGE_SHIFT);
		cut_array(range->map - MAP_SKEW, MAP_SKEW + had, MAP_SKEW + pages, 8 * sizeof(*range->map));
		cut_array(range->page, had, pages, 8 * sizeof(*range->page));
		cut_array(range->owner, had, pages, 8 * sizeof(*range->owner));
		cut_array(range->dirty, had, pages, 1);
		for (unsigned i = 0; range->live[0] && i < KM_ALLOC_MAP_TABLES; i++)
			cut_array(range->live[i], had, pages, live_bits(i));
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

/* Commit an array of `all` members up to `members`, in multiples of `step` bytes. *ready: its committed bytes. */
static bool commit_array(void *array, size_t *ready, size_t members, size_t all, size_t bits, size_t step)
{
	size_t need = members * bits / 8, limit = km_align_up(all * bits / 8, ARRAY_ALIGN);
	size_t to = km_min(km_align_up(need, step), limit);

	km_debug(members <= all, "an array has a member for each page of its range");

	if (*ready >= need)
		return true;
	if (km_os_commit((char *)array + *ready, to - *ready))
		return false;
	*ready = to;
	return true;
}

static bool commit_map(struct km_range *range, size_t end)
{
	return commit_array(range->map - MAP_SKEW, &range->map_ready, MAP_SKEW + end, MAP_SKEW + range->pages,
			    8 * sizeof(*range->map), COMMIT_STEP);
}

static bool commit_live(struct km_range *range, size_t end)
{
	for (unsigned i = 0; range->live[0] && i < KM_ALLOC_MAP_TABLES; i++)
		if (!commit_array(range->live[i], &range->live_ready[i], end, range->pages, live_bits(i), COMMIT_STEP))
			return false;
	return true;
}

static bool commit_arrays(struct km_range *range, size_t end)
{
	return commit_live(range, end) && commit_map(range, end) &&
	       commit_array(range->page, &range->page_ready, end, range->pages, 8 * sizeof(*range->page),
			    COMMIT_STEP) &&
	       commit_array(range->owner, &range->owner_ready, end, range->pages, 8 * sizeof(*range->owner),
			    COMMIT_STEP) &&
	       commit_array(range->dirty, &range->dirty_ready, end, range->pages, 1, ARRAY_ALIGN);
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

/* Bind a fresh, untouched block to the node. Where the system refuses, the kernel places each page at first touch. */
static void bind_block(char *block, unsigned node)
{
	if (km_unlikely(km_nodes.bind) && km_node_bind(block, KM_BLOCK_BYTES, node))
		km_bump(&km_arena.bind_failures, 1);
}

/* Commit the tables by id up to this id, and the first map entries (of FOREIGN_PAGES), all of which say "foreign".
 * Then publish the map, before the first lookup of a cache by id or of a page. */
static bool reach_id(size_t id)
{
	static size_t ready[2];
	struct km_range *range = &km_arena.range[0];
	const size_t most = KM_ID_TABLES / 2 / sizeof(uint64_t);
	const size_t skew = (KM_ID_SKEW + KM_MAP_SKEW) / sizeof(uint64_t);
	char *table = (char *)(range->map - MAP_SKEW) - KM_ID_TABLES;

	for (int i = 0; i < 2; i++, table += KM_ID_TABLES / 2)
		if (!commit_array(table, &ready[i], skew + id + 1, most, 64, ARRAY_ALIGN))
			return false;
	if (!commit_map(range, FOREIGN_PAGES))
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

/* Commit the next largest block of the range for the node. Requires: the lock of the node and the grow lock are held.
 * The first FOREIGN_PAGES pages of the first range are never allocated: their map entries say "foreign". */
static bool commit_block(struct km_range *range, unsigned node)
{
	if (!range->base || range->leaving || range->ready + KM_BLOCK_PAGES > range->pages)
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
	bind_block(block, node);
	if (range->node)
		range->node[range->ready >> KM_MAX_ORDER] = (uint8_t)node;
	size_t kept = first && !range->ready ? FOREIGN_PAGES : 0;
	km_run_put(&km_arena.zone[node], range, range->ready + kept, KM_BLOCK_PAGES - kept, false);
	km_store_release(&range->ready, end);
	/* Once only: afterwards other threads read these fields. */
	if (first && !km_hot.pages) {
		km_debug(range->ready == KM_BLOCK_PAGES, "the first block is published after its commit");
		km_hot.arena = range->base;
		km_hot.page = range->page;
		km_hot.owner = range->owner;
	}
	/* Last: until this store no index is below km_hot.pages. */
	if (first)
		km_store_release(&km_hot.pages, end);
	return true;
}

/* Commit a largest block in a range with room, else in a new range. */
static bool grow_any(unsigned node)
{
	do
		for (unsigned i = km_arena.ranges; i-- > 0;) {
			const struct km_range *range = &km_arena.range[i];

			if (range->base && !range->leaving && range->ready + KM_BLOCK_PAGES <= range->pages)
				return commit_block(&km_arena.range[i], node);
		}
	while (new_range());
	return false;
}

static bool grow(unsigned node)
{
	km_lock_scope(&km_arena.grow);
	return grow_any(node);
}

bool km_range_grow(struct km_range *range, unsigned node)
{
	km_lock_scope(&km_arena.grow);
	return commit_block(range, node);
}

bool km_arena_start(void)
{
	for (unsigned node = 0; node < km_node_count; node++)
		km_lock_init(&km_arena.zone[node].lock, KM_RANK_ZONE);
	if (!km_arena.ranges && !new_range())
		return false;
	struct km_zone *zone = &km_arena.zone[km_node_here()];
	km_lock_scope(&zone->lock);
	return grow((unsigned)(zone - km_arena.zone));
}

/* ------------------------------------------------------------------ pages */

/* Allocate free pages of the node. If there are none and may_grow, commit fresh memory. */
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
		km_store(&page->order, (uint8_t)order);
		page->flags = 0;
		page->node = (uint8_t)node;
		km_store(&page->cache, NULL);
	}
	km_unlock_may(&zone->lock, may_wait);
	return page;
}

/* Allocate from the other nodes, the nearest first: free pages of any node come before fresh memory. */
km_cold static struct km_page *alloc_elsewhere(unsigned node, size_t count, unsigned order, bool may_wait, bool *zero)
{
	for (int grow = 0; grow <= may_wait; grow++)
		for (unsigned i = 1; i < km_node_count; i++) {
			struct km_page *page = alloc_on(km_node_near(node, i), count, order, may_wait, grow, zero);

			if (page)
				return page;
		}
	return NULL;
}

/* Allocate again after the present purge: the last resort. The purge frees its pages a moment later. */
km_cold static struct km_page *alloc_after_purge(unsigned node, size_t count, unsigned order, bool only, bool *zero)
{
	struct km_page *page = NULL;

	km_lock_scope(&km_arena.purge);
	for (unsigned i = 0; !page && i < (only ? 1 : km_node_count); i++)
		page = alloc_on(i ? km_node_near(node, i) : node, count, order, true, false, zero);
	return page;
}

static struct km_page *alloc_any(size_t count, unsigned order, int node, bool may_wait, bool *zero)
{
	unsigned first = node < 0 ? km_node_here() : (unsigned)node & ~(unsigned)KM_NODE_ONLY;
	bool only = node >= 0 && node & KM_NODE_ONLY;

	if (!count || count > KM_BLOCK_PAGES || order > KM_MAX_ORDER)
		return NULL;
	struct km_page *page = alloc_on(first, count, order, may_wait, may_wait, zero);
	if (km_likely(page))
		return page;
	if (!only)
		page = alloc_elsewhere(first, count, order, may_wait, zero);
	return page || !may_wait ? page : alloc_after_purge(first, count, order, only, zero);
}

struct km_page *km_pages_alloc_exact(size_t count, unsigned order, int node, bool may_wait, bool *zero)
{
	struct km_page *page = alloc_any(count, order, node, may_wait, zero);

	if (!may_wait)
		km_ahead_note(count, page != NULL);
	return page;
}

bool km_arena_commit(unsigned node)
{
	struct km_zone *zone = &km_arena.zone[node];

	km_lock_scope(&zone->lock);
	return grow(node);
}

/* Returns: the number of pages at the start that are alike: all gone, or all resident. */
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
	/* A page of another node never equals the held page, so a stale value of staying is harmless. */
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

struct km_page *km_page_of_any(const void *p)
{
	unsigned ranges = km_load_acquire(&km_arena.ranges);

	for (unsigned i = 0; i < ranges; i++) {
		const struct km_range *range = &km_arena.range[i];
		/* Load ready before base: a reused range has another base. Acquire pairs with the release in
		 * commit_block. */
		size_t ready = km_load_acquire(&range->ready);
		size_t index = ((uintptr_t)p - (uintptr_t)km_load(&range->base)) >> KM_PAGE_SHIFT;

		if (index < ready)
			return &range->page[index];
	}
	return NULL;
}

struct km_page *km_page_head(struct km_page *page)
{
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
	if (km_likely(km_node_count == 1))
		return 0;
	for (unsigned i = 0; i < km_load_acquire(&km_arena.ranges); i++) {
		const struct km_range *range = &km_arena.range[i];
		size_t ready = km_load_acquire(&range->ready);
		size_t index = ((uintptr_t)p - (uintptr_t)km_load(&range->base)) >> KM_PAGE_SHIFT;

		if (index < ready)
			return km_range_node(range, index);
	}
	return 0;
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
	int result = fault_in(km_page_address(page), count << KM_PAGE_SHIFT) ?:
		     fault_in(page, count * sizeof(*page)) ?:
		     fault_in(&range->map[index], count * sizeof(*range->map)) ?:
		     fault_in(&range->owner[index], count * sizeof(*range->owner));
	if (result || !live_shift || !range->live[live_shift - KM_ALLOC_MAP_LOW])
		return result;
	const unsigned each = KM_PAGE_SHIFT - live_shift;
	return fault_in(range->live[live_shift - KM_ALLOC_MAP_LOW] + (index << each), count << each);
}

static struct km_zone *zone_of_page(const struct km_page *page)
{
	const struct km_range *range = km_range_of_page(page);

	return &km_arena.zone[km_range_node(range, (size_t)(page - range->page))];
}

void km_page_hold(const struct km_page *page)
{
	km_lock(&zone_of_page(page)->lock);
}

void km_page_let_go(const struct km_page *page)
{
	km_unlock(&zone_of_page(page)->lock);
}

/* Requires: the lock of the page's zone is held. */
void km_pages_stay(struct km_page *page)
{
	km_debug(km_is_locked(&zone_of_page(page)->lock) && !km_arena.staying && !km_arena.staying_count,
		 "pages of one slab at a time are held");
	km_store(&km_arena.staying, page);
}

void km_pages_stay_no_more(void)
{
	struct km_page *page = km_load(&km_arena.staying);

	/* In the child of a fork from a signal handler that interrupted the holder of this lock, the next reservation
	 * does the work. */
	if (!page || km_lock_is_own(&zone_of_page(page)->lock))
		return;
	km_page_hold(page);
	size_t count = km_arena.staying_count;
	km_arena.staying_count = 0;
	km_store(&km_arena.staying, NULL);
	/* Gone pages count as resident again. */
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
	*stats = (struct km_arena_stats){ .bind_failures = km_load(&km_arena.bind_failures) };
	for (unsigned i = 0; i < km_node_count; i++) {
		const struct km_zone_counts *pages = &km_arena.zone[i].pages;

		stats->pages.used_pages += km_load(&pages->used_pages);
		stats->pages.dirty_pages += km_load(&pages->dirty_pages);
		stats->pages.clean_pages += km_load(&pages->clean_pages);
		stats->pages.purged_pages += km_load(&pages->purged_pages);
	}
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

const struct km_zone_counts *km_arena_zone(unsigned node)
{
	return &km_arena.zone[node].pages;
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

/* Take the locks in the order of their ranks: purge, nodes, grow. */
void km_arena_fork(bool before, bool child)
{
	struct km_lock *locks[KM_MAX_NODES + 2];
	unsigned count = 0;

	if (before)
		km_nodump_fork(true, false), km_addr_reuse_fork(true, false);
	locks[count++] = &km_arena.purge;
	for (unsigned node = 0; node < km_node_count; node++)
		locks[count++] = &km_arena.zone[node].lock;
	locks[count++] = &km_arena.grow;
	for (unsigned i = 0; i < count; i++)
		km_lock_around_fork(locks[i], before, child);
	if (!before)
		km_addr_reuse_fork(false, child), km_nodump_fork(false, child);
}

/* Check that the set bits of all ranges are as many as the dirty pages of all nodes. */
static int check_bits(void)
{
	size_t bits = 0, dirty = 0;

	for (unsigned i = 0; i < km_arena.ranges; i++)
		bits += km_bits_count(km_arena.range[i].dirty, 0, km_arena.range[i].ready);
	for (unsigned node = 0; node < km_node_count; node++)
		dirty += km_arena.zone[node].pages.dirty_pages;
	if (bits == dirty)
		return 0;
	km_warn("check: %lu pages have a dirty bit, but %lu free pages are counted as dirty", bits, dirty);
	return 1;
}

/* Check the count of gone pages. In the child of a fork from a signal handler the count may exceed the flags. */
static int check_gone(void)
{
	size_t gone = 0;

	for (unsigned i = 0; i < km_arena.ranges; i++)
		for (size_t index = 0; index < km_arena.range[i].ready; index++)
			gone += !!(km_arena.range[i].page[index].flags & KM_PAGE_GONE);
	if (gone <= km_arena.gone_pages)
		return 0;
	km_warn("check: %lu pages are flagged as gone, but %lu are counted", gone, km_arena.gone_pages);
	return 1;
}

/* Check that each committed page is counted as used or free, except for the foreign pages. */
static int check_sum(void)
{
	struct km_arena_stats stats;

	km_arena_get_stats(&stats);
	size_t counted = stats.pages.used_pages + stats.pages.dirty_pages + stats.pages.clean_pages +
			 FOREIGN_PAGES;
	if (counted << KM_PAGE_SHIFT == stats.committed_bytes)
		return 0;
	km_warn("check: %lu of %lu committed pages are counted as used or "
		"free", counted, stats.committed_bytes >> KM_PAGE_SHIFT);
	return 1;
}

int km_arena_check(void)
{
	int damages = 0;

	for (unsigned node = 0; node < km_node_count; node++)
		damages += km_run_check(node);
	return damages + check_bits() + check_gone() + check_sum();
}
