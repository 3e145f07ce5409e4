/*
 * commit.h: the operands of the one commit that carries all verbs whose work is done in C before it (visit.h). Its
 * sequence, in pseudo-code:
 *
 *	commit		if (this CPU's slot, where it is open, is not `slot`) miss
 *			for each of seen: if (*word is another) miss
 *			*first = one; *last = other
 *
 * Invariant: `slot` names the CPU as well as the slot, because areas do not overlap; and what is compared is compared
 * where it is, in the same sequence that stores.
 */
#ifndef KM_OS_COMMIT_H
#define KM_OS_COMMIT_H

#include <stddef.h>
#include <stdint.h>

/* Words are pointers, offsets and numbers. */
typedef uint64_t km_word __attribute__((may_alias));

/* A word that was looked at, and what it was. */
struct km_seen {
	const km_word *word;
	uint64_t is;
};

struct km_commit {
	uintptr_t slot;		/* its address on the CPU that was looked at */
	struct km_seen seen[3];
	km_word *first, one;	/* lies where nobody looks until the last store */
	km_word *last, other;
	km_word unused;	/* for a `first` of no meaning */
};

_Static_assert(offsetof(struct km_commit, seen) == 8 && offsetof(struct km_commit, first) == 56 &&
	       offsetof(struct km_commit, last) == 72, "the sequences spell these");

#endif
