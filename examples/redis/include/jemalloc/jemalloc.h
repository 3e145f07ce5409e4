/*
 * <jemalloc/jemalloc.h> for redis: the part of jemalloc's interface that redis calls, implemented with libkmem. All
 * functions of redis for its own allocator work: used_memory, INFO memory, MEMORY PURGE, MEMORY MALLOC-STATS, and
 * active defragmentation. je_malloc.c has the slow paths.
 *
 * Sizes up to 128 bytes have named caches (redis-24) in steps of 8 bytes, as in redis' own build of jemalloc: a
 * dictionary entry has 24 bytes. Larger blocks, and blocks of Lua and libc, come from malloc. Hits of caches are
 * inlined, because redis allocates in a few functions only. After each allocation redis asks for the size of the
 * new block, in the same function. je_fresh has the answer for this one question; the compiler mostly keeps
 * je_fresh in a register.
 */
#ifndef KMEM_REDIS_JEMALLOC_H
#define KMEM_REDIS_JEMALLOC_H

#include <malloc.h>
#include <stddef.h>
#include <stdlib.h>

#ifndef KMEM_INLINE
#define KMEM_INLINE
#endif
#include <kmem/kmem.h>

/* redis forms the name "jemalloc-5.0.libkmem". redis' tests of defragmentation require the first word. */
#define JEMALLOC_VERSION_MAJOR 5
#define JEMALLOC_VERSION_MINOR 0
#define JEMALLOC_VERSION_BUGFIX libkmem
#define JEMALLOC_FRAG_HINT

#define MALLOCX_TCACHE_NONE 1

/* Pure: the compiler may merge two calls for an unchanged block. */
extern size_t malloc_usable_size(void *block) __attribute__((pure));

#define JE_MOST 128ul			/* largest size with a cache, in bytes */
#define JE_MOST_SAVING 8192ul		/* the same while a child saves */
#define JE_CLASSES 64u
/* The caches in use by class (NULL: not created yet), and the largest size with a cache. */
extern struct kmem_cache **je_now;
extern size_t je_most;
struct kmem_cache *je_make(struct kmem_cache **caches, unsigned int class);

static inline unsigned int je_class(size_t size)
{
	size_t most = size ? size - 1 : 0;

	if (most < 128)
		return (unsigned int)(most / 8);
	unsigned int log = 63u - (unsigned int)__builtin_clzl(most);
	return (log - 7) * 8 + 16 + (unsigned int)(most >> (log - 3) & 7);
}

static inline size_t je_bytes(unsigned int class)
{
	if (class < 16)
		return (class + 1) * 8ul;
	unsigned int log = (class - 16) / 8 + 7;
	return (1ul << log) + ((size_t)((class & 7) + 1) << (log - 3));
}

static inline struct kmem_cache *je_cache(unsigned int class)
{
	struct kmem_cache **caches = __atomic_load_n(&je_now, __ATOMIC_RELAXED);
	struct kmem_cache *cache = __atomic_load_n(&caches[class], __ATOMIC_ACQUIRE);

	return __builtin_expect(cache != NULL, 1) ? cache : je_make(caches, class);
}

/* A block and its usable size in bytes. */
struct je_block {
	void *block;
	size_t bytes;
};
static __thread struct je_block je_fresh __attribute__((unused));

static inline void *je_came(void *block, size_t bytes)
{
	je_fresh = (struct je_block){ block, bytes };
	return block;
}

/* je_fresh answers the first question after an allocation only: later another block may have the same address. */
static inline size_t je_malloc_usable_size(void *block)
{
	bool fresh = block && block == je_fresh.block;

	je_fresh.block = NULL;
	return fresh ? je_fresh.bytes : malloc_usable_size(block);
}

static inline void *je_malloc(size_t size)
{
	if (size > je_most)
		return malloc(size);
	unsigned int class = je_class(size);
	return je_came(kmem_cache_alloc(je_cache(class), GFP_KERNEL), je_bytes(class));
}

static inline void *je_calloc(size_t n, size_t size)
{
	if (n != 1 || size > je_most)
		return calloc(n, size);
	unsigned int class = je_class(size);
	return je_came(kmem_cache_zalloc(je_cache(class), GFP_KERNEL), je_bytes(class));
}

static inline void je_free(void *block)
{
	free(block);
}

/* Resizes a block with a usable size of `old` bytes. */
struct je_block je_resize(void *block, size_t old, size_t size);

static inline void *je_realloc(void *block, size_t size)
{
	struct je_block now = je_resize(block, malloc_usable_size(block), size);

	return je_came(now.block, now.bytes);
}

/* Returns the usable size of a block of this size; 0 if malloc serves the size. */
size_t je_nallocx(size_t size, int flags);
/* For defragmentation: allocates from the fullest slab and frees to the slab. Both bypass the cached objects. */
void *je_mallocx(size_t size, int flags);
void je_dallocx(void *block, int flags);
/* Returns 1 if a move of this block would help to empty a slab, else 0. */
int je_get_defrag_hint(void *block);
int je_mallctl(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes);
void je_malloc_stats_print(void (*write)(void *to, const char *text), void *to, const char *options);

#endif
