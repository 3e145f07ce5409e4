/*
 * <kmem/inline.h>: the inline fast path. kmem_cache_alloc_inline() and kmem_cache_free_inline() use the CPU's sheaf
 * without a call, and call the exported functions on a miss. kmem_cache_alloc_from_sheaf_inline() takes an object
 * from a prefilled sheaf. A program that defines KMEM_INLINE before <kmem/kmem.h> uses these functions under the
 * ordinary names. The symbols stay exported.
 *
 * The layout in this header is ABI: the first 32 bytes of a cache, the first 8 bytes of a prefilled sheaf, and the
 * per-CPU sheaf. A program compiled with this header works with any libkmem of the same KMEM_INLINE_ABI. The number
 * is the soname's (libkmem.so.0): a library of another number can't replace this one.
 *
 * The sequences, in pseudo-code (docs/design/sheaves.md has the drawing). Each sequence runs to its end on one CPU, or
 * is aborted and continues at its miss label. Only the last store commits:
 *
 *	pop:	area = percpu + (cpu << KMEM_AREA_SHIFT)
 *		pcs = open.pcs			kmem_pcs_pop_gfp: 0 (closed) if gfp & KMEM_GFP_ODD
 *		top = *(area + pcs)		an offset from area; 0 where closed or without a sheaf
 *		object = *(area + top)		NULL at the bottom of the stack, and at area + 0
 *		if (!object) miss
 *		*(area + pcs) = top + 8
 *	push:	area, and pcs and top of `back`
 *		if ((top & mask) == 0) miss	the sheaf is full, or closed
 *		*(area + top - 8) = object
 *		*(area + pcs) = top - 8
 *
 * A sequence writes only rseq_cs of the thread's rseq area. The descriptors are in the section __rseq_cs, and the
 * signature precedes each abort label. An abort is a miss. An unregistered thread has cpu -1 or -2: the two areas
 * below the first are zeros, read-only.
 *
 * A shared object compiled with this header must never be unloaded: link the object with -Wl,-z,nodelete. The rseq_cs
 * of a thread keeps the address of the last descriptor, and the kernel kills a process with an unreadable descriptor.
 */
#ifndef KMEM_INLINE_H
#define KMEM_INLINE_H

#include <kmem/kmem.h>

#define KMEM_INLINE_ABI 0
#define KMEM_AREA_SHIFT 21
#define KMEM_STRING_(x) #x
#define KMEM_STRING(x) KMEM_STRING_(x)

/* The place of a cache's per-CPU sheaf. Read inside sequences; written by the library under its drain protocol. */
struct kmem_pcs {
	uint32_t pcs;		/* per-CPU offset of the sheaf word in each CPU's area; 0: closed */
	uint32_t mask;		/* bytes of a sheaf, minus one */
};

/* The first bytes of struct kmem_cache. */
struct kmem_cache_front {
	struct kmem_pcs open;
	char *percpu;		/* area of CPU 0 */
	intptr_t rseq;		/* offset of the thread's rseq area from the thread pointer */
	struct kmem_pcs back;	/* the sheaf for frees: as `open`, except for caches with charged objects */
};

/* The first bytes of a prefilled sheaf: the address of its next object, with NULL at the end. */
struct slab_sheaf {
	void **top;
};

/* GFP bits that change the meaning of a hit: the request selects the closed sheaf. */
#define KMEM_GFP_MISS (__GFP_ZERO | __GFP_ACCOUNT | __GFP_THISNODE | __GFP_FULLEST)
/* KMEM_GFP_MISS and all undefined bits, a bad call that the slow path detects. */
#define KMEM_GFP_ODD (KMEM_GFP_MISS | ~__GFP_BITS_MASK)

/*
 * Compilers without sequences make the calls. gcc before 11 and clang before 11 have no `asm goto` with outputs.
 * ThreadSanitizer can't see into sequences (clang's macro for ThreadSanitizer differs from gcc's).
 */
#if defined(__clang__) ? __clang_major__ < 11 : __GNUC__ < 11
#define KMEM_NO_RSEQ 1
#elif defined(__SANITIZE_THREAD__)
#define KMEM_NO_RSEQ 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KMEM_NO_RSEQ 1
#endif
#endif
/* A big-endian aarch64 needs its signature in another byte order. */
#if (defined(__x86_64__) || defined(__AARCH64EL__)) && !defined(KMEM_NO_RSEQ)
#define KMEM_HAVE_RSEQ 1
#endif

/*
 * The first statement at each miss label. GCC 12 copies the outputs of an asm goto on every edge out of the asm,
 * after the values that GCC had placed there before. In an otherwise empty block the constant of a later merge was
 * overwritten, and a miss returned the contents of a register. With a statement of its own the block is more than an
 * edge.
 */
#define KMEM_RSEQ_MISSED __asm__ volatile("")

/*
 * The tables of a sequence are placed with the function of the sequence. `?` puts a table into the function's group,
 * of which a linker keeps one copy (inline, virtual and template members). `o` ties the table to the function's
 * section, because the linker may drop the section (--gc-sections).
 */
#define KMEM_RSEQ_SECTION(name, flags)                                                             \
	".pushsection " name ", \"" flags "o?\", %%progbits, .Lkmem_rseq%=\n\t"

#if defined(KMEM_HAVE_RSEQ) && defined(__x86_64__)
/* Precedes each abort label; threads are registered with this signature. */
#define KMEM_RSEQ_SIGNATURE 0x53053053

/*
 * Operands [rs] offset of the rseq area, [f] struct kmem_pcs *, [base] area 0, [area] [slot] scratch. Each
 * instruction of this header stands in both of the assembler's languages: {this|that of -masm=intel}.
 */
#define KMEM_RSEQ_BEGIN(scratch)                                                                   \
	".Lkmem_rseq%=:\n\t"                                                                       \
	KMEM_RSEQ_SECTION("__rseq_cs", "aw")                                                       \
	".balign 32\n"                                                                             \
	"77:\n\t"                                                                                  \
	".long 0, 0\n\t"                                                                           \
	".quad 71f, 72f - 71f, 74f\n\t"                                                            \
	".popsection\n\t"                                                                          \
	KMEM_RSEQ_SECTION("__rseq_cs_ptr_array", "aw")                                             \
	".quad 77b\n\t"                                                                            \
	".popsection\n\t"                                                                          \
	"{leaq 77b(%%rip), %[" scratch "]|lea %[" scratch "], 77b[rip]}\n\t"                       \
	"{movq %[" scratch "], %%fs:8(%[rs])|mov fs:8[%[rs]], %[" scratch "]}\n"                    \
	"71:\n\t"
#define KMEM_RSEQ_END(miss)                                                                        \
	"72:\n\t"                                                                                  \
	KMEM_RSEQ_SECTION("__rseq_failure", "ax")                                                  \
	".byte 0x0f, 0xb9, 0x3d\n\t"                                                               \
	".long " KMEM_STRING(KMEM_RSEQ_SIGNATURE) "\n"                                             \
	"74:\n\t"                                                                                  \
	"jmp %l[" miss "]\n\t"                                                                     \
	".popsection\n\t"
/* [area] = the index of the area. Some files of the library define another index: the thread's concurrency id. */
#ifndef KMEM_RSEQ_INDEX
#define KMEM_RSEQ_INDEX                                                                            \
	"{movslq %%fs:4(%[rs]), %[area]|movsxd %[area], dword ptr fs:4[%[rs]]}\n\t"
#endif
/* With "rm" clang would put the base on the stack first. */
#ifdef __clang__
#define KMEM_RSEQ_BASE "r"
#else
#define KMEM_RSEQ_BASE "rm"
#endif
/*
 * [area] = the CPU's area. _SLOT: also [slot] = the address of the sheaf word in the area. _WORD: the same, with the
 * sheaf's offset as an operand, [pcs]. The next hit loads the word that a hit stores. Processors forward the store
 * fast if both use one address register, so the sum is an instruction of its own.
 */
#define KMEM_RSEQ_AREA                                                                             \
	KMEM_RSEQ_INDEX                                                                            \
	"{shlq $" KMEM_STRING(KMEM_AREA_SHIFT) ", %[area]|shl %[area], " KMEM_STRING(KMEM_AREA_SHIFT) "}\n\t" \
	"{addq %[base], %[area]|add %[area], %[base]}\n\t"
#define KMEM_RSEQ_SLOT                                                                             \
	KMEM_RSEQ_AREA                                                                             \
	"{movl (%[f]), %k[slot]|mov %k[slot], [%[f]]}\n\t"                                         \
	"{addq %[area], %[slot]|add %[slot], %[area]}\n\t"
#define KMEM_RSEQ_WORD                                                                             \
	KMEM_RSEQ_AREA                                                                             \
	"{movl %[pcs], %k[slot]|mov %k[slot], %[pcs]}\n\t"                                     \
	"{addq %[area], %[slot]|add %[slot], %[area]}\n\t"

/*
 * The commits of pop and push: a plain store of [top] plus or minus 8, or a read-modify-write. The read-modify-write
 * is faster on Zen 3 and slower on Golden Cove, and is used in code compiled for Zen 3. Both are one store.
 */
#ifndef KMEM_RSEQ_WHOLE
#ifdef __tune_znver3__
#define KMEM_RSEQ_WHOLE 1
#else
#define KMEM_RSEQ_WHOLE 0
#endif
#endif
#if KMEM_RSEQ_WHOLE
#define KMEM_RSEQ_UP "{addq $8, (%[slot])|add qword ptr [%[slot]], 8}\n"
#define KMEM_RSEQ_DOWN "{subq $8, (%[slot])|sub qword ptr [%[slot]], 8}\n"
#else
#define KMEM_RSEQ_UP                                                                               \
	"{addq $8, %[top]|add %[top], 8}\n\t"                                                      \
	"{movq %[top], (%[slot])|mov [%[slot]], %[top]}\n"
#define KMEM_RSEQ_DOWN                                                                             \
	"{subq $8, %[top]|sub %[top], 8}\n\t"                                                      \
	"{movq %[top], (%[slot])|mov [%[slot]], %[top]}\n"
#endif

/* Returns: the object on top of the sheaf, or NULL. */
static inline __attribute__((always_inline)) void *
kmem_pcs_pop(const struct kmem_pcs *pcs, char *base, intptr_t rseq)
{
	uintptr_t area, slot, top;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_WORD
		"{movq (%[slot]), %[top]|mov %[top], [%[slot]]}\n\t"
		/* From here on [area] is the object: a line of code is short. */
		"{movq (%[area], %[top]), %[area]|mov %[area], [%[area] + %[top]]}\n\t"
		"test %[area], %[area]\n\t"
		"jz %l[miss]\n\t"
		KMEM_RSEQ_UP
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top)
		: [pcs] "m"(pcs->pcs), [base] KMEM_RSEQ_BASE(base), [rs] "r"(rseq)
		: "memory", "cc"
		: miss);
	if (!area)
		__builtin_unreachable();
	return (void *)area;
miss:
	KMEM_RSEQ_MISSED;
	return NULL;
}

/* kmem_pcs_pop for a gfp known only at run time: a gfp that requires the slow path selects the closed sheaf. */
static inline __attribute__((always_inline)) void *
kmem_pcs_pop_gfp(const struct kmem_pcs *pcs, char *base, intptr_t rseq, gfp_t gfp)
{
	uintptr_t area, slot, top;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_AREA
		"xor %k[slot], %k[slot]\n\t"
		"{testl %[bits], %k[gfp]|test %k[gfp], %[bits]}\n\t"
		"{cmovzl %[pcs], %k[slot]|cmovz %k[slot], %[pcs]}\n\t"
		"{addq %[area], %[slot]|add %[slot], %[area]}\n\t"
		"{movq (%[slot]), %[top]|mov %[top], [%[slot]]}\n\t"
		"{movq (%[area], %[top]), %[area]|mov %[area], [%[area] + %[top]]}\n\t"
		"test %[area], %[area]\n\t"
		"jz %l[miss]\n\t"
		KMEM_RSEQ_UP
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top)
		: [pcs] "m"(pcs->pcs), [base] KMEM_RSEQ_BASE(base), [rs] "r"(rseq), [gfp] "r"(gfp),
		  [bits] "i"(KMEM_GFP_ODD)
		: "memory", "cc"
		: miss);
	if (!area)
		__builtin_unreachable();
	return (void *)area;
miss:
	KMEM_RSEQ_MISSED;
	return NULL;
}

/* Returns: true if the object is now in the sheaf. */
static inline __attribute__((always_inline)) bool
kmem_pcs_push(const struct kmem_pcs *pcs, char *base, intptr_t rseq, void *object)
{
	uintptr_t area, slot, top;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_WORD
		"{movq (%[slot]), %[top]|mov %[top], [%[slot]]}\n\t"
		"{testl %k[top], %[mask]|test %[mask], %k[top]}\n\t"
		"jz %l[miss]\n\t"
		"{movq %[object], -8(%[area], %[top])|mov [%[area] + %[top] - 8], %[object]}\n\t"
		KMEM_RSEQ_DOWN
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top)
		: [pcs] "m"(pcs->pcs), [mask] "m"(pcs->mask), [base] KMEM_RSEQ_BASE(base), [rs] "r"(rseq),
		  [object] "r"(object)
		: "memory", "cc"
		: miss);
	return true;
miss:
	KMEM_RSEQ_MISSED;
	return false;
}
#elif defined(KMEM_HAVE_RSEQ)
/* brk #0x45e0: never executed; execution ends the process. */
#define KMEM_RSEQ_SIGNATURE 0xd428bc00

/*
 * The sequences on aarch64. Operands as above, but [rs] is the address of the rseq area. The CPU number, the sheaf's
 * offset, the sheaf word and the sheaf are address-dependent loads in this order. Such loads are not reordered: a
 * thread that sees a sheaf opened again sees the sheaf word as the drain left it. A commit is one str. Stores before
 * the commit are read on the same CPU, or after a drain's fence.
 */
#define KMEM_RSEQ_BEGIN(scratch)                                                                   \
	".Lkmem_rseq%=:\n\t"                                                                       \
	KMEM_RSEQ_SECTION("__rseq_cs", "aw")                                                       \
	".balign 32\n"                                                                             \
	"77:\n\t"                                                                                  \
	".word 0, 0\n\t"                                                                           \
	".xword 71f, 72f - 71f, 74f\n\t"                                                           \
	".popsection\n\t"                                                                          \
	KMEM_RSEQ_SECTION("__rseq_cs_ptr_array", "aw")                                             \
	".xword 77b\n\t"                                                                           \
	".popsection\n\t"                                                                          \
	"adrp %[" scratch "], 77b\n\t"                                                             \
	"add %[" scratch "], %[" scratch "], #:lo12:77b\n\t"                                       \
	"str %[" scratch "], [%[rs], #8]\n"                                                        \
	"71:\n\t"
#define KMEM_RSEQ_END(miss)                                                                        \
	"72:\n\t"                                                                                  \
	KMEM_RSEQ_SECTION("__rseq_failure", "ax")                                                  \
	".inst " KMEM_STRING(KMEM_RSEQ_SIGNATURE) "\n"                                             \
	"74:\n\t"                                                                                  \
	"b %l[" miss "]\n\t"                                                                       \
	".popsection\n\t"
/* As above; a scratch register serves another index. */
#ifndef KMEM_RSEQ_INDEX
#define KMEM_RSEQ_INDEX(scratch) "ldrsw %[area], [%[rs], #4]\n\t"
#endif
#define KMEM_RSEQ_AREA(scratch)                                                                    \
	KMEM_RSEQ_INDEX(scratch)                                                                   \
	"add %[area], %[base], %[area], lsl #" KMEM_STRING(KMEM_AREA_SHIFT) "\n\t"
#define KMEM_RSEQ_AT                                                                               \
	KMEM_RSEQ_AREA("slot")                                                                     \
	"ldr %w[slot], [%[f]]\n\t"
#define KMEM_RSEQ_SLOT                                                                             \
	KMEM_RSEQ_AT                                                                               \
	"add %[slot], %[area], %[slot]\n\t"
#define KMEM_RSEQ_THREAD(rseq) ((char *)__builtin_thread_pointer() + (rseq))

/* Returns: the object on top of the sheaf, or NULL. */
static inline __attribute__((always_inline)) void *
kmem_pcs_pop(const struct kmem_pcs *pcs, char *base, intptr_t rseq)
{
	uintptr_t area, slot, top;
	void *object;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_AT
		"ldr %[top], [%[area], %[slot]]\n\t"
		"ldr %[object], [%[area], %[top]]\n\t"
		"cbz %[object], %l[miss]\n\t"
		"add %[top], %[top], #8\n\t"
		"str %[top], [%[area], %[slot]]\n"
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top), [object] "=&r"(object)
		: [f] "r"(pcs), [base] "r"(base), [rs] "r"(KMEM_RSEQ_THREAD(rseq))
		: "memory", "cc"
		: miss);
	if (!object)
		__builtin_unreachable();
	return object;
miss:
	KMEM_RSEQ_MISSED;
	return NULL;
}

/* kmem_pcs_pop for a gfp known only at run time: a gfp that requires the slow path selects the closed sheaf. */
static inline __attribute__((always_inline)) void *
kmem_pcs_pop_gfp(const struct kmem_pcs *pcs, char *base, intptr_t rseq, gfp_t gfp)
{
	static const struct kmem_pcs closed = { 0, 0 };

	return kmem_pcs_pop(gfp & KMEM_GFP_ODD ? &closed : pcs, base, rseq);
}

/* Returns: true if the object is now in the sheaf. */
static inline __attribute__((always_inline)) bool
kmem_pcs_push(const struct kmem_pcs *pcs, char *base, intptr_t rseq, void *object)
{
	uintptr_t area, slot, top, mask;

	__asm__ volatile goto(
		KMEM_RSEQ_BEGIN("area")
		KMEM_RSEQ_AT
		"ldr %[top], [%[area], %[slot]]\n\t"
		"ldr %w[mask], [%[f], #4]\n\t"
		"tst %w[top], %w[mask]\n\t"
		"b.eq %l[miss]\n\t"
		"sub %[top], %[top], #8\n\t"
		"str %[object], [%[area], %[top]]\n\t"
		"str %[top], [%[area], %[slot]]\n"
		KMEM_RSEQ_END("miss")
		: [area] "=&r"(area), [slot] "=&r"(slot), [top] "=&r"(top), [mask] "=&r"(mask)
		: [f] "r"(pcs), [base] "r"(base), [rs] "r"(KMEM_RSEQ_THREAD(rseq)), [object] "r"(object)
		: "memory", "cc"
		: miss);
	return true;
miss:
	KMEM_RSEQ_MISSED;
	return false;
}
#endif

/* kmem_cache_alloc with the fast path inline. */
static inline __attribute__((always_inline)) void *
kmem_cache_alloc_inline(struct kmem_cache *cache, gfp_t gfp)
{
#ifdef KMEM_HAVE_RSEQ
	struct kmem_cache_front *front = (struct kmem_cache_front *)cache;
	void *object;

	if (__builtin_constant_p(gfp) && (gfp & __GFP_ZERO))
		return kmem_cache_zalloc(cache, gfp);
	if (__builtin_constant_p(gfp) && !(gfp & KMEM_GFP_ODD))
		object = kmem_pcs_pop(&front->open, front->percpu, front->rseq);
	else
		object = kmem_pcs_pop_gfp(&front->open, front->percpu, front->rseq, gfp);
	if (__builtin_expect(object != NULL, 1))
		return object;
#endif
	return kmem_cache_alloc(cache, gfp);
}

/* kmem_cache_free with the fast path inline. */
static inline __attribute__((always_inline)) void
kmem_cache_free_inline(struct kmem_cache *cache, void *object)
{
#ifdef KMEM_HAVE_RSEQ
	struct kmem_cache_front *front = (struct kmem_cache_front *)cache;

	if (__builtin_expect(kmem_pcs_push(&front->back, front->percpu, front->rseq, object), 1))
		return;
#endif
	kmem_cache_free(cache, object);
}

/* kmem_cache_alloc_from_sheaf with the fast path inline, for a constant gfp without __GFP_ZERO. */
static inline __attribute__((always_inline)) void *
kmem_cache_alloc_from_sheaf_inline(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf *sheaf)
{
	void *object = *sheaf->top;

	if (__builtin_constant_p(gfp) && !(gfp & (__GFP_ZERO | ~__GFP_BITS_MASK)) &&
	    __builtin_expect(object != NULL, 1)) {
		sheaf->top++;
		return object;
	}
	return kmem_cache_alloc_from_sheaf(cache, gfp, sheaf);
}

/* Macros without arguments: ::kmem_cache_alloc() and a member of that name keep their meaning. */
#ifdef KMEM_INLINE
#define kmem_cache_alloc_from_sheaf kmem_cache_alloc_from_sheaf_inline
#define kmem_cache_alloc kmem_cache_alloc_inline
#define kmem_cache_free kmem_cache_free_inline
#endif

#endif
