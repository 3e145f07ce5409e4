/* bits.h: powers of two, rounding, and sizes without overflow. Invariant: all functions are pure. */
#ifndef KM_BASE_BITS_H
#define KM_BASE_BITS_H

#include "cc.h"
#include "invariant.h"

km_inline bool km_is_pow2(size_t n)
{
	return n && !(n & (n - 1));
}

km_inline size_t km_align_up(size_t n, size_t align)
{
	km_debug(km_is_pow2(align), "an alignment is a power of two");
	return (n + align - 1) & ~(align - 1);
}

km_inline size_t km_align_down(size_t n, size_t align)
{
	km_debug(km_is_pow2(align), "an alignment is a power of two");
	return n & ~(align - 1);
}

/* Floor of the base-2 logarithm; n > 0. */
km_inline unsigned km_ilog2(size_t n)
{
	km_debug(n, "zero has no logarithm");
	return 63u - (unsigned)__builtin_clzll(n);
}

/* The smallest power of two >= n; n > 0 and representable. */
km_inline size_t km_pow2_up(size_t n)
{
	return n <= 1 ? 1 : (size_t)1 << (km_ilog2(n - 1) + 1);
}

/* The smallest order with (KM_PAGE_SIZE << order) >= bytes; bytes > 0. */
km_inline unsigned km_order_of(size_t bytes)
{
	size_t pages = (bytes + KM_PAGE_SIZE - 1) >> KM_PAGE_SHIFT;

	return pages <= 1 ? 0 : km_ilog2(pages - 1) + 1;
}

/* Returns: the product, or SIZE_MAX on overflow. */
km_inline size_t km_size_mul(size_t a, size_t b)
{
	size_t product;

	return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

#define km_min(a, b) ({ __typeof__(a) a_ = (a); __typeof__(b) b_ = (b); a_ < b_ ? a_ : b_; })
#define km_max(a, b) ({ __typeof__(a) a_ = (a); __typeof__(b) b_ = (b); a_ > b_ ? a_ : b_; })

#endif
