/*
 * Empty functions with the signatures of an allocator: the cost of the call and the loop. nothing_calls.c is a shared
 * object for one linkage and a separate object file for the other.
 */
#ifndef BENCH_NOTHING_H
#define BENCH_NOTHING_H

#include <stdbool.h>
#include <stddef.h>

void *nothing_alloc(size_t size, unsigned int flags);
void nothing_free(void *object);
bool nothing_alloc_bulk(size_t size, unsigned int flags, size_t count, void **objects);
void nothing_free_bulk(size_t count, void **objects);

#endif
