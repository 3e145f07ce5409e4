/*
 * rseq_freelist_aarch64.h: operations on a chain as restartable sequences on aarch64; pseudo-code in
 * cpu_freelist.h, the frame in <kmem/inline.h>. Invariant: each sequence has one committing store, the last
 * instruction. Earlier stores go only to places without readers before the commit (an object or a link of the
 * caller, the caller's stack).
 *
 * Order of loads: `open` comes first, and the addresses of freelist and slab depend on `open` (KMEM_RSEQ_SLOT adds
 * `open` to the area). So if the chain is open after a drain, the sequence reads the drain's result.
 */
#ifndef KM_PERCPU_RSEQ_FREELIST_AARCH64_H
#define KM_PERCPU_RSEQ_FREELIST_AARCH64_H

#include "cpu_freelist.h"
#include "rseq_aarch64.h"

KM_OPERATION(void *, chain_pop)(const struct km_chain *chain, char *base, intptr_t rseq)
{
	uintptr_t area, slot, next;
	void *object;

	KM_SEQUENCE(
		KMEM_RSEQ_SLOT
		"ldr %[object], [%[slot]]\n\t"
		"cbz %[object], %l[miss]\n\t"
		"ldr %w[next], [%[f], #4]\n\t"
		"ldr %[next], [%[object], %[next]]\n\t"
		"str %[next], [%[slot]]\n",
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
		"ldr %[object], [%[slot]]\n\t"
		"cbz %[object], %l[miss]\n\t"
		"ldr %w[link], [%[f], #4]\n\t"
		"mov %[done], xzr\n"
		"81:\n\t"
		"str %[object], [%[out], %[done], lsl #3]\n\t"
		"ldr %[object], [%[object], %[link]]\n\t"
		"add %[done], %[done], #1\n\t"
		"cbz %[object], 82f\n\t"
		"cmp %[done], %[count]\n\t"
		"b.lo 81b\n"
		"82:\n\t"
		"str %[object], [%[slot]]\n",
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [object] "=&r"(object), [link] "=&r"(link),
			    [done] "=&r"(done)),
		KM_OPERANDS([f] "r"(chain), KM_RSEQ_IN, [out] "r"(out), [count] "r"(count)));
	KM_RSEQ_RETURN(done, 0);
}

/* The low bits of a tag are the shift count. With a tag of 0 the result is the object, which is not NULL. */
KM_OPERATION(enum km_chain_push, chain_push)(const struct km_chain *chain, char *base, intptr_t rseq, void *head,
					     void *tail)
{
	uintptr_t area, slot, tag, other;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_SLOT
		"ldr %[tag], [%[slot], #8]\n\t"
		"eor %[other], %[head], %[tag]\n\t"
		"lsr %[other], %[other], %[tag]\n\t"
		"cbnz %[other], %l[miss]\n\t"
		"ldr %[other], [%[slot]]\n\t"
		"cmp %[other], %[head]\n\t"
		"b.eq %l[twice]\n\t"
		"ldr %w[tag], [%[f], #4]\n\t"
		"str %[other], [%[tail], %[tag]]\n\t"
		"str %[head], [%[slot]]\n"
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [tag] "=&r"(tag), [other] "=&r"(other)
		: [f] "r"(chain), KM_RSEQ_IN, [head] "r"(head), [tail] "r"(tail)
		: "memory", "cc"
		: miss, twice);
	KM_RSEQ_RETURN(KM_CHAIN_PUSHED, KM_CHAIN_MISS);
twice:
	KMEM_RSEQ_MISSED;
	return KM_CHAIN_TWICE;
}

/*
 * stxp stores {freelist, slab}, because an stp may be interrupted between its halves. A failed stxp is a miss. *old
 * is written afterwards, from registers.
 */
KM_OPERATION(bool, chain_swap)(const struct km_chain *chain, char *base, intptr_t rseq,
			       const struct km_chain_top *new_top, struct km_chain_top *old)
{
	uintptr_t area, slot, freelist, slab;
	uint32_t failed;

	KM_SEQUENCE(
		KMEM_RSEQ_SLOT
		KM_RSEQ_WRITABLE("slab")
		"ldxp %[freelist], %[slab], [%[slot]]\n\t"
		"stxp %w[failed], %[new_freelist], %[new_slab], [%[slot]]\n",
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [freelist] "=&r"(freelist),
			    [slab] "=&r"(slab), [failed] "=&r"(failed)),
		KM_OPERANDS([f] "r"(chain), KM_RSEQ_IN, [new_freelist] "r"(new_top->freelist),
			    [new_slab] "r"(new_top->slab)));
	if (km_unlikely(failed))
		return false;
	*old = (struct km_chain_top){ (void *)freelist, slab };
	KM_RSEQ_RETURN(true, false);
}

#endif
