/*
 * quiesce.c: stops all threads of a process and reads the data that changes most. The steps: registers, stacks from
 * the stack pointers up, cached objects, memory outside of objects, live bits of candidates, and objects with
 * possible pointers to candidates (rescan.c). Invariant: each step has a time limit, except the registers, the first
 * mebibyte of the stacks and the first mebibyte of the last step. A step ends at its limit. The process is scanned in
 * rounds: data not read during the stop was read before the stop, or is read after the stop.
 *
 * All buffers for the stop are allocated and written to before the stop.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "leaks/core_dump.h"
#include "leaks/scan.h"

#define STACKS_AT_ONCE	((size_t)1 << 20)	/* bytes of stacks per call, and read without a limit */
#define STACKS_NS	3000000u		/* time limit for further stacks */
#define THREADS_AT_ONCE	256u			/* threads between two reads of the clock */
#define STACK_ROOM	((size_t)32 << 10)	/* bytes reserved per thread before the stop */
#define AT_ONCE		((size_t)128 << 10)	/* bytes between two reads of the clock */
#define ROOTS_BYTES	((size_t)8 << 20)	/* limit for memory outside of objects */
#define ROOTS_NS	1500000u		/* time limit for memory outside of objects */
#define READY_NS	1500000u		/* time limit for cached objects of caches with candidates */
#define LOOK_NS		500000u			/* time limit for slabs; the rest are read after the stop */
#define AGAIN_NS	2000000u		/* time limit for objects that may point to candidates */

/* Words read during the stop. */
struct still {
	uint64_t *words;
	size_t count, room;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void still_room(struct still *still, size_t bytes)
{
	size_t more = bytes / sizeof(*still->words) + 1;

	if (still->count + more <= still->room)
		return;
	still->room = still->room * 2 > still->count + more ? still->room * 2 : still->count + more;
	still->words = kmem_need(reallocarray(still->words, still->room, sizeof(*still->words)));
}

static void add_words(struct still *still, const uint64_t *words, size_t count)
{
	still_room(still, count * sizeof(*words));
	memcpy(still->words + still->count, words, count * sizeof(*words));
	still->count += count;
}

static void still_read(struct scan *scan, struct still *still, uintptr_t from, size_t bytes)
{
	still_room(still, bytes);
	if (roots_read(scan, from, bytes, still->words + still->count))
		still->count += bytes / sizeof(*still->words);
}

/* ------------------------------------------------------------------ stacks */

/* A batch of stacks. Stacks are small and many, so one call reads all stacks that fit into the buffer. */
struct stacks {
	struct still *still;
	struct roots_batch batch;
	size_t room;			/* bytes left in the buffer of the batch */
	struct span_list list;		/* stacks not read yet */
	size_t threads;			/* threads whose stacks were added to the list */
};

static void stacks_flush(struct stacks *stacks)
{
	struct still *still = stacks->still;

	if (!stacks->batch.to)
		return;
	roots_flush(&stacks->batch);
	still->count = (size_t)((uint64_t *)stacks->batch.to - still->words);
	stacks->batch.to = NULL;
}

static void read_stacks(struct stacks *stacks, uint64_t end)
{
	struct still *still = stacks->still;
	size_t read = 0;

	roots_fold(&stacks->list);
	for (size_t i = 0; i < stacks->list.count; i++) {
		struct scan_span *span = &stacks->list.at[i];

		while (span->start < span->end && (read < STACKS_AT_ONCE || now_ns() < end)) {
			const size_t left = span->end - span->start;
			const size_t bytes = left < STACKS_AT_ONCE ? left : STACKS_AT_ONCE;

			if (bytes > stacks->room || !stacks->batch.to) {
				stacks_flush(stacks);
				stacks->room = STACKS_AT_ONCE;
				still_room(still, stacks->room);
				stacks->batch.to = (char *)(still->words + still->count);
			}
			stacks->room -= bytes;
			roots_add(&stacks->batch, span->start, bytes);
			span->start += bytes;
			read += bytes;
		}
	}
	stacks_flush(stacks);
}

/* Reads the stacks left over at the time limit. Context: after the stop. */
static void read_late_stacks(struct scan *scan, struct stacks *stacks, const struct stop *stop)
{
	for (; stacks->threads < stop->count; stacks->threads++)
		roots_add_stack(scan, &stop->threads[stacks->threads].stack, &stacks->list);
	roots_fold(&stacks->list);
	for (size_t i = 0; i < stacks->list.count; i++) {
		const struct scan_span *span = &stacks->list.at[i];

		for (uintptr_t at = span->start; at < span->end; at += STACKS_AT_ONCE) {
			size_t now = span->end - at < STACKS_AT_ONCE ? span->end - at : STACKS_AT_ONCE;

			if (roots_read(scan, at, now, scan->buffer))
				mark_words(scan, (const uint64_t *)scan->buffer, now / sizeof(uint64_t));
		}
	}
	free(stacks->list.at);
}

/* Reads registers and stacks. The mappings are read again if a stack pointer lies outside all known mappings. */
static void read_threads(struct scan *scan, struct stacks *stacks, const struct stop *stop)
{
	const uint64_t end = now_ns() + STACKS_NS;
	struct maps *maps = &scan->subject->maps;
	bool known = true;

	for (size_t i = 0; known && i < stop->count; i++) {
		size_t map = maps_behind(maps, stop->threads[i].stack.pointer);

		known = !stop->threads[i].stopped ||
			(map < maps->count && maps->at[map].start <= stop->threads[i].stack.pointer);
	}
	if (!known) {
		maps_clear(maps);
		maps_of_process(scan->heap.target->pid, maps);
	}
	for (size_t i = 0; i < stop->count; i++)
		add_words(stacks->still, stop->threads[i].words, STOP_WORDS);
	for (size_t i = 0; i < stop->count && (i % THREADS_AT_ONCE || !i || now_ns() < end); i++, stacks->threads++)
		roots_add_stack(scan, &stop->threads[i].stack, &stacks->list);
	read_stacks(stacks, end);
}

/* ------------------------------------------------------------------ memory outside of objects */

static int by_bytes(const void *a, const void *b)
{
	const struct scan_span *x = a, *y = b;
	uintptr_t of_x = x->end - x->start, of_y = y->end - y->start;

	return (of_x > of_y) - (of_x < of_y);
}

/* Reads roots until `end`. Requires: roots sorted by size, because small roots change more. */
static void read_roots(struct scan *scan, struct still *still, uint64_t end)
{
	size_t left = ROOTS_BYTES;

	for (size_t i = 0; i < scan->roots.count; i++) {
		const struct scan_span *root = &scan->roots.at[i];

		for (uintptr_t at = root->start & ~(uintptr_t)7; at < root->end;) {
			size_t now = root->end - at < AT_ONCE ? root->end - at : AT_ONCE;

			if (now > left || now_ns() > end)
				return;
			still_read(scan, still, at, now);
			at += now;
			left -= now;
		}
	}
}

/* ------------------------------------------------------------------ candidates */

/* Reads the live bits of pieces with candidates again, from piece number `from` until `end`, and clears the live bits
 * of objects freed meanwhile. Returns: the number of the next piece to read. */
static size_t look_again(struct scan *scan, size_t from, uint64_t end)
{
	struct heap *heap = &scan->heap;
	uint64_t live[KMEM_RECORD_MAX_OBJECTS / 64 + 1];

	for (size_t i = from; i < heap->loose; i++) {
		const struct heap_piece *piece = &heap->pieces[i];

		if (!again_has_candidate(scan, piece))
			continue;
		if (now_ns() > end)
			return i;
		if (!heap_look_again(heap, piece, live))
			memset(live, 0, sizeof(live));
		for (uint32_t w = 0; w < (piece->count + 63) / 64; w++)
			heap->live[piece->first / 64 + w] &= live[w];
	}
	return heap->loose;
}

/* Returns: for each cache, whether a cached object may be a candidate. Caches of HEAP_ready and HEAP_other always
 * may, because blocks of whole pages do not name their cache. */
static bool *find_wanted(const struct scan *scan)
{
	const struct heap *heap = &scan->heap;
	bool *wanted = kmem_need(calloc(heap->cache_count + 1, sizeof(*wanted)));

	for (size_t i = 0; i < heap->cache_count; i++)
		wanted[i] = heap->caches[i].engine == HEAP_ready || heap->caches[i].engine == HEAP_other;
	for (size_t i = 0; i < heap->piece_count; i++) {
		const struct heap_piece *piece = &heap->pieces[i];

		if (piece->cache != HEAP_NO_CACHE && !wanted[piece->cache])
			wanted[piece->cache] = again_has_candidate(scan, piece);
	}
	return wanted;
}

/* ------------------------------------------------------------------ all of it */

/* Does all work that needs no stopped threads, and writes to all buffers. */
static void prepare(struct scan *scan, struct still *still, size_t threads)
{
	look_again(scan, 0, UINT64_MAX);
	again_prepare(scan);
	qsort(scan->roots.at, scan->roots.count, sizeof(*scan->roots.at), by_bytes);
	still_room(still, ROOTS_BYTES + threads * (STACK_ROOM + sizeof(uint64_t) * STOP_WORDS));
	memset(still->words, 0, still->room * sizeof(*still->words));
	maps_clear(&scan->subject->maps);
	maps_of_process(scan->heap.target->pid, &scan->subject->maps);
}

bool still_look(struct scan *scan, size_t threads, struct scan_result *result)
{
	struct still still = { .count = 0 };
	struct stacks stacks = { .still = &still, .batch = { .scan = scan } };
	size_t cache = 0;
	struct stop stop;

	prepare(scan, &still, threads);
	bool *wanted = find_wanted(scan);
	bool ok = stop_begin(scan->heap.target->pid, &stop);
	if (ok) {
		read_threads(scan, &stacks, &stop);
		heap_rests_again(&scan->heap, wanted, &cache, now_ns() + READY_NS);
		read_roots(scan, &still, now_ns() + ROOTS_NS);
		size_t next = look_again(scan, 0, now_ns() + LOOK_NS);
		again_read(scan, now_ns() + AGAIN_NS);
		stop_end(&stop);
		look_again(scan, next, UINT64_MAX);
		heap_rests_again(&scan->heap, wanted, &cache, UINT64_MAX);
		result->stops += stop.times;
		result->longest_ns = stop.longest_ns > result->longest_ns ? stop.longest_ns : result->longest_ns;
		read_late_stacks(scan, &stacks, &stop);
		stop_clear(&stop);
		mark_words(scan, still.words, still.count);
		mark_again(scan);
		result->again_wanted = scan->again.wanted;
		result->again_bytes = scan->again.filled;
	}
	int error = errno;
	free(still.words);
	free(wanted);
	errno = error;
	return ok;
}

/* Reads registers and stacks of a core dump. A dump never changes, so there is no time limit. */
void still_core(struct scan *scan, const struct core *core)
{
	struct still still = { .count = 0 };
	struct stacks stacks = { .still = &still, .batch = { .scan = scan } };

	for (size_t i = 0; i < core->threads; i++)
		add_words(&still, core->registers[i], CORE_REGISTERS);
	for (size_t i = 0; i < core->threads; i++) {
		const struct stop_stack stack = core_stack(core, i);

		roots_add_stack(scan, &stack, &stacks.list);
	}
	read_stacks(&stacks, UINT64_MAX);
	free(stacks.list.at);
	mark_words(scan, still.words, still.count);
	free(still.words);
}
