/*
 * rseq_x86_64.h: the longer per-CPU operations as restartable sequences (rseq.h); pop and push, shared with programs,
 * are in <kmem/inline.h>. Invariant: the word that closes a pcs, a stock or a chain is loaded before the words that it
 * guards. The processor keeps loads in order, so no barrier is needed: a sequence that finds the word open again after
 * a drain reads the drain's result. (aarch64 needs an address that depends on the closing word, or an acquire.)
 *
 * Registers: each sequence computes [area] and [slot] anew, because the thread may have moved to another CPU. An
 * operand that is an address in memory ("m", "rm") is also loaded inside, and needs no register in the caller. An
 * operand of a sequence's miss must not be a register changed by the sequence.
 */
#ifndef KM_PERCPU_RSEQ_X86_64_H
#define KM_PERCPU_RSEQ_X86_64_H

#include <kmem/inline.h>

#include "cpu_freelist.h"
#include "id_table.h"
#include "pcpu.h"

/* Inputs of every sequence that finds its area: base and thread's rseq offset. */
#define KM_RSEQ_IN [base] "rm"(base), [rs] "r"(rseq)

/* Miss if the CPU's word is not writable: closed, or an area that is not online, as in an unregistered thread. */
#define KM_RSEQ_WRITABLE                                                                           \
	"cmpq %[slot], %[area]\n\t"                                                                \
	"je %l[miss]\n\t"                                                                          \
	"cmpb $0, " KMEM_STRING(KM_AREA_MARK) "(%[area])\n\t"                                      \
	"je %l[miss]\n\t"

/* [last] = the last byte of the sheaf of [top]: the header begins 7 bytes before. */
#define KM_RSEQ_LAST(last, top)                                                                    \
	"movl %[sheaf_mask], %k[" last "]\n\t"                                                     \
	"orq %[" top "], %[" last "]\n\t"

/* pop and push for kmalloc and kfree. The pcs word is word `id` of the area, so its address is known a few cycles after
 * the area's. The sequence still loads the closing words inside: for a pop the id, from the table of sizes (0 where
 * closed); for a push the mask, from the cache's entry (0 where closed). [area] becomes the object, the register of the
 * result. */
km_inline void *km_rseq_pop_id(const uint16_t *ids, size_t step, char *base, intptr_t rseq)
{
	uintptr_t area, slot, top;

	KM_SEQUENCE(
		KMEM_RSEQ_AREA
		"movzwl (%[ids], %[step], 2), %k[slot]\n\t"
		"leaq (%[area], %[slot], 8), %[slot]\n\t"
		"movq (%[slot]), %[top]\n\t"
		"movq (%[area], %[top]), %[area]\n\t"
		"testq %[area], %[area]\n\t"
		"jz %l[miss]\n\t"
		KMEM_RSEQ_UP,
		KM_OPERANDS([area] "=&a"(area), [slot] "=&r"(slot), [top] "=&r"(top)),
		KM_OPERANDS([ids] "r"(ids), [step] "r"(step), KM_RSEQ_IN));
	KM_RSEQ_RETURN_OBJECT(area);
}

/* km_rseq_pop_IDS(step): the same pop, for a table of this file declared km_ids_near. The table stands in one section
 * with the sequence's descriptor. The descriptor's address, already in a register, locates the table. */
#define KM_IDS_SECTION ".data.km_ids"
#define km_ids_near __attribute__((section(KM_IDS_SECTION)))
#define KM_RSEQ_NEAR_BEGIN(ids)                                                                    \
	".Lkmem_rseq%=:\n\t"                                                                       \
	".pushsection " KM_IDS_SECTION ", \"aw\"\n\t"                                              \
	".balign 32\n"                                                                             \
	"77:\n\t"                                                                                  \
	".long 0, 0\n\t"                                                                           \
	".quad 71f, 72f - 71f, 74f\n\t"                                                            \
	".popsection\n\t"                                                                          \
	KMEM_RSEQ_SECTION("__rseq_cs_ptr_array", "aw")                                             \
	".quad 77b\n\t"                                                                            \
	".popsection\n\t"                                                                          \
	"leaq 77b(%%rip), %[near]\n\t"                                                             \
	"movq %[near], %%fs:8(%[rs])\n"                                                            \
	"71:\n\t"                                                                                  \
	KMEM_RSEQ_AREA                                                                             \
	"movzwl " #ids " - 77b(%[near], %[step], 2), %k[slot]\n\t"                                 \
	"leaq (%[area], %[slot], 8), %[slot]\n\t"                                                  \
	"movq (%[slot]), %[top]\n\t"                                                               \
	"movq (%[area], %[top]), %[area]\n\t"                                                      \
	"testq %[area], %[area]\n\t"                                                               \
	"jz %l[miss]\n\t"
#define KM_RSEQ_POP_NEAR(ids)                                                                      \
	km_inline void *km_rseq_pop_##ids(size_t step)                                             \
	{                                                                                          \
		uintptr_t area, slot, top, near;                                                   \
                                                                                                   \
		__asm__ volatile goto(                                                             \
			KM_RSEQ_NEAR_BEGIN(ids)                                                    \
			KMEM_RSEQ_UP                                                               \
			KMEM_RSEQ_END("miss")                                                      \
			: [area] "=&a"(area), [slot] "=&r"(slot), [top] "=&r"(top), [near] "=&r"(near) \
			: [step] "r"(step), [base] "m"(km_hot.percpu), [rs] "r"(km_rseq)           \
			: "memory", "cc"                                                           \
			: miss);                                                                   \
		if (!area)                                                                         \
			__builtin_unreachable();                                                   \
		KM_RSEQ_RETURN((void *)area, NULL);                                                \
	}
/* The same pop, with a check of the owner word beside the pcs word (owned_sheaf.h): *own is true if the owner is
 * `owner`. The sequence compares the owner inside. The end of the sequence keeps the flags, and the flags are an
 * output. An object of another owner is popped, too. */
#define KM_RSEQ_POP_OWNED_NEAR(ids)                                                                \
	km_inline void *km_rseq_pop_owned_##ids(size_t step, uintptr_t owner, bool *own)           \
	{                                                                                          \
		uintptr_t area, slot, top, near;                                                   \
		bool equal;                                                                        \
                                                                                                   \
		__asm__ volatile goto(                                                             \
			KM_RSEQ_NEAR_BEGIN(ids)                                                    \
			"cmpq %[owner], 8(%[slot])\n\t"                                            \
			"leaq 8(%[top]), %[top]\n\t"                                               \
			"movq %[top], (%[slot])\n"                                                 \
			KMEM_RSEQ_END("miss")                                                      \
			: [area] "=&a"(area), [slot] "=&r"(slot), [top] "=&r"(top), [near] "=&r"(near), \
			  "=@cce"(equal)                                                           \
			: [step] "r"(step), [base] "m"(km_hot.percpu), [rs] "r"(km_rseq),          \
			  [owner] "r"(owner)                                                       \
			: "memory"                                                                 \
			: miss);                                                                   \
		if (!area)                                                                         \
			__builtin_unreachable();                                                   \
		*own = equal;                                                                      \
		return (void *)area;                                                               \
	miss:                                                                                      \
		KMEM_RSEQ_MISSED;                                                                  \
		*own = true;                                                                       \
		return NULL;                                                                       \
	}

/* The address of the word does not depend on the closing word, the mask. So the mask is loaded first, and a sequence
 * that finds an open mask after a drain reads the word as the drain left it. (With the other order, a sequence delayed
 * between the two loads, by a hypervisor for example, took the drained sheaf's top for its own.) */
km_inline bool km_rseq_push_id(const uint32_t *mask, uintptr_t id, char *base, intptr_t rseq, void *object)
{
	uintptr_t area, top, open;

	KM_SEQUENCE(
		KMEM_RSEQ_AREA
		"movl %[mask], %k[open]\n\t"
		"leaq (%[area], %[slot], 8), %[slot]\n\t"
		"movq (%[slot]), %[top]\n\t"
		"testl %k[top], %k[open]\n\t"
		"jz %l[miss]\n\t"
		"movq %[object], -8(%[area], %[top])\n\t"
		KMEM_RSEQ_DOWN,
		KM_OPERANDS([area] "=&r"(area), [top] "=&r"(top), [open] "=&r"(open), [slot] "+&r"(id)),
		KM_OPERANDS([mask] "m"(*mask), KM_RSEQ_IN, [object] "r"(object)));
	KM_RSEQ_RETURN(true, false);
}

/* The word in [rest], or the area if the flags say "no object"; then the object's place, and the step of
 * KMEM_RSEQ_DOWN: one instruction subtracts 8 from the word, or [top] is the new value. */
#if KMEM_RSEQ_WHOLE
#define KM_RSEQ_WORD_OR_AREA "cmovnzq %[area], %[rest]\n\t"
#define KM_RSEQ_PLACE "-8(%[area], %[rest])"
#define KM_RSEQ_DOWN_TO_TOP "subq $8, (%[slot])\n"
#else
#define KM_RSEQ_WORD_OR_AREA "leaq -8(%[rest]), %[top]\n\tcmovnzl %k[area], %k[rest]\n\t"
#define KM_RSEQ_PLACE "(%[area], %[top])"
#define KM_RSEQ_DOWN_TO_TOP "movq %[top], (%[slot])\n"
#endif

/* The same push, after a lookup of the object's id and a validation of its address: km_id_of, km_id_valid. For an
 * invalid address the area serves as the top. The area's low bits are 0, so the sheaf counts as full. *id is the
 * object's id also on a miss. The sequence only reads the id, so the lookup is a statement of its own. The registers
 * give the shortest code, two cache lines in kfree. [rs] is an operand of the lookup, so that [rs] is loaded before. */
km_inline bool km_rseq_push_any(void *object, uintptr_t *id)
{
	uintptr_t index, rest, area, slot, top;
	const uint16_t *map = km_hot.map;
	intptr_t rseq = km_rseq;

	__asm__ volatile(
		"movq %[object], %[index]\n\t"
		"subq %[arena], %[index]\n\t"
		"shrq $" KMEM_STRING(KM_PAGE_SHIFT) ", %[index]\n\t"
		"xorl %k[rest], %k[rest]\n\t"
		"cmpq %[pages], %[index]\n\t"
		/* outside of the range: map entry 0, of no cache */
		"cmovael %k[rest], %k[index]\n\t"
		"movl %k[object], %k[rest]\n\t"
		"movzwl (%[map], %[index], 2), %k[index]\n\t"
		"andl " KMEM_STRING(KM_ID_MASKS) " + 4(%[map], %[index], 8), %k[rest]\n\t"
		"imulq " KMEM_STRING(KM_ID_FACTORS) "(%[map], %[index], 8), %[rest]"
		: [index] "=&a"(index), [rest] "=&c"(rest)
		: [object] "D"(object), [rs] "S"(rseq), [map] "d"(map), [arena] "m"(km_hot.arena),
		  [pages] "m"(km_hot.pages)
		: "memory", "cc");
	*id = index;
	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("slot")
		KMEM_RSEQ_AREA
		"movl " KMEM_STRING(KM_ID_MASKS) "(%[map], %[index], 8), %k[map]\n\t"
		"leaq (%[area], %[index], 8), %[slot]\n\t"
		"shrq $" KMEM_STRING(KM_ID_SHIFT) ", %[rest]\n\t"
		"movq (%[slot]), %[rest]\n\t"
		KM_RSEQ_WORD_OR_AREA
		"testl %k[map], %k[rest]\n\t"
		"jz %l[miss]\n\t"
		"movq %[object], " KM_RSEQ_PLACE "\n\t"
		KM_RSEQ_DOWN_TO_TOP
		KMEM_RSEQ_END("miss")
		: [rest] "+&c"(rest), [map] "+&d"(map), [area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top)
		: [index] "a"(index), [object] "D"(object), [rs] "S"(rseq), [base] "m"(km_hot.percpu)
		: "memory", "cc"
		: miss);
	KM_RSEQ_RETURN(true, false);
}

/* Copy `left` bytes (a multiple of 8, > 0) from `from` to `to`, 32 at a time. */
#define KM_COPY(from, to, left)                                                                    \
	"testb $8, %b[" left "]\n\t"                                                               \
	"jz 81f\n\t"                                                                               \
	"movq -8(%[" from "], %[" left "]), %[tmp]\n\t"                                            \
	"movq %[tmp], -8(%[" to "], %[" left "])\n\t"                                              \
	"subq $8, %[" left "]\n\t"                                                                 \
	"jz 83f\n"                                                                                 \
	"81:\n\t"                                                                                  \
	"testb $16, %b[" left "]\n\t"                                                              \
	"jz 82f\n\t"                                                                               \
	"movups -16(%[" from "], %[" left "]), %%xmm0\n\t"                                         \
	"movups %%xmm0, -16(%[" to "], %[" left "])\n\t"                                           \
	"subq $16, %[" left "]\n\t"                                                                \
	"jz 83f\n"                                                                                 \
	"82:\n\t"                                                                                  \
	"movups -16(%[" from "], %[" left "]), %%xmm0\n\t"                                         \
	"movups -32(%[" from "], %[" left "]), %%xmm1\n\t"                                         \
	"movups %%xmm0, -16(%[" to "], %[" left "])\n\t"                                           \
	"movups %%xmm1, -32(%[" to "], %[" left "])\n\t"                                           \
	"subq $32, %[" left "]\n\t"                                                                \
	"jnz 82b\n"                                                                                \
	"83:\n\t"

/* Defines pop_n: copies objects off the main sheaf. whose: rseq.h. */
#define KM_RSEQ_POP_N(name, whose)                                                                 \
KM_OPERATION(size_t, name)(const struct kmem_pcs *pcs, uint32_t sheaf_mask, char *base, intptr_t rseq, \
			   whose(uintptr_t owner,) void **out, size_t bytes)                       \
{                                                                                                  \
	uintptr_t area, slot, top, count, left, tmp;                                               \
	char *to = (char *)out + bytes;                                                            \
                                                                                                   \
	KM_SEQUENCE(                                                                               \
		KMEM_RSEQ_SLOT                                                                     \
		"movq (%[slot]), %[top]\n\t"                                                       \
		whose(KM_OWNED_MINE)                                                               \
		"testq %[top], %[top]\n\t"                                                         \
		"jz %l[miss]\n\t"                                                                  \
		"movl %k[sheaf_mask], %k[left]\n\t"                                                \
		"orq %[top], %[left]\n\t"                                                          \
		"leaq -15(%[left]), %[count]\n\t"                                                  \
		"subq %[top], %[count]\n\t"                                                        \
		"subq -15(%[area], %[left]), %[count]\n\t"                                         \
		"jz %l[miss]\n\t"                                                                  \
		"cmpq %[bytes], %[count]\n\t"                                                      \
		/* A branch, so that the copy does not wait for the load of the pad. */            \
		"jbe 88f\n\t"                                                                      \
		"movq %[bytes], %[count]\n"                                                        \
		"88:\n\t"                                                                          \
		"subq %[count], %[to]\n\t"                                                         \
		"addq %[area], %[top]\n\t"                                                         \
		"movq %[count], %[left]\n\t"                                                       \
		KM_COPY("top", "to", "left")                                                       \
		"addq %[count], (%[slot])\n",                                                      \
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top),              \
			    [count] "=&r"(count), [left] "=&r"(left), [to] "+&r"(to),              \
			    [tmp] "=&r"(tmp)),                                                     \
		KM_OPERANDS(whose([owner] "r"(owner),) [f] "r"(pcs), KM_RSEQ_IN,                   \
			    [bytes] "r"(bytes), [sheaf_mask] "rm"(sheaf_mask)), "xmm0", "xmm1");   \
	KM_RSEQ_RETURN(count, 0);                                                                  \
}
#define KM_RSEQ_PUSH_N(name, whose)                                                                \
KM_OPERATION(size_t, name)(const struct kmem_pcs *pcs, char *base, intptr_t rseq,                  \
			   whose(uintptr_t owner,) void *const *in, size_t bytes)                  \
{                                                                                                  \
	uintptr_t area, slot, top, count, left, tmp;                                               \
	const char *from = (const char *)in + bytes;                                               \
                                                                                                   \
	KM_SEQUENCE(                                                                               \
		KMEM_RSEQ_SLOT                                                                     \
		"movq (%[slot]), %[top]\n\t"                                                       \
		whose(KM_OWNED_MINE)                                                               \
		"movl 4(%[f]), %k[count]\n\t"                                                      \
		"andl %k[top], %k[count]\n\t"                                                      \
		"jz %l[miss]\n\t"                                                                  \
		"cmpq %[bytes], %[count]\n\t"                                                      \
		"cmovaq %[bytes], %[count]\n\t"                                                    \
		"subq %[count], %[from]\n\t"                                                       \
		"subq %[count], %[top]\n\t"                                                        \
		"addq %[area], %[top]\n\t"                                                         \
		"movq %[count], %[left]\n\t"                                                       \
		KM_COPY("from", "top", "left")                                                     \
		"subq %[count], (%[slot])\n",                                                      \
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top),              \
			    [count] "=&r"(count), [left] "=&r"(left), [from] "+&r"(from),          \
			    [tmp] "=&r"(tmp)),                                                     \
		KM_OPERANDS(whose([owner] "r"(owner),) [f] "r"(pcs), KM_RSEQ_IN,                   \
			    [bytes] "r"(bytes)), "xmm0", "xmm1");                                  \
	KM_RSEQ_RETURN(count, 0);                                                                  \
}

/* [from] is the fuller sheaf, until the objects have moved. */
KM_OPERATION(bool, swap)(const struct kmem_pcs *pcs, uint32_t sheaf_mask, char *base, intptr_t rseq, bool for_pop,
			 uint32_t bytes)
{
	uintptr_t area, slot, from, to, count, left, tmp;

	KM_SEQUENCE(
		KMEM_RSEQ_SLOT
		"movq (%[slot]), %[from]\n\t"
		"testq %[from], %[from]\n\t"
		"jz %l[miss]\n\t"
		"addq %[area], %[from]\n\t"
		KM_RSEQ_LAST("tmp", "from")
		"movq -7(%[tmp]), %[to]\n\t"
		"testq %[to], %[to]\n\t"
		"jz %l[miss]\n\t"
		"addq %[area], %[to]\n\t"
		"testb %[for_pop], %[for_pop]\n\t"
		"jz 84f\n\t"
		"cmpq $0, (%[to])\n\t"
		"je %l[miss]\n\t"
		"xchgq %[from], %[to]\n\t"
		"jmp 85f\n"
		"84:\n\t"
		"testl %k[to], 4(%[f])\n\t"
		"jz %l[miss]\n"
		"85:\n\t"
		"movl %[sheaf_mask], %k[tmp]\n\t"
		"movl %k[tmp], %k[count]\n\t"
		"andl %k[to], %k[count]\n\t"
		"andl %k[from], %k[tmp]\n\t"
		"subl %k[tmp], %k[count]\n\t"
		"jbe 86f\n\t"
		"cmpl %[bytes], %k[count]\n\t"
		"jbe 86f\n\t"
		"shrl $1, %k[count]\n\t"
		"andl $-8, %k[count]\n\t"
		"subq %[count], %[to]\n\t"
		"movl %k[count], %k[left]\n\t"
		KM_COPY("from", "to", "left")
		"addq %[count], %[from]\n"
		"86:\n\t"
		"testb %[for_pop], %[for_pop]\n\t"
		"jnz 87f\n\t"
		"xchgq %[from], %[to]\n"
		"87:\n\t"
		/* [from] becomes the main sheaf. */
		KM_RSEQ_LAST("tmp", "from")
		"subq %[area], %[to]\n\t"
		"movq %[to], -7(%[tmp])\n\t"
		"subq %[area], %[from]\n\t"
		"movq %[from], (%[slot])\n",
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [from] "=&r"(from), [to] "=&r"(to),
			    [count] "=&r"(count), [left] "=&r"(left), [tmp] "=&r"(tmp)),
		KM_OPERANDS([f] "r"(pcs), [base] "m"(base), [sheaf_mask] "m"(sheaf_mask), [rs] "r"(rseq),
			    [for_pop] "q"(for_pop), [bytes] "m"(bytes)), "xmm0", "xmm1");
	KM_RSEQ_RETURN(true, false);
}

/* Misses unless the word still has its value in `seen` (struct km_commit). */
#define KM_RSEQ_SAME(at)                                                                           \
	"movq " at "(%[commit]), %[area]\n\t"                                                      \
	"movq 8 + " at "(%[commit]), %[slot]\n\t"                                                  \
	"cmpq %[slot], (%[area])\n\t"                                                              \
	"jne %l[miss]\n\t"

KM_OPERATION(bool, commit)(const uint32_t *open, char *base, intptr_t rseq, const struct km_commit *commit)
{
	uintptr_t area, slot;

	KM_SEQUENCE(
		KMEM_RSEQ_SLOT
		"cmpq %[slot], (%[commit])\n\t"
		"jne %l[miss]\n\t"
		KM_RSEQ_SAME("8")
		KM_RSEQ_SAME("24")
		KM_RSEQ_SAME("40")
		"movq 56(%[commit]), %[area]\n\t"
		"movq 64(%[commit]), %[slot]\n\t"
		"movq %[slot], (%[area])\n\t"
		"movq 72(%[commit]), %[area]\n\t"
		"movq 80(%[commit]), %[slot]\n\t"
		"movq %[slot], (%[area])\n",
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot)),
		KM_OPERANDS([f] "r"(open), KM_RSEQ_IN, [commit] "r"(commit)));
	KM_RSEQ_RETURN(true, false);
}

/* ------------------------------------------------------------------ owned sheaves, stocks */

/* Miss unless the caller's owner has the CPU's sheaf. */
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

/* ------------------------------------------------------------------ chains */

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

/* The low bits of a tag are the shift count in cl. With a tag of 0, shr keeps the flags of xor, and no object is NULL:
 * so a tag of 0 is a miss. */
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
