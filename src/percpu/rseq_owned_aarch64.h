/*
 * rseq_owned_aarch64.h: operations on owned sheaves (owned_sheaf.h) and stocks (stock_word.h) as restartable
 * sequences on aarch64; pseudo-code there, the frame in <kmem/inline.h>, with the rules for the order of loads.
 * Invariant: each sequence has one committing store, its last instruction. Earlier stores go only to places that no
 * other thread reads before the commit. The closing word, the offset of a pcs or a stock, is loaded first, and all
 * other addresses depend on the closing word.
 *
 * A put into a stock must check the word to be writable (KM_RSEQ_WRITABLE). A closed slot leads to word 0 of the
 * area, and a store there would open every closed pcs of the CPU.
 */
#ifndef KM_PERCPU_RSEQ_OWNED_AARCH64_H
#define KM_PERCPU_RSEQ_OWNED_AARCH64_H

#include "rseq_aarch64.h"

/* Miss unless the caller's owner has the CPU's sheaf. [slot] is the word's address; `other` is scratch. */
#define KM_OWNED_MINE(other)                                                                       \
	"ldr %[" other "], [%[slot], #8]\n\t"                                                      \
	"cmp %[" other "], %[owner]\n\t"                                                           \
	"b.ne %l[miss]\n\t"
/* ... and load [top]. */
#define KM_OWNED_TOP(other)                                                                        \
	"ldp %[top], %[" other "], [%[slot]]\n\t"                                                  \
	"cmp %[" other "], %[owner]\n\t"                                                           \
	"b.ne %l[miss]\n\t"

KM_OPERATION(void *, owned_pop)(const struct kmem_pcs *pcs, char *base, intptr_t rseq, uintptr_t owner)
{
	uintptr_t area, slot, top;
	void *object;

	KM_SEQUENCE(
		KMEM_RSEQ_SLOT
		KM_OWNED_TOP("object")
		"ldr %[object], [%[area], %[top]]\n\t"
		"cbz %[object], %l[miss]\n\t"
		"add %[top], %[top], #8\n\t"
		"str %[top], [%[slot]]\n",
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top), [object] "=&r"(object)),
		KM_OPERANDS([f] "r"(pcs), KM_RSEQ_IN, [owner] "r"(owner)));
	KM_RSEQ_RETURN_OBJECT(object);
}

KM_OPERATION(bool, owned_push)(const struct kmem_pcs *pcs, char *base, intptr_t rseq, uintptr_t owner, void *object)
{
	uintptr_t area, slot, top, other;

	KM_SEQUENCE(
		KMEM_RSEQ_SLOT
		KM_OWNED_TOP("other")
		"ldr %w[other], [%[f], #4]\n\t"
		"tst %w[top], %w[other]\n\t"
		"b.eq %l[miss]\n\t"
		"sub %[top], %[top], #8\n\t"
		"str %[object], [%[area], %[top]]\n\t"
		"str %[top], [%[slot]]\n",
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top), [other] "=&r"(other)),
		KM_OPERANDS([f] "r"(pcs), KM_RSEQ_IN, [owner] "r"(owner), [object] "r"(object)));
	KM_RSEQ_RETURN(true, false);
}

KM_RSEQ_POP_N(owned_pop_n, KM_OWNED)
KM_RSEQ_PUSH_N(owned_push_n, KM_OWNED)

/* A closed stock reads a word of 0: no bytes. */
KM_OPERATION(bool, stock_take)(const uint32_t *stock, char *base, intptr_t rseq, uint64_t bytes)
{
	uintptr_t area, slot, rest;

	KM_SEQUENCE(
		KMEM_RSEQ_AT
		"ldr %[rest], [%[area], %[slot]]\n\t"
		"subs %[rest], %[rest], %[bytes]\n\t"
		"b.lo %l[miss]\n\t"
		"str %[rest], [%[area], %[slot]]\n",
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [rest] "=&r"(rest)),
		KM_OPERANDS([f] "r"(stock), KM_RSEQ_IN, [bytes] "r"(bytes)));
	KM_RSEQ_RETURN(true, false);
}

KM_OPERATION(bool, stock_put)(const uint32_t *stock, char *base, intptr_t rseq, uint64_t bytes, uint64_t limit)
{
	uintptr_t area, slot, sum;

	KM_SEQUENCE(
		KMEM_RSEQ_SLOT
		KM_RSEQ_WRITABLE("sum")
		"ldr %[sum], [%[slot]]\n\t"
		"add %[sum], %[sum], %[bytes]\n\t"
		"cmp %[sum], %[limit]\n\t"
		"b.hi %l[miss]\n\t"
		"str %[sum], [%[slot]]\n",
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [sum] "=&r"(sum)),
		KM_OPERANDS([f] "r"(stock), KM_RSEQ_IN, [bytes] "r"(bytes), [limit] "r"(limit)));
	KM_RSEQ_RETURN(true, false);
}

#endif
