/*
 * malloc_throw.h: exceptions, for C: the nothrow forms of new must end those that the program's own new, or its new
 * handler, lets out. Nothing here needs a C++ runtime to be linked.
 */
#ifndef KM_MALLOC_THROW_H
#define KM_MALLOC_THROW_H

#include "base/cc.h"

/* By name, in a runtime that the program loaded with dlopen (malloc_dlopen.c; an archive has none of this). */
km_hidden __attribute__((weak)) void *km_loaded_symbol(const char *name);
/*
 * The function that a runtime calls so: `linked`, a weak reference, or by name in a runtime that the program loaded
 * with dlopen. Nothing is loaded that is not there already. NULL: there is none.
 */
void *km_runtime_symbol(void *linked, const char *name) km_cold;

/* f(size, align), or NULL where it ended by an exception, which is caught. A thread's cancellation goes through. */
void *km_caught(void *(*f)(size_t, size_t), size_t size, size_t align);

#endif
