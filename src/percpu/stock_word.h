/*
 * stock_word.h: a CPU's stock of bytes, charged to an objcg and not yet used. Each objcg has one word in the CPU's
 * area. Any number of objcgs have a stock on a CPU, eight stocks in a cache line. Stocks need no search and no
 * eviction.
 *
 *	area of a CPU + *slot	[ bytes ]		*slot is 0 where closed: word 0 of every area is 0 for ever
 *
 * Kernel: five slots per CPU, which are searched; a sixth objcg evicts one of the five.
 *
 * The operations, in pseudo-code (each commits with its last store, or does nothing):
 *	take		if (word < bytes, as in a closed stock) miss; word -= bytes
 *	put		if (closed) miss; if (word + bytes > limit) miss; word += bytes
 *	empty		all = word; if (!all) miss; word = 0
 *
 * Soft disciplines: [ bytes | tag ], changed together by compare-and-swap, without a lock and without waiting. The
 * tag is the address of `slot` while the slot is open. Taking a CPU's bytes clears the tag. So a thread that read
 * the slot before the close fails if it comes late, even if another objcg has the word meanwhile.
 */
#ifndef KM_PERCPU_STOCK_WORD_H
#define KM_PERCPU_STOCK_WORD_H

#include "pcpu.h"

/* Returns: bytes of a stock's per-CPU word, for km_percpu_alloc and km_percpu_free. */
size_t km_stock_word_bytes(void);

/* Take or put bytes on this CPU's word. Requires: bytes > 0. Returns: false if impossible, or closed; nothing has
 * changed. */
bool km_stock_take(const uint32_t *slot, uint64_t bytes);
bool km_stock_put(const uint32_t *slot, uint64_t bytes, uint64_t limit);
/* Returns: all bytes of this CPU's word. The word is 0 now. */
uint64_t km_stock_empty(const uint32_t *slot);

/* Open, close and drain a stock. km_stock_open points `slot` at the word at `offset`. Requires: the word is 0 on every
 * CPU. A drain is km_stock_close, km_pcs_fence, then km_stock_take_cpu for each CPU, with the former value of `slot`.
 * After the drain the slot may be opened again, or the word freed. A CPU's word does not change after
 * km_stock_take_cpu. */
void km_stock_open(uint32_t *slot, uint32_t offset);
void km_stock_close(uint32_t *slot);
uint64_t km_stock_take_cpu(uint32_t offset, unsigned cpu);

#endif
