/*
 * commit.h: operands of the commit shared by all operations with C code before the commit (visit.h). The sequence
 * of the commit, in pseudo-code:
 *
 *	commit		if (this CPU's slot, where it is open, is not `slot`) miss
 *			for each of seen: if (*word is another) miss
 *			*first = one; *last = other
 *
 * Invariant: `slot` is the address of a CPU's pcs word, and so identifies the CPU as well as the offset, because
 * areas do not overlap. The storing sequence compares each word in place.
 */
#ifndef KM_OS_COMMIT_H
#define KM_OS_COMMIT_H

#include <stddef.h>
#include <stdint.h>

/* A word may be a pointer, an offset or a number. */
typedef uint64_t km_word __attribute__((may_alias));

/* A word and its value when read. */
struct km_seen {
	const km_word *word;
	uint64_t is;
};

struct km_commit {
	uintptr_t slot;		/* address of the pcs word on the CPU of the look */
	struct km_seen seen[3];
	km_word *first, one;	/* a word without readers before the last store */
	km_word *last, other;
	km_word unused;	/* target for a `first` without a meaning */
};

_Static_assert(offsetof(struct km_commit, seen) == 8 && offsetof(struct km_commit, first) == 56 &&
	       offsetof(struct km_commit, last) == 72, "the sequences spell these");

#endif
