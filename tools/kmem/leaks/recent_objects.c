/*
 * recent_objects.c: reads young objects: objects allocated since the round began. Invariant: each object that a young
 * object points to is marked in the round, even if the young object is lost.
 *
 * A list that grows at the head reaches older objects only through young objects. The round's heap lacks young
 * objects, so the list would seem lost in each round. Consequence: objects behind a lost young object are reported in
 * the next round, not in the current round.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "leaks/scan.h"

#define AT_ONCE	((size_t)4 << 20)	/* bytes per read */

/* Returns: a bit mask of young objects among 64 objects. In a new piece, all live objects are young. */
static uint64_t young_of(const struct scan *scan, const struct heap *now, const struct heap_piece *piece, uint32_t from)
{
	const struct heap *then = &scan->heap;
	const struct heap_piece *was = heap_piece(then, piece->start);
	uint64_t live = now->live[piece->first / 64 + from / 64];

	if (!was || was->start != piece->start || was->kind != piece->kind || was->count != piece->count)
		return live;
	return live & ~then->live[was->first / 64 + from / 64];
}

/* Marks all objects that aligned words of `copy` point to. `start`: address of these bytes in the process. */
static void hold_from(struct scan *scan, uintptr_t start, size_t bytes, const char *copy)
{
	size_t odd = -start & (sizeof(uint64_t) - 1);
	uint64_t words[512];

	for (size_t done = odd; done + sizeof(*words) <= bytes; done += sizeof(words)) {
		size_t count = (bytes - done) / sizeof(*words);

		count = count < KMEM_COUNT(words) ? count : KMEM_COUNT(words);
		memcpy(words, copy + done, count * sizeof(*words));
		mark_words(scan, words, count);
	}
}

static void hold_by_block(struct scan *scan, const struct heap_piece *piece)
{
	for (size_t done = 0; done < piece->each; done += AT_ONCE) {
		size_t now = piece->each - done < AT_ONCE ? piece->each - done : AT_ONCE;

		if (roots_read(scan, piece->start + done, now, scan->buffer))
			hold_from(scan, piece->start + done, now, scan->buffer);
	}
}

static void hold_by_piece(struct scan *scan, const struct heap *now, const struct heap_piece *piece)
{
	bool read = false;

	for (uint32_t from = 0; from < piece->count; from += 64) {
		uint64_t young = young_of(scan, now, piece, from);

		if (young && piece->count == 1) {
			hold_by_block(scan, piece);
			return;
		}
		if (young && !read) {
			if (piece->each * piece->count > AT_ONCE ||
			    !roots_read(scan, piece->start, piece->each * piece->count, scan->buffer))
				return;
			read = true;
		}
		for (; young; young &= young - 1) {
			uint64_t object = piece->first + from + (unsigned)__builtin_ctzll(young);
			uintptr_t start = heap_address(piece, object);

			hold_from(scan, start, heap_bytes(now, piece, object), scan->buffer + (start - piece->start));
		}
	}
}

void young_hold(struct scan *scan)
{
	struct heap now;

	if (!heap_load(scan->heap.target, &now))
		return;
	for (size_t i = 0; i < now.piece_count; i++)
		hold_by_piece(scan, &now, &now.pieces[i]);
	mark_all(scan);
	heap_clear(&now);
}
