/* guard_range.c: the pool of guarded objects, for lower layers that meet the pool's addresses (guard_range.h).
 * Invariant: the addresses are set before the first cache is made, and never change. */
#include "guard_range.h"

struct km_guarded km_guarded;
const struct km_guard_ops *km_guard_ops;
