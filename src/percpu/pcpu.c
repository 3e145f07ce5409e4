/*
 * pcpu.c: the per-CPU operations for all callers but the fast path: rseq operations, or soft operations (lock,
 * cmpxchg), by the discipline in force. Invariant: see visit.h.
 *
 * Hits, copies and the swap are sequences under rseq, and have a soft half here. The other operations store two
 * words at most. They are C code and one commit, the same under every discipline.
 *
 * A soft pop under cmpxchg has no lock. Between its look at the word and its compare-and-swap, the sheaf may move to
 * another CPU, or to the engine. Reading such a sheaf is harmless, because sheaves are library memory and stay readable
 * for ever. The compare-and-swap then fails, because each change of the word moves the transaction id. A push takes the
 * lock, because a push writes below the top before the commit, and two pushes at once would write to one place. A pop
 * reads at the top and a push writes below the top, never at the same place.
 *
 * Each operation ends: a try that loses is counted, and after KM_VISIT_TRIES tries the operation is a miss.
 */
#include "base/bits.h"
#include "os/die.h"
#include "visit.h"

static km_word *header_at(const struct km_pcs *pcs, const struct km_visit *visit, uintptr_t top)
{
	return (km_word *)(visit->area + (top | pcs->sheaf_mask) - 7);
}

static void **at(const struct km_visit *visit, uintptr_t top)
{
	return (void **)(visit->area + top);
}

/* ------------------------------------------------------------------ hits and copies, soft */

static bool is_of(const struct km_visit *visit, uintptr_t owner)
{
	return km_load(&km_soft(visit)->owner) == owner;
}

size_t km_soft_pop_n(struct km_pcs *pcs, uintptr_t owner, void **out, size_t count)
{
	km_visit_scope(visit, &pcs->inner.pcs, false);

	while (km_soft_try(&visit) && is_of(&visit, owner)) {
		void **top = at(&visit, visit.top);
		size_t there = visit.top ? km_sheaf_objects(pcs, top) : 0;
		/* Under cmpxchg the sheaf may have left this CPU: do not read beyond its end. */
		size_t moved = km_min(km_min(there, km_visit_words(pcs, visit.top)), count);

		for (size_t i = 0; i < moved; i++)
			out[count - moved + i] = km_load(top + i);
		if (!moved || km_soft_commit(&visit, visit.top + moved * 8))
			return moved;
	}
	return 0;
}

size_t km_soft_push_n(struct km_pcs *pcs, uintptr_t owner, void *const *in, size_t count)
{
	km_visit_scope(visit, &pcs->inner.pcs, true);

	while (km_soft_try(&visit) && is_of(&visit, owner)) {
		size_t moved = km_min((visit.top & km_load(&pcs->inner.mask)) / 8, count);

		/* Only the holder of the lock writes below the top. */
		km_debug(visit.locked, "a thread that writes below top holds the lock of the per-CPU offset");
		for (size_t i = 0; i < moved; i++)
			km_store(at(&visit, visit.top) - moved + i, in[count - moved + i]);
		if (!moved || km_soft_commit(&visit, visit.top - moved * 8))
			return moved;
	}
	return 0;
}

/*
 * Move half of the difference from sheaf `from` to sheaf `to`, if `from` has more by more than `bytes`. The copied
 * objects lie below the top of `to`, where no other thread reads.
 *
 * Requires: the lock. The lock excludes pushes and other swaps, and a pop under cmpxchg commits on the word alone.
 * So the holder owns the headers and the words below the tops. A pop of an object meanwhile has moved the id.
 */
static void share(const struct km_pcs *pcs, const struct km_visit *visit, uintptr_t *from,
		  uintptr_t *to, uint32_t bytes)
{
	uintptr_t high = *to & pcs->sheaf_mask, low = *from & pcs->sheaf_mask;

	km_debug(visit->locked, "the sheaf header and the words below top change under the lock");
	if (high <= low || high - low <= bytes)
		return;
	size_t count = (high - low) / 2 / 8;
	for (size_t i = 0; i < count; i++)
		km_store(at(visit, *to) - count + i, km_load(at(visit, *from) + i));
	km_debug(count * 8 <= high, "a sheaf has room for the moved objects");
	*to -= count * 8;
	*from += count * 8;
}

static bool soft_swap(struct km_pcs *pcs, bool for_pop, uint32_t bytes)
{
	km_visit_scope(visit, &pcs->inner.pcs, true);

	while (km_soft_try(&visit)) {
		uintptr_t top = visit.top, spare = top ? km_load(header_at(pcs, &visit, top)) : 0;

		if (!spare || (for_pop ? !km_load(at(&visit, spare)) : !(spare & km_load(&pcs->inner.mask))))
			return false;
		if (for_pop)
			share(pcs, &visit, &spare, &top, bytes);
		else
			share(pcs, &visit, &top, &spare, bytes);
		km_store(header_at(pcs, &visit, spare), (uint64_t)top);
		if (km_soft_commit(&visit, spare))
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------ operations of one commit */

/* The compared words show the sheaf empty: the word leads to the sheaf, the first object is still NULL (for_pop), and
 * the header still names the spare, the next main. If these three values are unchanged, the sheaf is empty now, despite
 * any change and change back. Full (for a push) is read from the word itself. */
void **km_pcs_detach(struct km_pcs *pcs, bool for_pop, bool lone)
{
	km_visit_scope(visit, &pcs->inner.pcs, true);

	while (km_visit_look(&visit) && visit.top) {
		if (for_pop ? km_visit_read(&visit, (km_word *)at(&visit, visit.top)) != 0 :
			      (visit.top & km_load(&pcs->inner.mask)) != 0)
			return NULL;
		uintptr_t spare = km_visit_read(&visit, header_at(pcs, &visit, visit.top));
		if (!spare && !lone)
			return NULL;
		if (km_visit_commit(&visit, spare ? header_at(pcs, &visit, spare) : NULL, 0, visit.word, spare))
			return at(&visit, visit.top);
	}
	return NULL;
}

/* The first store is the header of the new sheaf, invisible to other threads before the word leads to the new sheaf.
 * The former main becomes the spare. The former spare is detached, and belongs to the caller. */
bool km_pcs_install(struct km_pcs *pcs, void **sheaf, void ***evicted)
{
	km_visit_scope(visit, &pcs->inner.pcs, true);

	while (km_visit_look(&visit)) {
		uintptr_t offset = (uintptr_t)sheaf - visit.area;

		km_debug(offset != visit.top, "an installed sheaf is on no CPU");
		uintptr_t spare = visit.top ? km_visit_read(&visit, header_at(pcs, &visit, visit.top)) : 0;

		*evicted = spare ? at(&visit, spare) : NULL;
		if (km_visit_commit(&visit, header_at(pcs, &visit, offset), visit.top, visit.word, offset))
			return true;
	}
	return false;
}

/* Takes the CPU's spare. Only the holder of the lock uses the main sheaf's header, because a pop without the lock stays
 * within the main sheaf. */
void **km_pcs_take_spare(struct km_pcs *pcs)
{
	km_visit_scope(visit, &pcs->inner.pcs, true);

	while (km_visit_look(&visit) && visit.top) {
		km_word *header = header_at(pcs, &visit, visit.top);
		uintptr_t spare = km_visit_read(&visit, header);

		if (!spare)
			return NULL;
		if (km_visit_commit(&visit, NULL, 0, header, 0))
			return at(&visit, spare);
	}
	return NULL;
}

/* The commit compares the word, too: after a change of the word the header may belong to another sheaf. */
bool km_pcs_put_spare(struct km_pcs *pcs, void **sheaf)
{
	km_visit_scope(visit, &pcs->inner.pcs, true);

	while (km_visit_look(&visit) && visit.top) {
		km_word *header = header_at(pcs, &visit, visit.top);

		if (km_visit_read(&visit, header))
			return false;
		if (km_visit_commit(&visit, NULL, 0, header, (uintptr_t)sheaf - visit.area))
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------ hits and copies */

void *km_pcs_pop(struct km_pcs *pcs)
{
	void *object;

	return KM_RSEQ(pop, (&pcs->inner, km_percpu.base, km_thread_rseq),
		       km_soft_pop_n(pcs, 0, &object, 1) ? object : NULL);
}

bool km_pcs_push(struct km_pcs *pcs, void *object)
{
	return KM_RSEQ(push, (&pcs->inner, km_percpu.base, km_thread_rseq, object),
		       km_soft_push_n(pcs, 0, &object, 1) == 1);
}

size_t km_pcs_pop_n(struct km_pcs *pcs, void **out, size_t count)
{
	return KM_RSEQ(pop_n, (&pcs->inner, pcs->sheaf_mask, km_percpu.base, km_thread_rseq, out, count * 8) / 8,
		       km_soft_pop_n(pcs, 0, out, count));
}

size_t km_pcs_push_n(struct km_pcs *pcs, void *const *in, size_t count)
{
	return KM_RSEQ(push_n, (&pcs->inner, km_percpu.base, km_thread_rseq, in, count * 8) / 8,
		       km_soft_push_n(pcs, 0, in, count));
}

bool km_pcs_swap(struct km_pcs *pcs, bool for_pop, bool share)
{
	uint32_t bytes = share ? km_load(&pcs->inner.mask) / 2 : UINT32_MAX;

	return KM_RSEQ(swap, (&pcs->inner, pcs->sheaf_mask, km_percpu.base, km_thread_rseq, for_pop, bytes),
		       soft_swap(pcs, for_pop, bytes));
}

/* Closes the pcs: clears both words that lead to it, one read by hits, the other by the operations of this file. */
void km_pcs_close(struct km_pcs *pcs)
{
	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ) {
		km_store(&pcs->front.open.pcs, 0u);
		km_store(&pcs->inner.pcs, 0u);
	}
}

/* Waits until no sequence that began before the call is in progress. Membarrier aborts the sequences of all threads of
 * the process: an interrupt to each CPU that runs such a thread. Returns: false if the system refuses. */
bool km_pcs_fence(void)
{
	return km_percpu.discipline != KM_DISCIPLINE_RSEQ || km_os_barrier() == 0;
}

void km_pcs_open(struct km_pcs *pcs, bool to_hot_path)
{
	km_debug(!pcs->slot || pcs->inner.mask <= pcs->sheaf_mask,
		 "the mask of per-CPU sheaves is at most the mask of a sheaf");
	km_store_release(&pcs->inner.pcs, pcs->slot);
	if (to_hot_path && km_percpu.discipline == KM_DISCIPLINE_RSEQ)
		km_store_release(&pcs->front.open.pcs, pcs->slot);
}

/* Returns: the word that holds the CPU's top. The top is the first per-CPU word of a pcs under every discipline, so
 * that kmem info can count objects from outside without knowing the discipline. */
static uint64_t *word_of(const struct km_pcs *pcs, unsigned cpu)
{
	return (uint64_t *)(km_area(cpu) + pcs->slot);
}

void km_pcs_take_cpu(struct km_pcs *pcs, unsigned cpu, void ***main_sheaf, void ***spare)
{
	struct km_visit visit;
	uintptr_t top, other;

	*main_sheaf = *spare = NULL;
	if (!km_visit_wait(&visit, pcs->slot, cpu))
		return;
	km_debug(!km_visits_by_rseq() || !km_load(&pcs->inner.pcs), "per-CPU sheaves are closed during their drain");
	do
		top = km_soft_look(&visit);
	while (!km_soft_commit(&visit, 0));
	other = top ? km_load(header_at(pcs, &visit, top)) : 0;
	km_debug(!top || other != top, "the spare sheaf is not the main sheaf");
	km_debug(!top || km_sheaf_objects(pcs, at(&visit, top)) <= km_mask_capacity(pcs->sheaf_mask),
		 "a sheaf has at most as many objects as fit");
	*main_sheaf = top ? at(&visit, top) : NULL;
	*spare = other ? at(&visit, other) : NULL;
	km_visit_leave(&visit);
}

bool km_pcs_put_cpu(struct km_pcs *pcs, unsigned cpu, void **sheaf)
{
	struct km_visit visit;

	km_store(km_sheaf_header(pcs, sheaf), (uint64_t)0);
	km_debug(!km_visits_by_rseq() || !km_load(&pcs->inner.pcs), "per-CPU sheaves are closed during their drain");
	if (!km_visit_cpu(&visit, pcs->slot, cpu, !km_visits_by_rseq()))
		return false;
	bool done = !km_soft_look(&visit) && km_soft_commit(&visit, (uintptr_t)sheaf - visit.area);
	km_visit_leave(&visit);
	return done;
}

/* Free the locks of threads missing in the child. Each operation commits with one store, so an operation of such a
 * thread has happened in full or not at all. */
void km_pcs_fork_child(struct km_pcs *pcs)
{
	struct km_visit visit;

	if (!pcs->slot || km_percpu.discipline == KM_DISCIPLINE_RSEQ)
		return;
	km_for_each_cpu(cpu) {
		km_visit_cpu(&visit, pcs->slot, cpu, false);
		km_visit_fork_child(km_soft(&visit));
	}
}

uint64_t km_pcs_top_cpu(const struct km_pcs *pcs, unsigned cpu)
{
	return km_load(word_of(pcs, cpu));
}

static uintptr_t spare_of(const struct km_pcs *pcs, uintptr_t area, uintptr_t top)
{
	return top ? km_load_speculative(km_sheaf_header(pcs, (void **)(area + top))) : 0;
}

bool km_pcs_has_spare_cpu(const struct km_pcs *pcs, unsigned cpu)
{
	return spare_of(pcs, (uintptr_t)km_area(cpu), km_load(word_of(pcs, cpu))) != 0;
}

/* Returns: objects from offset `top` to the bottom of its sheaf, whose pad is known; 0 for an impossible count. */
static size_t count_above(const struct km_pcs *pcs, uintptr_t top, uint64_t pad)
{
	size_t count = (pcs->sheaf_mask - 15 - (top & pcs->sheaf_mask) - pad) / sizeof(void *);

	return count <= pcs->sheaf_mask / sizeof(void *) ? count : 0;
}

/* Count objects without a lock. The main sheaf may leave the CPU meanwhile, and its words become meaningless. The
 * memory stays readable, but the spare's offset may then be arbitrary and must not be followed. So the spare is counted
 * by its offset and the main sheaf's pad: both sheaves have the same pad, except after a race. */
size_t km_pcs_count_cpu(const struct km_pcs *pcs, unsigned cpu)
{
	uintptr_t area = (uintptr_t)km_area(cpu), top = km_load(word_of(pcs, cpu));

	if (!top)
		return 0;
	uint64_t pad = km_load_speculative(km_sheaf_pad(pcs, (void **)(area + top)));
	uintptr_t spare = spare_of(pcs, area, top);
	return count_above(pcs, top, pad) + (spare ? count_above(pcs, spare, pad) : 0);
}

static void fork_lock(uint32_t offset, unsigned cpu, bool before, bool child)
{
	km_lock_around_fork((struct km_lock *)(km_area(cpu) + offset), before, child);
}

void km_percpu_fork_locks(uint32_t offset, enum km_rank rank, uint64_t *taken, bool before, bool child)
{
	/* A nested fork must not overwrite `taken`: another thread's fork may be in progress. */
	if (km_fork_is_nested()) {
		km_for_each_cpu(cpu) {
			km_lock_rank((struct km_lock *)(km_area(cpu) + offset), rank);
			fork_lock(offset, cpu, before, child);
		}
	} else {
		if (before)
			km_for_each_cpu(cpu)
				taken[cpu / 64] |= 1ull << cpu % 64;
		for (unsigned cpu = 0; cpu < km_percpu.cpus; cpu++)
			if (taken[cpu / 64] >> cpu % 64 & 1)
				fork_lock(offset, cpu, before, child);
	}
	if (child || (!before && !km_fork_is_nested()))
		__builtin_memset(taken, 0, KM_MAX_CPUS / 8);
}
