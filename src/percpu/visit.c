/*
 * visit.c: the end of a verb that C has prepared (visit.h). Invariant: the sequence that commits stands here once, for
 * every verb: a copy in each would be as many to be struck at each instruction (tests/rseq/abort.c), and 3 KiB of code.
 *
 * Why it is enough to compare values. Between a verb's look and its commit the thread may lose the CPU, come to another
 * one, and find that others used the slot meanwhile. A slot of another CPU is another address: the commit misses. A
 * word that has changed misses, too. A word that changed and came back counts as unchanged, and may: what the verb is
 * about to do depends on these values alone, not on what happened between. The top names a block and how far it is
 * filled, its header names the partner, and each of both is compared if the verb went by it. A block that left can
 * still be read, because the memory of blocks stays memory of blocks for ever (page/metadata.c); what such a read gave
 * is thrown away with the miss. Objects in a block are no words of a verb: whole blocks change hands here, and verbs
 * that copy objects are sequences of their own, which compare nothing because nobody comes between (rseq.h).
 */
#include "visit.h"

km_tls struct km_visit *km_visits_locked;

/* A lock that is free is not marked. One that another thread has may be: a drain gives up, and comes again. */
void km_visits_fork_prepare(void)
{
	for (const struct km_visit *visit = km_visits_locked; visit; visit = visit->outer) {
		uint32_t state = KM_SOFT_HELD;

		km_cas_acquire(&km_soft(visit)->lock, &state, (uint32_t)KM_SOFT_FORKING);
	}
}

void km_visit_fork_child(struct km_soft *soft)
{
	const struct km_visit *visit = km_visits_locked;

	while (visit && km_soft(visit) != soft)
		visit = visit->outer;
	/* A handler may have struck before the lock was taken. */
	if (!visit || km_load(&soft->lock) != KM_SOFT_FORKING)
		km_store(&soft->lock, (uint32_t)KM_SOFT_FREE);
}

/*
 * Under the soft disciplines the lock has kept others away since the look, so the first store is seen by nobody, and
 * the second one can fail only by a pop under cmpxchg, which has no lock and moves the pair: then it is tried again.
 */
bool km_visit_commit(struct km_visit *visit, km_word *first, uint64_t one, km_word *last, uint64_t other)
{
	if (!km_visits_by_rseq()) {
		km_debug(visit->locked, "without sequences what is more than a pop has its slot's lock");
		if (first)
			km_store(first, one);
		if (last == visit->word)
			return km_soft_commit(visit, other);
		km_store(last, other);
		return true;
	}
	struct km_commit *commit = &visit->commit;

	km_debug(visit->reads && !visit->locked, "a commit compares what its verb looked at, without a lock");
	for (unsigned i = visit->reads; i < km_array_count(commit->seen); i++)
		commit->seen[i] = commit->seen[0];
	commit->slot = (uintptr_t)visit->word;
	commit->first = first ?: &commit->unused;
	commit->one = one;
	commit->last = last;
	commit->other = other;
	return KM_RSEQ(commit, (visit->open, km_percpu.base, km_thread_rseq, commit), false);
}
