/*
 * atomic.h: the atomic operations of the library. Invariant: each use names its memory order. An order other than
 * relaxed must have a comment with the other side of the pairing.
 */
#ifndef KM_BASE_ATOMIC_H
#define KM_BASE_ATOMIC_H

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

#include "cc.h"

#define km_load(p)		__atomic_load_n((p), __ATOMIC_RELAXED)
#define km_load_acquire(p)	__atomic_load_n((p), __ATOMIC_ACQUIRE)
#define km_store(p, v)		__atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define km_store_release(p, v)	__atomic_store_n((p), (v), __ATOMIC_RELEASE)
/* Load a word that may belong to another owner by now. The value may be used only if a later compare-and-swap succeeds,
 * or as an inexact statistic. ThreadSanitizer must not see the load, because it can't know the race to be harmless. */
#if defined(__SANITIZE_THREAD__) && defined(__x86_64__)
#define km_load_speculative(p)                                                                     \
	({                                                                                         \
		__typeof__(__atomic_load_n((p), __ATOMIC_RELAXED)) seen_; /* without const */      \
		__asm__ volatile("mov %1, %0" : "=r"(seen_) : "m"(*(p)));                          \
		seen_;                                                                             \
	})
#else
#define km_load_speculative(p)	km_load(p)
#endif
/* Change a word read by other threads at any time, and written only by the holder of a lock. */
#define km_bump(p, v)		km_store((p), *(p) + (__typeof__(*(p)))(v))
#define km_add(p, v)		__atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define km_add_both(p, v)	__atomic_fetch_add((p), (v), __ATOMIC_ACQ_REL)
#define km_sub(p, v)		__atomic_fetch_sub((p), (v), __ATOMIC_RELAXED)
#define km_swap_acquire(p, v)	__atomic_exchange_n((p), (v), __ATOMIC_ACQUIRE)
#define km_swap_release(p, v)	__atomic_exchange_n((p), (v), __ATOMIC_RELEASE)
#define km_swap_both(p, v)	__atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)
#define km_cas_acquire(p, old, new_)                                                               \
	__atomic_compare_exchange_n((p), (old), (new_), false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
#define km_cas_release(p, old, new_)                                                               \
	__atomic_compare_exchange_n((p), (old), (new_), false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)
#define km_cas_both(p, old, new_)                                                                  \
	__atomic_compare_exchange_n((p), (old), (new_), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

/* Change the byte from `old` to 0. Returns: false if the byte has another value. Of all concurrent callers one
 * succeeds. Among threads the operation is atomic if the process has several. Against signal handlers one instruction
 * is enough. Cost on x86-64: a lock prefix costs eight cycles, a compare-and-swap without lock two, a subtraction one.
 * The subtraction is undone if a handler has changed the byte first. */
km_inline bool km_clear_byte(uint8_t *byte, uint8_t old)
{
#if defined(__x86_64__) && __has_include(<sys/single_threaded.h>) && !defined(__SANITIZE_THREAD__)
	if (km_likely(__libc_single_threaded)) {
		bool done;

		if (km_unlikely(km_load(byte) != old))
			return false;
		__asm__ volatile("subb %[old], %[byte]"
				 : "=@ccz"(done), [byte] "+m"(*byte) : [old] "q"(old) : "memory");
		if (km_unlikely(!done))
			__asm__ volatile("addb %[old], %[byte]" : [byte] "+m"(*byte) : [old] "q"(old) : "memory", "cc");
		return done;
	}
#endif
	return __atomic_compare_exchange_n(byte, &old, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Two words changed together; aligned for a single instruction. */
struct km_pair {
	uint64_t first, second;
} km_aligned(16);

/* 16-byte compare-and-swap with acquire and release. On failure *old becomes the value found. */
km_inline bool km_cas_pair(struct km_pair *pair, struct km_pair *old, struct km_pair new_)
{
#if defined(__x86_64__)
	bool done;

	__asm__ volatile("lock cmpxchg16b %[pair]"
			 : "=@ccz"(done), [pair] "+m"(*pair), "+a"(old->first), "+d"(old->second)
			 : "b"(new_.first), "c"(new_.second)
			 : "memory");
	return done;
#elif defined(__aarch64__)
	/* Spelled out, because the compiler would call libatomic, which may lock. On failure the value found may be
	 * torn. */
	uint64_t first, second;
	uint32_t lost;

	__asm__ volatile("1:	ldaxp	%[first], %[second], %[pair]\n\t"
			 "cmp	%[first], %[old_first]\n\t"
			 "ccmp	%[second], %[old_second], #0, eq\n\t"
			 "cset	%w[lost], ne\n\t"
			 "b.ne	2f\n\t"
			 "stlxp	%w[lost], %[new_first], %[new_second], %[pair]\n\t"
			 "cbnz	%w[lost], 1b\n"
			 "2:"
			 : [first] "=&r"(first), [second] "=&r"(second), [lost] "=&r"(lost),
			   [pair] "+Q"(*pair)
			 : [old_first] "r"(old->first), [old_second] "r"(old->second),
			   [new_first] "r"(new_.first), [new_second] "r"(new_.second)
			 : "memory", "cc");
	*old = (struct km_pair){ first, second };
	return !lost;
#else
	unsigned __int128 expected, desired;

	__builtin_memcpy(&expected, old, sizeof(expected));
	__builtin_memcpy(&desired, &new_, sizeof(desired));
	bool done = __atomic_compare_exchange_n((unsigned __int128 *)pair, &expected, desired,
						false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	__builtin_memcpy(old, &expected, sizeof(expected));
	return done;
#endif
}

#endif
