/*
 * rescan.c: reads objects that may point to candidates again while all threads are stopped. A program may move a
 * pointer in each round from a list part not read yet to a list part already read. The list behind the pointer is
 * then a candidate in each round, with unchanged content. During a stop the pointer has one place. Invariant: a piece
 * is read whole or not at all, and no memory is allocated during the stop.
 *
 * The order: pieces with candidates, because nodes of a list point to nodes of the same cache; then other pieces of
 * the same caches; then all other pieces. Within each class, small caches come first.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "leaks/scan.h"

#define MOST_BYTES	((size_t)16 << 20)	/* read at most; the time limit allows no more */
#define LEAST_BYTES	((size_t)1 << 20)	/* read even after the limit: a CPU may be busy */
#define PIECE_BYTES	((size_t)1 << 20)	/* bytes of the largest piece read */
#define AT_ONCE		((size_t)128 << 10)	/* bytes between two reads of the clock, or one larger piece */
#define BATCH		32u			/* pieces per call */
#define KINDS		(HEAP_OF_GUARD + 1)

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool again_has_candidate(const struct scan *scan, const struct heap_piece *piece)
{
	for (uint64_t object = piece->first; object < piece->first + piece->count; object += 64)
		if (scan->heap.live[object / 64] & ~scan->held[object / 64])
			return true;
	return false;
}

static size_t bytes_of(const struct heap_piece *piece)
{
	return piece->each * piece->count;
}

/* ------------------------------------------------------------------ selection and order */

/* Pieces of one cache, or pieces of one kind without a cache. Pieces with candidates form another group. */
struct again_group {
	uint64_t bytes;
	uint64_t room;			/* bytes to read at most */
	size_t rank;			/* position in the order */
	enum { OF_OTHERS, OF_LIKE, OF_CANDIDATES } of;
};

static struct again_group *group_of(const struct scan *scan, struct again_group *groups, const struct heap_piece *piece)
{
	size_t number = piece->cache != HEAP_NO_CACHE ? piece->cache : scan->heap.cache_count + piece->kind;

	return &groups[number * 2 + again_has_candidate(scan, piece)];
}

static int by_weight(const void *a, const void *b)
{
	const struct again_group *x = *(struct again_group *const *)a, *y = *(struct again_group *const *)b;

	if (x->of != y->of)
		return x->of > y->of ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Sorts the groups, and divides MOST_BYTES among the groups in that order. */
static void rank(struct again_group *groups, size_t count)
{
	struct again_group **sorted = kmem_need(calloc(count, sizeof(*sorted)));
	uint64_t left = MOST_BYTES;

	for (size_t i = 0; i < count; i++)
		sorted[i] = &groups[i];
	qsort(sorted, count, sizeof(*sorted), by_weight);
	for (size_t i = 0; i < count; i++) {
		sorted[i]->rank = i;
		sorted[i]->room = sorted[i]->bytes < left ? sorted[i]->bytes : left;
		left -= sorted[i]->room;
	}
	free(sorted);
}

static int by_rank(const void *a, const void *b)
{
	const struct scan_copy *x = a, *y = b;

	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return (x->piece->first > y->piece->first) - (x->piece->first < y->piece->first);
}

static bool has_live(const struct heap *heap, const struct heap_piece *piece)
{
	for (uint64_t object = piece->first; object < piece->first + piece->count; object += 64)
		if (heap->live[object / 64])
			return true;
	return false;
}

/* Adds up the bytes of each group. Returns: false if there is no candidate. */
static bool find_groups(struct scan *scan, struct again_group *groups, size_t count)
{
	const struct heap *heap = &scan->heap;
	bool any = false;

	for (size_t i = 0; i < heap->piece_count; i++) {
		const struct heap_piece *piece = &heap->pieces[i];

		if (!has_live(heap, piece))
			continue;
		scan->again.wanted += bytes_of(piece);
		group_of(scan, groups, piece)->bytes += bytes_of(piece);
	}
	for (size_t i = 0; i < count; i += 2) {
		groups[i].of = groups[i + 1].bytes ? OF_LIKE : OF_OTHERS;
		groups[i + 1].of = OF_CANDIDATES;
		any = any || groups[i + 1].bytes;
	}
	return any;
}

static void add_pieces(struct scan *scan, struct again_group *groups)
{
	const struct heap *heap = &scan->heap;
	struct scan_again *again = &scan->again;

	for (size_t i = 0; i < heap->piece_count; i++) {
		const struct heap_piece *piece = &heap->pieces[i];
		struct again_group *group = group_of(scan, groups, piece);
		size_t bytes = bytes_of(piece);

		if (!has_live(heap, piece) || bytes > PIECE_BYTES || bytes > group->room)
			continue;
		group->room -= bytes;
		again->byte_room += bytes;
		again->copy = kmem_grow(again->copy, again->count, &again->room, sizeof(*again->copy));
		again->copy[again->count++] = (struct scan_copy){ .piece = piece, .at = group->rank };
	}
}

void again_prepare(struct scan *scan)
{
	const size_t count = (scan->heap.cache_count + KINDS) * 2;
	struct scan_again *again = &scan->again;
	struct again_group *groups = kmem_need(calloc(count, sizeof(*groups)));

	if (find_groups(scan, groups, count)) {
		rank(groups, count);
		add_pieces(scan, groups);
	}
	if (again->count) {
		qsort(again->copy, again->count, sizeof(*again->copy), by_rank);
		again->bytes = kmem_need(malloc(again->byte_room));
		memset(again->bytes, 1, again->byte_room);
	}
	free(groups);
}

/* ------------------------------------------------------------------ reading */

/* Reads `count` pieces of `bytes` bytes each in one call. Returns: false if a piece is unmapped. */
static bool read_batch(struct scan *scan, const struct scan_copy *copy, size_t count, size_t bytes, char *to)
{
	void *from[BATCH];

	if (count == 1)
		return roots_read(scan, copy->piece->start, bytes, to);
	for (size_t i = 0; i < count; i++)
		from[i] = (void *)copy[i].piece->start;
	if (!target_gather(scan->heap.target, to, from, bytes, count))
		return false;
	scan->bytes += count * bytes;
	return true;
}

/* Returns: how many pieces from number `i` on one call reads. Only slabs of equal length share a call. */
static size_t batch_from(const struct scan_again *again, size_t i, size_t bytes)
{
	size_t count = 1;

	while (again->copy[i].piece->kind == HEAP_OF_SLAB && i + count < again->count && count < BATCH &&
	       (count + 1) * bytes <= AT_ONCE && again->copy[i + count].piece->kind == HEAP_OF_SLAB &&
	       bytes_of(again->copy[i + count].piece) == bytes)
		count++;
	return count;
}

void again_read(struct scan *scan, uint64_t end)
{
	struct scan_again *again = &scan->again;
	size_t kept = 0, count = 0;

	for (size_t i = 0; i < again->count; i += count) {
		size_t bytes = bytes_of(again->copy[i].piece);

		count = batch_from(again, i, bytes);
		if (again->filled + count * bytes > LEAST_BYTES && now_ns() > end)
			break;
		if (!read_batch(scan, &again->copy[i], count, bytes, again->bytes + again->filled)) {
			count = 1;
			if (!read_batch(scan, &again->copy[i], count, bytes, again->bytes + again->filled))
				continue;
		}
		for (size_t k = 0; k < count; k++) {
			again->copy[kept] = again->copy[i + k];
			again->copy[kept++].at = again->filled;
			again->filled += bytes;
		}
	}
	again->count = kept;
}

void again_clear(struct scan_again *again)
{
	free(again->copy);
	free(again->bytes);
	free(again->link);
	*again = (struct scan_again){ .count = 0 };
}
