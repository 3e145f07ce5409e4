/*
 * malloc_dlopen.c: dlopen without RTLD_DEEPBIND (only in libkmem-malloc.so). What is loaded with it finds libc's malloc
 * before ours, and frees there what the program got here: PHP loads its extensions so. Invariant: libc's dlopen is
 * entered by a jump, because it looks at its return address for who asks: whose RUNPATH, which $ORIGIN.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "../port/atomic.h"
#include "malloc.h"

/* In an archive nothing is interposed, and other libraries don't know the flag. */
#if defined(__GLIBC__) && !defined(__PIE__)

typedef void *dlopen_fn(const char *file, int mode);

static dlopen_fn *next;

static km_cold dlopen_fn *find_next(void)
{
	dlopen_fn *found = (dlopen_fn *)dlsym(RTLD_NEXT, "dlopen");

	km_store(&next, found);
	return found;
}

KMEM_API void *dlopen(const char *file, int mode)
{
	dlopen_fn *libc = km_load(&next) ?: find_next();

	return libc(file, mode & ~RTLD_DEEPBIND);
}

#endif
