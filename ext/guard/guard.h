/* guard.h: declarations shared by the files of guarded objects: an object's slot in the pool, and error reports. */
#ifndef KM_GUARD_H
#define KM_GUARD_H

#include "page/guard_range.h"
#include "cache/cache.h"
#include "os/os_signal.h"
#include "inspect/stack.h"

enum km_guard_state {
	KM_GUARD_FREE,		/* page without access, or `open` */
	KM_GUARD_CHANGES,	/* owned by one changing thread */
	KM_GUARD_TAKEN,
};

/* Record of a pool page, and of the page's current or last object. Only the thread that set `state` to CHANGES may
 * write the other fields. A report reads the fields without synchronization. */
struct km_guard_slot {
	uint32_t state;			/* enum km_guard_state */
	uint32_t bytes;			/* size of the object */
	char *object;			/* NULL: page never used */
	struct kmem_cache *cache;	/* NULL: destroyed */
	uint64_t turn;			/* number of its last free, counted over all slots */
	uint32_t source;		/* hash of the allocation stack */
	bool unseen;			/* fast paths may have freed and reallocated the object */
	bool open;			/* free, but the page is still accessible */
	bool sides;			/* a neighboring page was opened after a reported access */
	char name[KM_NAME_BYTES];	/* name of the cache */
	struct km_stack_track track[2];	/* [0]: allocation, [1]: free */
};

/* guard.c */
unsigned km_guard_slots(struct km_guard_slot **slot);
char *km_guard_page(const struct km_guard_slot *slot);	/* page of the slot's object */
/* Expected value of an unused byte of a page, as in the kernel. */
km_inline unsigned char km_guard_canary(const void *at)
{
	return (unsigned char)(0xaau ^ ((uintptr_t)at & 7));
}

/* guard_report.c */
enum km_guard_error {
	KM_GUARD_OUT_OF_BOUNDS, KM_GUARD_USE_AFTER_FREE, KM_GUARD_INVALID_ACCESS,	/* found by a fault */
	KM_GUARD_CORRUPTION, KM_GUARD_INVALID_FREE, KM_GUARD_DOUBLE_FREE,		/* found by free or check */
};
/* Report misuse of a guarded object. slot: the object's slot, or NULL if unknown. fault: the page fault that found the
 * error, or NULL. */
void km_guard_report(enum km_guard_error error, const void *address, const struct km_guard_slot *slot,
		     const struct km_fault *fault);
/* Fault handler: reports faults inside the pool, and leaves all other addresses alone (KM_FAULT_NOT_OURS). */
enum km_fault_end km_guard_fault(const struct km_fault *fault);

#endif
