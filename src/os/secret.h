/*
 * secret.h: hardening: the parts in force, and the process's secret. Invariant: both are set when the options are read,
 * before the first cache, and never change. docs/design/hardening.md describes what each part catches, and its cost.
 *
 * The parts without a cost are always on, and have no field here. Metadata lies outside of objects, in mappings of its
 * own, behind a page without access. The free bits of a slab detect a double free when the object returns to its slab.
 */
#ifndef KM_OS_SECRET_H
#define KM_OS_SECRET_H

#include "base/cc.h"

struct km_hardening {
	bool level;			/* KMEM_OPTIONS=hardened:1: all parts, except parts turned off by options */
	bool live;			/* validate each free at once by the allocation state map (page/alloc_map.h) */
	bool zero_on_free;
	bool zero_on_alloc;		/* zero each allocated object; not part of `hardened` */
	bool canary, quarantine;	/* canaries and quarantine (alloc/harden.c); not part of `hardened` */
	bool random_order;		/* unpredictable order of objects of a fresh slab or sheaf */
	bool own_addresses;		/* address reuse: slab pages stay with one cache name (page/addr_reuse.h) */
	bool guard_slabs;		/* address reuse with guard slabs in between; not part of `hardened` */
	bool random_caches;		/* kmalloc and malloc split by call site; not part of the level */
	uint64_t secret;		/* the process's secret; never 0 after km_hardening_start */
	char parts[160];		/* option names of the parts in force, separated by blanks */
};
extern km_hidden struct km_hardening km_hardening;

km_inline bool km_is_hardened(void)
{
	return km_hardening.level;
}

/* Make the secret: from the kernel's random bytes by a system call with hardened:1, else from the random bytes of the
 * process's start. */
void km_hardening_start(void);
/* Returns: a number below `bound`, unpredictable without a read of the library's memory. */
uint32_t km_random_below(uint32_t bound);

/* Returns: a number below `bound` derived from `number`, always the same for the same number. */
uint32_t km_random_of(uint64_t number, uint32_t bound);

#endif
