/*
 * malloc_cxx.c: C++'s operator new and delete, by their mangled names, so that the library needs no C++ runtime.
 * Invariant: new never returns NULL; out of memory it asks the program's new handler again and again, and throws
 * std::bad_alloc where there is none; the nothrow forms return NULL instead.
 *
 * The runtime's part (the handler, the exception) is looked for where the program has it: by weak references, and in
 * a shared library that came later, by name.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "../port/die.h"
#include "malloc.h"

typedef void handler_fn(void);

/* std::get_new_handler() and std::__throw_bad_alloc(). */
__attribute__((weak)) handler_fn *_ZSt15get_new_handlerv(void);
__attribute__((weak, noreturn)) void _ZSt17__throw_bad_allocv(void);

/* What a program that loaded its C++ runtime with dlopen has. Nothing is loaded that is not there already. */
static void *runtime_symbol(void *linked, const char *name)
{
#ifndef __PIE__
	static const char *const runtimes[] = { "libstdc++.so.6", "libc++.so.1" };

	for (size_t i = 0; !linked && i < km_array_count(runtimes); i++) {
		void *runtime = dlopen(runtimes[i], RTLD_LAZY | RTLD_NOLOAD);

		if (runtime) {
			linked = dlsym(runtime, name);
			dlclose(runtime);
		}
	}
#else
	(void)name;
#endif
	return linked;
}

static handler_fn *new_handler(void)
{
	handler_fn *(*get)(void) = (handler_fn *(*)(void))runtime_symbol(
		(void *)_ZSt15get_new_handlerv, "_ZSt15get_new_handlerv");

	return get ? get() : NULL;
}

static _Noreturn void throw_bad_alloc(size_t size)
{
	void (*throw)(void) = (void (*)(void))runtime_symbol((void *)_ZSt17__throw_bad_allocv,
							     "_ZSt17__throw_bad_allocv");

	if (throw)
		throw();
	km_panic("operator new: out of memory, %lu bytes, and no C++ runtime to throw from",
		 (unsigned long)size);
}

/* The handler may make room, or throw; it is asked until there is memory, or no handler. */
static km_cold void *new_again(size_t align, size_t size, bool nothrow)
{
	for (;;) {
		void *p = km_malloc_aligned(align, size);

		if (p)
			return p;
		handler_fn *handler = new_handler();
		if (!handler && nothrow)
			return NULL;
		if (!handler)
			throw_bad_alloc(size);
		handler();
	}
}

KMEM_API void *_Znwm(size_t size)
{
	void *p = km_malloc_hit(size);

	if (km_likely(p))
		return p;
	return new_again(1, size, false);
}

KMEM_API void *_Znam(size_t size) __attribute__((alias("_Znwm")));

KMEM_API void *_ZnwmRKSt9nothrow_t(size_t size, const void *nothrow km_unused)
{
	void *p = km_malloc_hit(size);

	if (km_likely(p))
		return p;
	return new_again(1, size, true);
}

KMEM_API void *_ZnamRKSt9nothrow_t(size_t size, const void *nothrow)
	__attribute__((alias("_ZnwmRKSt9nothrow_t")));

KMEM_API void *_ZnwmSt11align_val_t(size_t size, size_t align)
{
	return new_again(align, size, false);
}

KMEM_API void *_ZnamSt11align_val_t(size_t size, size_t align)
	__attribute__((alias("_ZnwmSt11align_val_t")));

KMEM_API void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t align,
						  const void *nothrow km_unused)
{
	return new_again(align, size, true);
}

KMEM_API void *_ZnamSt11align_val_tRKSt9nothrow_t(size_t size, size_t align, const void *nothrow)
	__attribute__((alias("_ZnwmSt11align_val_tRKSt9nothrow_t")));

/* Size and alignment are the compiler's promise; the pointer alone says all: one function has every name. */
KMEM_API void _ZdlPv(void *p)
{
	if (km_likely(km_front_free_any(p)))
		return;
	km_malloc_free_miss(p, "operator delete");
}

#define DELETE(name, ...) KMEM_API void name(void *p, ##__VA_ARGS__) __attribute__((alias("_ZdlPv")))

#pragma GCC diagnostic ignored "-Wattribute-alias"
DELETE(_ZdaPv);
DELETE(_ZdlPvm, size_t size);
DELETE(_ZdaPvm, size_t size);
DELETE(_ZdlPvRKSt9nothrow_t, const void *nothrow);
DELETE(_ZdaPvRKSt9nothrow_t, const void *nothrow);
DELETE(_ZdlPvSt11align_val_t, size_t align);
DELETE(_ZdaPvSt11align_val_t, size_t align);
DELETE(_ZdlPvmSt11align_val_t, size_t size, size_t align);
DELETE(_ZdaPvmSt11align_val_t, size_t size, size_t align);
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, size_t align, const void *nothrow);
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, size_t align, const void *nothrow);
