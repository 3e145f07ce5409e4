/*
 * <kmem/inline.h>: the fast path inline, for those who want it. kmem_cache_alloc_inline() and
 * kmem_cache_free_inline() hit the CPU's shelf without a call and call the exported functions on a miss,
 * kmem_cache_alloc_from_sheaf_inline() takes from a prefilled sheaf; define KMEM_INLINE before <kmem/kmem.h> and
 * the ordinary names mean these. The symbols stay exported.
 *
 * The layout written here is ABI: the first 32 bytes of a cache, the first 8 of a sheaf, and the shelf. A
 * program compiled with this header works with any libkmem of the same KMEM_INLINE_ABI. The number is
 * the soname's (libkmem.so.0): a library of another number is not loaded in the place of this one.
 *
 * The sequences, in pseudo-code (docs/design/shelf.md has the drawing). Each runs to its end on one CPU, or is
 * abandoned and goes on at its miss label; the last store is the only one that commits:
 *
 *	pop:	area = percpu + (cpu << KMEM_AREA_SHIFT)
 *		top = *(area + shelf)		an offset from area; 0 where closed or not yet born
 *		object = *(area + top)		NULL at the bottom of the stack, and at area + 0
 *		if (!object) miss
 *		*(area + shelf) = top + 8
 *	push:	the same of `back`
 *		if ((top & mask) == 0) miss	the block is full, or closed
 *		*(area + top - 8) = object
 *		*(area + shelf) = top - 8
 *
 * Of the thread's rseq area only rseq_cs is written; the descriptors lie in __rseq_cs; the signature
 * stands before each abort label; an abort is a miss. A thread that is not registered has cpu -1 or -2:
 * the two areas below the first are zeros, read-only.
 *
 * A shared object that is compiled with this must never be unloaded: link it with -Wl,-z,nodelete. A thread's rseq_cs
 * goes on pointing at the descriptor of its last sequence, and the kernel ends a process where it can't read that.
 */
#ifndef KMEM_INLINE_H
#define KMEM_INLINE_H

#include <kmem/kmem.h>

#define KMEM_INLINE_ABI 0
#define KMEM_AREA_SHIFT 21
#define KMEM_STRING_(x) #x
#define KMEM_STRING(x) KMEM_STRING_(x)

/* Where a cache's shelf is. Read inside sequences; written by the library under its drain protocol. */
struct kmem_pcs {
	uint32_t pcs;		/* offset of the shelf's word in each CPU's area; 0: closed */
	uint32_t mask;		/* bytes of a block, minus one */
};

/* The first bytes of struct kmem_cache. */
struct kmem_cache_front {
	struct kmem_pcs open;
	char *percpu;		/* area of CPU 0 */
	intptr_t rseq;		/* the thread's rseq area, from the thread pointer */
	struct kmem_pcs back;	/* where frees put objects: as `open`, but for caches whose objects are paid for */
};

/* The first bytes of a prefilled sheaf: its next object, or NULL where it ends. */
struct slab_sheaf {
	void **top;
};

/* GFP bits that make a hit something else: they choose the closed shelf. */
#define KMEM_GFP_MISS (__GFP_ZERO | __GFP_ACCOUNT | __GFP_THISNODE | __GFP_FULLEST)
/* Those, and those that there are not: a bad call, which a miss finds. */
#define KMEM_GFP_ODD (KMEM_GFP_MISS | ~__GFP_BITS_MASK)

/*
 * Without sequences the calls are made: gcc before 11 and clang before 11 have no `asm goto` with outputs, and
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
/* A big-endian aarch64 wants its signature in another order of bytes. */
#if (defined(__x86_64__) || defined(__AARCH64EL__)) && !defined(KMEM_NO_RSEQ)
#define KMEM_HAVE_RSEQ 1
#endif

/*
 * First at each miss label. GCC 12 copies an asm goto's outputs on every edge out of it, behind what it had put there
 * before: the constant that a later merge wants from an otherwise empty block was overwritten, and a miss returned
 * whatever the register held. With a statement of its own the block is more than an edge.
 */
#define KMEM_RSEQ_MISSED __asm__ volatile("")

/*
 * The tables that a sequence needs beside its instructions go where its function goes: `?` puts it into the function's
 * group, of which a linker keeps one copy (inline, virtual and template members), `o` ties it to the function's
 * section, which may be left out (--gc-sections).
 */
#define KMEM_RSEQ_SECTION(name, flags)                                                             \
	".pushsection " name ", \"" flags "o?\", %%progbits, .Lkmem_rseq%=\n\t"

#if defined(KMEM_HAVE_RSEQ) && defined(__x86_64__)
/* Stands before each abort label; threads are registered with it. */
#define KMEM_RSEQ_SIGNATURE 0x53053053

/*
 * Operands [rs] offset of the rseq area, [f] struct kmem_shelf *, [base] area 0, [area] [slot] scratch. Each
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
/* [area] = the number of the area. Some files of the library have another one: that of the thread's concurrency id. */
#ifndef KMEM_RSEQ_INDEX
#define KMEM_RSEQ_INDEX                                                                            \
	"{movslq %%fs:4(%[rs]), %[area]|movsxd %[area], dword ptr fs:4[%[rs]]}\n\t"
#endif
/* Clang, which may choose, would put it on the stack first. */
#ifdef __clang__
#define KMEM_RSEQ_BASE "r"
#else
#define KMEM_RSEQ_BASE "rm"
#endif
/*
 * [area] = the CPU's area; _SLOT: and [slot] = the address of the shelf's word in it; _WORD: the same where the shelf's
 * offset is an operand, [shelf]. The next hit loads what a hit stores, and processors hand that on fast where both
 * address it by one register: so the sum is an instruction of its own.
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
 * The commits of pop and push: a plain store of what [top] was and 8, or a read-modify-write, which is the faster one
 * on Zen 3 and the slower one on Golden Cove. Code that is compiled for Zen 3 has that; both are one store.
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

/* The object on top of the shelf, or NULL. */
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

/* The same where gfp, known only at run time, may ask for a miss: then as if closed. */
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

/* True if the object lies on the shelf now. */
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
/* brk #0x45e0: never executed, and ends whoever comes there. */
#define KMEM_RSEQ_SIGNATURE 0xd428bc00

/*
 * The same on aarch64. Operands as above, but [rs] is the rseq area's address. Its CPU, a shelf's offset, the shelf's
 * word and the block are each found by what was loaded before: such loads are not reordered, so that who sees a shelf
 * open again sees its word as the drain left it. A commit is one str; what was stored before it is read on this CPU, or
 * behind a drain's fence.
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
/* As above; a scratch register is for those of another index. */
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

/* The object on top of the shelf, or NULL. */
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

/* The same where gfp, known only at run time, may ask for a miss: then as if closed. */
static inline __attribute__((always_inline)) void *
kmem_pcs_pop_gfp(const struct kmem_pcs *pcs, char *base, intptr_t rseq, gfp_t gfp)
{
	static const struct kmem_pcs closed = { 0, 0 };

	return kmem_pcs_pop(gfp & KMEM_GFP_ODD ? &closed : pcs, base, rseq);
}

/* True if the object lies on the shelf now. */
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

/* kmem_cache_alloc, the hit inline. */
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

/* kmem_cache_free, the hit inline. */
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

/* kmem_cache_alloc_from_sheaf, what is there inline. */
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

/* Not with their arguments: so ::kmem_cache_alloc() and a member of that name are what they say. */
#ifdef KMEM_INLINE
#define kmem_cache_alloc_from_sheaf kmem_cache_alloc_from_sheaf_inline
#define kmem_cache_alloc kmem_cache_alloc_inline
#define kmem_cache_free kmem_cache_free_inline
#endif

#endif
