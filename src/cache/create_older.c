/*
 * create_older.c: the forms of kmem_cache_create in older kernels, with separate arguments. Invariant: each form
 * calls kmem_cache_create_args.
 */
#include "cache.h"

struct kmem_cache *kmem_cache_create_legacy(const char *name, unsigned int size, unsigned int align,
					    slab_flags_t flags, void (*ctor)(void *))
{
	struct kmem_cache_args args = { .align = align, .ctor = ctor };

	return kmem_cache_create_args(name, size, &args, flags);
}

struct kmem_cache *kmem_cache_create_usercopy(const char *name, unsigned int size, unsigned int align,
					      slab_flags_t flags, unsigned int useroffset, unsigned int usersize,
					      void (*ctor)(void *))
{
	struct kmem_cache_args args = { .align = align, .ctor = ctor, .useroffset = useroffset,
					.usersize = usersize };

	return kmem_cache_create_args(name, size, &args, flags);
}
