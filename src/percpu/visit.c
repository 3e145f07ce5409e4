/*
 * visit.c: the commit of an operation that C code has prepared (visit.h). Invariant: the committing sequence
 * exists once, here, for every operation. A copy in each operation would take 3 KiB of code, and each copy
 * would need its own interruption at each instruction (tests/rseq/abort.c).
 *
 * A comparison of values is enough. Between the look and the commit of an operation, the thread may lose its CPU or
 * move to another CPU, and other threads may use the words. The words of another CPU have another address, so the
 * commit misses. A changed word is a miss, too. A word that changed and changed back counts as unchanged: the operation
 * depends on values alone. The top names a sheaf and its fill, the header names the spare, and the commit compares the
 * words used by the operation.
 *
 * A sheaf that left the CPU can still be read, because memory of sheaves stays memory of sheaves for ever
 * (page/metadata.c). The miss discards the value read. Operations of this kind never read objects in a sheaf:
 * whole sheaves change hands. Operations that copy objects are sequences of their own. They compare nothing,
 * because no other thread runs on the CPU between their instructions (rseq.h).
 */
#include "visit.h"

bool km_visit_here(struct km_visit *visit, uint32_t slot, bool alone)
{
	return km_visit_cpu(visit, slot, km_cpu(), alone || km_percpu.discipline == KM_DISCIPLINE_LOCK);
}

/* Mark the locks that this thread holds. A free lock is not marked. A lock held by another thread may be marked: then a
 * drain gives up, and comes again. */
void km_visits_fork_prepare(void)
{
	for (const struct km_visit *visit = km_thread.visits; visit; visit = visit->outer) {
		uint32_t state = KM_SOFT_HELD;

		km_cas_acquire(&km_soft(visit)->lock, &state, (uint32_t)KM_SOFT_FORKING);
	}
}

void km_visit_fork_child(struct km_soft *soft)
{
	const struct km_visit *visit = km_thread.visits;

	while (visit && km_soft(visit) != soft)
		visit = visit->outer;
	/* A handler may have interrupted the thread before it took the lock. */
	if (!visit || km_load(&soft->lock) != KM_SOFT_FORKING)
		km_store(&soft->lock, (uint32_t)KM_SOFT_FREE);
}

/* Under the soft disciplines the lock has kept other operations away since the look. So no other thread reads the first
 * store. The second store can fail only by a pop under cmpxchg, which has no lock and moves the pair. Then the caller
 * tries again. */
bool km_visit_commit(struct km_visit *visit, km_word *first, uint64_t one, km_word *last, uint64_t other)
{
	if (!km_visits_by_rseq()) {
		km_debug(visit->locked, "without sequences an operation beyond a pop holds the lock of its offset");
		if (first)
			km_store(first, one);
		if (last == visit->word)
			return km_soft_commit(visit, other);
		km_store(last, other);
		return true;
	}
	struct km_commit *commit = &visit->commit;

	km_debug(visit->reads && !visit->locked, "a commit compares the words read by its operation, without a lock");
	for (unsigned i = visit->reads; i < km_array_count(commit->seen); i++)
		commit->seen[i] = commit->seen[0];
	commit->slot = (uintptr_t)visit->word;
	commit->first = first ?: &commit->unused;
	commit->one = one;
	commit->last = last;
	commit->other = other;
	return KM_RSEQ(commit, (visit->open, km_percpu.base, km_thread_rseq, commit), false);
}
