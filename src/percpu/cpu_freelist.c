/*
 * cpu_freelist.c: operations on a chain: rseq operations, or soft operations (lock, cmpxchg), by the discipline in
 * force. Soft invariants: under lock all accesses are inside the CPU's lock. Under cmpxchg each change of a
 * freelist moves the transaction id. The slab and the partial list change inside the lock, and the slab changes
 * only while other threads read it as 0. A taken lock is a miss: only a drain and a fork wait.
 */
#include "base/bits.h"
#include "cpu_freelist_hit.h"
#include "os/die.h"
#include "visit.h"

static struct km_chain_cpu *state_of(const struct km_chain *chain, unsigned cpu)
{
	return (struct km_chain_cpu *)(km_area(cpu) + chain->slot);
}

static struct km_chain_cpu *state_at(const struct km_visit *visit)
{
	return (struct km_chain_cpu *)visit->word;
}

/* Returns: the tag's word. It follows the freelist, except under cmpxchg, where the transaction id follows the
 * freelist: a compare-and-swap covers two words. */
static uint64_t *slab_word(struct km_chain_cpu *cpu)
{
	return km_percpu.discipline == KM_DISCIPLINE_CMPXCHG ? &cpu->slab : &cpu->top.slab;
}

static void **link_of(const struct km_chain *chain, void *object)
{
	return (void **)((char *)object + chain->freeptr);
}

/* ------------------------------------------------------------------ hits, soft */

/* Commits a new freelist, and counts a lost compare-and-swap, as the kernel does: KMEM_CMPXCHG_DOUBLE_CPU_FAIL. */
static bool commit(struct km_visit *visit, void *freelist)
{
	bool done = km_soft_commit(visit, (uintptr_t)freelist);

	if (!done)
		km_add(&state_at(visit)->failures, 1ul);
	return done;
}

void *km_chain_soft_pop(struct km_chain *chain)
{
	km_visit_scope(visit, &chain->open, false);

	while (km_soft_try(&visit)) {
		void *object = (void *)visit.top;

		/* Under cmpxchg the object may be another thread's by now; the read is harmless, because slab memory
		 * stays readable for ever. */
		if (!object || commit(&visit, km_load(link_of(chain, object))))
			return object;
	}
	return NULL;
}

/* Follow the links from `object`, up to count objects; *rest is the next object. Returns: the number of objects; 0 if a
 * link leads out of the slab. Under cmpxchg another thread has then taken the object and written to it. */
static size_t follow(const struct km_chain *chain, uint64_t slab, void *object, void **out, size_t count, void **rest)
{
	size_t n = 0;

	for (; object && n < count; n++) {
		void **link = link_of(chain, object);

		if (!km_chain_tag_fits(slab, link) || ((uintptr_t)link & (sizeof(void *) - 1)))
			return 0;
		out[n] = object;
		object = km_load(link);
	}
	*rest = object;
	return n;
}

size_t km_chain_soft_pop_n(struct km_chain *chain, void **out, size_t count)
{
	km_visit_scope(visit, &chain->open, false);

	while (km_soft_try(&visit) && visit.top) {
		uint64_t slab = km_load(slab_word(state_at(&visit)));
		void *rest;
		size_t moved = follow(chain, slab, (void *)visit.top, out, count, &rest);

		if (moved && commit(&visit, rest))
			return moved;
	}
	return 0;
}

/* Pushes a chain of objects. The tail's link is written before the commit: the objects are still the caller's, and a
 * push that loses writes the link again. */
enum km_chain_push km_chain_soft_push(struct km_chain *chain, void *head, void *tail)
{
	km_visit_scope(visit, &chain->open, false);

	while (km_soft_try(&visit) && km_chain_tag_fits(km_load(slab_word(state_at(&visit))), head)) {
		if ((uintptr_t)head == visit.top)
			return KM_CHAIN_TWICE;
		km_store(link_of(chain, tail), (void *)visit.top);
		if (commit(&visit, head))
			return KM_CHAIN_PUSHED;
	}
	return KM_CHAIN_MISS;
}

/* Exchange a CPU's freelist and slab. Requires: the CPU's lock. The tag is 0 between the two changes. A push that reads
 * the tag meanwhile fits no slab, and misses. An earlier push loses its compare-and-swap, because the exchange moves
 * the id. */
static void exchange(struct km_visit *visit, struct km_chain_top new_top, struct km_chain_top *old)
{
	uint64_t *slab = slab_word(state_at(visit));

	km_debug(!new_top.freelist || km_chain_tag_fits(new_top.slab, new_top.freelist),
		 "a freelist is of the slab that the tag names");

	km_debug(visit->locked || km_visits_by_rseq(), "without sequences a slab changes under its CPU's lock");
	old->slab = *slab;
	km_store(slab, (uint64_t)0);
	do
		old->freelist = (void *)km_soft_look(visit);
	while (!commit(visit, new_top.freelist));
	/* Release pairs with the acquire in km_visit_look: no thread sees the new slab with an older transaction id. */
	km_store_release(slab, new_top.slab);
}

static bool soft_swap(const struct km_chain *chain, struct km_chain_top new_top, struct km_chain_top *old)
{
	km_visit_scope(visit, &chain->open, true);

	if (!km_soft_try(&visit))
		return false;
	exchange(&visit, new_top, old);
	return true;
}

/* ------------------------------------------------------------------ operations */

bool km_chain_swap(struct km_chain *chain, struct km_chain_top new_top, struct km_chain_top *old)
{
	for (int i = 0; i < KM_VISIT_TRIES; i++)
		if (KM_RSEQ(chain_swap, (chain, km_percpu.base, km_thread_rseq, &new_top, old),
			    soft_swap(chain, new_top, old)))
			return true;
		else if (!km_load(&chain->open))
			break;
	return false;
}

/* The commit compares the successor as well: a slab that left the list and came back before another slab is no
 * match. */
struct km_chain_link *km_chain_partial_pop(struct km_chain *chain)
{
	km_visit_scope(visit, &chain->open, true);

	while (km_visit_look(&visit)) {
		km_word *partial = (km_word *)&state_at(&visit)->partial;
		struct km_chain_link *link = (struct km_chain_link *)km_visit_read(&visit, partial);

		if (!link || km_visit_commit(&visit, NULL, 0, partial,
					     km_visit_read(&visit, (const km_word *)&link->next)))
			return link;
	}
	return NULL;
}

/* Each try writes the link of the new slab. The commit compares the count of the list's first slab, because the count
 * decides. */
bool km_chain_partial_push(struct km_chain *chain, struct km_chain_link *link, uint64_t most,
			   struct km_chain_link **drained)
{
	km_visit_scope(visit, &chain->open, true);

	while (km_visit_look(&visit)) {
		km_word *partial = (km_word *)&state_at(&visit)->partial;
		struct km_chain_link *next = (struct km_chain_link *)km_visit_read(&visit, partial);
		uint64_t count = next ? km_visit_read(&visit, &next->count) : 0;
		bool full = next && count >= most;

		km_debug(next != link, "a slab is on a CPU's list once");
		*drained = full ? next : NULL;
		km_store(&link->next, full ? NULL : next);
		km_store(&link->count, full ? 1 : count + 1);
		if (km_visit_commit(&visit, NULL, 0, partial, (uintptr_t)link))
			return true;
	}
	return false;
}

void km_chain_cut(struct km_chain *chain)
{
	km_visit_scope(visit, &chain->open, true);

	while (km_visit_look(&visit) && visit.top && !km_visit_commit(&visit, NULL, 0, visit.word, 0))
		;
}

/* ------------------------------------------------------------------ making and ending */

bool km_chain_init(struct km_chain *chain, uint32_t freeptr)
{
	chain->freeptr = freeptr;
	km_debug(freeptr % sizeof(void *) == 0, "the link in a free object is aligned");
	chain->slot = km_percpu_alloc(sizeof(struct km_chain_cpu));
	km_store_release(&chain->open, chain->slot);
	return chain->slot != 0;
}

void km_chain_fini(struct km_chain *chain)
{
	if (!chain->slot)
		return;
	km_chain_close(chain);
	/* Without a fence a sequence may still use the offset: the words are never reused. */
	if (km_pcs_fence()) {
		km_for_each_cpu(cpu)
			km_debug(!state_of(chain, cpu)->top.freelist && !state_of(chain, cpu)->partial,
				 "a released chain has no objects");
		km_percpu_free(chain->slot, sizeof(struct km_chain_cpu));
	}
	chain->slot = 0;
	km_store(&chain->open, 0u);
}

void km_chain_close(struct km_chain *chain)
{
	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ)
		km_store(&chain->open, 0u);
}

void km_chain_open(struct km_chain *chain)
{
	km_store_release(&chain->open, chain->slot);
}

void km_chain_take_cpu(struct km_chain *chain, unsigned cpu, struct km_chain_top *top, struct km_chain_link **partial)
{
	struct km_visit visit;

	*top = (struct km_chain_top){ NULL, 0 };
	*partial = NULL;
	/* If the lock stays taken, this CPU is left to a later drain. */
	if (!km_visit_wait(&visit, chain->slot, cpu))
		return;
	km_debug(!km_visits_by_rseq() || !km_load(&chain->open), "a chain is closed during its drain");
	exchange(&visit, *top, top);
	*partial = state_at(&visit)->partial;
	km_store(&state_at(&visit)->partial, NULL);
	km_visit_leave(&visit);
}

void km_chain_look_cpu(const struct km_chain *chain, unsigned cpu, struct km_chain_top *top,
		       struct km_chain_link **partial)
{
	struct km_chain_cpu *state = state_of(chain, cpu);

	top->slab = km_load(slab_word(state));
	top->freelist = km_load(&state->top.freelist);
	*partial = km_load(&state->partial);
}

uint64_t km_chain_failures(const struct km_chain *chain)
{
	uint64_t failures = 0;

	if (chain->slot)
		km_for_each_cpu(cpu)
			failures += km_load(&state_of(chain, cpu)->failures);
	return failures;
}

void km_chain_clear_failures(struct km_chain *chain)
{
	if (chain->slot)
		km_for_each_cpu(cpu)
			km_store(&state_of(chain, cpu)->failures, (uint64_t)0);
}

void km_chain_fork(struct km_chain *chain, bool before, bool child)
{
	if (!chain->slot || km_percpu.discipline == KM_DISCIPLINE_RSEQ)
		return;
	km_for_each_cpu(i) {
		struct km_chain_cpu *cpu = state_of(chain, i);
		struct km_visit visit;

		if (before) {
			cpu->for_fork = km_visit_wait(&visit, chain->slot, i);
			if (!cpu->for_fork)
				continue;
			/* Mark the lock: a drain by a signal handler of this thread gives up at once. */
			km_store(&cpu->soft.lock, (uint32_t)KM_SOFT_FORKING);
			km_visit_keep(&visit);
			continue;
		}
		if (child)
			km_visit_fork_child(&cpu->soft);
		else if (cpu->for_fork)
			km_store_release(&cpu->soft.lock, (uint32_t)KM_SOFT_FREE);
		cpu->for_fork = 0;
	}
}

_Static_assert(sizeof(struct km_chain_cpu) == KM_CACHE_LINE, "one line a CPU");
