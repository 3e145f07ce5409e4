/*
 * malloc_theirs.c: processes with a malloc of the program. A program may define malloc, free, calloc and realloc, and
 * call other functions of the family (reallocarray, posix_memalign). The loader finds the other functions in libkmem,
 * where libkmem is preloaded or linked. Invariant: in a process of this kind every function of the family allocates and
 * frees by the program's malloc. As in musl, an alignment not offered by the program's malloc is refused.
 *
 * The program's malloc may be a wrapper of libkmem's (dlsym with RTLD_NEXT): then libkmem serves all calls as usual.
 * One block, allocated at the start, decides between the two. The names of libc's own heap (__libc_malloc) stay
 * libkmem's.
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "page/guard_range.h"
#include "os/die.h"
#include "malloc.h"

bool km_malloc_is_theirs;
/* The library was loaded by dlopen, behind libc: callers come by dlsym and mean libkmem's malloc. */
static bool is_behind;

/* True if the process binds the name to a function of this object. False, too, for a name to which a program without
 * position-independent code gives an address in the program. The asm keeps the compiler from folding the comparison. */
#define IS_HERE(name) ({ void *bound = (void *)(name); __asm__("" : "+r"(bound)); is_here(bound); })

extern const char __ehdr_start[] km_hidden, etext[] km_hidden;
static bool is_here(const void *function)
{
	return (uintptr_t)function - (uintptr_t)__ehdr_start < (uintptr_t)(etext - __ehdr_start);
}

#ifdef __GLIBC__
void *__libc_malloc(size_t size);
#define IS_IN_FRONT() IS_HERE(__libc_malloc)
#else
#define IS_IN_FRONT() IS_HERE(malloc_usable_size)
#endif

__attribute__((constructor(102))) static void decide(void)
{
	if (IS_HERE(malloc))
		return;
	is_behind = !IS_IN_FRONT();
	if (is_behind)
		return;
	void *volatile block = malloc(1);

	km_malloc_is_theirs = block && !km_page_of(block) && !km_is_guarded(block);
	free(block);
}

/* Returns: whether p is a block of the program's malloc; false for blocks of kmalloc, mallocx and other functions of
 * libkmem, which exist in such a process, too. */
bool km_malloc_has_theirs(const void *p)
{
	if (!p || km_page_of(p) || km_is_guarded(p))
		return false;
	return !km_large_look(p);
}

void *km_malloc_by_them(size_t align, size_t size)
{
	void *block = NULL;

	km_debug(km_malloc_is_theirs && !is_behind, "blocks of another malloc exist only with another malloc");
	if (align <= KM_MALLOC_ALIGN)
		return malloc(size);
	/* Calls the program's posix_memalign. If the name leads back to libkmem's, in_their_malloc ends the
	 * recursion. */
	if (!km_thread.in_their_malloc && !IS_HERE(posix_memalign)) {
		km_thread.in_their_malloc = true;
		int error = posix_memalign(&block, align, size);
		km_thread.in_their_malloc = false;
		errno = error ?: errno;
		return error ? NULL : block;
	}
	/* Without posix_memalign try malloc: the block may be aligned by chance. */
	block = malloc(size > PTRDIFF_MAX - align ? size : (size + align - 1) & -align);
	if (!((uintptr_t)block & (align - 1)))
		return block;
	free(block);
	errno = ENOMEM;
	return NULL;
}

void km_malloc_free_by_them(void *p)
{
	km_debug(!km_page_of(p), "a block passed to another free is not libkmem's");
	free(p);
}

/* Calls realloc by its name, so the program's, as libc's reallocarray does. */
KMEM_API void *reallocarray(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (km_unlikely(__builtin_mul_overflow(n, size, &bytes))) {
		errno = ENOMEM;
		return NULL;
	}
	return km_unlikely(is_behind) ? km_malloc_realloc(p, bytes) : realloc(p, bytes);
}
