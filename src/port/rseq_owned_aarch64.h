/*
 * rseq_owned_aarch64.h: the verbs of an owner's shelf (owned.h) and of a stock of bytes (stock_word.h) as restartable
 * sequences on aarch64; pseudo-code there, the frame in <kmem/inline.h>, with what is said there about the order of
 * loads. Invariant: each has one committing store, the last instruction of its sequence; whatever it stores before
 * lies where nobody looks until then. What closes, the offset in a shelf or slot, is loaded first, and the rest is
 * found by it.
 */
#ifndef KM_PORT_RSEQ_OWNED_AARCH64_H
#define KM_PORT_RSEQ_OWNED_AARCH64_H

#include "rseq_aarch64.h"

/* [top] of the CPU's block; miss unless it is the caller's. [slot] is the word's address; `other` is scratch. */
#define KM_OWNED_TOP(other)                                                                        \
	"ldp %[top], %[" other "], [%[slot]]\n\t"                                                  \
	"cmp %[" other "], %[owner]\n\t"                                                           \
	"b.ne %l[miss]\n\t"

km_inline void *km_rseq_owned_pop(const struct kmem_shelf *shelf, char *base, intptr_t rseq,
				  uintptr_t owner)
{
	uintptr_t area, slot, top;
	void *object;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_SLOT
		KM_OWNED_TOP("object")
		"ldr %[object], [%[area], %[top]]\n\t"
		"cbz %[object], %l[miss]\n\t"
		"add %[top], %[top], #8\n\t"
		"str %[top], [%[slot]]\n"
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top), [object] "=&r"(object)
		: [f] "r"(shelf), [base] "r"(base), [rs] "r"(KMEM_RSEQ_THREAD(rseq)),
		  [owner] "r"(owner)
		: "memory", "cc"
		: miss);
	if (!object)
		__builtin_unreachable();
	return object;
miss:
	KMEM_RSEQ_MISSED;
	return NULL;
}

km_inline bool km_rseq_owned_push(const struct kmem_shelf *shelf, char *base, intptr_t rseq,
				  uintptr_t owner, void *object)
{
	uintptr_t area, slot, top, other;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_SLOT
		KM_OWNED_TOP("other")
		"ldr %w[other], [%[f], #4]\n\t"
		"tst %w[top], %w[other]\n\t"
		"b.eq %l[miss]\n\t"
		"sub %[top], %[top], #8\n\t"
		"str %[object], [%[area], %[top]]\n\t"
		"str %[top], [%[slot]]\n"
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top), [other] "=&r"(other)
		: [f] "r"(shelf), [base] "r"(base), [rs] "r"(KMEM_RSEQ_THREAD(rseq)),
		  [owner] "r"(owner), [object] "r"(object)
		: "memory", "cc"
		: miss);
	return true;
miss:
	KMEM_RSEQ_MISSED;
	return false;
}

/* Up to `bytes` / 8 objects into the end of out[0 .. bytes / 8); returns bytes moved, 0 for none. */
km_inline size_t km_rseq_owned_pop_n(const struct kmem_shelf *shelf, uint32_t block_mask, char *base,
				     intptr_t rseq, uintptr_t owner, void **out, size_t bytes)
{
	uintptr_t area, slot, top, from, count, left, tmp;
	char *to = (char *)out + bytes;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_SLOT
		KM_OWNED_TOP("tmp")
		"cbz %[top], %l[miss]\n\t"
		"add %[from], %[area], %[top]\n\t"
		"orr %[left], %[from], %[block_mask]\n\t"
		"sub %[left], %[left], #15\n\t"
		"subs %[count], %[left], %[from]\n\t"
		"b.eq %l[miss]\n\t"
		KM_AT_MOST_BYTES
		"sub %[to], %[to], %[count]\n\t"
		"mov %[left], %[count]\n\t"
		KM_COPY("from", "to", "left")
		"add %[top], %[top], %[count]\n\t"
		"str %[top], [%[slot]]\n"
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top), [from] "=&r"(from),
		  [count] "=&r"(count), [left] "=&r"(left), [to] "+&r"(to), [tmp] "=&r"(tmp)
		: [f] "r"(shelf), [base] "r"(base), [rs] "r"(KMEM_RSEQ_THREAD(rseq)),
		  [owner] "r"(owner), [bytes] "r"(bytes), [block_mask] "r"((uintptr_t)block_mask)
		: "memory", "cc", "v0", "v1"
		: miss);
	return count;
miss:
	KMEM_RSEQ_MISSED;
	return 0;
}

/* Up to `bytes` / 8 objects from the end of in[0 .. bytes / 8); returns bytes moved, 0 for none. */
km_inline size_t km_rseq_owned_push_n(const struct kmem_shelf *shelf, char *base, intptr_t rseq,
				      uintptr_t owner, void *const *in, size_t bytes)
{
	uintptr_t area, slot, top, to, count, left, tmp;
	const char *from = (const char *)in + bytes;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_SLOT
		KM_OWNED_TOP("tmp")
		"ldr %w[count], [%[f], #4]\n\t"
		"ands %w[count], %w[count], %w[top]\n\t"
		"b.eq %l[miss]\n\t"
		KM_AT_MOST_BYTES
		"sub %[from], %[from], %[count]\n\t"
		"sub %[top], %[top], %[count]\n\t"
		"add %[to], %[area], %[top]\n\t"
		"mov %[left], %[count]\n\t"
		KM_COPY("from", "to", "left")
		"str %[top], [%[slot]]\n"
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top), [to] "=&r"(to),
		  [count] "=&r"(count), [left] "=&r"(left), [from] "+&r"(from), [tmp] "=&r"(tmp)
		: [f] "r"(shelf), [base] "r"(base), [rs] "r"(KMEM_RSEQ_THREAD(rseq)),
		  [owner] "r"(owner), [bytes] "r"(bytes)
		: "memory", "cc", "v0", "v1"
		: miss);
	return count;
miss:
	KMEM_RSEQ_MISSED;
	return 0;
}

km_inline bool km_rseq_owned_adopt(const struct kmem_shelf *shelf, char *base, intptr_t rseq,
				   uintptr_t owner)
{
	uintptr_t area, slot, top;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_SLOT
		"ldr %[top], [%[slot]]\n\t"
		"cbz %[top], %l[miss]\n\t"
		"ldr %[top], [%[area], %[top]]\n\t"
		"cbnz %[top], %l[miss]\n\t"
		"str %[owner], [%[slot], #8]\n"
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top)
		: [f] "r"(shelf), [base] "r"(base), [rs] "r"(KMEM_RSEQ_THREAD(rseq)),
		  [owner] "r"(owner)
		: "memory", "cc"
		: miss);
	return true;
miss:
	KMEM_RSEQ_MISSED;
	return false;
}

km_inline bool km_rseq_owned_found(const struct kmem_shelf *shelf, char *base, intptr_t rseq,
				   void **block, uintptr_t owner)
{
	uintptr_t area, slot, offset;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_SLOT
		KM_RSEQ_WRITABLE("offset")
		"ldr %[offset], [%[slot]]\n\t"
		"cbnz %[offset], %l[miss]\n\t"
		"sub %[offset], %[block], %[area]\n\t"
		"str %[owner], [%[slot], #8]\n\t"
		"str %[offset], [%[slot]]\n"
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [offset] "=&r"(offset)
		: [f] "r"(shelf), [base] "r"(base), [rs] "r"(KMEM_RSEQ_THREAD(rseq)),
		  [block] "r"(block), [owner] "r"(owner)
		: "memory", "cc"
		: miss);
	return true;
miss:
	KMEM_RSEQ_MISSED;
	return false;
}

/* A stock's word is 0 where it is closed: no bytes. */
km_inline bool km_rseq_stock_take(const uint32_t *stock, char *base, intptr_t rseq, uint64_t bytes)
{
	uintptr_t area, slot, rest;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_AT
		"ldr %[rest], [%[area], %[slot]]\n\t"
		"subs %[rest], %[rest], %[bytes]\n\t"
		"b.lo %l[miss]\n\t"
		"str %[rest], [%[area], %[slot]]\n"
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [rest] "=&r"(rest)
		: [f] "r"(stock), [base] "r"(base), [rs] "r"(KMEM_RSEQ_THREAD(rseq)),
		  [bytes] "r"(bytes)
		: "memory", "cc"
		: miss);
	return true;
miss:
	KMEM_RSEQ_MISSED;
	return false;
}

km_inline bool km_rseq_stock_put(const uint32_t *stock, char *base, intptr_t rseq, uint64_t bytes,
				 uint64_t limit)
{
	uintptr_t area, slot, sum;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_SLOT
		KM_RSEQ_WRITABLE("sum")
		"ldr %[sum], [%[slot]]\n\t"
		"add %[sum], %[sum], %[bytes]\n\t"
		"cmp %[sum], %[limit]\n\t"
		"b.hi %l[miss]\n\t"
		"str %[sum], [%[slot]]\n"
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [sum] "=&r"(sum)
		: [f] "r"(stock), [base] "r"(base), [rs] "r"(KMEM_RSEQ_THREAD(rseq)),
		  [bytes] "r"(bytes), [limit] "r"(limit)
		: "memory", "cc"
		: miss);
	return true;
miss:
	KMEM_RSEQ_MISSED;
	return false;
}

km_inline uint64_t km_rseq_stock_empty(const uint32_t *stock, char *base, intptr_t rseq)
{
	uintptr_t area, slot, all;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_AT
		"ldr %[all], [%[area], %[slot]]\n\t"
		"cbz %[all], %l[miss]\n\t"
		"str xzr, [%[area], %[slot]]\n"
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [all] "=&r"(all)
		: [f] "r"(stock), [base] "r"(base), [rs] "r"(KMEM_RSEQ_THREAD(rseq))
		: "memory", "cc"
		: miss);
	return all;
miss:
	KMEM_RSEQ_MISSED;
	return 0;
}

#endif
