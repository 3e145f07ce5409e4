/*
 * malloc_dlopen.c: what has to do with dlopen; only in libkmem-malloc.so, because a static program would be told by its
 * linker that it needs libraries when it runs. dlopen without RTLD_DEEPBIND: what is loaded with it finds libc's malloc
 * before ours, and frees there what the program got here: PHP loads its extensions so. Invariant: libc's dlopen is
 * entered by a jump, because it looks at its return address for who asks: whose RUNPATH, which $ORIGIN.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "../port/atomic.h"
#include "malloc.h"
#include "malloc_throw.h"

/* Nothing is loaded that is not there already. */
void *km_loaded_symbol(const char *name)
{
	static const char *const runtimes[] = { "libstdc++.so.6", "libc++.so.1", "libgcc_s.so.1" };
	void *found = NULL;

	for (size_t i = 0; !found && i < km_array_count(runtimes); i++) {
		void *runtime = dlopen(runtimes[i], RTLD_LAZY | RTLD_NOLOAD);

		if (runtime) {
			found = dlsym(runtime, name);
			dlclose(runtime);
		}
	}
	return found;
}

/* Other libraries don't know the flag. */
#ifdef __GLIBC__

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
