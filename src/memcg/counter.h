/*
 * counter.h: a hierarchical counter of bytes with a limit: the kernel's page_counter, but in bytes. Invariant: a
 * counter's usage is the sum of what was charged at it and at those below and not uncharged; it is above its max only
 * by forced charges and by a max that was lowered.
 *
 * It knows nothing of groups, so that a simulation can drive it: every atomic operation on a line that CPUs share goes
 * through KM_SHARED, which counts it for the thread and shows the line to whoever set km_counter_touched.
 */
#ifndef KM_MEMCG_COUNTER_H
#define KM_MEMCG_COUNTER_H

#include "base/atomic.h"

struct km_counter {
	uint64_t usage;			/* the line that is fought for */
	uint64_t peak;
	uint64_t failcnt;
	km_aligned(KM_CACHE_LINE) uint64_t max;		/* written rarely: UINT64_MAX where unlimited */
	uint64_t high, low, min;
	struct km_counter *parent;	/* NULL: below the root, which counts nothing */
	uint32_t squeezed;		/* threads that take back what lies unused below, for a charge it refused */
} km_aligned(KM_CACHE_LINE);

/* Atomic operations on shared lines by this thread. */
extern km_hidden km_tls uint64_t km_counter_atomics;
/* Called before each, with its line; NULL but in a simulation. */
extern km_hidden void (*km_counter_touched)(const void *line);

#define KM_SHARED(line, operation)                                                                 \
	({                                                                                         \
		km_counter_atomics++;                                                              \
		if (km_unlikely(km_counter_touched != NULL))                                       \
			km_counter_touched(line);                                                  \
		operation;                                                                         \
	})

/* Nothing charged, no limits, no protection. */
void km_counter_init(struct km_counter *counter, struct km_counter *parent);
/* Charge it and all above. NULL, or the first that refused: then nothing was charged anywhere. NULL takes all. */
struct km_counter *km_counter_try_charge(struct km_counter *counter, uint64_t bytes);
/* The same whatever the limits are. */
void km_counter_charge(struct km_counter *counter, uint64_t bytes);
/* The counter that would refuse now, or NULL: a look, after which try_charge seldom raises a counter (and its peak) in
 * vain. */
struct km_counter *km_counter_would_refuse(struct km_counter *counter, uint64_t bytes);
/* More than there is: km_misuse; then what there is. */
void km_counter_uncharge(struct km_counter *counter, uint64_t bytes);
/* Bytes up to the nearest max, of this counter or above; racy. UINT64_MAX: none has one. */
uint64_t km_counter_margin(const struct km_counter *counter);
/* Bytes that may be charged beyond what is needed: none while it, or one above, is squeezed, else the margin; racy. */
uint64_t km_counter_spare(const struct km_counter *counter);
void km_counter_reset_peak(struct km_counter *counter);

#endif
