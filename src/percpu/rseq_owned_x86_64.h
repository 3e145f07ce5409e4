/*
 * rseq_owned_x86_64.h: operations on owned sheaves (owned_sheaf.h) and stocks (stock_word.h) as restartable
 * sequences; pseudo-code there, the frame in <kmem/inline.h>. Invariant: each sequence has one committing store,
 * its last instruction. Earlier stores go only to places that no other thread reads before the commit. The closing
 * word, the offset of a pcs or a stock, is loaded first.
 *
 * A stock is one word of bytes, and not a pointer: take and put are an addition with a bound. A closed stock reads
 * word 0 of the area, which has no bytes to take. A put must check the word to be writable (KM_RSEQ_WRITABLE),
 * because a store to word 0 would open every closed pcs of the CPU.
 */
#ifndef KM_PERCPU_RSEQ_OWNED_X86_64_H
#define KM_PERCPU_RSEQ_OWNED_X86_64_H

#include "rseq_x86_64.h"

/*
 * Miss unless the caller's owner has the CPU's sheaf. The owner word is beside the pcs word, and not in the sheaf.
 * So the comparison depends on no other load, and its cache line is a line that the hit writes anyway.
 */
#define KM_OWNED_MINE                                                                              \
	"cmpq %[owner], 8(%[slot])\n\t"                                                      \
	"jne %l[miss]\n\t"

KM_OPERATION(void *, owned_pop)(const struct kmem_pcs *pcs, char *base, intptr_t rseq, uintptr_t owner)
{
	uintptr_t area, slot, top;

	KM_SEQUENCE(
		KMEM_RSEQ_WORD
		"movq (%[slot]), %[top]\n\t"
		KM_OWNED_MINE
		"movq (%[area], %[top]), %[area]\n\t"
		"testq %[area], %[area]\n\t"
		"jz %l[miss]\n\t"
		KMEM_RSEQ_UP,
		KM_OPERANDS([area] "=&a"(area), [slot] "=&r"(slot), [top] "=&r"(top)),
		KM_OPERANDS([pcs] "m"(pcs->pcs), KM_RSEQ_IN, [owner] "r"(owner)));
	KM_RSEQ_RETURN_OBJECT(area);
}

KM_OPERATION(bool, owned_push)(const struct kmem_pcs *pcs, char *base, intptr_t rseq, uintptr_t owner, void *object)
{
	uintptr_t area, slot, top;

	KM_SEQUENCE(
		KMEM_RSEQ_WORD
		"movq (%[slot]), %[top]\n\t"
		KM_OWNED_MINE
		"testl %k[top], %[mask]\n\t"
		"jz %l[miss]\n\t"
		"movq %[object], -8(%[area], %[top])\n\t"
		KMEM_RSEQ_DOWN,
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top)),
		KM_OPERANDS([pcs] "m"(pcs->pcs), KM_RSEQ_IN, [owner] "r"(owner), [object] "r"(object),
			    [mask] "m"(pcs->mask)));
	KM_RSEQ_RETURN(true, false);
}

KM_RSEQ_POP_N(owned_pop_n, KM_OWNED)
KM_RSEQ_PUSH_N(owned_push_n, KM_OWNED)

/* A closed stock reads a word of 0: no bytes. */
KM_OPERATION(bool, stock_take)(const uint32_t *stock, char *base, intptr_t rseq, uint64_t bytes)
{
	uintptr_t area, slot;

	KM_SEQUENCE(
		KMEM_RSEQ_SLOT
		"cmpq %[bytes], (%[slot])\n\t"
		"jb %l[miss]\n\t"
		"subq %[bytes], (%[slot])\n",
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot)),
		KM_OPERANDS([f] "r"(stock), KM_RSEQ_IN, [bytes] "er"(bytes)));
	KM_RSEQ_RETURN(true, false);
}

KM_OPERATION(bool, stock_put)(const uint32_t *stock, char *base, intptr_t rseq, uint64_t bytes, uint64_t limit)
{
	uintptr_t area, slot, sum;

	KM_SEQUENCE(
		KMEM_RSEQ_SLOT
		KM_RSEQ_WRITABLE
		"movq (%[slot]), %[sum]\n\t"
		"addq %[bytes], %[sum]\n\t"
		"cmpq %[limit], %[sum]\n\t"
		"ja %l[miss]\n\t"
		"addq %[bytes], (%[slot])\n",
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [sum] "=&r"(sum)),
		KM_OPERANDS([f] "r"(stock), KM_RSEQ_IN, [bytes] "er"(bytes), [limit] "er"(limit)));
	KM_RSEQ_RETURN(true, false);
}

#endif
