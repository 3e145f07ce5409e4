/* guard_range.c: the pool of guarded objects, for lower layers that meet the pool's addresses (guard_range.h).
 * Invariant: the addresses are set before the first cache is made, and never change. */
#include "base/atomic.h"
#include "os/os.h"
#include "guard_range.h"

struct km_guarded km_guarded;
const struct km_guard_ops *km_guard_ops;

/* Returns: a pseudo-random number. Racing threads may draw equal numbers: harmless. */
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
