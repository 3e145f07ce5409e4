/*
 * Blocks of many pages, alone or beside threads with the same work: `blocks` (allocated and freed, as `pair`; as
 * `blocks-written` with the first word of each page written), `realloc` (from 24 bytes up in steps of a half, then
 * freed: the cost of the whole chain, with one word written in each new page) and `held` (120 MB of blocks of eight
 * sizes, written whole: resident bytes, and resident over allocated bytes). Included after an interface (api/) for any
 * size.
 */
#ifndef BENCH_WORK_BLOCKS_H
#define BENCH_WORK_BLOCKS_H

#include <string.h>

#include "works/pair.h"

#define BLOCKS_PAGE 4096u
#define REALLOC_FIRST 24u
#define HELD_BYTES 120000000u
#define HELD_MAX 1024u		/* blocks of a thread; the mean is 241 KB */

bench_inline void blocks_write(char *block, size_t from, size_t to)
{
	for (size_t at = from; at < to; at += BLOCKS_PAGE)
		*(volatile char *)(block + at) = 1;
}

bench_inline void *blocks_alloc_written(struct api api)
{
	void *block = api_alloc(api);

	bench_check(block);
	bench_use(block);
	blocks_write(block, 0, api.size);
	return block;
}

bench_noinline uint64_t blocks_written_window(const struct cell *cell, uint64_t count)
{
	(void)cell;
	return pair_loop(count, blocks_alloc_written);
}

bench_noinline uint64_t realloc_window(const struct cell *cell, uint64_t count)
{
	const struct api api = cost_api;
	uint64_t start = clock_start();

	for (uint64_t i = 0; i < count; i++) {
		size_t size = REALLOC_FIRST, next;
		char *block = api_alloc_sized(api, size);

		bench_check(block);
		blocks_write(block, 0, size);
		for (; size < cell->size; size = next) {
			next = size + size / 2 < cell->size ? size + size / 2 : cell->size;
			block = api_realloc(api, block, next);
			bench_check(block);
			blocks_write(block, size, next);
		}
		api_free(api, block);
	}
	return clock_stop() - start;
}

static void blocks_written_run(const struct cell *cell)
{
	cost_cell(cell, blocks_written_window, 1);
}

static void realloc_run(const struct cell *cell)
{
	cost_cell(cell, realloc_window, 1);
}

static struct {
	double before;		/* bytes */
	size_t share;		/* of a thread, bytes */
	void *blocks[2][HELD_MAX];
	size_t bytes[2];
} held;

/* Allocates the thread's share of blocks, each size in turn, and holds the blocks until memory was read. */
static void held_body(struct member *member)
{
	static const size_t sizes[] = { 10000, 16000, 40000, 64000, 100000, 200000, 500000, 1000000 };
	const struct api api = cost_api;
	void **blocks = held.blocks[member->id];
	unsigned int count = 0;

	while (held.bytes[member->id] < held.share) {
		size_t size = sizes[count % (sizeof(sizes) / sizeof(*sizes))];

		if (count == HELD_MAX)
			bench_die("more blocks than fit the table");
		blocks[count] = api_alloc_sized(api, size);
		bench_check(blocks[count]);
		memset(blocks[count++], 1, size);
		held.bytes[member->id] += size;
	}
	crew_start(member);
	crew_finish(member);
	while (count)
		api_free(api, blocks[--count]);
}

/* Called while all threads hold their blocks. */
static void held_read(void)
{
	double rss, pss, live = (double)(held.bytes[0] + held.bytes[1]);

	bench_read_memory(&rss, &pss);
	bench_print("bytes", "rss", "peak", rss - held.before);
	bench_print("rss/live", "-", "-", (rss - held.before) / live);
}

static void held_run(const struct cell *cell)
{
	double pss;

	if (cell->threads < 1 || cell->threads > 2)
		bench_die("blocks are held by one thread or two");
	cost_api = api_open(cell->size);
	held.bytes[0] = held.bytes[1] = 0;
	held.share = HELD_BYTES / cell->threads;
	bench_read_memory(&held.before, &pss);
	crew_hold(cell->threads, held_body, held_read);
	api_close(cost_api);
}

#endif
