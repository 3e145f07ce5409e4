/*
 * malloc_theirs.c: a process in which the name malloc leads to the program's own. A program may define malloc, free,
 * calloc and realloc, and call functions of the family that it does not define: those are ours, where the library is
 * preloaded or linked. Invariant: in such a process no function of the family gives out a block that the program's free
 * does not know, or frees one. As in musl, an alignment that the program's malloc does not have is refused.
 *
 * A program's malloc may be a wrapper of ours, as dlsym(RTLD_NEXT) finds it: then blocks are ours, and all is as usual.
 * The question is asked once, at the start, by one block. The names of libc's own heap (__libc_malloc) stay ours.
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "../page/guarded.h"
#include "../port/die.h"
#include "malloc.h"

bool km_malloc_is_theirs;
/* This library came later, behind libc: nobody comes here but by its handle, and means its malloc. */
static bool is_behind;

/* Does the process bind this name to a function of this object? A program that is not position-independent may have an
 * own address for it: then it does not look so. The compiler must not guess. */
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

/* Functions that no program defines (kmalloc, mallocx) give out blocks of ours here as well. */
bool km_malloc_has_theirs(const void *p)
{
	if (!p || km_page_of(p) || km_is_guarded(p))
		return false;
	struct km_busy_was was = km_busy_begin();
	bool theirs = !(km_was_busy(was) ? km_large_try_bytes(p) : km_large_bytes(p));

	km_busy_end(was);
	return theirs;
}

static void *aligned(void *block, size_t align)
{
	if (!((uintptr_t)block & (align - 1)))
		return block;
	free(block);
	errno = ENOMEM;
	return NULL;
}

void *km_malloc_by_them(size_t align, size_t size)
{
	static km_tls bool within;
	void *block = NULL;

	km_debug(km_malloc_is_theirs && !is_behind, "blocks are theirs where the process's malloc is");
	if (align <= KM_MALLOC_ALIGN)
		return malloc(size);
	/* The program's; or ours by the program's own address, and then this call is within itself. */
	if (!within && !IS_HERE(posix_memalign)) {
		within = true;
		int error = posix_memalign(&block, align, size);
		within = false;
		errno = error ?: errno;
		return error ? NULL : block;
	}
	/* It may lie right by itself; a size that has no room is refused by them. */
	return aligned(malloc(size > PTRDIFF_MAX - align ? size : (size + align - 1) & -align), align);
}

void km_malloc_free_by_them(void *p)
{
	km_debug(!km_page_of(p), "a block that goes to their free is none of ours");
	free(p);
}

/* As libc's, it is made of the process's realloc. */
KMEM_API void *reallocarray(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (km_unlikely(__builtin_mul_overflow(n, size, &bytes))) {
		errno = ENOMEM;
		return NULL;
	}
	return km_unlikely(is_behind) ? km_malloc_realloc(p, bytes) : realloc(p, bytes);
}
