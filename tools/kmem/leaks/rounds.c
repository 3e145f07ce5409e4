/*
 * rounds.c: scan a process in rounds until the lost objects are known: scan.h has the reasons. Invariant: a reported
 * object was lost in each round, with the same content, and was live while all threads stood still.
 *
 * The content is compared because an address may be reused. If a program allocates and frees often, a new object may
 * seem lost in one round, because the round read the object's holder earlier. In the next round another object at
 * the same address may seem lost. The content of a lost object never changes, because no pointer is left to write
 * by.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "leaks/core_dump.h"
#include "leaks/scan.h"

#define ROUNDS		3u
#define MOST_ROUNDS	12u		/* limit while each round finds fewer lost objects */
#define PAUSE_US	20000u		/* pause between two rounds */
#define AT_ONCE		((size_t)4 << 20)	/* bytes read at once */
#define LOST_SHARE	8u		/* a lost object counts in the budget by this part of its record */

/* ------------------------------------------------------------------ lost objects */

/* The current content of one piece's objects. */
struct contents {
	const struct heap_piece *piece;	/* the piece in the scan's buffer; NULL: none */
	bool read;
};

/* Returns: a hash of the object's content. In a piece above AT_ONCE bytes only the first AT_ONCE bytes count. */
static uint64_t content_of(struct scan *scan, struct contents *now, const struct heap_piece *piece, uint64_t object)
{
	const size_t whole = piece->each * piece->count, most = whole < AT_ONCE ? whole : AT_ONCE;
	const size_t from = heap_user_address(&scan->heap, piece, object) - piece->start;
	const size_t end = from + heap_bytes(&scan->heap, piece, object);
	uint64_t sum = 1;

	if (now->piece != piece) {
		/* Keep the counters: the search has counted these bytes before. */
		const uint64_t bytes = scan->bytes, unread = scan->unread;

		now->piece = piece;
		now->read = roots_read(scan, piece->start, most, scan->buffer);
		scan->bytes = bytes;
		scan->unread = unread;
	}
	for (size_t at = from; now->read && at < end && at < most; at++)
		sum = (sum ^ (unsigned char)scan->buffer[at]) * 0x100000001b3u;
	return sum;
}

static void note_lost(struct scan *scan, struct scan_result *result, const struct heap_piece *piece, uint64_t object,
		      uint64_t content)
{
	uintptr_t address = heap_user_address(&scan->heap, piece, object);
	struct heap_track track;

	target_charge(scan->heap.target, sizeof(*result->lost) / LOST_SHARE);
	result->lost = kmem_grow(result->lost, result->count, &result->room, sizeof(*result->lost));
	struct scan_lost *lost = &result->lost[result->count++];
	*lost = (struct scan_lost){ .address = address, .content = content,
				    .bytes = heap_bytes(&scan->heap, piece, object) };
	snprintf(lost->cache, sizeof(lost->cache), "%s", heap_name(&scan->heap, piece));
	if (!heap_track(&scan->heap, piece, address, &track))
		return;
	lost->aged = track.when && scan->heap.now_ms >= track.when;
	lost->age_ms = lost->aged ? scan->heap.now_ms - track.when : 0;
	memcpy(lost->frame, track.frame, sizeof(lost->frame));
}

/* Set `pointed` of each lost object with a pointer from another lost object. */
static void note_pointed(struct scan *scan, struct scan_result *result)
{
	const struct scan_edges *edges = &scan->edges;
	uint64_t *pointed = kmem_need(calloc(scan->heap.objects / 64 + 1, sizeof(*pointed)));

	for (size_t i = 0; i < result->count; i++) {
		uint32_t object;

		if (!mark_find(scan, result->lost[i].address, &object))
			continue;
		for (uint64_t e = edges->begin[object / 64]; e < edges->begin[object / 64 + 1]; e++)
			if (edges->from[e] == object % 64)
				heap_set(pointed, edges->to[e]);
	}
	for (size_t i = 0; i < result->count; i++) {
		uint32_t object;

		result->lost[i].pointed = mark_find(scan, result->lost[i].address, &object) &&
					  heap_bit(pointed, object);
	}
	free(pointed);
}

static int by_address(const void *a, const void *b)
{
	const struct scan_lost *x = a, *y = b;

	return (x->address > y->address) - (x->address < y->address);
}

/* Check that an object was lost in all earlier rounds, with the same content. True in the first round. */
static bool is_the_same(struct scan *scan, const struct scan_result *before, struct contents *now,
			const struct heap_piece *piece, uint64_t object, uint64_t *content)
{
	const struct scan_lost key = { .address = heap_user_address(&scan->heap, piece, object) }, *was = NULL;

	if (before->rounds)
		was = before->count ? bsearch(&key, before->lost, before->count, sizeof(key), by_address) : NULL;
	if (before->rounds && !was)
		return false;
	*content = content_of(scan, now, piece, object);
	return !was || was->content == *content;
}

/* Gather the objects lost in this round, and in the last round as well. False: beyond the target's budget. */
static bool gather(struct scan *scan, struct scan_result *result)
{
	struct scan_result before = *result;
	const struct heap *heap = &scan->heap;
	struct contents now = { .piece = NULL };
	uint64_t content;

	result->lost = NULL;
	result->count = result->room = result->live = 0;
	for (size_t i = 0; i < heap->piece_count; i++) {
		const struct heap_piece *piece = &heap->pieces[i];

		for (uint64_t object = piece->first; object < piece->first + piece->count; object++) {
			if (!heap_bit(heap->live, object))
				continue;
			result->live++;
			if (!heap_bit(scan->held, object) &&
			    is_the_same(scan, &before, &now, piece, object, &content))
				note_lost(scan, result, piece, object, content);
		}
	}
	note_pointed(scan, result);
	qsort(result->lost, result->count, sizeof(*result->lost), by_address);
	free(before.lost);
	return target_may_read(scan->heap.target, 0);
}

/* ------------------------------------------------------------------ rounds */

static void clear(struct scan *scan)
{
	free(scan->roots.at);
	free(scan->ours.at);
	free(scan->edges.to);
	free(scan->edges.from);
	free(scan->edges.begin);
	free(scan->held);
	free(scan->work);
	again_clear(&scan->again);
	free(scan->buffer);
	if (scan->pagemap >= 0)
		close(scan->pagemap);
	heap_clear(&scan->heap);
}

/* Find the stacks of all threads. Returns: NULL with errno set. */
static struct stop_stack *find_stacks(const struct subject *subject, size_t *count)
{
	const struct core *core = subject->target.core;

	if (!core)
		return stop_stacks(subject->target.pid, count);
	*count = core->threads;
	struct stop_stack *stacks = kmem_need(calloc(*count + 1, sizeof(*stacks)));
	for (size_t i = 0; i < *count; i++)
		stacks[i] = core_stack(core, i);
	return stacks;
}

static int cannot_stop(struct subject *subject)
{
	int error = errno;

	if (error == ETIMEDOUT)
		return kmem_failed(1, subject->command, "process %s: one of its threads waits in the kernel and "
							"cannot be stopped; try again", subject->name);
	if (target_is_own_lack(error))
		return kmem_failed(1, subject->command, "process %s: its threads cannot be listed: %s", subject->name,
				   strerror(error));
	subject->target.result = error == ESRCH ? INFO_GONE : INFO_DENIED;
	if (error == EPERM)
		return kmem_failed(1, subject->command, "process %s: its threads cannot be stopped: another program "
							"traces it, or ptrace rights are missing", subject->name);
	return subject_complain(subject);
}

/* Read roots and objects while the process runs, and mark the held objects. */
static bool read_running(struct scan *scan, struct stop_stack *stacks, size_t count)
{
	struct heap *heap = &scan->heap;

	scan->pagemap = heap->target->core ? -1 : target_proc_fd(heap->target->pid, "pagemap");
	scan->buffer = kmem_need(malloc(AT_ONCE));
	scan->held = kmem_need(calloc(heap->objects / 64 + 2, sizeof(*scan->held)));
	if (!roots_find(scan, stacks, count))
		return false;
	for (size_t i = 0; i < scan->roots.count; i++) {
		const struct scan_span *root = &scan->roots.at[i];

		for (uintptr_t at = (root->start + 7) & ~(uintptr_t)7; at < root->end;) {
			size_t now = root->end - at < AT_ONCE ? root->end - at : AT_ONCE;

			if (roots_read(scan, at, now, scan->buffer))
				mark_words(scan, (const uint64_t *)scan->buffer, now / sizeof(uint64_t));
			at += now;
		}
	}
	mark_edges(scan);
	mark_all(scan);
	return true;
}

static int one_round(struct subject *subject, struct scan_result *result)
{
	struct scan scan = { .subject = subject, .pagemap = -1 };
	size_t count = 0;
	struct stop_stack *stacks = find_stacks(subject, &count);
	int status = stacks ? subject_load(subject, &scan.heap) : cannot_stop(subject);

	if (!status && scan.heap.objects > UINT32_MAX)
		status = kmem_failed(1, subject->command, "%s: more objects than can be counted here", subject->name);
	if (!subject->target.core && !status) {
		maps_clear(&subject->maps);
		maps_of_process(subject->target.pid, &subject->maps);
	}
	if (!status && !read_running(&scan, stacks, count))
		status = subject_complain(subject);
	if (!status && subject->target.core)
		still_core(&scan, subject->target.core);
	else if (!status && !still_look(&scan, count, result))
		status = cannot_stop(subject);
	if (!status) {
		mark_all(&scan);
		if (!subject->target.core)
			young_hold(&scan);
		if (!gather(&scan, result))
			status = subject_complain(subject);
		result->read_bytes += scan.bytes;
		/* Objects in memory that a dump lacks are a part of this memory. */
		result->unread_bytes = scan.unread;
		if (subject->target.core && subject->target.core->missing > scan.unread)
			result->unread_bytes = subject->target.core->missing;
		result->rounds++;
		status = status ?: subject_is_other(subject);
	}
	free(stacks);
	clear(&scan);
	return status;
}

int scan_run(struct subject *subject, struct scan_result *result)
{
	size_t before = 0;
	int status = one_round(subject, result);

	while (!status && result->count && !subject->target.core && (result->rounds < ROUNDS ||
	       (result->rounds < MOST_ROUNDS && result->count < before - before / 16))) {
		before = result->count;
		usleep(PAUSE_US);
		status = one_round(subject, result);
	}
	return status;
}
