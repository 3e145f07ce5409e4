/*
 * heap_pieces.c: find the pieces of memory with objects, from a process's page descriptors, table of huge blocks and
 * pool of guarded objects, and read each engine's free objects. Invariant: a piece lies within the pages of the
 * piece's descriptor, even if the descriptor is invalid.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "leaks/heap.h"

#define AT_ONCE		4096u		/* descriptors read at once; a multiple of the pages of a slab */
#define MAX_SLOTS	((size_t)1 << 26)	/* limit of the slots in the table of huge blocks */
#define MAX_GUARDED	65536u
#define MAX_PIECES	(UINT32_MAX - 1)
#define WORDS		(KMEM_RECORD_MAX_OBJECTS / 64 + 1)

/* ------------------------------------------------------------------ numbers */

static void need_bits(struct heap *heap, uint64_t objects)
{
	size_t words = objects / 64 + 1, was = heap->bit_room;

	if (words <= was)
		return;
	heap->bit_room = words * 2;
	/* Beside the bits, an object may take an entry in the list of work. */
	target_charge(heap->target, (heap->bit_room - was) * 64 * sizeof(uint32_t));
	heap->live = kmem_need(reallocarray(heap->live, heap->bit_room, sizeof(*heap->live)));
	heap->ready = kmem_need(reallocarray(heap->ready, heap->bit_room, sizeof(*heap->ready)));
	memset(heap->live + was, 0, (heap->bit_room - was) * sizeof(*heap->live));
	memset(heap->ready + was, 0, (heap->bit_room - was) * sizeof(*heap->ready));
}

/* Add a piece. The objects of the piece get numbers from the next multiple of 64 on. */
static struct heap_piece *add_piece(struct heap *heap, struct heap_piece piece)
{
	heap->pieces = kmem_grow(heap->pieces, heap->piece_count, &heap->piece_room, sizeof(*heap->pieces));
	target_charge(heap->target, sizeof(*heap->pieces));
	piece.first = heap->objects;
	heap->objects += (piece.count + 63ull) & ~63ull;
	need_bits(heap, heap->objects);
	heap->pieces[heap->piece_count] = piece;
	return &heap->pieces[heap->piece_count++];
}

static void all_live(const struct heap_piece *piece, uint64_t *live)
{
	for (uint32_t i = 0; i < piece->count; i++)
		live[i / 64] |= (uint64_t)1 << i % 64;
}

/* ------------------------------------------------------------------ the caches of pieces */

static int by_address(const void *a, const void *b, void *arg)
{
	const struct heap_cache *caches = arg;
	const uintptr_t x = (uintptr_t)caches[*(const uint32_t *)a].address;
	const uintptr_t y = (uintptr_t)caches[*(const uint32_t *)b].address;

	return (x > y) - (x < y);
}

/* Sort a root's caches by address. Must run before the search for the root's pieces, because cache_of() bisects. */
static void sort_caches(struct heap *heap, size_t from)
{
	size_t count = heap->cache_count - from;

	free(heap->sorted);
	heap->sorted = kmem_need(calloc(count + 1, sizeof(*heap->sorted)));
	for (size_t i = 0; i < count; i++)
		heap->sorted[i] = (uint32_t)(from + i);
	qsort_r(heap->sorted, count, sizeof(*heap->sorted), by_address, heap->caches);
}

static uint32_t cache_of(const struct heap *heap, size_t from, const struct kmem_cache *address)
{
	size_t low = 0, high = heap->cache_count - from;

	while (address && low < high) {
		size_t middle = (low + high) / 2;
		const struct kmem_cache *there = heap->caches[heap->sorted[middle]].address;

		if (there == address)
			return heap->sorted[middle];
		if ((uintptr_t)there < (uintptr_t)address)
			low = middle + 1;
		else
			high = middle;
	}
	return HEAP_NO_CACHE;
}

/* ------------------------------------------------------------------ slabs: what is free */

static const struct heap_range *range_of(const struct heap *heap, uintptr_t address)
{
	for (size_t i = 0; i < heap->range_count; i++)
		if (address - heap->ranges[i].start < heap->ranges[i].end - heap->ranges[i].start)
			return &heap->ranges[i];
	return NULL;
}

/* Read a bit for each free object: from the page descriptors, or with `tail` from words at the end of the slab. */
static bool free_bits(struct heap *heap, const struct heap_piece *piece, const struct rec_page *pages, unsigned in_page,
		      bool tail, uint64_t *gone)
{
	unsigned words = (piece->count + 63) / 64;

	if (tail) {
		uintptr_t end = piece->slab + ((uintptr_t)piece->pages << KMEM_PAGE_SHIFT);

		return target_read(heap->target, gone, (void *)(end - words * sizeof(*gone)), words * sizeof(*gone));
	}
	for (unsigned i = 0; i < words; i++) {
		if (i / 2 >= piece->pages)
			return target_torn(heap->target);
		gone[i] = pages[i / 2].words[in_page + i % 2];
	}
	return true;
}

/* Walk slub's list of free objects, from the head in the slab's word through the slab's memory. */
static bool free_list(struct heap *heap, const struct heap_piece *piece, uint64_t word, uint32_t freeptr,
		      uint64_t *gone)
{
	size_t bytes = (size_t)piece->pages << KMEM_PAGE_SHIFT;
	uint64_t head = KMEM_RECORD_SLUB_HEAD(word);
	uintptr_t object = head ? piece->slab + head - 1 : 0;

	if (!head)
		return true;
	char *copy = kmem_need(malloc(bytes));
	bool ok = target_read(heap->target, copy, (void *)piece->slab, bytes);
	for (uint32_t i = 0; ok && object && i < piece->count; i++) {
		size_t into = object - piece->start, index = into / piece->each;

		if (object < piece->start || index >= piece->count || into % piece->each)
			break;
		gone[index / 64] |= (uint64_t)1 << index % 64;
		if (object - piece->slab + freeptr + sizeof(object) > bytes)
			break;
		memcpy(&object, copy + (object - piece->slab) + freeptr, sizeof(object));
	}
	free(copy);
	return ok;
}

/* Hardened caches: clear the live bit of each object without a byte in the allocation state map. The byte of an
 * object is set while the user has the object, and clear for an object in a deferred free. */
static void drop_unproved(struct heap *heap, const struct heap_piece *piece, unsigned shift, uint64_t *live)
{
	const struct heap_range *range = range_of(heap, piece->start);
	unsigned table = shift - KMEM_RECORD_MAP_SHIFT;
	size_t from = range ? (piece->start - range->start) >> shift : 0;
	size_t bytes = ((piece->each * piece->count) >> shift) + 2;

	if (!range || table >= KMEM_RECORD_MAPS || !range->copy.live[table])
		return;
	uint8_t *proofs = kmem_need(malloc(bytes));
	if (target_read(heap->target, proofs, range->copy.live[table] + from, bytes))
		for (uint32_t i = 0; i < piece->count; i++) {
			uintptr_t object = piece->start + i * piece->each;

			if (!proofs[((object - range->start) >> shift) - from])
				live[i / 64] &= ~((uint64_t)1 << i % 64);
		}
	free(proofs);
}

/* Set the live bits of a slab's objects that are not free, from the slab's descriptors. Cached objects count as
 * live. */
static bool slab_bits(struct heap *heap, struct heap_piece *piece, const struct rec_page *pages, uint64_t *live)
{
	const struct heap_cache *cache = &heap->caches[piece->cache];
	uint64_t gone[WORDS] = { 0 };
	bool ok = true;

	if (cache->engine == HEAP_sheaf)
		ok = free_bits(heap, piece, pages, 0, info_true(&cache->copy.tail_bits), gone);
	else if (cache->engine == HEAP_slab)
		ok = free_bits(heap, piece, pages, 2, piece->count > KMEM_RECORD_SLAB_BITS, gone);
	else if (cache->engine == HEAP_slub)
		ok = free_list(heap, piece, pages->words[0], cache->copy.freeptr, gone);
	else if (cache->engine == HEAP_slob)
		gone[0] = !pages->inuse;
	else
		piece->unknown = true;
	if (!ok)
		return false;
	all_live(piece, live);
	for (unsigned i = 0; i < (piece->count + 63) / 64; i++)
		live[i] &= ~gone[i];
	if (cache->copy.live_shift)
		drop_unproved(heap, piece, cache->copy.live_shift, live);
	return true;
}

/* ------------------------------------------------------------------ pages */

struct pages {
	struct heap *heap;
	const struct info_root *root;
	size_t from;			/* index of the root's first cache */
	struct heap_range *range;
	struct rec_page *page;		/* `count` descriptors, of the pages from index `at` on */
	size_t at, count;
};

/* Enter the piece's number for each page of the piece. */
static void show(struct pages *pages, const struct heap_piece *piece, size_t first)
{
	uint32_t number = (uint32_t)(piece - pages->heap->pieces) + 1;

	for (size_t i = first; i < first + piece->pages && i < pages->range->copy.ready; i++)
		pages->range->piece[i] = number;
}

static bool add_slab(struct pages *pages, size_t i)
{
	const struct rec_page *page = &pages->page[i];
	struct heap *heap = pages->heap;
	uintptr_t start = pages->range->start + ((pages->at + i) << KMEM_PAGE_SHIFT);
	struct heap_piece piece = {
		.kind = HEAP_OF_SLAB, .slab = start, .pages = 1u << (page->order & 15), .count = page->objects,
		.cache = cache_of(heap, pages->from, page->cache),
	};

	/* Skip a slab of a cache just created or destroyed: the size of the objects is unknown. */
	if (page->order > KMEM_RECORD_MAX_ORDER || i + piece.pages > pages->count || piece.cache == HEAP_NO_CACHE)
		return true;
	const struct rec_cache *cache = &heap->caches[piece.cache].copy;
	size_t bytes = (size_t)piece.pages << KMEM_PAGE_SHIFT;
	size_t first = cache->colours ? (uint32_t)page->words[0] : cache->first;
	piece.start = start + first;
	piece.each = cache->size;
	if (heap->caches[piece.cache].engine == HEAP_slob)
		piece.count = 1, piece.each = bytes, piece.start = start;
	if (!piece.count || piece.count > KMEM_RECORD_MAX_OBJECTS || first >= bytes ||
	    (uint64_t)piece.count * piece.each > bytes)
		return true;
	struct heap_piece *added = add_piece(heap, piece);
	show(pages, added, pages->at + i);
	return slab_bits(heap, added, page, heap->live + added->first / 64);
}

static void add_block(struct pages *pages, size_t i)
{
	const struct rec_page *page = &pages->page[i];
	uint64_t count = page->words[0];
	uintptr_t start = pages->range->start + ((pages->at + i) << KMEM_PAGE_SHIFT);

	if (!count || count > pages->range->copy.ready - pages->at - i || count > UINT32_MAX)
		return;
	struct heap_piece *piece = add_piece(pages->heap, (struct heap_piece){
		.kind = HEAP_OF_PAGES, .start = start, .slab = start, .count = 1, .each = count << KMEM_PAGE_SHIFT,
		.pages = (uint32_t)count, .cache = cache_of(pages->heap, pages->from, page->cache),
	});
	heap_set(pages->heap->live, piece->first);
	show(pages, piece, pages->at + i);
}

/* Read the marks of a slob page, and the headers of the page's free blocks. */
static bool slob_bits(struct heap *heap, const struct heap_piece *piece, const struct rec_page *page, uint64_t *live,
		      uint64_t *ready)
{
	struct kmem_record_slob_marks marks;
	char copy[KMEM_PAGE_BYTES];
	unsigned unit = (unsigned)(page->words[0] >> 16) & 0xffff;

	if (!target_read(heap->target, &marks, (void *)page->words[3], sizeof(marks)) ||
	    !target_read(heap->target, copy, (void *)piece->slab, sizeof(copy)))
		return false;
	for (unsigned i = 0; i < KMEM_RECORD_SLOB_UNITS / 64; i++) {
		live[i] = marks.word[i].live;
		if (ready)
			ready[i] = marks.word[i].other;
	}
	for (unsigned i = 0; ready && unit < KMEM_RECORD_SLOB_UNITS && i < KMEM_RECORD_SLOB_UNITS; i++) {
		struct kmem_record_slob_free block;

		memcpy(&block, copy + unit * KMEM_RECORD_SLOB_UNIT, sizeof(block));
		ready[unit / 64] |= (uint64_t)1 << unit % 64;
		if (block.next <= unit)
			break;
		unit = block.next;
	}
	return true;
}

static bool add_shared(struct pages *pages, size_t i)
{
	uintptr_t start = pages->range->start + ((pages->at + i) << KMEM_PAGE_SHIFT);
	struct heap *heap = pages->heap;
	struct heap_piece *piece = add_piece(heap, (struct heap_piece){
		.kind = HEAP_OF_SLOB, .start = start, .slab = start, .pages = 1,
		.count = KMEM_RECORD_SLOB_UNITS, .each = KMEM_RECORD_SLOB_UNIT, .cache = HEAP_NO_CACHE,
	});

	show(pages, piece, pages->at + i);
	return slob_bits(heap, piece, &pages->page[i], heap->live + piece->first / 64,
			 heap->ready + piece->first / 64);
}

static bool add_page(struct pages *pages, size_t i)
{
	const struct rec_page *page = &pages->page[i];

	if (pages->heap->piece_count >= MAX_PIECES)
		return target_torn(pages->heap->target);
	/* Skip a stale first descriptor: the page is part of a larger piece now. */
	if (pages->range->piece[pages->at + i])
		return true;
	if (page->type == KMEM_RECORD_PAGE_SLAB)
		return add_slab(pages, i);
	if (page->type == KMEM_RECORD_PAGE_SHARED)
		return add_shared(pages, i);
	if (page->type == KMEM_RECORD_PAGE_LARGE)
		add_block(pages, i);
	return true;
}

static bool add_range(struct pages *pages)
{
	const struct rec_range *range = &pages->range->copy;
	size_t each = layout_bytes(&pages->root->layout, INFO_PAGE);
	bool ok = true;

	for (pages->at = 0; ok && pages->at < range->ready; pages->at += AT_ONCE) {
		pages->count = range->ready - pages->at < AT_ONCE ? range->ready - pages->at : AT_ONCE;
		ok = target_structs(pages->heap->target, &pages->root->layout, INFO_PAGE, pages->page,
				    range->page + pages->at * each, pages->count);
		for (size_t i = 0; ok && i < pages->count; i++)
			ok = add_page(pages, i);
	}
	return ok;
}

/* ------------------------------------------------------------------ big blocks, guarded objects */

static int by_start(const void *a, const void *b)
{
	const struct heap_piece *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

static bool add_big_block(struct heap *heap, const struct rec_big *entry, bool says_who)
{
	if (entry->start < KMEM_PAGE_BYTES || entry->start % KMEM_PAGE_BYTES || !entry->bytes)
		return true;
	if (!target_has_space(heap->target, entry->bytes) || entry->bytes > UINTPTR_MAX - entry->start)
		return false;
	struct heap_piece *piece = add_piece(heap, (struct heap_piece){
		.kind = HEAP_OF_BIG, .start = entry->start, .slab = entry->start, .count = 1,
		.each = entry->bytes, .cache = HEAP_NO_CACHE, .owner = says_who ? entry->owner : 0,
	});
	heap_set(heap->live, piece->first);
	return true;
}

static bool add_big(struct heap *heap, const struct info_root *root)
{
	size_t each = layout_bytes(&root->layout, INFO_BIG), slots;
	bool says_who = layout_has(&root->layout, "big.owner");
	const char *table;
	bool ok = true;

	if (!layout_has(&root->layout, "root.mapped_table root.mapped_slots big.start big.bytes"))
		return true;
	if (!target_read(heap->target, &slots, root->record.mapped_slots, sizeof(slots)) ||
	    !target_read(heap->target, &table, root->record.mapped_table, sizeof(table)))
		return false;
	if (slots > MAX_SLOTS)
		return target_too_much(heap->target);
	struct rec_big *entries = kmem_need(calloc(AT_ONCE, sizeof(*entries)));
	for (size_t at = 0; ok && at < slots; at += AT_ONCE) {
		size_t now = slots - at < AT_ONCE ? slots - at : AT_ONCE;

		ok = target_structs(heap->target, &root->layout, INFO_BIG, entries, table + at * each, now);
		for (size_t i = 0; ok && i < now; i++)
			ok = add_big_block(heap, &entries[i], says_who);
	}
	free(entries);
	return ok;
}

static bool add_slot(struct heap *heap, const struct info_root *root, size_t from, const char *at)
{
	struct rec_slot slot;

	if (!target_struct(heap->target, &root->layout, INFO_SLOT, &slot, at))
		return false;
	if (slot.state != KMEM_RECORD_GUARD_TAKEN || !slot.bytes || slot.bytes > KMEM_PAGE_BYTES * 16)
		return true;
	struct heap_piece *piece = add_piece(heap, (struct heap_piece){
		.kind = HEAP_OF_GUARD, .start = slot.object, .count = 1, .each = slot.bytes,
		.slab = slot.object & -(uintptr_t)KMEM_PAGE_BYTES, .pages = 1,
		.cache = cache_of(heap, from, slot.cache),
		.track = (uintptr_t)at,
	});
	heap_set(heap->live, piece->first);
	return true;
}

static bool add_guarded(struct heap *heap, struct info_root *root, size_t from)
{
	struct layout *layout = &root->layout;
	struct rec_pool pool;

	if (!layout_has(layout, "root.guarded pool.start pool.bytes pool.objects pool.slot pool.fields "
			"pool.field_count"))
		return true;
	if (!target_struct(heap->target, layout, INFO_POOL, &pool, root->record.guarded))
		return false;
	if (!pool.bytes || !pool.slot || pool.objects > MAX_GUARDED)
		return true;
	if (!layout_bytes(layout, INFO_SLOT) &&
	    !layout_load(heap->target, layout, &rec_slots, pool.fields, pool.field_count))
		return false;
	bool ok = layout_has(layout, "slot.state slot.bytes slot.object slot.cache");
	for (size_t i = 0; ok && i < pool.objects; i++)
		if (!add_slot(heap, root, from, pool.slot + i * layout_bytes(layout, INFO_SLOT)))
			return false;
	return true;
}

/* ------------------------------------------------------------------ all of a root */

static int range_by_start(const void *a, const void *b)
{
	const struct heap_range *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

static bool add_ranges(struct heap *heap, struct info_root *root, size_t from)
{
	struct rec_range ranges[INFO_MAX_RANGES];
	struct pages pages = { .heap = heap, .root = root, .from = from };
	unsigned count;
	bool ok = true;

	if (!root_ranges(heap->target, root, ranges, &count))
		return false;
	pages.page = kmem_need(calloc(AT_ONCE, sizeof(*pages.page)));
	for (unsigned i = 0; ok && i < count; i++) {
		if (!ranges[i].base || !ranges[i].ready)
			continue;
		heap->ranges = kmem_grow(heap->ranges, heap->range_count, &heap->range_room, sizeof(*heap->ranges));
		pages.range = &heap->ranges[heap->range_count++];
		*pages.range = (struct heap_range){
			.start = (uintptr_t)ranges[i].base, .copy = ranges[i], .root = root,
			.end = (uintptr_t)ranges[i].base + (ranges[i].ready << KMEM_PAGE_SHIFT),
			.piece = target_keep(heap->target, ranges[i].ready, sizeof(uint32_t)),
		};
		ok = pages.range->piece && add_range(&pages);
	}
	free(pages.page);
	return ok;
}

bool heap_pieces(struct heap *heap, struct info_root *root, size_t from)
{
	sort_caches(heap, from);
	return add_ranges(heap, root, from);
}

bool heap_loose(struct heap *heap, struct info_root *root, size_t from)
{
	sort_caches(heap, from);
	return add_big(heap, root) && add_guarded(heap, root, from);
}

bool heap_sort(struct heap *heap)
{
	size_t count = heap->piece_count - heap->loose;
	uint64_t first = count ? heap->pieces[heap->loose].first : 0;

	qsort(heap->pieces + heap->loose, count, sizeof(*heap->pieces), by_start);
	qsort(heap->ranges, heap->range_count, sizeof(*heap->ranges), range_by_start);
	/* Each loose piece is one live object. New numbers rise with the addresses. */
	for (size_t i = 0; i < count; i++) {
		struct heap_piece *piece = &heap->pieces[heap->loose + i];

		piece->first = first + i * 64;
		if (i && piece->start < piece[-1].start + piece[-1].each)
			return target_torn_by(heap->target, "two of its blocks overlap");
	}
	return true;
}

bool heap_look_again(struct heap *heap, const struct heap_piece *piece, uint64_t *live)
{
	const struct heap_range *range = range_of(heap, piece->slab);
	struct heap_piece now = *piece;
	bool ok = false;

	if (!range)
		return true;
	size_t index = (piece->slab - range->start) >> KMEM_PAGE_SHIFT;
	size_t count = piece->kind == HEAP_OF_SLAB ? piece->pages : 1;
	struct rec_page *pages = kmem_need(calloc(count, sizeof(*pages)));
	const char *from = range->copy.page + index * layout_bytes(&range->root->layout, INFO_PAGE);
	memset(live, 0, (piece->count + 63) / 64 * sizeof(*live));
	if (!target_structs(heap->target, &range->root->layout, INFO_PAGE, pages, from, count))
		;
	else if (piece->kind == HEAP_OF_SLAB && pages->type == KMEM_RECORD_PAGE_SLAB &&
		 pages->objects == piece->count && pages->cache == heap->caches[piece->cache].address)
		ok = slab_bits(heap, &now, pages, live);
	else if (piece->kind == HEAP_OF_SLOB && pages->type == KMEM_RECORD_PAGE_SHARED)
		ok = slob_bits(heap, piece, pages, live, NULL);
	else if (piece->kind == HEAP_OF_PAGES && pages->type == KMEM_RECORD_PAGE_LARGE)
	{
		live[0] = 1;
		ok = true;
	}
	free(pages);
	return ok;
}
