/*
 * heap.c: load a process's caches, then the pieces, then mark cached objects; and find the object with an address.
 * heap.h has the invariant.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "leaks/core_dump.h"
#include "leaks/heap.h"

#define ATTEMPTS	50u		/* a millisecond apart */
#define NEEDS	"root.caches root.percpu root.arena.ranges root.arena.range range.base range.ready range.page " \
	"page.cache page.type page.words page.objects page.order cache.size cache.freeptr cache.first cache.colours " \
	"cache.tail_bits cache.shelf.slot cache.shelf.block_mask engine.fields engine.field_count"

/* ------------------------------------------------------------------ caches */

static enum heap_engine engine_of(const char *name)
{
	static const char *const names[] = { KM_ENGINES(KM_ENGINE_LISTED, ) "ready" };

	for (unsigned i = 0; i < KMEM_COUNT(names); i++)
		if (!strcmp(name, names[i]))
			return (enum heap_engine)i;
	return HEAP_other;
}

/* Read the name of the cache's engine, and once for each engine the offsets of the fields of the engine's structs. */
static bool read_engine(struct heap *heap, struct info_root *root, struct heap_cache *cache)
{
	struct rec_engine engine;

	if (!target_struct(heap->target, &root->layout, INFO_ENGINE, &engine, cache->copy.engine) ||
	    !target_string(heap->target, cache->engine_name, sizeof(cache->engine_name), engine.name))
		return false;
	cache->engine = engine_of(cache->engine_name);
	return layout_load_engine(heap->target, &root->layout, cache->engine_name, &engine);
}

static bool add_caches(struct heap *heap, struct info_root *root)
{
	size_t link = layout_offset(&root->layout, "cache.all.next"), from = heap->cache_count;
	const struct rec_list *head = root->record.caches, *before = head;
	struct rec_list first;

	if (!target_read(heap->target, &first, head, sizeof(first)))
		return false;
	for (const struct rec_list *at = first.next; at != head;) {
		heap->caches = kmem_grow(heap->caches, heap->cache_count, &heap->cache_room, sizeof(*heap->caches));
		target_charge(heap->target, sizeof(*heap->caches));
		struct heap_cache *cache = &heap->caches[heap->cache_count];
		memset(cache, 0, sizeof(*cache));
		cache->address = (const void *)((uintptr_t)at - link);
		cache->root = root;
		if (heap->cache_count - from >= INFO_MAX_CACHES || (uintptr_t)at % sizeof(void *))
			return target_torn(heap->target);
		if (!target_struct(heap->target, &root->layout, INFO_CACHE, &cache->copy, cache->address))
			return false;
		if (cache->copy.all.prev != before || !cache->copy.size ||
		    info_true(&cache->copy.dead))
			return target_torn(heap->target);
		if (!read_engine(heap, root, cache))
			return false;
		cache->copy.name[sizeof(cache->copy.name) - 1] = '\0';
		info_printable(cache->copy.name, cache->copy.name, sizeof(cache->copy.name));
		cache->tracked = cache->copy.flags & SLAB_STORE_USER &&
				 layout_offset(&root->layout, "const.track") == sizeof(struct kmem_record_mark);
		heap->cache_count++;
		before = at;
		at = cache->copy.all.next;
	}
	return true;
}

/* ------------------------------------------------------------------ cached objects */

/* Mark cached objects by their addresses, because a slab counts cached objects as allocated. */
static void mark_ready(struct heap *heap)
{
	for (size_t i = 0; i < heap->rest_count; i++) {
		const struct heap_piece *piece = heap_piece(heap, heap->rests[i]);
		uint64_t object;

		if (!piece || !heap_object(heap, piece, heap->rests[i], &object) || !heap_bit(heap->live, object))
			continue;
		heap_unset(heap->live, object);
		heap_set(heap->ready, object);
	}
}

void heap_rests_again(struct heap *heap, const bool *wanted, size_t *next, uint64_t end)
{
	heap->rest_count = 0;
	if (heap_rests(heap, wanted, next, end))
		mark_ready(heap);
}

/* ------------------------------------------------------------------ the whole heap */

static bool load_once(struct target *target, struct heap *heap)
{
	*heap = (struct heap){ .target = target, .lowest = UINTPTR_MAX };
	target_budget(target);
	heap->roots = kmem_need(calloc(INFO_MAX_ROOTS, sizeof(*heap->roots)));
	heap->root_count = target_roots_in_use(target, heap->roots);
	if (!heap->root_count)
		return false;
	target->result = INFO_OK;
	size_t from[INFO_MAX_ROOTS];
	for (size_t i = 0; i < heap->root_count; i++) {
		from[i] = heap->cache_count;
		if (!layout_has(&heap->roots[i].layout, NEEDS)) {
			target->result = INFO_OTHER;
			return false;
		}
		if (!add_caches(heap, &heap->roots[i]))
			return false;
	}
	if (!heap_rests(heap, NULL, &(size_t){ 0 }, UINT64_MAX))
		return false;
	for (size_t i = 0; i < heap->root_count; i++)
		if (!heap_pieces(heap, &heap->roots[i], from[i]))
			return false;
	heap->loose = heap->piece_count;
	for (size_t i = 0; i < heap->root_count; i++)
		if (!heap_loose(heap, &heap->roots[i], from[i]))
			return false;
	return heap_sort(heap);
}

static uint64_t clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000 + 1;
}

bool heap_load(struct target *target, struct heap *heap)
{
	bool ok = false;

	info_invalid_why = NULL;
	target->budget.end_ms = 0;
	for (unsigned i = 0; i < ATTEMPTS && !ok; i++) {
		if (i)
			usleep(1000);
		ok = load_once(target, heap);
		if (!ok)
			heap_clear(heap);
		if (!ok && (target->result != INFO_TORN || target->core))
			return false;
	}
	if (!ok)
		return false;
	for (size_t i = 0; i < heap->piece_count; i++) {
		const struct heap_piece *piece = &heap->pieces[i];
		uintptr_t end = piece->start + piece->each * piece->count;

		heap->lowest = piece->start < heap->lowest ? piece->start : heap->lowest;
		heap->highest = end > heap->highest ? end : heap->highest;
	}
	mark_ready(heap);
	heap->now_ms = target->core ? 0 : clock_ms();
	return true;
}

void heap_clear(struct heap *heap)
{
	for (size_t i = 0; i < heap->range_count; i++)
		free(heap->ranges[i].piece);
	free(heap->roots);
	free(heap->caches);
	free(heap->sorted);
	free(heap->pieces);
	free(heap->ranges);
	free(heap->live);
	free(heap->ready);
	free(heap->rests);
	heap_samples_clear(heap);
	*heap = (struct heap){ .target = heap->target };
}

/* ------------------------------------------------------------------ from an address to an object */

static const struct heap_piece *loose_piece(const struct heap *heap, uintptr_t address)
{
	size_t low = heap->loose, high = heap->piece_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct heap_piece *piece = &heap->pieces[middle];

		if (address - piece->start < piece->each)
			return piece;
		if (address < piece->start)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

const struct heap_piece *heap_piece(const struct heap *heap, uintptr_t address)
{
	for (size_t i = 0; i < heap->range_count; i++) {
		const struct heap_range *range = &heap->ranges[i];

		if (address - range->start < range->end - range->start) {
			uint32_t number = range->piece[(address - range->start) >> KMEM_PAGE_SHIFT];

			return number ? &heap->pieces[number - 1] : NULL;
		}
	}
	return loose_piece(heap, address);
}

/* Find the start of a slob block, live or free, at or before the unit *object. Returns: false if there is none. */
static bool slob_begin(const struct heap *heap, uint64_t first, uint64_t *object)
{
	for (uint64_t at = *object;; at--) {
		if (heap_bit(heap->live, at) || heap_bit(heap->ready, at)) {
			*object = at;
			return true;
		}
		if (at == first)
			return false;
	}
}

bool heap_object(const struct heap *heap, const struct heap_piece *piece, uintptr_t address, uint64_t *object)
{
	uintptr_t into = address - piece->start;

	if (address < piece->start || into / piece->each >= piece->count)
		return false;
	*object = piece->first + into / piece->each;
	return piece->kind != HEAP_OF_SLOB || slob_begin(heap, piece->first, object);
}

const struct heap_piece *heap_piece_of(const struct heap *heap, uint64_t object)
{
	size_t low = 0, high = heap->piece_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct heap_piece *piece = &heap->pieces[middle];

		if (object - piece->first < piece->count)
			return piece;
		if (object < piece->first)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

uintptr_t heap_address(const struct heap_piece *piece, uint64_t object)
{
	return piece->start + (object - piece->first) * piece->each;
}

static bool has_header(const struct heap *heap, const struct heap_piece *piece, uint64_t object)
{
	return piece->kind == HEAP_OF_SLOB && heap_bit(heap->live, object) && heap_bit(heap->ready, object);
}

uintptr_t heap_user_address(const struct heap *heap, const struct heap_piece *piece, uint64_t object)
{
	return heap_address(piece, object) + (has_header(heap, piece, object) ? KMEM_RECORD_SLOB_UNIT : 0);
}

size_t heap_bytes(const struct heap *heap, const struct heap_piece *piece, uint64_t object)
{
	uint64_t end = object + 1;

	if (piece->kind != HEAP_OF_SLOB) {
		size_t asked = piece->kind == HEAP_OF_SLAB ? heap->caches[piece->cache].copy.object_size : 0;

		return asked && asked <= piece->each ? asked : piece->each;
	}
	while (end < piece->first + piece->count && !heap_bit(heap->live, end) && !heap_bit(heap->ready, end))
		end++;
	return (end - object) * piece->each;
}

const char *heap_name(const struct heap *heap, const struct heap_piece *piece)
{
	if (piece->cache != HEAP_NO_CACHE)
		return heap->caches[piece->cache].copy.name;
	return piece->kind == HEAP_OF_SLOB ? "(slob)" : piece->kind == HEAP_OF_GUARD ? "(guarded)" :
	       piece->kind == HEAP_OF_BIG ? "(huge block)" : "(large block)";
}
