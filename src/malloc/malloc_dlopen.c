/*
 * malloc_dlopen.c: dlopen without RTLD_DEEPBIND, dlclose, and the libraries of other allocators. Only libkmem-malloc.so
 * contains this file, because the linker warns of dlopen in a static program. A library loaded with RTLD_DEEPBIND finds
 * libc's malloc before libkmem's, and would free libkmem's blocks there; PHP loads its extensions so. Invariant: libc's
 * dlopen is entered by a jump, because dlopen takes the caller's RUNPATH and $ORIGIN from the return address.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "base/atomic.h"
#include "os/die.h"
#include "inspect/stack.h"
#include "malloc.h"
#include "malloc_throw.h"

#pragma weak km_stack_forget	/* weak, because a build without debugging walks no stacks */

/* Find a symbol in a C++ runtime already loaded; the call loads no library. */
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

/* Only glibc has the flag RTLD_DEEPBIND. */
#ifdef __GLIBC__

static void *next_open, *next_close;

static km_cold void *find_next(void **next, const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	km_store(next, found);
	return found;
}
#define NEXT(function, next) ((__typeof__(&function))(km_load(next) ?: find_next(next, #function)))

KMEM_API void *dlopen(const char *file, int mode)
{
	return NEXT(dlopen, &next_open)(file, mode & ~RTLD_DEEPBIND);
}

/* Forgets the frames of closed libraries, because another library may be loaded at their addresses. */
KMEM_API int dlclose(void *handle)
{
	int error = NEXT(dlclose, &next_close)(handle);

	if (km_stack_forget)
		km_stack_forget();
	return error;
}

#endif

/* ------------------------------------------------------------------ other allocators */

/* A program linked with tcmalloc or mimalloc gets malloc from libkmem. A program with calls of tc_malloc, mi_malloc or
 * the like gets memory of the other library there. libkmem neither counts nor limits this memory, and names the library
 * in one line. The symbols are weak, because most programs have neither library. */
__attribute__((weak)) void tc_malloc(void);
__attribute__((weak)) void mi_malloc(void);

/* The symbols that a loaded object imports: the relocations, with the symbol and string tables. */
struct wants {
	const ElfW(Sym) *symbols;
	const char *names;
	const ElfW(Rela) *entries[2];
	size_t bytes[2];
};

static struct wants wants_of(const struct dl_phdr_info *object)
{
	const ElfW(Dyn) *d = NULL;
	struct wants wants = { 0 };

	for (unsigned i = 0; i < object->dlpi_phnum; i++)
		if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
			d = (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
	for (; d && d->d_tag != DT_NULL; d++) {
		/* glibc's loader has added the load address; other loaders have not. */
		const uintptr_t at = d->d_un.d_ptr, base = at < object->dlpi_addr ? object->dlpi_addr : 0;

		switch (d->d_tag) {
		case DT_SYMTAB:		wants.symbols = (const void *)(base + at); break;
		case DT_STRTAB:		wants.names = (const void *)(base + at); break;
		case DT_RELA:		wants.entries[0] = (const void *)(base + at); break;
		case DT_RELASZ:		wants.bytes[0] = at; break;
		case DT_JMPREL:		wants.entries[1] = (const void *)(base + at); break;
		case DT_PLTRELSZ:	wants.bytes[1] = at; break;
		}
	}
	return wants;
}

static int calls(struct dl_phdr_info *object, size_t bytes km_unused, void *prefix)
{
	const struct wants wants = wants_of(object);

	for (unsigned part = 0; part < 2 && wants.symbols; part++)
		for (size_t i = 0; i < wants.bytes[part] / sizeof(ElfW(Rela)); i++) {
			const ElfW(Sym) *symbol = &wants.symbols[wants.entries[part][i].r_info >> 32];

			if (symbol->st_shndx == SHN_UNDEF && symbol->st_info >> 4 == STB_GLOBAL &&
			    !strncmp(wants.names + symbol->st_name, prefix, strlen(prefix)))
				return 1;
		}
	return 0;
}

static void name_other(void (*malloc)(void), char *prefix)
{
	Dl_info library;

	if (malloc && dladdr((void *)malloc, &library) && dl_iterate_phdr(calls, prefix))
		km_warn("%s: memory of %smalloc and similar functions is this library's, not libkmem's",
			library.dli_fname, prefix);
}

__attribute__((constructor)) static void name_others(void)
{
	name_other(tc_malloc, "tc_");
	name_other(mi_malloc, "mi_");
}
