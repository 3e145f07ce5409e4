/*
 * guard_range.c: where the pool of guarded objects is, for the floors that meet their addresses (guard_range.h).
 * Invariant: where it is was written before the first cache was made, and does not change.
 */
#include "base/atomic.h"
#include "os/os.h"
#include "guard_range.h"

struct km_guarded km_guarded;
const struct km_guard_ops *km_guard_ops;

/* Threads that race draw the same number, or one of another's: no harm is done. */
uint32_t km_guarded_random(void)
{
	static uint32_t state;
	uint32_t x = km_load(&state) ?: (uint32_t)km_os_now_ms() * 2654435761u | 1;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	km_store(&state, x);
	return x;
}
