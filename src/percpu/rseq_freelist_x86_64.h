/*
 * rseq_freelist_x86_64.h: operations on a chain as restartable sequences; pseudo-code in cpu_freelist.h, the frame
 * in <kmem/inline.h>. Invariant: each sequence has one committing store, the last instruction. Earlier stores go
 * only to places without readers before the commit (an object or a link of the caller, the caller's stack).
 *
 * A sequence without the CPU for a while may have read a link in an object taken and written by another thread. The
 * value is meaningless, and is never stored, because the kernel aborts the sequence before the last instruction.
 * The read is harmless while the slab's memory stays mapped. Memory of a slab is unmapped only after a drain, and
 * the drain's fence aborts the sequence.
 */
#ifndef KM_PERCPU_RSEQ_FREELIST_X86_64_H
#define KM_PERCPU_RSEQ_FREELIST_X86_64_H

#include "cpu_freelist.h"
#include "rseq_x86_64.h"

KM_OPERATION(void *, chain_pop)(const struct km_chain *chain, char *base, intptr_t rseq)
{
	uintptr_t area, slot, next;
	void *object;

	KM_SEQUENCE(
		KMEM_RSEQ_SLOT
		"movq (%[slot]), %[object]\n\t"
		"testq %[object], %[object]\n\t"
		"jz %l[miss]\n\t"
		"movl 4(%[f]), %k[next]\n\t"
		"movq (%[object], %[next]), %[next]\n\t"
		"movq %[next], (%[slot])\n",
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [next] "=&r"(next), [object] "=&r"(object)),
		KM_OPERANDS([f] "r"(chain), KM_RSEQ_IN));
	KM_RSEQ_RETURN_OBJECT(object);
}

/* Pop up to count objects to out[0 ..). Requires: count > 0. */
KM_OPERATION(size_t, chain_pop_n)(const struct km_chain *chain, char *base, intptr_t rseq, void **out, size_t count)
{
	uintptr_t area, slot, object, link, done;

	KM_SEQUENCE(
		KMEM_RSEQ_SLOT
		"movq (%[slot]), %[object]\n\t"
		"testq %[object], %[object]\n\t"
		"jz %l[miss]\n\t"
		"movl 4(%[f]), %k[link]\n\t"
		"xorl %k[done], %k[done]\n"
		"81:\n\t"
		"movq %[object], (%[out], %[done], 8)\n\t"
		"movq (%[object], %[link]), %[object]\n\t"
		"incq %[done]\n\t"
		"testq %[object], %[object]\n\t"
		"jz 82f\n\t"
		"cmpq %[count], %[done]\n\t"
		"jb 81b\n"
		"82:\n\t"
		"movq %[object], (%[slot])\n",
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [object] "=&r"(object), [link] "=&r"(link),
			    [done] "=&r"(done)),
		KM_OPERANDS([f] "r"(chain), [base] "m"(base), [rs] "r"(rseq), [out] "r"(out),
			    [count] "r"(count)));
	KM_RSEQ_RETURN(done, 0);
}

/*
 * The low bits of a tag are the shift count in cl. With a tag of 0, shr keeps the flags of xor, and no object is NULL:
 * so a tag of 0 is a miss.
 */
KM_OPERATION(enum km_chain_push, chain_push)(const struct km_chain *chain, char *base, intptr_t rseq, void *head,
					     void *tail)
{
	uintptr_t area, slot, tag, other;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_SLOT
		"movq 8(%[slot]), %[tag]\n\t"
		"movq %[head], %[other]\n\t"
		"xorq %[tag], %[other]\n\t"
		"shrq %%cl, %[other]\n\t"
		"jnz %l[miss]\n\t"
		"movq (%[slot]), %[other]\n\t"
		"cmpq %[other], %[head]\n\t"
		"je %l[twice]\n\t"
		"movl 4(%[f]), %k[tag]\n\t"
		"movq %[other], (%[tail], %[tag])\n\t"
		"movq %[head], (%[slot])\n"
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [tag] "=&c"(tag), [other] "=&r"(other)
		: [f] "r"(chain), KM_RSEQ_IN, [head] "r"(head), [tail] "r"(tail)
		: "memory", "cc"
		: miss, twice);
	KM_RSEQ_RETURN(KM_CHAIN_PUSHED, KM_CHAIN_MISS);
twice:
	KMEM_RSEQ_MISSED;
	return KM_CHAIN_TWICE;
}

KM_OPERATION(bool, chain_swap)(const struct km_chain *chain, char *base, intptr_t rseq,
			       const struct km_chain_top *new_top, struct km_chain_top *old)
{
	uintptr_t area, slot;

	KM_SEQUENCE(
		KMEM_RSEQ_SLOT
		KM_RSEQ_WRITABLE
		"movups (%[slot]), %%xmm0\n\t"
		"movups (%[new_top]), %%xmm1\n\t"
		"movups %%xmm0, (%[old])\n\t"
		"movups %%xmm1, (%[slot])\n",
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot)),
		KM_OPERANDS([f] "r"(chain), [base] "m"(base), [rs] "r"(rseq), [new_top] "r"(new_top),
			    [old] "r"(old)), "xmm0", "xmm1");
	KM_RSEQ_RETURN(true, false);
}

#endif
