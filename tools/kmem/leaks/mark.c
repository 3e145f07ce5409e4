/*
 * mark.c: mark held objects, by pointers from outside of objects and from object to object. Invariant: an object
 * enters the list of work at most once, when the object becomes held.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "leaks/scan.h"

#define SHEAF_WORDS	8192u			/* limit of the words read of a sheaf */
#define PIECE_BYTES	((size_t)4 << 20)	/* bytes read at once; a larger slab is skipped */

bool mark_find(const struct scan *scan, uint64_t word, uint32_t *object)
{
	const struct heap *heap = &scan->heap;
	uint64_t number;

	if (word - heap->lowest >= heap->highest - heap->lowest)
		return false;
	const struct heap_piece *piece = heap_piece(heap, word);
	if (!piece || !heap_object(heap, piece, word, &number) || !heap_bit(heap->live, number))
		return false;
	*object = (uint32_t)number;
	return true;
}

static void hold(struct scan *scan, uint32_t object)
{
	if (heap_bit(scan->held, object))
		return;
	heap_set(scan->held, object);
	scan->work = kmem_grow(scan->work, scan->work_count, &scan->work_room, sizeof(*scan->work));
	scan->work[scan->work_count++] = object;
}

/* Check for an address in libkmem's memory, with the alignment of a prefilled sheaf's first word
 * (alloc/prefill.c). */
static bool may_be_sheaf(const struct scan *scan, uint64_t word)
{
	if (word % 32 != 24 && word % 32 != 8)
		return false;
	const size_t at = KMEM_FIRST_BEHIND(scan->ours.at, scan->ours.count, word);

	return at < scan->ours.count && word >= scan->ours.at[at].start;
}

/* Check for the user address of a live object of *cache. With HEAP_NO_CACHE any cache matches, and *cache is set. */
static bool is_object(const struct scan *scan, uint64_t word, uint32_t *cache, uint32_t *object)
{
	const struct heap *heap = &scan->heap;

	if (!mark_find(scan, word, object))
		return false;
	const struct heap_piece *piece = heap_piece(heap, word);
	if (piece->cache != *cache && *cache != HEAP_NO_CACHE)
		return false;
	*cache = piece->cache;
	return word == heap_user_address(heap, piece, *object);
}

/* Hold the objects of a prefilled sheaf. The sheaf's first word has the address of the lowest object pointer; a NULL
 * below the word ends the pointers. Memory with another form is not a sheaf, and no object becomes held. */
static void mark_sheaf(struct scan *scan, uint64_t word)
{
	uint64_t words[SHEAF_WORDS], top;
	uint32_t objects[SHEAF_WORDS], cache = HEAP_NO_CACHE;
	size_t count = 0;

	if (!target_read(scan->heap.target, &top, (const void *)(uintptr_t)word, sizeof(top)) || top >= word ||
	    top % sizeof(top) || word - top > sizeof(words) ||
	    !target_read(scan->heap.target, words, (const void *)(uintptr_t)top, word - top))
		return;
	while (count < (word - top) / sizeof(*words) && is_object(scan, words[count], &cache, &objects[count]))
		count++;
	if (count == (word - top) / sizeof(*words) || words[count])
		return;
	while (count)
		hold(scan, objects[--count]);
}

void mark_words(struct scan *scan, const uint64_t *words, size_t count)
{
	uint32_t object;

	for (size_t i = 0; i < count; i++)
		if (mark_find(scan, words[i], &object))
			hold(scan, object);
		else if (may_be_sheaf(scan, words[i]))
			mark_sheaf(scan, words[i]);
}

/* ------------------------------------------------------------------ from object to object */

static void begin_objects(struct scan_edges *edges, uint64_t object)
{
	for (; edges->next <= object / 64; edges->next++)
		edges->begin[edges->next] = edges->count;
}

static void add_edge(struct scan *scan, uint64_t from, uint32_t to)
{
	struct scan_edges *edges = &scan->edges;

	if (from == to || heap_bit(scan->held, to))
		return;
	target_charge(scan->heap.target, sizeof(*edges->to) + sizeof(*edges->from));
	edges->to = kmem_grow(edges->to, edges->count, &edges->to_room, sizeof(*edges->to));
	edges->from = kmem_grow(edges->from, edges->count, &edges->from_room, sizeof(*edges->from));
	edges->to[edges->count] = to;
	edges->from[edges->count++] = from % 64;
}

/* Add an edge from an object read again to a candidate. */
static void add_link(struct scan *scan, uint64_t from, uint32_t to)
{
	struct scan_again *again = &scan->again;

	if (from == to || heap_bit(scan->held, to))
		return;
	again->link = kmem_grow(again->link, again->link_count, &again->link_room, sizeof(*again->link));
	again->link[again->link_count++] = (struct scan_link){ (uint32_t)from, to };
}

typedef void add_t(struct scan *scan, uint64_t from, uint32_t to);

static void look_at(struct scan *scan, uint64_t object, const char *bytes, size_t count, add_t *add)
{
	uint32_t to;
	uint64_t word;

	for (size_t i = 0; i + sizeof(word) <= count; i += sizeof(word)) {
		memcpy(&word, bytes + i, sizeof(word));
		if (mark_find(scan, word, &to))
			add(scan, object, to);
		else if (may_be_sheaf(scan, word))
			mark_sheaf(scan, word);
	}
}

/* Add the edges from a piece of one object, of any length. */
static void look_at_block(struct scan *scan, const struct heap_piece *piece)
{
	begin_objects(&scan->edges, piece->first);
	for (size_t done = 0; done < piece->each; done += PIECE_BYTES) {
		size_t now = piece->each - done < PIECE_BYTES ? piece->each - done : PIECE_BYTES;

		if (roots_read(scan, piece->start + done, now, scan->buffer))
			look_at(scan, piece->first, scan->buffer, now, add_edge);
	}
}

/* Add the edges from all live objects of a piece. In a few caches objects begin at addresses not aligned to a word;
 * only aligned words of these objects are read. */
static void look_at_objects(struct scan *scan, const struct heap_piece *piece, const char *copy, add_t *add)
{
	const struct heap *heap = &scan->heap;

	for (uint64_t object = piece->first; object < piece->first + piece->count; object++) {
		uintptr_t start = heap_address(piece, object), words = (start + 7) & ~(uintptr_t)7;
		size_t length = heap_bytes(heap, piece, object);

		if (!heap_bit(heap->live, object) || length < words - start + 8)
			continue;
		if (add == add_edge)
			begin_objects(&scan->edges, object);
		look_at(scan, object, copy + (words - piece->start), length - (words - start), add);
	}
}

static void look_at_slab(struct scan *scan, const struct heap_piece *piece)
{
	size_t bytes = piece->each * piece->count;

	if (bytes <= PIECE_BYTES && roots_read(scan, piece->start, bytes, scan->buffer))
		look_at_objects(scan, piece, scan->buffer, add_edge);
}

void mark_edges(struct scan *scan)
{
	struct heap *heap = &scan->heap;

	scan->edges.begin = kmem_need(calloc(heap->objects / 64 + 2, sizeof(*scan->edges.begin)));
	for (size_t i = 0; i < heap->piece_count; i++) {
		const struct heap_piece *piece = &heap->pieces[i];

		for (uint64_t object = piece->first; piece->unknown && object < piece->first + piece->count; object++)
			hold(scan, (uint32_t)object);
		if (piece->count == 1)
			look_at_block(scan, piece);
		else
			look_at_slab(scan, piece);
	}
	begin_objects(&scan->edges, heap->objects + 63);
}

static int by_from(const void *a, const void *b)
{
	const struct scan_link *x = a, *y = b;

	return (x->from > y->from) - (x->from < y->from);
}

void mark_again(struct scan *scan)
{
	struct scan_again *again = &scan->again;

	for (size_t i = 0; i < again->count; i++)
		look_at_objects(scan, again->copy[i].piece, again->bytes + again->copy[i].at, add_link);
	if (again->link_count)
		qsort(again->link, again->link_count, sizeof(*again->link), by_from);
	for (size_t i = 0; i < again->link_count; i++)
		if (heap_bit(scan->held, again->link[i].from))
			hold(scan, again->link[i].to);
}

/* Hold the candidates pointed to by the second read of a held object. */
static void hold_again(struct scan *scan, uint32_t object)
{
	const struct scan_again *again = &scan->again;
	size_t low = 0, high = again->link_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (again->link[middle].from < object)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < again->link_count && again->link[low].from == object; low++)
		hold(scan, again->link[low].to);
}

void mark_all(struct scan *scan)
{
	const struct scan_edges *edges = &scan->edges;

	while (scan->work_count) {
		uint32_t object = scan->work[--scan->work_count];
		uint64_t end = edges->begin[object / 64 + 1];

		for (uint64_t i = edges->begin[object / 64]; i < end; i++)
			if (edges->from[i] == object % 64)
				hold(scan, edges->to[i]);
		hold_again(scan, object);
	}
}
