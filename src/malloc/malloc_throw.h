/*
 * malloc_throw.h: exceptions, for C. The nothrow forms of new must end exceptions from the program's own new or new
 * handler. No C++ runtime needs to be linked.
 */
#ifndef KM_MALLOC_THROW_H
#define KM_MALLOC_THROW_H

#include "base/cc.h"

/* Find a symbol by name in a runtime that the program loaded with dlopen (malloc_dlopen.c; absent from an archive). */
km_hidden __attribute__((weak)) void *km_loaded_symbol(const char *name);
/* Returns: a function of the runtime: `linked`, a weak reference, or by name in a runtime loaded with dlopen; NULL if
 * absent. No library is loaded by the call. */
void *km_runtime_symbol(void *linked, const char *name) km_cold;

/* Call f(size, align). Returns: NULL if an exception ended f; the exception is caught. A thread's cancellation
 * passes through. */
void *km_caught(void *(*f)(size_t, size_t), size_t size, size_t align);

#endif
