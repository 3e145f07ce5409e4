/*
 * soft.h: what the files with a shelf's verbs share: a CPU's slot under the soft disciplines while a verb works on
 * it. Invariant of the slots: all but a cmpxchg pop is done under the slot's
 * lock, and each commit under cmpxchg moves the transaction id, so that a stale pop can't succeed.
 */
#ifndef KM_PORT_SOFT_H
#define KM_PORT_SOFT_H

#include "os.h"
#include "pcpu.h"
#include "rseq.h"

/* A shelf's word under the soft disciplines: first is top, second the transaction id. 32 bytes, so that it lies in one
 * line (km_percpu_alloc); aligned as the pair, for a drain under rseq looks at an owned word as if it were one. */
struct km_soft {
	struct km_pair pair;
	uint32_t lock;
	uintptr_t owner;	/* of a shelf of owned.h; written under the lock */
};

/* A CPU's soft slot while a verb works on it. */
struct km_visit {
	struct km_soft *soft;
	uintptr_t area;
	struct km_pair seen;
	bool locked;
};

/* How often a verb may lose a compare-and-swap before it counts as a miss. */
#define KM_SOFT_TRIES 16
/* How long a drain waits for a lock: some spins, then about a second. */
#define KM_SOFT_SPINS 100
#define KM_SOFT_WAITS 1000

km_inline bool km_soft_enter_cpu(struct km_visit *visit, uint32_t slot, unsigned cpu, bool lock)
{
	visit->area = (uintptr_t)km_area(cpu);
	visit->soft = (struct km_soft *)(visit->area + slot);
	visit->locked = false;
	if (lock) {
		/* Acquire pairs with km_soft_leave. */
		if (km_load(&visit->soft->lock) || km_swap_acquire(&visit->soft->lock, 1u))
			return false;
		visit->locked = true;
	}
	return true;
}

km_inline bool km_soft_enter(struct km_visit *visit, const struct km_shelf *shelf, bool lock)
{
	uint32_t slot = km_load(&shelf->inner.shelf);

	if (!slot)
		return false;
	return km_soft_enter_cpu(visit, slot, km_cpu(),
				 lock || km_percpu.discipline == KM_DISCIPLINE_LOCK);
}

/*
 * The same with the lock, for a drain. The holder may have lost its CPU for a while: false after some time, a later
 * drain comes again.
 */
km_inline bool km_soft_wait(struct km_visit *visit, uint32_t slot, unsigned cpu)
{
	static uint32_t never;

	for (int i = 0; !km_soft_enter_cpu(visit, slot, cpu, true); i++) {
		if (i == KM_SOFT_WAITS)
			return false;
		if (i > KM_SOFT_SPINS)
			km_os_wait(&never, 0, 1);
		km_relax();
	}
	return true;
}

km_inline void km_soft_leave(struct km_visit *visit)
{
	if (visit->locked)
		km_store_release(&visit->soft->lock, 0u);
}

km_inline uintptr_t km_soft_look(struct km_visit *visit)
{
	/* Acquire pairs with the compare-and-swap: who sees the id sees the objects under it. */
	visit->seen.second = km_load_acquire(&visit->soft->pair.second);
	visit->seen.first = km_load_acquire(&visit->soft->pair.first);
	return visit->seen.first;
}

km_inline bool km_soft_commit(struct km_visit *visit, uintptr_t top)
{
	struct km_pair next = { top, visit->seen.second + 1 };

	if (km_percpu.discipline == KM_DISCIPLINE_CMPXCHG)
		return km_cas_pair(&visit->soft->pair, &visit->seen, next);
	km_store(&visit->soft->pair.first, top);
	return true;
}

/* Words from top to the end of its block. */
km_inline size_t km_soft_left(const struct km_shelf *shelf, uintptr_t top)
{
	return (shelf->block_mask + 1 - (top & shelf->block_mask)) / sizeof(void *);
}

#endif
