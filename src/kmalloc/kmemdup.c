/*
 * kmemdup.c: copies of bytes and of strings in kmalloc objects. Invariant: a source is read once, and never beyond
 * its end.
 */
#include "cache/cache.h"

void *kmemdup(const void *source, size_t bytes, gfp_t gfp)
{
	if (!source) {
		km_alloc_check_gfp("kmemdup", gfp, NULL);
		return NULL;
	}
	void *p = kmalloc(bytes, gfp);
	if (p && bytes)
		__builtin_memcpy(p, source, bytes);
	return p;
}

char *kstrndup(const char *string, size_t max, gfp_t gfp)
{
	if (!string) {
		km_alloc_check_gfp("kstrdup", gfp, NULL);
		return NULL;
	}
	size_t length = 0;
	while (length < max && string[length])
		length++;
	char *copy = kmalloc(length + 1, gfp);
	if (copy) {
		__builtin_memcpy(copy, string, length);
		copy[length] = '\0';
	}
	return copy;
}

char *kstrdup(const char *string, gfp_t gfp)
{
	return kstrndup(string, SIZE_MAX - 1, gfp);
}
