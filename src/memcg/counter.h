/*
 * counter.h: a hierarchical counter of bytes with a limit: the kernel's page_counter, but in bytes. Invariant: a
 * counter's usage is the sum of the bytes charged to this counter and to the counters below, and not yet uncharged.
 * The usage exceeds max only by forced charges, or after max was lowered.
 *
 * The counter knows no groups, so a simulation can drive the counter. Every atomic operation on a line shared between
 * CPUs uses KM_SHARED: the macro counts the operation for the thread, and passes the line to km_counter_touched.
 */
#ifndef KM_MEMCG_COUNTER_H
#define KM_MEMCG_COUNTER_H

#include "base/atomic.h"
#include "base/thread.h"

struct km_counter {
	uint64_t usage;			/* bytes charged; in a cache line of its own, because all CPUs write it */
	uint64_t peak;
	uint64_t failcnt;
	km_aligned(KM_CACHE_LINE) uint64_t max;		/* limit in bytes, UINT64_MAX: none; in another cache line,
							 * because rarely written */
	uint64_t high, low, min;
	struct km_counter *parent;	/* NULL: below the root, and the root has no counter */
	uint32_t squeezed;		/* threads draining below for a charge that this counter refused */
} km_aligned(KM_CACHE_LINE);

/* Called before each operation, with its line; NULL except in a simulation. */
extern km_hidden void (*km_counter_touched)(const void *line);

#define KM_SHARED(line, operation)                                                                 \
	({                                                                                         \
		km_thread.counter_atomics++;                                                              \
		if (km_unlikely(km_counter_touched != NULL))                                       \
			km_counter_touched(line);                                                  \
		operation;                                                                         \
	})

/* Initializes a counter with no usage, no limits and no protection. */
void km_counter_init(struct km_counter *counter, struct km_counter *parent);
/* Charges this counter and all above. Returns: NULL, or the first counter that refused, with nothing charged
 * anywhere. A NULL counter never refuses. */
struct km_counter *km_counter_try_charge(struct km_counter *counter, uint64_t bytes);
/* Charges this counter and all above, regardless of limits. */
void km_counter_charge(struct km_counter *counter, uint64_t bytes);
/* Returns the counter that would refuse now, or NULL. After this look try_charge seldom raises a counter (and its
 * peak) in vain. */
struct km_counter *km_counter_would_refuse(struct km_counter *counter, uint64_t bytes);
/* Uncharges bytes. If there are fewer: km_misuse, and uncharges the bytes there are. */
void km_counter_uncharge(struct km_counter *counter, uint64_t bytes);
/* Returns the bytes up to the nearest max, of this counter or above; UINT64_MAX: no limit. Racy. */
uint64_t km_counter_margin(const struct km_counter *counter);
/* Returns the bytes that may be charged ahead of need: 0 while this counter, or one above, is squeezed, else the
 * margin. Racy. */
uint64_t km_counter_spare(const struct km_counter *counter);
void km_counter_reset_peak(struct km_counter *counter);

#endif
