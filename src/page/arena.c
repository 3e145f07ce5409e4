/*
 * arena.c: a buddy allocator over reserved ranges, for each node one. Invariants: a free block is on the list of its
 * node, order and dirtiness, its head says FREE, and its buddy of the same order is not free; every page that is used
 * or dirty is counted once; a largest block belongs to one node for ever; a node's lock is held for no system call but
 * the commit of fresh memory.
 */
#include "arena.h"

#include "../port/atomic.h"
#include "../port/bits.h"
#include "../port/die.h"
#include "../port/lock.h"
#include "../port/os.h"
#include "../port/pcpu.h"
#include "meta.h"

#define MAX_RANGES	64u
#define LATER_MS	60000u	/* a purge takes less, and its clock stands still */
#define TRIM_ROUNDS	4
#define BLOCK_PAGES	((size_t)1 << KM_MAX_ORDER)
#define BLOCK_BYTES	(BLOCK_PAGES << KM_PAGE_SHIFT)
#define COMMIT_STEP	((size_t)2 << 20)
/* Dirty memory allowed beyond what is in use: enough that a small program never purges. */
#define DIRTY_FLOOR_PAGES	1024u
/* Huge pages only from here on: a small program must not pay 2 MiB for a few pages. */
#define HUGE_FROM_PAGES	(2 * BLOCK_PAGES)

/* A node's free pages. */
struct zone {
	struct km_lock lock;
	struct km_zone_counts pages;
	struct km_list free[KM_MAX_ORDER + 1][2];	/* [order][dirty] */
} km_aligned(64);

static struct {
	struct zone zone[KM_MAX_NODES];
	struct km_lock purge;		/* held while free pages are on no list */
	struct km_lock grow;		/* what follows, up to kept_pages; readers need none */
	unsigned ranges;
	struct km_range range[MAX_RANGES];
	/* Bytes committed of the arrays. */
	size_t map_ready[MAX_RANGES], page_ready[MAX_RANGES], owner_ready[MAX_RANGES];
	size_t bind_failures;
	size_t kept_pages;		/* dirty when the system could last not take them back */
	bool huge;
	unsigned decay_ms;
} arena = { .purge = KM_LOCK_INIT(KM_RANK_PURGE), .grow = KM_LOCK_INIT(KM_RANK_GROW), .huge = true, .decay_ms = 1000 };

static bool reserve_range(size_t bytes)
{
	struct km_range *range = &arena.range[arena.ranges];
	size_t pages = bytes >> KM_PAGE_SHIFT;
	size_t map_bytes = km_align_up(pages * sizeof(*range->map), COMMIT_STEP);
	size_t page_bytes = km_align_up(pages * sizeof(*range->page), COMMIT_STEP);

	char *base = km_os_reserve(bytes, BLOCK_BYTES);
	if (!base)
		return false;
	size_t owner_bytes = km_align_up(pages * sizeof(*range->owner), COMMIT_STEP);
	size_t array_bytes = map_bytes + page_bytes + owner_bytes;
	char *arrays = km_os_reserve(array_bytes, COMMIT_STEP);
	uint8_t *node = NULL;
	if (arrays && km_node_count > 1)
		node = km_meta_alloc(pages >> KM_MAX_ORDER, true);
	if (!arrays || (km_node_count > 1 && !node)) {
		if (arrays)
			km_os_unmap(arrays, array_bytes);
		km_os_unmap(base, bytes);
		return false;
	}
	km_os_name(base, bytes, "libkmem: arena");
	km_os_name(arrays, array_bytes, "libkmem: page map");
	*range = (struct km_range){
		.base = base, .pages = pages, .map = (uint16_t *)arrays,
		.page = (struct km_page *)(arrays + map_bytes),
		.owner = (uint64_t *)(arrays + map_bytes + page_bytes), .node = node,
	};
	/* Release pairs with the acquire in km_page_of_any: who sees the count sees the range. */
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

/* Commit an array, of which there are *ready bytes, up to that many of all its members. */
static bool commit_array(void *array, size_t *ready, size_t members, size_t all, size_t bytes)
{
	size_t need = members * bytes, limit = km_align_up(all * bytes, COMMIT_STEP);
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
	/* Acquire as in km_page_of_any: the page may be of a range that another node has just got. */
	for (unsigned i = 0; i < km_load_acquire(&arena.ranges); i++) {
		struct km_range *range = &arena.range[i];

		if (page >= range->page && page < range->page + range->pages)
			return range;
	}
	return NULL;
}

/* A node's memory is one run of largest blocks after the other, so the block says whose a page is. */
static unsigned node_of(const struct km_range *range, size_t index)
{
	return range->node ? range->node[index >> KM_MAX_ORDER] : 0;
}

/* ------------------------------------------------------------------ the buddy; the zone's lock held */

static void insert_free(struct zone *zone, struct km_page *page, unsigned order, uint32_t dirty,
			uint32_t now)
{
	km_store(&page->type, (uint8_t)KM_PAGE_FREE);
	km_store(&page->order, (uint8_t)order);
	km_store(&page->dirty, dirty);
	km_store(&page->freed_ms, now);
	km_bump(&zone->pages.dirty_pages, dirty);
	km_bump(&zone->pages.clean_pages, ((size_t)1 << order) - dirty);
	km_list_add_head(&page->list, &zone->free[order][dirty != 0]);
}

static void remove_free(struct zone *zone, struct km_page *page)
{
	km_bump(&zone->pages.dirty_pages, -(size_t)page->dirty);
	km_bump(&zone->pages.clean_pages, page->dirty - ((size_t)1 << page->order));
	km_list_del(&page->list);
	km_store(&page->type, (uint8_t)KM_PAGE_NONE);
}

/* Insert, joined with every free buddy. */
static void merge_free(struct zone *zone, struct km_range *range, size_t index, unsigned order,
		       uint32_t dirty, uint32_t now)
{
	while (order < KM_MAX_ORDER) {
		size_t other = index ^ ((size_t)1 << order);
		struct km_page *buddy = &range->page[other];

		/* A block in use changes its type without the lock, never from or to FREE. */
		if (km_load(&buddy->type) != KM_PAGE_FREE || km_load(&buddy->order) != order)
			break;
		dirty += buddy->dirty;
		remove_free(zone, buddy);
		index = km_min(index, other);
		order++;
	}
	insert_free(zone, &range->page[index], order, dirty, now);
}

/* Fresh and not yet touched; where the system refuses, its pages come from wherever they are touched. */
static void bind_block(char *block, unsigned node)
{
	if (km_unlikely(km_nodes.bind) && km_node_bind(block, BLOCK_BYTES, node))
		km_bump(&arena.bind_failures, 1);
}

/* Commit the next largest block of the last range, or of a new one, for the node; both locks held. */
static bool commit_block(unsigned node)
{
	struct km_range *range = arena.ranges ? &arena.range[arena.ranges - 1] : NULL;

	if (!range || range->ready + BLOCK_PAGES > range->pages) {
		if (!new_range())
			return false;
		range = &arena.range[arena.ranges - 1];
	}
	size_t i = (size_t)(range - arena.range), end = range->ready + BLOCK_PAGES;
	char *block = range->base + (range->ready << KM_PAGE_SHIFT);
	if (!commit_array(range->map, &arena.map_ready[i], end, range->pages, sizeof(*range->map)) ||
	    !commit_array(range->page, &arena.page_ready[i], end, range->pages, sizeof(*range->page)) ||
	    !commit_array(range->owner, &arena.owner_ready[i], end, range->pages, sizeof(*range->owner)) ||
	    km_os_commit_node(block, BLOCK_BYTES, node))
		return false;
	bind_block(block, node);
	if (arena.huge && end > HUGE_FROM_PAGES)
		km_os_huge(block, BLOCK_BYTES);
	if (range->node)
		range->node[range->ready >> KM_MAX_ORDER] = (uint8_t)node;
	insert_free(&arena.zone[node], &range->page[range->ready], KM_MAX_ORDER, 0, 0);
	km_store_release(&range->ready, end);
	/* Once only: others read them by then. */
	if (i == 0 && !km_hot.pages) {
		km_hot.arena = range->base;
		km_hot.page = range->page;
		km_hot.owner = range->owner;
		km_store_release(&km_hot.map, range->map);
	}
	/* Last: before, no index passes. */
	if (i == 0)
		km_store_release(&km_hot.pages, end);
	return true;
}

static bool grow(unsigned node)
{
	km_lock(&arena.grow);
	bool grown = commit_block(node);
	km_unlock(&arena.grow);
	return grown;
}

/* Page 0 of the first range is never given out: its map entry says "foreign". */
static void keep_first_page(struct zone *zone)
{
	struct km_page *page = &arena.range[0].page[0];

	remove_free(zone, page);
	for (unsigned order = KM_MAX_ORDER; order-- > 0;)
		insert_free(zone, page + ((size_t)1 << order), order, 0, 0);
	km_store(&page->type, (uint8_t)KM_PAGE_NONE);
}

bool km_arena_start(void)
{
	unsigned here = km_node_here();

	for (unsigned node = 0; node < KM_MAX_NODES; node++) {
		km_lock_init(&arena.zone[node].lock, KM_RANK_ZONE);
		for (unsigned order = 0; order <= KM_MAX_ORDER; order++)
			for (int dirty = 0; dirty < 2; dirty++)
				km_list_init(&arena.zone[node].free[order][dirty]);
	}
	if (!arena.ranges && !new_range())
		return false;
	if (!grow(here))
		return false;
	keep_first_page(&arena.zone[here]);
	return true;
}

/* The smallest block that will do, dirty before clean: it is resident already. */
static struct km_page *find_free(const struct zone *zone, unsigned order)
{
	for (; order <= KM_MAX_ORDER; order++)
		for (int dirty = 1; dirty >= 0; dirty--)
			if (!km_list_empty(&zone->free[order][dirty]))
				return km_list_first(&zone->free[order][dirty], struct km_page,
						     list);
	return NULL;
}

/* Cut the block down to `order`, low half first, and return what is left. */
static uint32_t split(struct zone *zone, struct km_page *page, unsigned order)
{
	uint32_t dirty = page->dirty, now = page->freed_ms;
	unsigned have = page->order;

	remove_free(zone, page);
	while (have > order) {
		uint32_t half = 1u << --have;

		/* Which half the dirty pages are in is not known, so each may have them all: a block
		 * said to be clean is taken for zeros. */
		dirty = km_min(dirty, half);
		insert_free(zone, page + half, have, dirty, now);
	}
	return dirty;
}

/* What is free of the node; where that is nothing, and it may grow, fresh memory. */
static struct km_page *alloc_on(unsigned node, unsigned order, bool may_wait, bool may_grow,
				bool *zero)
{
	struct zone *zone = &arena.zone[node];
	struct km_page *page;

	if (!km_lock_may(&zone->lock, may_wait))
		return NULL;
	while (!(page = find_free(zone, order)))
		if (!may_grow || !grow(node))
			break;
	if (page) {
		bool untouched = page->dirty == 0;

		split(zone, page, order);
		if (zero)
			*zero = untouched;
		km_store(&page->order, (uint8_t)order);
		page->flags = 0;
		page->node = (uint8_t)node;
		km_store(&page->cache, NULL);
		km_bump(&zone->pages.used_pages, (size_t)1 << order);
	}
	km_unlock_may(&zone->lock, may_wait);
	return page;
}

/* What others have free comes before what they would have to commit. */
km_cold static struct km_page *alloc_elsewhere(unsigned node, unsigned order, bool may_wait, bool *zero)
{
	for (int grow = 0; grow <= may_wait; grow++)
		for (unsigned i = 1; i < km_node_count; i++) {
			struct km_page *page = alloc_on(km_node_near(node, i), order, may_wait, grow,
							zero);

			if (page)
				return page;
		}
	return NULL;
}

/* For want of anything else: what is in hand while the system takes it back is free a moment later. */
km_cold static struct km_page *alloc_after_purge(unsigned node, unsigned order, bool only, bool *zero)
{
	struct km_page *page = NULL;

	km_lock(&arena.purge);
	for (unsigned i = 0; !page && i < (only ? 1 : km_node_count); i++)
		page = alloc_on(i ? km_node_near(node, i) : node, order, true, false, zero);
	km_unlock(&arena.purge);
	return page;
}

struct km_page *km_pages_alloc(unsigned order, int node, bool may_wait, bool *zero)
{
	unsigned first = node < 0 ? km_node_here() : (unsigned)node & ~(unsigned)KM_NODE_ONLY;
	bool only = node >= 0 && node & KM_NODE_ONLY;

	if (order > KM_MAX_ORDER)
		return NULL;
	struct km_page *page = alloc_on(first, order, may_wait, may_wait, zero);
	if (km_likely(page))
		return page;
	if (!only)
		page = alloc_elsewhere(first, order, may_wait, zero);
	return page || !may_wait ? page : alloc_after_purge(first, order, only, zero);
}

/* dirty: how many of them may be resident. */
static void free_pages(struct km_page *page, unsigned order, uint32_t dirty)
{
	uint32_t now = (uint32_t)km_os_now_ms();
	struct km_range *range = range_of_page(page);
	size_t index = (size_t)(page - range->page);
	struct zone *zone = &arena.zone[node_of(range, index)];

	km_lock(&zone->lock);
	km_bump(&zone->pages.used_pages, -((size_t)1 << order));
	km_store(&page->type, (uint8_t)KM_PAGE_NONE);
	merge_free(zone, range, index, order, dirty, now);
	km_unlock(&zone->lock);
}

void km_pages_free(struct km_page *page, unsigned order)
{
	free_pages(page, order, 1u << order);
}

static void free_run(struct km_page *page, size_t count, bool dirty)
{
	struct km_range *range = range_of_page(page);
	size_t index = (size_t)(page - range->page);

	while (count) {
		unsigned order = km_min(km_ilog2(count), KM_MAX_ORDER);

		if (index)
			order = km_min(order, (unsigned)__builtin_ctzll(index));
		free_pages(&range->page[index], order, dirty ? 1u << order : 0);
		index += (size_t)1 << order;
		count -= (size_t)1 << order;
	}
}

struct km_page *km_pages_alloc_exact(size_t count, unsigned align_order, int node, bool may_wait,
				     bool *zero)
{
	unsigned order = km_max(count <= 1 ? 0u : km_ilog2(count - 1) + 1, align_order);
	bool untouched = false;
	struct km_page *page = km_pages_alloc(order, node, may_wait, &untouched);

	if (zero)
		*zero = untouched;
	if (page && count < (size_t)1 << order)
		free_run(page + count, ((size_t)1 << order) - count, !untouched);
	return page;
}

void km_pages_free_exact(struct km_page *page, size_t count)
{
	free_run(page, count, true);
}

/* ------------------------------------------------------------------ addresses */

struct km_page *km_page_of_any(const void *p)
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

unsigned km_page_node(const void *p)
{
	if (km_likely(km_node_count == 1))
		return 0;
	for (unsigned i = 0; i < km_load_acquire(&arena.ranges); i++) {
		const struct km_range *range = &arena.range[i];
		size_t index = ((uintptr_t)p - (uintptr_t)range->base) >> KM_PAGE_SHIFT;

		if (index < km_load_acquire(&range->ready))
			return node_of(range, index);
	}
	return 0;
}

void km_map_set(struct km_page *page, size_t count, uint16_t value)
{
	struct km_range *range = range_of_page(page);
	size_t index = (size_t)(page - range->page);

	for (size_t i = 0; i < count; i++)
		km_store(&range->map[index + i], value);
}

static struct zone *zone_of_page(const struct km_page *page)
{
	const struct km_range *range = range_of_page(page);

	return &arena.zone[node_of(range, (size_t)(page - range->page))];
}

void km_page_hold(const struct km_page *page)
{
	km_lock(&zone_of_page(page)->lock);
}

void km_page_let_go(const struct km_page *page)
{
	km_unlock(&zone_of_page(page)->lock);
}

int km_pages_walk(int (*visit)(struct km_page *page, void *arg), void *arg)
{
	for (unsigned i = 0; i < km_load_acquire(&arena.ranges); i++) {
		struct km_range *range = &arena.range[i];

		for (size_t index = 0; index < km_load_acquire(&range->ready); index++) {
			struct km_page *page = &range->page[index];
			uint8_t type = km_load(&page->type);

			if (type != KM_PAGE_SLAB && type != KM_PAGE_LARGE && type != KM_PAGE_SLOB)
				continue;
			int result = visit(page, arg);
			if (result)
				return result;
		}
	}
	return 0;
}

/* ------------------------------------------------------------------ counts, of all nodes */

static size_t pages_used(void)
{
	size_t pages = 0;

	for (unsigned i = 0; i < km_node_count; i++)
		pages += km_load(&arena.zone[i].pages.used_pages);
	return pages;
}

static size_t pages_dirty(void)
{
	size_t pages = 0;

	for (unsigned i = 0; i < km_node_count; i++)
		pages += km_load(&arena.zone[i].pages.dirty_pages);
	return pages;
}

/* ------------------------------------------------------------------ giving back */

/* The oldest dirty block of 2^lowest pages or more that is at least `decay_ms` old, taken off its list; lock held. */
static struct km_page *take_old(struct zone *zone, uint32_t now, unsigned decay_ms, unsigned lowest)
{
	for (unsigned order = KM_MAX_ORDER + 1; order-- > lowest;) {
		struct km_list *list = &zone->free[order][1];

		if (km_list_empty(list))
			continue;
		struct km_page *page = km_list_last(list, struct km_page, list);
		/* Also one that was freed since `now`: or who purges goes on as long as others free. */
		if (now - page->freed_ms + LATER_MS < decay_ms + LATER_MS)
			continue;
		remove_free(zone, page);
		return page;
	}
	return NULL;
}

/* One block, while who needs pages waits; returns how many of its pages were given back. */
static size_t purge_block(struct zone *zone, uint32_t now, unsigned decay_ms, unsigned lowest)
{
	km_lock(&zone->lock);
	struct km_page *page = take_old(zone, now, decay_ms, lowest);
	km_unlock(&zone->lock);
	if (!page) {
		if (lowest && !decay_ms)
			km_store(&arena.kept_pages, pages_dirty());
		return 0;
	}
	uint32_t dirty = page->dirty;
	unsigned order = page->order;
	struct km_range *range = range_of_page(page);
	bool gone = km_os_purge(km_page_address(page), KM_PAGE_SIZE << order) == 0;

	km_lock(&zone->lock);
	if (gone)
		km_bump(&zone->pages.purged_pages, dirty);
	/* Where the system refuses (mlockall) it stays dirty, as fresh, for another period. */
	merge_free(zone, range, (size_t)(page - range->page), order, gone ? 0 : dirty, now);
	km_unlock(&zone->lock);
	km_store(&arena.kept_pages, gone ? (size_t)0 : pages_dirty());
	return gone ? dirty : 0;
}

static size_t purge_until(struct zone *zone, unsigned decay_ms, size_t enough_pages)
{
	/* What is smaller than the system's page waits for its neighbours: more would be given back than is free. */
	unsigned lowest = km_order_of(km_os_page_bytes());
	uint32_t now = (uint32_t)km_os_now_ms();
	size_t given = 0, last = 1;

	while (last && given < enough_pages) {
		km_lock(&arena.purge);
		last = purge_block(zone, now, decay_ms, lowest);
		km_unlock(&arena.purge);
		given += last;
	}
	return given;
}

size_t km_pages_purge(unsigned decay_ms)
{
	size_t given = 0;

	for (unsigned i = 0; i < km_node_count; i++)
		given += purge_until(&arena.zone[i], decay_ms, SIZE_MAX);
	return given;
}

size_t km_pages_used(void)
{
	return pages_used();
}

/* A quarter of what is in use, and a floor. */
static size_t dirty_bound(void)
{
	return pages_used() / 4 + DIRTY_FLOOR_PAGES;
}

bool km_pages_too_dirty(void)
{
	/* What the system would not take just now is not offered again before there is more. */
	return pages_dirty() > km_max(dirty_bound(), km_load(&arena.kept_pages));
}

/* Each node gives as large a part of its own. */
static size_t trim_by(size_t pages, size_t dirty)
{
	size_t given = 0;

	for (unsigned i = 0; i < km_node_count; i++) {
		struct zone *zone = &arena.zone[i];
		size_t own = km_min(km_load(&zone->pages.dirty_pages), dirty);

		given += purge_until(zone, 0, (size_t)((unsigned __int128)own * pages / dirty));
	}
	return given;
}

void km_pages_trim(void)
{
	size_t given = 1;

	/* Others free meanwhile, and more becomes dirty: that is for them, or for the next to come by. */
	for (int round = 0; given && round < TRIM_ROUNDS; round++) {
		size_t dirty = pages_dirty(), enough = dirty_bound() / 4;

		given = dirty > enough ? trim_by(dirty - enough, dirty) : 0;
	}
}

void km_arena_get_stats(struct km_arena_stats *stats)
{
	*stats = (struct km_arena_stats){ .bind_failures = km_load(&arena.bind_failures) };
	for (unsigned i = 0; i < km_node_count; i++) {
		const struct km_zone_counts *pages = &arena.zone[i].pages;

		stats->pages.used_pages += km_load(&pages->used_pages);
		stats->pages.dirty_pages += km_load(&pages->dirty_pages);
		stats->pages.clean_pages += km_load(&pages->clean_pages);
		stats->pages.purged_pages += km_load(&pages->purged_pages);
	}
	for (unsigned i = 0; i < km_load_acquire(&arena.ranges); i++) {
		stats->reserved_bytes += arena.range[i].pages << KM_PAGE_SHIFT;
		stats->committed_bytes += arena.range[i].ready << KM_PAGE_SHIFT;
	}
}

void km_arena_expose(struct km_arena_view *view)
{
	*view = (struct km_arena_view){
		.ranges = &arena.ranges, .range = arena.range, .nodes = &km_node_count,
		.bind_failures = &arena.bind_failures,
	};
	for (unsigned i = 0; i < KM_MAX_NODES; i++)
		view->zone[i] = &arena.zone[i].pages;
}

const struct km_zone_counts *km_arena_zone(unsigned node)
{
	return &arena.zone[node].pages;
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

/* Purges end first, then nodes, then what they grow from: the order of the ranks. */
void km_arena_fork(bool before, bool child)
{
	struct km_lock *locks[KM_MAX_NODES + 2];
	unsigned count = 0;

	locks[count++] = &arena.purge;
	for (unsigned node = 0; node < km_node_count; node++)
		locks[count++] = &arena.zone[node].lock;
	locks[count++] = &arena.grow;
	for (unsigned i = 0; i < count; i++)
		km_lock_around_fork(locks[i], before, child);
}

static bool free_block_is_right(const struct km_page *page, unsigned node, unsigned order, bool dirty)
{
	const struct km_range *range = range_of_page(page);

	return range && page->type == KM_PAGE_FREE && page->order == order &&
	       (page->dirty != 0) == dirty && node_of(range, (size_t)(page - range->page)) == node;
}

static int check_zone(unsigned node)
{
	const struct zone *zone = &arena.zone[node];
	size_t dirty = 0, clean = 0;

	for (unsigned order = 0; order <= KM_MAX_ORDER; order++)
		for (int list = 0; list < 2; list++)
			km_list_for_each(entry, &zone->free[order][list]) {
				struct km_page *page =
					km_container_of(entry, struct km_page, list);

				if (!free_block_is_right(page, node, order, list)) {
					km_warn("check: free block %p is damaged", page);
					return 1;
				}
				dirty += page->dirty;
				clean += ((size_t)1 << order) - page->dirty;
			}
	if (dirty == zone->pages.dirty_pages && clean == zone->pages.clean_pages)
		return 0;
	km_warn("check: free pages of node %u counted %lu + %lu, kept %lu + %lu", node, dirty, clean,
		zone->pages.dirty_pages, zone->pages.clean_pages);
	return 1;
}

int km_arena_check(void)
{
	int damages = 0;

	for (unsigned node = 0; node < km_node_count; node++)
		damages += check_zone(node);
	return damages;
}
