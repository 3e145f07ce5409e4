/*
 * rseq_aarch64.h: the longer per-CPU operations as restartable sequences (rseq.h); pop and push, shared with programs,
 * are in <kmem/inline.h>, with the rules for the order of loads. Invariant: the word that closes a pcs, a stock or a
 * chain is loaded first. All other addresses depend on the closing word (KMEM_RSEQ_SLOT adds the word to the area), or
 * the load is an acquire. So a sequence that finds the word open after a drain reads the drain's result.
 */
#ifndef KM_PERCPU_RSEQ_AARCH64_H
#define KM_PERCPU_RSEQ_AARCH64_H

#include <kmem/inline.h>

#include "cpu_freelist.h"
#include "id_table.h"
#include "pcpu.h"

/* Inputs of every sequence that finds its area: base and thread's rseq offset. */
#define KM_RSEQ_IN [base] "r"(base), [rs] "r"(KMEM_RSEQ_THREAD(rseq))

/* Miss if the CPU's word is not writable: closed, or an area that is not online, as in an unregistered thread. The
 * mark's address depends on the earlier loads. */
#define KM_RSEQ_WRITABLE(scratch)                                                                  \
	"cmp %[slot], %[area]\n\t"                                                                 \
	"b.eq %l[miss]\n\t"                                                                        \
	"ldr %[" scratch "], [%[area], #" KMEM_STRING(KM_AREA_MARK) "]\n\t"                        \
	"cbz %[" scratch "], %l[miss]\n\t"

/* pop and push for kmalloc and kfree: the pcs word is word `id` of the area; the id is 0 where closed. */
km_inline void *km_rseq_pop_id(const uint16_t *ids, size_t step, char *base, intptr_t rseq)
{
	uintptr_t area, word, top;
	void *object;

	KM_SEQUENCE(
		KMEM_RSEQ_AREA("word")
		"ldrh %w[word], [%[ids], %[step], lsl #1]\n\t"
		"add %[word], %[area], %[word], lsl #3\n\t"
		"ldr %[top], [%[word]]\n\t"
		"ldr %[object], [%[area], %[top]]\n\t"
		"cbz %[object], %l[miss]\n\t"
		"add %[top], %[top], #8\n\t"
		"str %[top], [%[word]]\n",
		KM_OPERANDS([area] "=&r"(area), [word] "=&r"(word), [top] "=&r"(top), [object] "=&r"(object)),
		KM_OPERANDS([ids] "r"(ids), [step] "r"(step), KM_RSEQ_IN));
	KM_RSEQ_RETURN_OBJECT(object);
}

/* km_rseq_pop_IDS(step): pops as km_rseq_pop_id does, from a table of this file. */
#define km_ids_near
#define KM_RSEQ_POP_NEAR(ids)                                                                      \
	km_inline void *km_rseq_pop_##ids(size_t step)                                             \
	{                                                                                          \
		return km_rseq_pop_id(ids, step, km_hot.percpu, km_rseq);                          \
	}

/* The same pop, with a check of the owner word beside the pcs word (owned_sheaf.h): *own is true if the owner is
 * `owner`. An object of another owner is popped, too. */
km_inline void *km_rseq_pop_owned_id(const uint16_t *ids, size_t step, char *base, intptr_t rseq, uintptr_t owner,
				     bool *own)
{
	uintptr_t area, word, top, other;
	void *object;

	KM_SEQUENCE(
		KMEM_RSEQ_AREA("word")
		"ldrh %w[word], [%[ids], %[step], lsl #1]\n\t"
		"add %[word], %[area], %[word], lsl #3\n\t"
		"ldp %[top], %[other], [%[word]]\n\t"
		"ldr %[object], [%[area], %[top]]\n\t"
		"cbz %[object], %l[miss]\n\t"
		"add %[top], %[top], #8\n\t"
		"str %[top], [%[word]]\n",
		KM_OPERANDS([area] "=&r"(area), [word] "=&r"(word), [top] "=&r"(top), [other] "=&r"(other),
			    [object] "=&r"(object)),
		KM_OPERANDS([ids] "r"(ids), [step] "r"(step), KM_RSEQ_IN));
	if (!object)
		__builtin_unreachable();
	*own = other == owner;
	KM_RSEQ_RETURN(object, NULL);
}
#define KM_RSEQ_POP_OWNED_NEAR(ids)                                                                \
	km_inline void *km_rseq_pop_owned_##ids(size_t step, uintptr_t owner, bool *own)           \
	{                                                                                          \
		return km_rseq_pop_owned_id(ids, step, km_hot.percpu, km_rseq, owner, own);        \
	}

/* Push with a validation result. valid: all ones, or 0 for a miss. The address of the word does not depend on the
 * closing word, the mask. So the mask is loaded first, with acquire, which pairs with the release that opens the pcs
 * after a drain. */
km_inline bool km_rseq_push_valid(const uint32_t *mask, uintptr_t id, uint32_t valid, char *base,
				  intptr_t rseq, void *object)
{
	uintptr_t area, top;

	KM_SEQUENCE(
		KMEM_RSEQ_AREA("top")
		"ldar %w[top], [%[mask]]\n\t"
		"and %w[valid], %w[valid], %w[top]\n\t"
		"ldr %[top], [%[area], %[id], lsl #3]\n\t"
		"tst %w[valid], %w[top]\n\t"
		"b.eq %l[miss]\n\t"
		"sub %[top], %[top], #8\n\t"
		"str %[object], [%[area], %[top]]\n\t"
		"str %[top], [%[area], %[id], lsl #3]\n",
		KM_OPERANDS([area] "=&r"(area), [top] "=&r"(top), [valid] "+&r"(valid)),
		KM_OPERANDS([mask] "r"(mask), [id] "r"(id), KM_RSEQ_IN, [object] "r"(object)));
	KM_RSEQ_RETURN(true, false);
}

km_inline bool km_rseq_push_id(const uint32_t *mask, uintptr_t id, char *base, intptr_t rseq, void *object)
{
	return km_rseq_push_valid(mask, id, UINT32_MAX, base, rseq, object);
}

/* Looks up the object's id, validates its address and pushes the object. *id is the id also on a miss. */
km_inline bool km_rseq_push_any(void *object, uintptr_t *id)
{
	*id = km_id_of(object);
	return km_rseq_push_valid(&km_id_masks(*id)->sheaf, *id, -(uint32_t)km_id_valid(*id, object), km_hot.percpu,
				  km_rseq, object);
}

/* Copy `left` bytes (a multiple of 8, > 0) from `from` to `to`, last first, 32 at a time; left is 0 afterwards. */
#define KM_COPY(from, to, left)                                                                    \
	"tbz %[" left "], #3, 81f\n\t"                                                             \
	"sub %[" left "], %[" left "], #8\n\t"                                                     \
	"ldr %[tmp], [%[" from "], %[" left "]]\n\t"                                               \
	"str %[tmp], [%[" to "], %[" left "]]\n\t"                                                 \
	"cbz %[" left "], 83f\n"                                                                   \
	"81:\n\t"                                                                                  \
	"tbz %[" left "], #4, 82f\n\t"                                                             \
	"sub %[" left "], %[" left "], #16\n\t"                                                    \
	"ldr q0, [%[" from "], %[" left "]]\n\t"                                                   \
	"str q0, [%[" to "], %[" left "]]\n\t"                                                     \
	"cbz %[" left "], 83f\n"                                                                   \
	"82:\n\t"                                                                                  \
	"sub %[" left "], %[" left "], #32\n\t"                                                    \
	"add %[tmp], %[" from "], %[" left "]\n\t"                                                 \
	"ldp q0, q1, [%[tmp]]\n\t"                                                                 \
	"add %[tmp], %[" to "], %[" left "]\n\t"                                                   \
	"stp q0, q1, [%[tmp]]\n\t"                                                                 \
	"cbnz %[" left "], 82b\n"                                                                  \
	"83:\n\t"

/* [count] = the smaller of [count] and [bytes]. */
#define KM_AT_MOST_BYTES                                                                           \
	"cmp %[bytes], %[count]\n\t"                                                               \
	"csel %[count], %[bytes], %[count], lo\n\t"

/* Defines pop_n: copies objects off the main sheaf. whose: rseq.h. */
#define KM_RSEQ_POP_N(name, whose)                                                                 \
KM_OPERATION(size_t, name)(const struct kmem_pcs *pcs, uint32_t sheaf_mask, char *base, intptr_t rseq, \
			   whose(uintptr_t owner,) void **out, size_t bytes)                       \
{                                                                                                  \
	uintptr_t area, slot, top, from, count, left, tmp;                                         \
	char *to = (char *)out + bytes;                                                            \
                                                                                                   \
	KM_SEQUENCE(                                                                               \
		KMEM_RSEQ_SLOT                                                                     \
		"ldr %[top], [%[slot]]\n\t"                                                        \
		whose(KM_OWNED_MINE("tmp"))                                                        \
		"cbz %[top], %l[miss]\n\t"                                                         \
		"add %[from], %[area], %[top]\n\t"                                                 \
		/* The bottom is the pad's place less the pad. */                                  \
		"orr %[left], %[from], %[sheaf_mask]\n\t"                                          \
		"sub %[left], %[left], #15\n\t"                                                    \
		"ldr %[tmp], [%[left]]\n\t"                                                        \
		"sub %[count], %[left], %[from]\n\t"                                               \
		"subs %[count], %[count], %[tmp]\n\t"                                              \
		"b.eq %l[miss]\n\t"                                                                \
		KM_AT_MOST_BYTES                                                                   \
		"sub %[to], %[to], %[count]\n\t"                                                   \
		"mov %[left], %[count]\n\t"                                                        \
		KM_COPY("from", "to", "left")                                                      \
		"add %[top], %[top], %[count]\n\t"                                                 \
		"str %[top], [%[slot]]\n",                                                         \
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top),              \
			    [from] "=&r"(from), [count] "=&r"(count), [left] "=&r"(left),          \
			    [to] "+&r"(to), [tmp] "=&r"(tmp)),                                     \
		KM_OPERANDS(whose([owner] "r"(owner),) [f] "r"(pcs), KM_RSEQ_IN,                   \
			    [bytes] "r"(bytes),                                                    \
			    [sheaf_mask] "r"((uintptr_t)sheaf_mask)), "v0", "v1");                 \
	KM_RSEQ_RETURN(count, 0);                                                                  \
}
#define KM_RSEQ_PUSH_N(name, whose)                                                                \
KM_OPERATION(size_t, name)(const struct kmem_pcs *pcs, char *base, intptr_t rseq,                  \
			   whose(uintptr_t owner,) void *const *in, size_t bytes)                  \
{                                                                                                  \
	uintptr_t area, slot, top, to, count, left, tmp;                                           \
	const char *from = (const char *)in + bytes;                                               \
                                                                                                   \
	KM_SEQUENCE(                                                                               \
		KMEM_RSEQ_SLOT                                                                     \
		"ldr %[top], [%[slot]]\n\t"                                                        \
		whose(KM_OWNED_MINE("tmp"))                                                        \
		"ldr %w[count], [%[f], #4]\n\t"                                                    \
		"ands %w[count], %w[count], %w[top]\n\t"                                           \
		"b.eq %l[miss]\n\t"                                                                \
		KM_AT_MOST_BYTES                                                                   \
		"sub %[from], %[from], %[count]\n\t"                                               \
		"sub %[top], %[top], %[count]\n\t"                                                 \
		"add %[to], %[area], %[top]\n\t"                                                   \
		"mov %[left], %[count]\n\t"                                                        \
		KM_COPY("from", "to", "left")                                                      \
		"str %[top], [%[slot]]\n",                                                         \
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top),              \
			    [to] "=&r"(to), [count] "=&r"(count), [left] "=&r"(left),              \
			    [from] "+&r"(from), [tmp] "=&r"(tmp)),                                 \
		KM_OPERANDS(whose([owner] "r"(owner),) [f] "r"(pcs), KM_RSEQ_IN,                   \
			    [bytes] "r"(bytes)), "v0", "v1");                                      \
	KM_RSEQ_RETURN(count, 0);                                                                  \
}

/* Exchange [a] and [b]. */
#define KM_EXCHANGE(a, b)                                                                          \
	"mov %[tmp], %[" a "]\n\t"                                                                 \
	"mov %[" a "], %[" b "]\n\t"                                                               \
	"mov %[" b "], %[tmp]\n\t"

/* [from] is the fuller sheaf, until the objects have moved. */
KM_OPERATION(bool, swap)(const struct kmem_pcs *pcs, uint32_t sheaf_mask, char *base, intptr_t rseq, bool for_pop,
			 uint32_t bytes)
{
	uintptr_t area, slot, from, to, count, left, tmp;

	KM_SEQUENCE(
		KMEM_RSEQ_SLOT
		"ldr %[from], [%[slot]]\n\t"
		"cbz %[from], %l[miss]\n\t"
		"add %[from], %[from], %[area]\n\t"
		"orr %[tmp], %[sheaf_mask], %[from]\n\t"
		"ldur %[to], [%[tmp], #-7]\n\t"
		"cbz %[to], %l[miss]\n\t"
		"add %[to], %[to], %[area]\n\t"
		"cbz %w[for_pop], 84f\n\t"
		"ldr %[tmp], [%[to]]\n\t"
		"cbz %[tmp], %l[miss]\n\t"
		KM_EXCHANGE("from", "to")
		"b 85f\n"
		"84:\n\t"
		"ldr %w[tmp], [%[f], #4]\n\t"
		"tst %w[tmp], %w[to]\n\t"
		"b.eq %l[miss]\n"
		"85:\n\t"
		"and %w[count], %w[sheaf_mask], %w[to]\n\t"
		"and %w[tmp], %w[sheaf_mask], %w[from]\n\t"
		"subs %w[count], %w[count], %w[tmp]\n\t"
		"b.ls 86f\n\t"
		"cmp %w[count], %w[bytes]\n\t"
		"b.ls 86f\n\t"
		"lsr %w[count], %w[count], #1\n\t"
		"and %w[count], %w[count], #~7\n\t"
		"sub %[to], %[to], %[count]\n\t"
		"mov %[left], %[count]\n\t"
		KM_COPY("from", "to", "left")
		"add %[from], %[from], %[count]\n"
		"86:\n\t"
		"cbnz %w[for_pop], 87f\n\t"
		KM_EXCHANGE("from", "to")
		"87:\n\t"
		/* [from] becomes the main sheaf. */
		"orr %[tmp], %[sheaf_mask], %[from]\n\t"
		"sub %[to], %[to], %[area]\n\t"
		"stur %[to], [%[tmp], #-7]\n\t"
		"sub %[from], %[from], %[area]\n\t"
		"str %[from], [%[slot]]\n",
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot), [from] "=&r"(from), [to] "=&r"(to),
			    [count] "=&r"(count), [left] "=&r"(left), [tmp] "=&r"(tmp)),
		KM_OPERANDS([f] "r"(pcs), [base] "r"(base), [sheaf_mask] "r"((uintptr_t)sheaf_mask),
			    [rs] "r"(KMEM_RSEQ_THREAD(rseq)), [for_pop] "r"((uint32_t)for_pop),
			    [bytes] "r"(bytes)), "v0", "v1");
	KM_RSEQ_RETURN(true, false);
}

/* Misses unless the word still has its value in `seen` (struct km_commit). */
#define KM_RSEQ_SAME(at)                                                                           \
	"ldp %[area], %[slot], [%[commit], #" at "]\n\t"                                           \
	"ldr %[area], [%[area]]\n\t"                                                               \
	"cmp %[area], %[slot]\n\t"                                                                 \
	"b.ne %l[miss]\n\t"

/* The addresses of the words do not depend on the closing word. So the closing word is loaded with acquire, which pairs
 * with the release that opens the pcs after a drain. */
KM_OPERATION(bool, commit)(const uint32_t *open, char *base, intptr_t rseq, const struct km_commit *commit)
{
	uintptr_t area, slot;

	KM_SEQUENCE(
		KMEM_RSEQ_AREA("slot")
		"ldar %w[slot], [%[open]]\n\t"
		"add %[slot], %[area], %[slot]\n\t"
		"ldr %[area], [%[commit]]\n\t"
		"cmp %[slot], %[area]\n\t"
		"b.ne %l[miss]\n\t"
		KM_RSEQ_SAME("8")
		KM_RSEQ_SAME("24")
		KM_RSEQ_SAME("40")
		"ldp %[area], %[slot], [%[commit], #56]\n\t"
		"str %[slot], [%[area]]\n\t"
		"ldp %[area], %[slot], [%[commit], #72]\n\t"
		"str %[slot], [%[area]]\n",
		KM_OPERANDS([area] "=&r"(area), [slot] "=&r"(slot)),
		KM_OPERANDS([open] "r"(open), KM_RSEQ_IN, [commit] "r"(commit)));
	KM_RSEQ_RETURN(true, false);
}

/* ------------------------------------------------------------------ owned sheaves, stocks */

/* Miss unless the caller's owner has the CPU's sheaf. [slot] is the word's address; `other` is scratch. */
#define KM_OWNED_MINE(other)                                                                       \
	"ldr %[" other "], [%[slot], #8]\n\t"                                                      \
	"cmp %[" other "], %[owner]\n\t"                                                           \
	"b.ne %l[miss]\n\t"
/* As KM_OWNED_MINE, then loads [top]. */
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

/* ------------------------------------------------------------------ chains */

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

/* stxp stores {freelist, slab}, because an stp may be interrupted between its halves. A failed stxp is a miss. *old is
 * written afterwards, from registers. */
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
