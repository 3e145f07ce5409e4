/* The empty allocator: every call returns at once. This file never manages memory. */
#include "api/nothing_calls.h"

static char nothing_object[8192] __attribute__((aligned(4096)));

void *nothing_alloc(size_t size, unsigned int flags)
{
	(void)size;
	(void)flags;
	return nothing_object;
}

void nothing_free(void *object)
{
	(void)object;
}

/* The array keeps its contents: in `worst` the caller's objects. */
bool nothing_alloc_bulk(size_t size, unsigned int flags, size_t count, void **objects)
{
	(void)size;
	(void)flags;
	(void)count;
	(void)objects;
	return true;
}

void nothing_free_bulk(size_t count, void **objects)
{
	(void)count;
	(void)objects;
}
