/*
 * size_classes.h: the size classes of kmalloc, of malloc and of cached large blocks. This file alone decides spacing,
 * alignment, parts, and malloc's limit; kmalloc's limits are public (<kmem/kmem.h>). The tables by size take their
 * lengths from here, and names such as malloc-112 contain the size of the class.
 *
 *	bytes up to			kmalloc				malloc
 *	KMALLOC_MAX_CACHE_SIZE		KM_KMALLOC_SIZES		classes, and parts of classes
 *	KM_MALLOC_MAX_SMALL		whole pages, cached		classes, and parts of classes
 *	KM_LARGE_CACHE_PAGES		whole pages, cached		whole pages, cached
 *	KMALLOC_MAX_SIZE		whole pages			whole pages
 *	above				refused; kvmalloc: a mapping	a mapping
 *
 * An engine that serves kmalloc by size has no classes, and whole pages from KM_SIZED_END (slab/engine.h).
 *
 * Invariant: a class is a multiple of each power of two, up to a page, that divides a size of the class. Slabs begin on
 * a page, so an object has the alignment that its size promises (km_malloc_aligned_size). The rules below keep the
 * invariant; kmalloc's sizes keep the invariant if each size between two powers of two is halfway.
 */
#ifndef KM_KMALLOC_SIZE_CLASSES_H
#define KM_KMALLOC_SIZE_CLASSES_H

#include <kmem/kmem.h>

#include "base/bits.h"

/* ------------------------------------------------------------------ the policy */

/* kmalloc: the kernel's sizes, ascending: each power of two, and two half steps. Sizes in between belong to the next
 * class. A build with assertions checks the alignment (kmalloc.c). */
#define KM_KMALLOC_SIZES(size) \
	size(8) size(16) size(32) size(64) size(96) size(128) size(192) size(256) size(512) size(1024) size(2048) \
	size(4096) size(8192)

/* malloc: the first KM_MALLOC_EVEN classes are a unit apart, and each doubling above has KM_MALLOC_SPLIT classes:
 * multiples of 16 bytes up to 128, then less than an eighth of an object is surplus. A class has parts of equal width,
 * at least a unit; a frequent size gets the cache of its part (malloc/malloc_classes.c). */
#define KM_MALLOC_UNIT		16ul	/* bytes */
#define KM_MALLOC_EVEN		8u
#define KM_MALLOC_SPLIT		8u
#define KM_MALLOC_PARTS		8u	/* most parts of a class */
#define KM_MALLOC_MAX_SMALL	32768ul	/* bytes; slabs of larger objects waste much (tests/promise/malloc_slabs.c) */

/* Cached large blocks: the same rule, by pages. Less than an eighth of a block is surplus. */
#define KM_LARGE_CACHE_EVEN	16u
#define KM_LARGE_CACHE_SPLIT	8u
#define KM_LARGE_CACHE_FEWEST	2u	/* pages of the smallest block: caches serve smaller sizes */
#define KM_LARGE_CACHE_PAGES	256u	/* pages of the largest class: 1 MiB */

/* ------------------------------------------------------------------ consequences */

/* Classes up to `units`, a power of two. Usable as the length of an array. */
#define KM_CLASSES(even, split, units) \
	((even) + (split) * (unsigned)(__builtin_ctzl(units) - __builtin_ctzl(even)))

/* Returns: the alignment that kmalloc promises: the largest power of two that divides the size, at least 8. */
km_inline size_t km_natural_align(size_t size)
{
	return km_max(size & -size, (size_t)ARCH_KMALLOC_MINALIGN);
}

/* kmalloc's tables have an entry for each step of 8 bytes; entry 0 stands for all other sizes. */
#define KM_KMALLOC_STEPS	(KMALLOC_MAX_CACHE_SIZE / ARCH_KMALLOC_MINALIGN + 1)
km_inline size_t km_kmalloc_step(size_t size)
{
	return (size + ARCH_KMALLOC_MINALIGN - 1) / ARCH_KMALLOC_MINALIGN;
}

#define KM_MALLOC_STEPS		(KM_MALLOC_MAX_SMALL / KM_MALLOC_UNIT)
#define KM_MALLOC_CLASSES	KM_CLASSES(KM_MALLOC_EVEN, KM_MALLOC_SPLIT, KM_MALLOC_STEPS)
/* Up to this size, classes are a unit apart and have no parts. */
#define KM_MALLOC_UNDIVIDED	(KM_MALLOC_UNIT * (KM_MALLOC_EVEN > 2 * KM_MALLOC_SPLIT ? KM_MALLOC_EVEN : \
			2 * KM_MALLOC_SPLIT))
#define KM_LARGE_CACHE_CLASSES	KM_CLASSES(KM_LARGE_CACHE_EVEN, KM_LARGE_CACHE_SPLIT, KM_LARGE_CACHE_PAGES)

/* Returns: the class of a size with `below` whole units below its last byte. */
km_inline unsigned km_class_of(size_t below, unsigned even, unsigned split)
{
	if (below < even)
		return (unsigned)below;
	const unsigned log = km_ilog2(below);
	return even + (log - km_ilog2(even)) * split + (unsigned)(below >> (log - km_ilog2(split)) & (split - 1));
}

/* Returns: the units of a class. */
km_inline size_t km_class_units(unsigned class, unsigned even, unsigned split)
{
	if (class < even)
		return class + 1;
	const unsigned log = (class - even) / split + km_ilog2(even);
	const size_t units = ((size_t)1 << log) + ((size_t)((class - even) % split + 1) << (log - km_ilog2(split)));
	km_debug(km_class_of(units - 1, even, split) == class, "a class is the class of its own size");
	return units;
}

/* ------------------------------------------------------------------ rules for the policy */

#define KM_RULE(condition, rule) _Static_assert(condition, "src/kmalloc/size_classes.h: " rule)
#define KM_IS_POW2(n) ((n) && !((n) & ((n) - 1)))

#define KM_OR_SIZE(size) | (size)
KM_RULE(((0 KM_KMALLOC_SIZES(KM_OR_SIZE)) & (ARCH_KMALLOC_MINALIGN - 1)) == 0, "kmalloc's sizes are whole steps");
KM_RULE(((0 KM_KMALLOC_SIZES(KM_OR_SIZE)) & -KMALLOC_MAX_CACHE_SIZE) == KMALLOC_MAX_CACHE_SIZE,
	"kmalloc's largest size is KMALLOC_MAX_CACHE_SIZE");
KM_RULE(KMALLOC_MAX_CACHE_SIZE <= UINT16_MAX, "the bytes of a kmalloc object fit in 16 bits");
KM_RULE(KM_MALLOC_UNIT % 16 == 0 && KM_IS_POW2(KM_MALLOC_UNIT), "malloc aligns to 16 bytes");
KM_RULE(KM_MALLOC_MAX_SMALL >= KM_PAGE_SIZE && KM_MALLOC_MAX_SMALL <= KM_LARGE_CACHE_PAGES * KM_PAGE_SIZE,
	"malloc's largest class has a page to KM_LARGE_CACHE_PAGES pages");
KM_RULE(KM_IS_POW2(KM_MALLOC_PARTS) && KM_MALLOC_PARTS <= 8, "struct class has a bit for each part");
#define KM_DOUBLES(even, split, units) \
	(KM_IS_POW2(even) && KM_IS_POW2(split) && KM_IS_POW2(units) && (even) >= (split) && (even) <= (units))
KM_RULE(KM_DOUBLES(KM_MALLOC_EVEN, KM_MALLOC_SPLIT, KM_MALLOC_STEPS),
	"malloc's classes double in width from one unit, up to a power of two");
KM_RULE(KM_DOUBLES(KM_LARGE_CACHE_EVEN, KM_LARGE_CACHE_SPLIT, KM_LARGE_CACHE_PAGES),
	"large blocks' classes double in width from one page, up to a power of two");
KM_RULE(KMALLOC_MAX_CACHE_SIZE >= KM_PAGE_SIZE * (KM_LARGE_CACHE_FEWEST - 1), "caches serve what large blocks do not");

#endif
