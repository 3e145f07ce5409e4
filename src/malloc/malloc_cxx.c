/*
 * malloc_cxx.c: C++'s operator new and delete, by their mangled names, so the library needs no C++ runtime.
 * Invariants: new never returns NULL. Out of memory, new calls the program's new handler again and again, and throws
 * std::bad_alloc without a handler. The nothrow forms return NULL instead, whatever exception is thrown on the way.
 *
 * Four forms do the work: new and delete, plain and aligned. A program may replace just these four, and the C++
 * standard then requires all other forms to call the replacements. So the other forms call them by name in this
 * process. All forms are weak, so a program linked with the archive may define any of them.
 *
 * The handler and the exception belong to the C++ runtime. The runtime is found by weak references, or by name in a
 * shared library loaded later.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "os/die.h"
#include "alloc/tracer.h"
#include "malloc.h"
#include "malloc_throw.h"

/* Called by name, through the dynamic loader's table: never inlined, never bound to libkmem's own function. Clang has
 * no attribute for a call without a stub, and calls through a stub. */
#if __has_attribute(noplt)
#define OPERATOR KMEM_API __attribute__((weak, noplt))
#else
#define OPERATOR KMEM_API __attribute__((weak))
#endif

typedef void handler_fn(void);

/* std::get_new_handler() and std::__throw_bad_alloc() of the C++ runtime, if linked. */
__attribute__((weak)) handler_fn *_ZSt15get_new_handlerv(void);
__attribute__((weak, noreturn)) void _ZSt17__throw_bad_allocv(void);

static handler_fn *new_handler(void)
{
	handler_fn *(*get)(void) = (handler_fn *(*)(void))km_runtime_symbol(
		(void *)_ZSt15get_new_handlerv, "_ZSt15get_new_handlerv");

	return get ? get() : NULL;
}

static _Noreturn void throw_bad_alloc(size_t size)
{
	void (*throw)(void) = (void (*)(void))km_runtime_symbol((void *)_ZSt17__throw_bad_allocv,
								"_ZSt17__throw_bad_allocv");

	if (throw)
		throw();
	km_panic("operator new: out of memory, %lu bytes, and no C++ runtime to throw from",
		 (unsigned long)size);
}

static void *ask(size_t handler, size_t unused km_unused)
{
	((handler_fn *)handler)();
	return &km_malloc_id;	/* any pointer but NULL: the handler has returned */
}

/* Allocate, calling the handler until there is memory or no handler. The handler may free memory, or throw. */
static km_cold void *new_again(size_t align, size_t size, bool nothrow)
{
	const uintptr_t site = (uintptr_t)__builtin_return_address(0);

	for (;;) {
		km_malloc_note_site(site);
		void *p = km_malloc_family(align, size);

		km_malloc_note_site(0);
		if (km_unlikely(km_load(&km_alloc_probing)))
			km_tracer_comes(p, size);
		if (p)
			return p;
		handler_fn *handler = new_handler();
		if (!handler && nothrow)
			return NULL;
		if (!handler)
			throw_bad_alloc(size);
		if (!nothrow)
			handler();
		else if (!km_caught(ask, (size_t)handler, 0))
			return NULL;
	}
}

/* ------------------------------------------------------------------ the four basic forms */

OPERATOR void *_Znwm(size_t size)
{
	void *p = km_malloc_hit(size);

	if (km_likely(p))
		return p;
	return new_again(1, size, false);
}

OPERATOR void *_ZnwmSt11align_val_t(size_t size, size_t align)
{
	void *p = km_malloc_hit(km_malloc_aligned_size(align, size));

	if (km_likely(p))
		return p;
	return new_again(align, size, false);
}

/* Size and alignment are the compiler's promise; the pointer alone suffices. */
OPERATOR void _ZdlPv(void *p)
{
	if (km_likely(km_free_any(p)))
		return;
	km_malloc_free_miss(p, "operator delete");
}

OPERATOR void _ZdlPvSt11align_val_t(void *p, size_t align km_unused)
{
	if (km_likely(km_free_any(p)))
		return;
	km_malloc_free_miss(p, "operator delete");
}

/* libkmem's plain and aligned new under other names, to compare with the names' definitions in the process. */
static void *own_new(size_t size) __attribute__((alias("_Znwm")));
static void *own_aligned_new(size_t size, size_t align) __attribute__((alias("_ZnwmSt11align_val_t")));

/* Compare at run time: the compiler takes two names for two addresses. The asm hides the value. */
#define IS_OURS(name, own) ({ void *bound = (void *)(name); __asm__("" : "+r"(bound)); bound == (void *)(own); })

/* ------------------------------------------------------------------ other forms of new */

OPERATOR void *_Znam(size_t size)
{
	return _Znwm(size);
}

OPERATOR void *_ZnamSt11align_val_t(size_t size, size_t align)
{
	return _ZnwmSt11align_val_t(size, align);
}

static void *call_new(size_t size, size_t unused km_unused)
{
	return _Znwm(size);
}

static void *call_new_array(size_t size, size_t unused km_unused)
{
	return _Znam(size);
}

static km_cold void *nothrow_miss(size_t size)
{
	return IS_OURS(_Znwm, own_new) ? new_again(1, size, true) : km_caught(call_new, size, 0);
}

/* If the program replaced new, force a miss by size 0, with a mask, because a hit has one branch. */
OPERATOR void *_ZnwmRKSt9nothrow_t(size_t size, const void *nothrow km_unused)
{
	size_t mask = -(size_t)IS_OURS(_Znwm, own_new);

	__asm__("" : "+r"(mask));
	void *p = km_malloc_hit(size & mask);

	if (km_likely(p))
		return p;
	return nothrow_miss(size);
}

static void *own_new_array(size_t size) __attribute__((alias("_Znam")));
static void *own_nothrow(size_t size, const void *nothrow) __attribute__((alias("_ZnwmRKSt9nothrow_t")));

OPERATOR void *_ZnamRKSt9nothrow_t(size_t size, const void *nothrow)
{
	if (km_likely(IS_OURS(_Znam, own_new_array)))
		return own_nothrow(size, nothrow);
	return km_caught(call_new_array, size, 0);
}

OPERATOR void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t align, const void *nothrow km_unused)
{
	return IS_OURS(_ZnwmSt11align_val_t, own_aligned_new) ? new_again(align, size, true) :
								km_caught(_ZnwmSt11align_val_t, size, align);
}

static void *own_aligned_array(size_t size, size_t align) __attribute__((alias("_ZnamSt11align_val_t")));
static void *own_aligned_nothrow(size_t size, size_t align, const void *nothrow)
	__attribute__((alias("_ZnwmSt11align_val_tRKSt9nothrow_t")));

OPERATOR void *_ZnamSt11align_val_tRKSt9nothrow_t(size_t size, size_t align, const void *nothrow)
{
	if (km_likely(IS_OURS(_ZnamSt11align_val_t, own_aligned_array)))
		return own_aligned_nothrow(size, align, nothrow);
	return km_caught(_ZnamSt11align_val_t, size, align);
}

/* ------------------------------------------------------------------ other forms of delete */

#define DELETE(name, base, ...) OPERATOR void name(void *p, ##__VA_ARGS__) { base(p); }
#define ALIGNED_DELETE(name, base, ...) OPERATOR void name(void *p, ##__VA_ARGS__) { base(p, align); }

DELETE(_ZdaPv, _ZdlPv)
DELETE(_ZdlPvRKSt9nothrow_t, _ZdlPv, const void *nothrow km_unused)
DELETE(_ZdaPvRKSt9nothrow_t, _ZdaPv, const void *nothrow km_unused)
ALIGNED_DELETE(_ZdaPvSt11align_val_t, _ZdlPvSt11align_val_t, size_t align)
ALIGNED_DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, _ZdlPvSt11align_val_t, size_t align,
	       const void *nothrow km_unused)
ALIGNED_DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, _ZdaPvSt11align_val_t, size_t align,
	       const void *nothrow km_unused)

/* ------------------------------------------------------------------ delete by size */

static void own_delete(void *p) __attribute__((alias("_ZdlPv")));
static void own_delete_array(void *p) __attribute__((alias("_ZdaPv")));
static void own_aligned_delete(void *p, size_t align) __attribute__((alias("_ZdlPvSt11align_val_t")));
static void own_aligned_delete_array(void *p, size_t align) __attribute__((alias("_ZdaPvSt11align_val_t")));

/* If the program replaced the form without a size, call the replacement; otherwise a miss may check the size. */
#define SIZED_DELETE(name, ours, call_theirs, align, ...)					\
	OPERATOR void name(void *p, size_t size, ##__VA_ARGS__)					\
	{											\
		if (km_unlikely(!(ours)))							\
			call_theirs;								\
		else if (km_unlikely(!km_alloc_push_any(p)))					\
			km_malloc_free_sized_miss(p, align, size, "operator delete",		\
						  __builtin_return_address(0));			\
	}

SIZED_DELETE(_ZdlPvm, IS_OURS(_ZdlPv, own_delete), _ZdlPv(p), 1)
SIZED_DELETE(_ZdaPvm, IS_OURS(_ZdaPv, own_delete_array) && IS_OURS(_ZdlPv, own_delete), _ZdaPv(p), 1)
SIZED_DELETE(_ZdlPvmSt11align_val_t, IS_OURS(_ZdlPvSt11align_val_t, own_aligned_delete),
	     _ZdlPvSt11align_val_t(p, align), align, size_t align)
SIZED_DELETE(_ZdaPvmSt11align_val_t,
	     IS_OURS(_ZdaPvSt11align_val_t, own_aligned_delete_array) &&
	     IS_OURS(_ZdlPvSt11align_val_t, own_aligned_delete),
	     _ZdaPvSt11align_val_t(p, align), align, size_t align)
