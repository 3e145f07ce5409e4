/*
 * visit.h: what the files with per-CPU verbs share: a CPU's slot while a verb works on it. A verb is C that looks, and
 * one commit that does all or nothing, under every discipline:
 *
 *	rseq		the verb reads without a lock. The commit is a sequence (km_rseq_commit): on the CPU that was
 *			looked at, open still, each word that the verb went by still what it was
 *	cmpxchg		each commit moves the transaction id, so that a stale pop can't succeed
 *	lock, cmpxchg	what is more than a pop runs inside the slot's lock. A taken lock is a miss. Its holder is
 *			busy, as under every lock: a handler that strikes there is refused, or its free is left
 *
 * Invariant: a commit that succeeds finds every word that its verb looked at as it was then; the words are compared,
 * not the time that has passed, so what decides must be looked at by km_visit_look or km_visit_read.
 * The hits, and the verbs that copy, are sequences of their own (rseq.h), as figures want them.
 */
#ifndef KM_PERCPU_VISIT_H
#define KM_PERCPU_VISIT_H

#include "os/die.h"
#include "os/lock.h"
#include "os/os.h"
#include "pcpu.h"
#include "rseq.h"

/* A CPU's slot while a verb works on it. */
struct km_visit {
	const uint32_t *open;	/* the slot's offset, 0 where closed */
	uintptr_t area;
	km_word *word;		/* the slot's first */
	uintptr_t top;		/* the first word as it was looked at */
	struct km_pair seen;
	bool locked;
	uint8_t was_busy;
	struct km_visit *outer;	/* the one under which a handler struck that makes this one */
	unsigned tries, reads;
	struct km_commit commit;
};

/* The slots whose locks this thread has, or is about to try: the last one first. */
extern km_hidden km_tls struct km_visit *km_visits_locked;

/* A slot's lock. */
enum km_soft_state {
	KM_SOFT_FREE,
	KM_SOFT_HELD,
	KM_SOFT_FORKING,	/* held for a while: by a fork, or by code interrupted by a handler with a fork */
};

/* How often a verb may lose against others before it counts as a miss: a bound, because a verb is called with others'
 * work waiting for it, and a miss does the same work another way. */
#define KM_VISIT_TRIES 16
/* How long a drain waits for a lock: some spins, then about a second. */
#define KM_VISIT_SPINS 100
#define KM_VISIT_WAITS 1000

km_inline bool km_visits_by_rseq(void)
{
	return km_percpu.discipline == KM_DISCIPLINE_RSEQ;
}

/* The slot under the soft disciplines. */
km_inline struct km_soft *km_soft(const struct km_visit *visit)
{
	return (struct km_soft *)visit->word;
}

/* The lock is nothing to handlers any more. In a fork, which is busy anyway, it stays taken after the visit. */
km_inline void km_visit_keep(struct km_visit *visit)
{
	km_visits_locked = visit->outer;
	km_thread_busy = visit->was_busy;
}

/* Known to handlers from before the lock is taken until after it is given back. */
km_inline void km_visit_unlock(struct km_visit *visit)
{
	km_debug(visit->locked && km_visits_locked == visit, "slots' locks are given back in turn, the last one first");
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
	visit->was_busy = km_thread_busy;
	if (!visit->was_busy)
		km_thread_busy = KM_BUSY_IN_VERB;
	visit->outer = km_visits_locked;
	__atomic_signal_fence(__ATOMIC_ACQ_REL);
	km_visits_locked = visit;
	__atomic_signal_fence(__ATOMIC_ACQ_REL);
	if (km_cas_acquire(&km_soft(visit)->lock, &state, (uint32_t)KM_SOFT_HELD))
		return true;
	km_visit_keep(visit);
	return false;
}

/* That CPU's slot. False: somebody else has the lock. */
km_inline bool km_visit_cpu(struct km_visit *visit, uint32_t slot, unsigned cpu, bool lock)
{
	km_debug(slot && km_cpu_is_online(cpu), "a verb works on a word of an area that is alive");
	visit->area = (uintptr_t)km_area(cpu);
	visit->word = (km_word *)(visit->area + slot);
	visit->locked = lock && km_visit_lock(visit);
	return visit->locked == lock;
}

/* This CPU's slot, for km_visit_look, and km_visit_leave in the end. alone: the verb is more than a pop. */
km_inline bool km_visit_enter(struct km_visit *visit, const uint32_t *open, bool alone)
{
	uint32_t slot = km_load(open);

	visit->open = open;
	visit->area = visit->top = 0;
	visit->word = NULL;
	visit->seen = (struct km_pair){ 0, 0 };
	visit->locked = false;
	visit->tries = visit->reads = 0;
	if (!slot)
		return false;
	return km_visits_by_rseq() ||
	       km_visit_cpu(visit, slot, km_cpu(), alone || km_percpu.discipline == KM_DISCIPLINE_LOCK);
}

/*
 * The same with the lock, for a drain. The holder may have lost its CPU for a while: false after some time, a later
 * drain comes again. False at once where the holder is the thread itself, whose handler forks, or another that forks so
 * and may wait for what this drain holds. Under rseq there is no lock: the drain has closed the slot, and has made its
 * fence.
 */
km_inline bool km_visit_wait(struct km_visit *visit, uint32_t slot, unsigned cpu)
{
	static uint32_t never;

	for (int i = 0; !km_visit_cpu(visit, slot, cpu, !km_visits_by_rseq()); i++) {
		if (km_visits_locked || km_load(&km_soft(visit)->lock) == KM_SOFT_FORKING || i == KM_VISIT_WAITS)
			return false;
		if (i > KM_VISIT_SPINS)
			km_os_wait(&never, 0, 1);
		km_relax();
	}
	return true;
}

km_inline void km_visit_leave(struct km_visit *visit)
{
	if (visit->locked)
		km_visit_unlock(visit);
}

/* Before a fork: drains by others give up on what this thread has. In the child: a slot's lock is free, but for what
 * this thread has. */
void km_visits_fork_prepare(void);
void km_visit_fork_child(struct km_soft *soft);

/* The first word of a slot that was entered with its lock, or whose pair a commit compares, or by a drain. */
km_inline uintptr_t km_soft_look(struct km_visit *visit)
{
	/* Acquire pairs with the compare-and-swap: where an id is seen, the objects under it are. */
	visit->seen.second = km_percpu.discipline == KM_DISCIPLINE_CMPXCHG ?
				     km_load_acquire(&km_soft(visit)->pair.second) : 0;
	visit->seen.first = km_load_acquire(visit->word);
	return visit->top = visit->seen.first;
}

km_inline bool km_soft_commit(struct km_visit *visit, uintptr_t top)
{
	struct km_pair next = { top, visit->seen.second + 1 };

	km_debug(km_percpu.discipline != KM_DISCIPLINE_LOCK || visit->locked,
		 "under lock a word changes inside its slot's lock");
	if (km_percpu.discipline == KM_DISCIPLINE_CMPXCHG)
		return km_cas_pair(&km_soft(visit)->pair, &visit->seen, next);
	km_store(visit->word, top);
	return true;
}

/* As km_visit_enter and km_visit_look, of the soft disciplines: of hits and copies, which are no sequences there. */
km_inline bool km_soft_enter(struct km_visit *visit, const uint32_t *open, bool alone)
{
	uint32_t slot = km_load(open);

	km_debug(!km_visits_by_rseq(), "under rseq hits and copies are sequences");
	visit->locked = false;
	visit->tries = 0;
	return slot && km_visit_cpu(visit, slot, km_cpu(), alone || km_percpu.discipline == KM_DISCIPLINE_LOCK);
}

km_inline bool km_soft_try(struct km_visit *visit)
{
	if (visit->tries++ == KM_VISIT_TRIES)
		return false;
	km_soft_look(visit);
	return true;
}

/* Under rseq: a word that decides, as it is now. Three at most. The block may go meanwhile: it stays readable. */
km_inline uint64_t km_visit_read(struct km_visit *visit, const km_word *word)
{
	uint64_t is = km_load(word);

	km_debug(visit->reads < km_array_count(visit->commit.seen), "a commit compares three words at most");
	if (km_visits_by_rseq())
		visit->commit.seen[visit->reads++] = (struct km_seen){ word, is };
	return is;
}

/* Begin a try: visit->top is the slot's first word. False: closed, no CPU to speak of, or tried often enough. */
km_inline bool km_visit_look(struct km_visit *visit)
{
	if (visit->tries++ == KM_VISIT_TRIES)
		return false;
	km_debug(km_visits_by_rseq() || visit->word, "a verb looks at a slot that it entered");
	if (!km_visits_by_rseq()) {
		km_soft_look(visit);
		return true;
	}
	/* Acquire pairs with the release that opens it after a drain. */
	uint32_t slot = km_load_acquire(visit->open), cpu = km_cpu_of_thread();
	if (!slot || !km_cpu_is_online(cpu))
		return false;
	km_visit_cpu(visit, slot, cpu, false);
	visit->reads = 0;
	visit->top = km_visit_read(visit, visit->word);
	return true;
}

/*
 * *first = one (NULL: nothing), then *last = other, if nothing has changed that was looked at; false: look again.
 * `first` lies where nobody looks before `last` is stored, which is the slot's first word, or one that only holders of
 * the lock write.
 */
bool km_visit_commit(struct km_visit *visit, km_word *first, uint64_t one, km_word *last, uint64_t other);

/* Words from top to the end of its block. */
km_inline size_t km_visit_words(const struct km_pcs *pcs, uintptr_t top)
{
	return (pcs->sheaf_mask + 1 - (top & pcs->sheaf_mask)) / sizeof(void *);
}

#endif
