/* cc.h: the requirements on the compiler. Invariant: all other files use these names, and never the attributes. */
#ifndef KM_BASE_CC_H
#define KM_BASE_CC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sequences are `asm goto` with outputs; clang before 14 has no __builtin_thread_pointer for x86-64. clang before 16
 * leaves an output undefined at the labels: no statement at a miss label reads an output. */
#if defined(KMEM_BARE) && (defined(__clang__) ? __clang_major__ < 14 : __GNUC__ < 11)
#error "libkmem is compiled by gcc 11, clang 14, or a later one; programs may be compiled by older ones"
#endif

#define km_likely(x)	__builtin_expect(!!(x), 1)
#define km_unlikely(x)	__builtin_expect(!!(x), 0)
/* Equal odds, for a choice between two values without a branch. */
#define km_evenly(x)	__builtin_expect_with_probability(!!(x), 1, 0.5)
#define km_cold		__attribute__((cold, noinline))
/* Alignment of a hit: its code fits one cache line, or two, so the code begins with a line. */
#define km_hit_path		__attribute__((hot, aligned(64)))
/* Alignment of code outside of every program's hot path: the speed of a bulk call depends on the code's place in a
 * line. */
#define km_line_start	__attribute__((aligned(64)))
/* For declarations of data: no access through the global offset table. */
#define km_hidden	__attribute__((visibility("hidden")))
#define km_noinline	__attribute__((noinline))
#define km_inline	static inline __attribute__((always_inline))
#define km_scoped(leave)	__attribute__((unused, cleanup(leave)))	/* leave(&variable) at the block's end */
#define km_unused	__attribute__((unused))
#define km_printf(f, a)	__attribute__((format(printf, f, a)))
/* Initial-exec: no call in the fast path, and usable before the dynamic loader is done. */
#define km_tls		__thread __attribute__((tls_model("initial-exec")))
#define km_aligned(n)	__attribute__((aligned(n)))
/* Data of zeros, of which a process writes little or nothing. The section follows all other variables, so that the
 * written ones share few pages. By its name the section has no bytes in the file. Debug builds do without the section,
 * because a lock's rank is not zero there. */
#ifdef KM_DEBUG
#define km_sparse
#else
#define km_sparse	__attribute__((section(".sbss.km_sparse")))
#endif

#define km_container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))
#define km_array_count(array) (sizeof(array) / sizeof((array)[0]))

/* Names shared between files are hidden by -fvisibility=hidden; public names have KMEM_API. */

/* A list of the library's files: where the code of each file begins, and its length. A stack walk tells the library's
 * frames from the program's by this list, also where both are one file. The assembler puts a section's 8192nd part
 * behind all others. R: no linker drops an unreferenced part of the list (lld would, with --gc-sections). */
#ifdef KMEM_BARE
#define KM_CODE(section)                                                                           \
	__asm__(".pushsection " section "\n1:\n.popsection\n"                                      \
		".pushsection " section ", 8192\n2:\n.popsection\n"                                \
		".pushsection km_code, \"aR\"\n.balign 4\n.long 1b - ., 2b - 1b\n.popsection")
KM_CODE(".text");
#ifdef __clang__
KM_CODE(".text.hot.");
KM_CODE(".text.unlikely.");
#else
KM_CODE(".text.hot");
KM_CODE(".text.unlikely");
#endif
#endif

/* A hook is a pointer of the core to a table of functions (struct km_..._ops), NULL at first. An extension registers
 * its table in the link: the entry in the section km_ops has the distances from the entry's own words to the hook and
 * to the table, so that the loader has nothing to do. The start of the library sets the hooks (cache/boot.c). */
struct km_registration {
	int32_t hook, table;
};
#define KM_REGISTER(hook, table)                                                                                   \
	_Static_assert(__builtin_types_compatible_p(__typeof__(hook), __typeof__(&(table))), "a hook's table");        \
	__asm__(".pushsection km_ops, \"aR\"\n.balign 4\n.long " #hook " - .\n.long " #table " - .\n.popsection")

#define KM_PAGE_SHIFT	12
#define KM_PAGE_SIZE	((size_t)1 << KM_PAGE_SHIFT)
#define KM_CACHE_LINE	64

/* Prefetch the line at p for a write. gcc emits prefetchw only if allowed more than the baseline. Every x86-64
 * processor accepts prefetchw, the oldest as a no-op. */
km_inline void km_prefetch_write(const void *p)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
	__builtin_prefetch(p, 1);
#endif
}

km_inline void km_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Restore errno at the end of the block. */
km_inline void km_errno_leave(const int *saved)
{
	errno = *saved;
}
#define km_errno_scope(saved) const int saved km_scoped(km_errno_leave) = errno

#endif
