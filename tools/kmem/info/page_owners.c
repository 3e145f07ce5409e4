/*
 * page_owners.c: find the owner of each page of a running process from the page descriptors. The walk also sums, for
 * each cache, the bytes of empty slabs and of pinned slabs (less than a tenth of the objects in use). Invariant: for
 * any descriptor of the process, an owner is one of the numbers of info.h; a cache's number is INFO_OWNER_CACHE plus
 * the cache's place in the snapshot, and the place is below the snapshot's count.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "info/info.h"
#include "command.h"

#define AT_ONCE		4096u	/* descriptors in one read */
#define PINNED		10u	/* a slab is pinned if fewer than one in 10 objects is in use */
#define NEEDS		"root.arena.ranges root.arena.range range.base range.ready range.page page.cache page.type " \
			"page.inuse page.objects page.pages page.word"

struct pages {
	struct snapshot *snapshot;
	const struct page_owner *owners;
	size_t count;
	/* State of the slab or large block at the walk's position. */
	uint32_t owner;
	uint64_t left;		/* remaining pages of a large block */
	unsigned long *little;	/* sum of bytes for an empty or pinned slab; NULL: the slab is neither */
};

/* ------------------------------------------------------------------ caches by address */

static int by_address(const void *a, const void *b)
{
	const struct page_owner *x = a, *y = b;

	return (x->address > y->address) - (x->address < y->address);
}

static const struct page_owner *find(const struct page_owner *owners, size_t count, const struct kmem_cache *address)
{
	struct page_owner key = { .address = address };

	return address ? bsearch(&key, owners, count, sizeof(*owners), by_address) : NULL;
}

static uint32_t owner_of(const struct pages *pages, const struct kmem_cache *address)
{
	const struct page_owner *owner = find(pages->owners, pages->count, address);

	if (owner && owner->shadow_of)
		owner = find(pages->owners, pages->count, owner->shadow_of);
	return owner && owner->place < pages->snapshot->count ? (uint32_t)owner->place + INFO_OWNER_CACHE :
								INFO_OWNER_NONE;
}

/* ------------------------------------------------------------------ page by page */

/* Choose the sum for a slab's bytes by the number of objects in use.
 * Returns: NULL if at least a tenth of the objects is in use, or if the engine does not record the number. */
static unsigned long *little_of(struct info_cache *cache, struct rec_page *slab)
{
	unsigned long objects = slab->objects, inuse = slab->inuse;

	if (!strcmp(cache->engine, "slub")) {
		objects = KMEM_RECORD_SLUB_OBJECTS(slab->word);
		inuse = KMEM_RECORD_SLUB_INUSE(slab->word);
	} else if (strcmp(cache->engine, "sheaf") && strcmp(cache->engine, "slab")) {
		return NULL;
	}
	return !inuse ? &cache->empty : inuse * PINNED < objects ? &cache->pinned : NULL;
}

static void begin_slab(struct pages *pages, struct rec_page *slab)
{
	pages->owner = owner_of(pages, slab->cache);
	pages->left = 0;
	pages->little = pages->owner < INFO_OWNER_CACHE ? NULL :
			little_of(&pages->snapshot->caches[pages->owner - INFO_OWNER_CACHE], slab);
}

/* The owner of a large block is the cache in the head's descriptor, else INFO_OWNER_LARGE. */
static void begin_large(struct pages *pages, const struct rec_page *block)
{
	pages->owner = owner_of(pages, block->cache);
	if (pages->owner == INFO_OWNER_NONE)
		pages->owner = INFO_OWNER_LARGE;
	pages->left = block->pages ? block->pages - 1 : 0;
	pages->little = NULL;
}

static uint32_t look_at(struct pages *pages, struct rec_page *page)
{
	switch (page->type) {
	case KMEM_RECORD_PAGE_SLAB:
		begin_slab(pages, page);
		break;
	case KMEM_RECORD_PAGE_LARGE:
		begin_large(pages, page);
		break;
	case KMEM_RECORD_PAGE_TAIL:
		break;
	case KMEM_RECORD_PAGE_SHARED:
		pages->left = 0;
		pages->little = NULL;
		return pages->owner = INFO_OWNER_SHARED;
	default:
		/* Inside a large block, descriptors have no type: the owner comes from the head. */
		pages->little = NULL;
		if (!pages->left)
			return pages->owner = INFO_OWNER_NONE;
		pages->left--;
		return pages->owner;
	}
	if (pages->little)
		*pages->little += KMEM_PAGE_BYTES;
	return pages->owner;
}

static struct info_extent *extent_of(struct snapshot *snapshot, const struct rec_range *range)
{
	for (size_t i = 0; i < snapshot->extent_count; i++)
		if (snapshot->extents[i].free && snapshot->extents[i].start == (uintptr_t)range->base)
			return &snapshot->extents[i];
	return NULL;
}

/* Walk the pages of a range's extent. The count is the extent's, because the range may have grown since. */
static bool walk_range(struct target *target, const struct info_root *root, const struct rec_range *range,
		       struct pages *pages, struct rec_page *page)
{
	struct info_extent *extent = extent_of(pages->snapshot, range);

	if (!extent || extent->owner)
		return true;
	size_t count = (extent->end - extent->start) >> KMEM_PAGE_SHIFT;
	extent->owner = target_keep(target, count, sizeof(*extent->owner));
	if (!extent->owner)
		return false;
	pages->owner = INFO_OWNER_NONE;
	pages->left = 0;
	pages->little = NULL;
	for (size_t at = 0; at < count; at += AT_ONCE) {
		size_t now = count - at < AT_ONCE ? count - at : AT_ONCE;
		const char *from = range->page + at * layout_bytes(&root->layout, INFO_PAGE);

		if (!target_structs(target, &root->layout, INFO_PAGE, page, from, now))
			return false;
		for (size_t i = 0; i < now; i++)
			extent->owner[at + i] = look_at(pages, &page[i]);
	}
	return true;
}

bool walk_pages(struct target *target, const struct info_root *root, struct page_owner *owners, size_t count,
		struct snapshot *snapshot)
{
	struct pages pages = { .snapshot = snapshot, .owners = owners, .count = count };
	struct rec_range ranges[INFO_MAX_RANGES];
	unsigned range_count;

	if (!layout_has(&root->layout, NEEDS))
		return true;
	if (!root_ranges(target, root, ranges, &range_count))
		return false;
	qsort(owners, count, sizeof(*owners), by_address);
	struct rec_page *page = kmem_need(calloc(AT_ONCE, sizeof(*page)));
	bool ok = true;
	for (unsigned i = 0; ok && i < range_count; i++)
		ok = !ranges[i].base || walk_range(target, root, &ranges[i], &pages, page);
	free(page);
	return ok;
}
