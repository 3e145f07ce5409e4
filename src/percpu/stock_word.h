/*
 * stock_word.h: a CPU's stock of bytes that are charged to an owner and not yet used: one word in the CPU's area for
 * each owner. Any number of owners have a stock on a CPU, eight of them in a line; none is searched for, none pushes
 * another out.
 *
 *	area of a CPU + *slot	[ bytes ]		*slot is 0 where closed: word 0 of every area is 0 for ever
 *
 * Kernel: five slots a CPU, which are searched, and a sixth owner evicts one of the five.
 *
 * The verbs, in pseudo-code (each commits with its last store, or does nothing):
 *	take		if (word < bytes) miss; word -= bytes
 *	put		if (closed) miss; if (word + bytes > limit) miss; word += bytes
 *	empty		all = word; if (!all) miss; word = 0
 *
 * Soft disciplines: [ bytes | tag ], changed together by compare-and-swap; there is no lock, and nobody waits. The tag
 * is the address of `slot` while it is open, and taking a CPU's bytes clears it. So whoever has read the slot before it
 * was closed, and comes late, fails: also where another owner has got the word meanwhile.
 */
#ifndef KM_PERCPU_STOCK_WORD_H
#define KM_PERCPU_STOCK_WORD_H

#include "pcpu.h"

/* For km_percpu_alloc and km_percpu_free. */
size_t km_stock_word_bytes(void);

/* bytes > 0. True: done, on this CPU's word. False where it can't be, and where closed. */
bool km_stock_take(const uint32_t *slot, uint64_t bytes);
bool km_stock_put(const uint32_t *slot, uint64_t bytes, uint64_t limit);
/* Everything that this CPU's word holds; it is 0 now. */
uint64_t km_stock_empty(const uint32_t *slot);

/*
 * km_stock_open: `slot` leads to the word at `offset` from now on; that is 0 on every CPU. Draining: km_stock_close,
 * km_pcs_fence, then for each CPU km_stock_take_cpu of what was in `slot`; after that it may be opened again, or
 * the word be freed. Nothing is added to or taken from a CPU's word once it was taken.
 */
void km_stock_open(uint32_t *slot, uint32_t offset);
void km_stock_close(uint32_t *slot);
uint64_t km_stock_take_cpu(uint32_t offset, unsigned cpu);

#endif
