/*
 * visit.h: a visit of a CPU's words by a per-CPU operation, shared by the files with such operations. An operation
 * is C code for the reads, and one commit. The commit does all or nothing under every discipline:
 *
 *	rseq		the operation reads without a lock. The commit is a sequence (km_rseq_commit). The commit needs
 *			the same CPU, a pcs still open, and unchanged values of all words read for the decision
 *	cmpxchg		each commit moves the transaction id, so a stale pop can't succeed
 *	lock, cmpxchg	an operation other than a pop holds the lock of the CPU's words. A taken lock is a miss. The
 *			holder is busy, as under every lock: a signal handler is refused, or its free is deferred
 *
 * Invariant: a successful commit finds every word read by its operation unchanged. The commit compares words, and
 * not the time passed, so km_visit_look or km_visit_read must read every word of the decision. For speed, hits and
 * copying operations are sequences of their own (rseq.h).
 */
#ifndef KM_PERCPU_VISIT_H
#define KM_PERCPU_VISIT_H

#include "os/die.h"
#include "os/lock.h"
#include "os/os.h"
#include "pcpu.h"
#include "rseq.h"

/* State of a per-CPU operation while C code reads a CPU's words. */
struct km_visit {
	const uint32_t *open;	/* address of the words' offset in the area; the offset is 0 where closed */
	uintptr_t area;
	km_word *word;		/* address of the first word at the offset, on the visited CPU */
	uintptr_t top;		/* value of the first word when the visit read it */
	struct km_pair seen;
	bool locked;
	uint8_t was_busy;
	struct km_visit *outer;	/* the visit that this visit's signal handler has interrupted */
	unsigned tries, reads;
	struct km_commit commit;
};

/* State of the lock of a CPU's words. */
enum km_soft_state {
	KM_SOFT_FREE,
	KM_SOFT_HELD,
	KM_SOFT_FORKING,	/* held for long by a fork: a drain gives up */
};

/* Tries of an operation before a miss. The number is bounded, because other threads' work may wait for the operation,
 * and a miss does the same work another way. */
#define KM_VISIT_TRIES 16
/* Time a drain waits for a lock: some spins, then about a second. */
#define KM_VISIT_SPINS 100
#define KM_VISIT_WAITS 1000

km_inline bool km_visits_by_rseq(void)
{
	return km_percpu.discipline == KM_DISCIPLINE_RSEQ;
}

/* Returns: the CPU's words under the soft disciplines. */
km_inline struct km_soft *km_soft(const struct km_visit *visit)
{
	return (struct km_soft *)visit->word;
}

/* Ends the visit but leaves its lock taken: takes the visit off the thread's list, and restores km_thread.busy. A fork
 * thus holds the lock until its end. */
km_inline void km_visit_keep(struct km_visit *visit)
{
	km_thread.visits = visit->outer;
	km_thread.busy = visit->was_busy;
}

/* Give the lock back. Signal handlers find the visit listed from before the lock is taken until after the lock is
 * free. */
km_inline void km_visit_unlock(struct km_visit *visit)
{
	km_debug(visit->locked && km_thread.visits == visit, "locks of per-CPU offsets are released in reverse order");
	/* Release pairs with km_visit_lock. */
	km_store_release(&km_soft(visit)->lock, (uint32_t)KM_SOFT_FREE);
	__atomic_signal_fence(__ATOMIC_ACQ_REL);
	km_visit_keep(visit);
}

km_inline bool km_visit_lock(struct km_visit *visit)
{
	uint32_t state = KM_SOFT_FREE;

	if (km_load(&km_soft(visit)->lock))
		return false;
	visit->was_busy = km_thread.busy;
	if (!visit->was_busy)
		km_thread.busy = KM_BUSY_IN_OPERATION;
	visit->outer = km_thread.visits;
	__atomic_signal_fence(__ATOMIC_ACQ_REL);
	km_thread.visits = visit;
	__atomic_signal_fence(__ATOMIC_ACQ_REL);
	if (km_cas_acquire(&km_soft(visit)->lock, &state, (uint32_t)KM_SOFT_HELD))
		return true;
	km_visit_keep(visit);
	return false;
}

/* Visit the words of `cpu`, with the lock if `lock`. Returns: false if another visit has the lock. */
km_inline bool km_visit_cpu(struct km_visit *visit, uint32_t slot, unsigned cpu, bool lock)
{
	km_debug(slot && km_cpu_is_online(cpu), "a per-CPU operation changes a word of an online area");
	visit->area = (uintptr_t)km_area(cpu);
	visit->word = (km_word *)(visit->area + slot);
	visit->locked = lock && km_visit_lock(visit);
	return visit->locked == lock;
}

/* km_visit_enter for disciplines lock and cmpxchg, without a check whether the words are closed. */
bool km_visit_here(struct km_visit *visit, uint32_t slot, bool alone);

/* Visit this CPU's words. alone: the operation is more than a pop, and needs the lock under cmpxchg, too. If the words
 * are closed, or another visit has the lock, no try follows: km_visit_look returns false. */
km_inline void km_visit_enter(struct km_visit *visit, const uint32_t *open, bool alone)
{
	uint32_t slot = km_load(open);

	visit->open = open;
	visit->word = NULL;
	visit->locked = false;
	visit->tries = 0;
	if (!slot || (!km_visits_by_rseq() && !km_visit_here(visit, slot, alone)))
		visit->tries = KM_VISIT_TRIES;
}

km_inline void km_visit_leave(struct km_visit *visit)
{
	if (visit->locked)
		km_visit_unlock(visit);
}
/* km_visit_enter, with km_visit_leave at the end of the block or at a return. */
#define km_visit_scope(visit, open, alone) \
	struct km_visit visit km_scoped(km_visit_leave); \
	km_visit_enter(&visit, (open), (alone))

/* Visit the words of `cpu` with the lock, for a drain. Returns: false after about a second, because the holder may have
 * lost its CPU; a later drain comes again. False at once if this thread holds the lock and its handler forks, or if a
 * forking handler of another thread holds the lock and may wait for a lock of this drain. Under rseq there is no lock:
 * the drain has closed the words, and has made its fence. */
km_inline bool km_visit_wait(struct km_visit *visit, uint32_t slot, unsigned cpu)
{
	static uint32_t never;

	for (int i = 0; !km_visit_cpu(visit, slot, cpu, !km_visits_by_rseq()); i++) {
		if (km_thread.visits || km_load(&km_soft(visit)->lock) == KM_SOFT_FORKING || i == KM_VISIT_WAITS)
			return false;
		if (i > KM_VISIT_SPINS)
			km_os_wait(&never, 0, 1);
		km_relax();
	}
	return true;
}

/* Before a fork: make drains of other threads give up on this thread's locks. In the child: free a lock, unless this
 * thread holds the lock. */
void km_visits_fork_prepare(void);
void km_visit_fork_child(struct km_soft *soft);

/* Returns: the first word. Requires: the lock, or a commit that compares the pair, or a drain. */
km_inline uintptr_t km_soft_look(struct km_visit *visit)
{
	/* Acquire pairs with the compare-and-swap: a thread sees the objects stored before the id. */
	visit->seen.second = km_percpu.discipline == KM_DISCIPLINE_CMPXCHG ?
				     km_load_acquire(&km_soft(visit)->pair.second) : 0;
	visit->seen.first = km_load_acquire(visit->word);
	return visit->top = visit->seen.first;
}

km_inline bool km_soft_commit(struct km_visit *visit, uintptr_t top)
{
	struct km_pair next = { top, visit->seen.second + 1 };

	km_debug(km_percpu.discipline != KM_DISCIPLINE_LOCK || visit->locked,
		 "under discipline lock a word changes under the lock of its offset");
	if (km_percpu.discipline == KM_DISCIPLINE_CMPXCHG)
		return km_cas_pair(&km_soft(visit)->pair, &visit->seen, next);
	km_store(visit->word, top);
	return true;
}

/* Begins an attempt of an operation for disciplines lock and cmpxchg, as km_visit_look does. */
km_inline bool km_soft_try(struct km_visit *visit)
{
	km_debug(!km_visits_by_rseq(), "under discipline rseq hits and copies are sequences");
	if (visit->tries++ == KM_VISIT_TRIES)
		return false;
	km_debug(visit->word, "a per-CPU operation reads an offset after its entry");
	km_soft_look(visit);
	return true;
}

/* Returns: the present value of a word of the decision. Under rseq the commit compares the word; three words at most.
 * The sheaf may leave the CPU meanwhile, and stays readable. */
km_inline uint64_t km_visit_read(struct km_visit *visit, const km_word *word)
{
	uint64_t is = km_load(word);

	if (!km_visits_by_rseq())
		return is;
	km_debug(visit->reads < km_array_count(visit->commit.seen), "a commit compares three words at most");
	visit->commit.seen[visit->reads++] = (struct km_seen){ word, is };
	return is;
}

/* Begin a try: visit->top becomes the first word. Returns: false if closed, without a CPU, or after KM_VISIT_TRIES
 * tries. */
km_inline bool km_visit_look(struct km_visit *visit)
{
	if (!km_visits_by_rseq())
		return km_soft_try(visit);
	if (visit->tries++ == KM_VISIT_TRIES)
		return false;
	/* Acquire pairs with the release after a drain, by km_pcs_open. */
	uint32_t slot = km_load_acquire(visit->open), cpu = km_cpu_of_thread();
	if (!slot || !km_cpu_is_online(cpu))
		return false;
	km_visit_cpu(visit, slot, cpu, false);
	visit->reads = 0;
	visit->top = km_visit_read(visit, visit->word);
	return true;
}

/* Store *first = one (NULL: no store), then *last = other, if all words read are unchanged. Requires: no other thread
 * reads `first` before the store to `last`. `last` is the first word, or a word written only by holders of the lock.
 * Returns: false if the caller must look again. */
bool km_visit_commit(struct km_visit *visit, km_word *first, uint64_t one, km_word *last, uint64_t other);

/* Returns: the number of words from top to the end of its sheaf. */
km_inline size_t km_visit_words(const struct km_pcs *pcs, uintptr_t top)
{
	return (pcs->sheaf_mask + 1 - (top & pcs->sheaf_mask)) / sizeof(void *);
}

#endif
