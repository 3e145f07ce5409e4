/*
 * nodump.c: slabs of caches with SLAB_NODUMP. madvise(MADV_DONTDUMP) works by mappings, so slabs of these caches are
 * cut out of separate largest blocks (KM_BLOCK_PAGES) with this advice. Invariants: a block has the advice from
 * before its first slab until the block is free. The content of a freed slab is erased before the advice ends, so no
 * core dump contains the content. A bit of `taken` is set iff the page belongs to a slab. A block without slabs stays
 * until km_nodump_release, called by a purge.
 */
#include "os/die.h"
#include "os/os.h"
#include "metadata.h"
#include "nodump.h"
#include "zone.h"

struct block {
	struct km_list list;
	struct km_page *first;
	size_t used;			/* pages of the block that belong to slabs */
	uint64_t taken[KM_BLOCK_PAGES / 64];
};

struct km_lock km_nodump_lock = KM_LOCK_INIT(KM_RANK_NODUMP);
static struct {
	struct km_list blocks;
	bool any;			/* the list has or had a block; read without the lock */
} nodump = { .blocks = { &nodump.blocks, &nodump.blocks } };

/* ------------------------------------------------------------------ pages of a block; the lock held */

static struct km_page *cut(struct block *block, unsigned order)
{
	const size_t count = (size_t)1 << order;

	if (KM_BLOCK_PAGES - block->used < count)
		return NULL;
	for (size_t index = 0; index < KM_BLOCK_PAGES; index += count) {
		if (km_bits_count(block->taken, index, count))
			continue;
		km_bits_change(block->taken, index, count, true);
		block->used += count;
		struct km_page *page = block->first + index;
		km_debug(page->type == KM_PAGE_NONE, "an allocated page was free");
		km_pages_fill(page, count);
		km_page_begin(page, order, block->first->node);
		return page;
	}
	return NULL;
}

static struct km_page *cut_any(unsigned order, int node)
{
	struct km_page *page = NULL;

	km_list_for_each_entry(struct block, block, &nodump.blocks, list)
		if ((node < 0 || block->first->node == km_first_node(node)) && (page = cut(block, order)))
			return page;
	return NULL;
}

static struct block *block_of(const struct km_page *page)
{
	km_list_for_each_entry(struct block, block, &nodump.blocks, list)
		if (page >= block->first && page < block->first + KM_BLOCK_PAGES)
			return block;
	return NULL;
}

/* ------------------------------------------------------------------ blocks */

/* Allocate a largest block with MADV_DONTDUMP. Returns: NULL without memory, or if the system refuses the advice. */
static struct block *new_block(int node)
{
	struct block *block = km_metadata_alloc(sizeof(*block), true);
	struct km_page *first = block ? km_pages_alloc(KM_MAX_ORDER, node, true, NULL) : NULL;

	if (first && km_os_dump(km_page_address(first), KM_BLOCK_BYTES, false) == 0) {
		block->first = first;
		return block;
	}
	if (first)
		km_pages_free(first, KM_MAX_ORDER);
	km_metadata_free(block, sizeof(*block));
	return NULL;
}

struct km_page *km_nodump_alloc(unsigned order, int node, bool may_wait)
{
	int wanted = node < 0 ? (int)km_node_here() : node;

	if (!km_lock_may(&km_nodump_lock, may_wait))
		return NULL;
	struct km_page *page = cut_any(order, wanted);
	km_unlock_may(&km_nodump_lock, may_wait);
	struct block *block = page || !may_wait ? NULL : new_block(node);
	if (page || (!block && km_is_only_node(node)) || !km_lock_may(&km_nodump_lock, may_wait))
		return page;
	if (block) {
		page = cut(block, order);
		km_store(&nodump.any, true);
		km_list_add_tail(&block->list, &nodump.blocks);
	} else {
		page = cut_any(order, NUMA_NO_NODE);
	}
	km_unlock_may(&km_nodump_lock, may_wait);
	return page;
}

/* km_page_hold waits for a thread that holds the page. The memory of the slab goes back to the system at once, not with
 * the block, because other slabs may keep the block. Where the system refuses, zeros are written over the slab. */
void km_nodump_free(struct km_page *page, unsigned order)
{
	km_page_hold(page);
	km_page_let_go(page);
	if (km_thread.no_calls || !km_pages_hollow(page, (size_t)1 << order))
		__builtin_memset(km_page_address(page), 0, KM_PAGE_SIZE << order);
	km_lock_scope(&km_nodump_lock);
	struct block *block = block_of(page);
	size_t index = (size_t)(page - block->first), count = (size_t)1 << order;
	km_debug(km_bits_count(block->taken, index, count) == count, "a page is freed once");
	km_debug(block->used >= count, "freed pages were in use");
	km_bits_change(block->taken, index, count, false);
	block->used -= count;
}

/* Take an unused block off the list. Returns: NULL if there is none. */
static struct block *take_unused(void)
{
	if (!km_load(&nodump.any))
		return NULL;
	km_lock_scope(&km_nodump_lock);
	km_list_for_each_entry(struct block, block, &nodump.blocks, list)
		if (!block->used) {
			km_list_del(&block->list);
			return block;
		}
	return NULL;
}

void km_nodump_release(void)
{
	struct block *block;

	while (!km_os_is_shut() && (block = take_unused())) {
		/* If the system refuses to end the advice, later core dumps lack these pages: no harm. */
		km_os_dump(km_page_address(block->first), KM_BLOCK_BYTES, true);
		/* Free the pages as dirty pages, not as gone pages. */
		km_pages_fill(block->first, KM_BLOCK_PAGES);
		km_pages_free(block->first, KM_MAX_ORDER);
		km_metadata_free(block, sizeof(*block));
	}
}
