/*
 * guard.h: what the files of guarded objects share: an object's slot in the pool, and the report of a mistake.
 */
#ifndef KM_GUARD_H
#define KM_GUARD_H

#include "page/guard_range.h"
#include "cache/cache.h"
#include "os/os_signal.h"
#include "inspect/stack.h"

enum km_guard_state {
	KM_GUARD_FREE,		/* its page is without access */
	KM_GUARD_CHANGES,	/* one thread is at it */
	KM_GUARD_TAKEN,
};

/* A page of the pool, and the object that lies in it, or did last. Whoever has set `state` to CHANGES writes the rest;
 * a report reads it as it is. */
struct km_guard_slot {
	uint32_t state;			/* enum km_guard_state */
	uint32_t bytes;			/* of the object */
	char *object;			/* NULL: there was none yet */
	struct kmem_cache *cache;	/* NULL: it is gone */
	uint64_t turn;			/* of its last free, counted over all slots */
	uint32_t source;		/* where it was allocated: a hash of the stack */
	bool unseen;			/* hits may have freed it, and handed it out again */
	bool open;			/* it is free, and its page was not closed yet */
	bool sides;			/* a page beside it was opened, by an access that was reported */
	char name[KM_NAME_BYTES];	/* the cache's */
	struct km_stack_track track[2];	/* [0]: it was allocated, [1]: it was freed */
};

/* guard_fields.c: where these are, for readers outside of the process. */
extern km_hidden const struct km_field km_guard_fields[];
extern km_hidden const unsigned km_guard_field_count;

/* guard.c */
unsigned km_guard_slots(struct km_guard_slot **slot);
char *km_guard_page(const struct km_guard_slot *slot);	/* that the object lies in */
/* The value of a byte of the page that is nobody's. Kernel: the same. */
km_inline unsigned char km_guard_canary(const void *at)
{
	return (unsigned char)(0xaau ^ ((uintptr_t)at & 7));
}

/* guard_report.c */
enum km_guard_error {
	KM_GUARD_OUT_OF_BOUNDS, KM_GUARD_USE_AFTER_FREE, KM_GUARD_INVALID_ACCESS,	/* a fault */
	KM_GUARD_CORRUPTION, KM_GUARD_INVALID_FREE, KM_GUARD_DOUBLE_FREE,		/* found by a free */
};
/* slot: of the object, NULL: of none that is known. fault: NULL where a free found it. */
void km_guard_report(enum km_guard_error error, const void *address, const struct km_guard_slot *slot,
		     const struct km_fault *fault);
/* The handler of faults: of those of other addresses it knows nothing. */
enum km_fault_end km_guard_fault(const struct km_fault *fault);

#endif
