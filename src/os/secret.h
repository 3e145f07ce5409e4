/*
 * secret.h: hardening: which of it is on, and the process's secret. Invariant: both are settled when the options are
 * read, before any cache is made, and stay. docs/design/hardening.md says what each part catches, and its price.
 *
 * The parts that cost nothing are on always, and have no word here: records lie outside of objects, in mappings of
 * their own with a page without access in front; slabs' free bits tell a double free when it comes back to its slab.
 */
#ifndef KM_OS_SECRET_H
#define KM_OS_SECRET_H

#include "base/cc.h"

struct km_hardening {
	bool level;			/* KMEM_OPTIONS=hardened:1: all parts, but those that options turn off */
	bool live;			/* each free is proved at once: page/alloc_map.h */
	bool zero_on_free;
	bool zero_on_alloc;		/* no part of the level */
	bool canary, quarantine;	/* alloc/harden.c; no part of the level */
	bool random_order;		/* objects of a fresh slab, or block, come in an order that nobody knows */
	bool own_addresses;		/* a slab's pages stay with caches of its cache's name: page/addr_reuse.h */
	bool guard_slabs;		/* ... and among them lie some that nobody may touch; no part of the level */
	bool random_caches;		/* kmalloc and malloc split by call site; no part of the level */
	uint64_t secret;		/* never 0 once it is made */
	char parts[160];		/* those that are on, by their options' names, a blank between */
};
extern km_hidden struct km_hardening km_hardening;

km_inline bool km_is_hardened(void)
{
	return km_hardening.level;
}

/* Make the secret: of the kernel's random bytes where some part is on, which is a system call; else of those that it
 * gave the process at its start. */
void km_hardening_start(void);
/* A number below `bound` that nobody can foretell who has not read our memory. */
uint32_t km_random_below(uint32_t bound);

/* The same of a number, for which it is always the same. */
uint32_t km_random_of(uint64_t number, uint32_t bound);

#endif
