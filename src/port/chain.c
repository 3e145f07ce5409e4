/*
 * chain.c: the verbs of a chain: the rseq ones, or the soft ones (lock, cmpxchg), by the discipline in force.
 * Invariants of the soft ones: under lock everything happens inside the CPU's lock; under cmpxchg each change of
 * a freelist moves the transaction id, and slab and partial list are changed inside the lock, the slab only
 * while it reads 0 for everybody else. A lock that is taken is a miss: nobody waits but a drain and a fork.
 */
#include "bits.h"
#include "chain_hit.h"
#include "os.h"

/* How often a verb may lose a compare-and-swap, or be aborted, before it counts as a miss. */
#define TRIES 16
/* How long a drain or a fork waits for a lock: some spins, then about a second. */
#define WAIT_SPINS 100
#define WAIT_TRIES 1000

/* ------------------------------------------------------------------ the soft disciplines */

static struct km_chain_cpu *state_of(const struct km_chain *chain, unsigned cpu)
{
	return (struct km_chain_cpu *)(km_area(cpu) + chain->slot);
}

static bool is_cmpxchg(void)
{
	return km_percpu.discipline == KM_DISCIPLINE_CMPXCHG;
}

/* Acquire pairs with soft_unlock. */
static bool soft_trylock(struct km_chain_cpu *cpu)
{
	return !km_load(&cpu->lock) && !km_swap_acquire(&cpu->lock, 1u);
}

static void soft_unlock(struct km_chain_cpu *cpu)
{
	km_store_release(&cpu->lock, 0u);
}

/* This CPU's state, locked where asked or where the discipline wants it; NULL: a miss. */
static struct km_chain_cpu *soft_enter(const struct km_chain *chain, bool lock)
{
	uint32_t open = km_load(&chain->open);

	if (!open)
		return NULL;
	struct km_chain_cpu *cpu = (struct km_chain_cpu *)(km_area(km_cpu()) + open);
	if ((lock || !is_cmpxchg()) && !soft_trylock(cpu))
		return NULL;
	return cpu;
}

static void soft_leave(struct km_chain_cpu *cpu, bool locked)
{
	if (locked || !is_cmpxchg())
		soft_unlock(cpu);
}

/* Acquire pairs with the compare-and-swap: who sees an id sees the slab and the links that belong to it. */
static struct km_pair look(struct km_chain_cpu *cpu)
{
	struct km_pair seen;

	seen.second = km_load_acquire(&cpu->pair.second);
	seen.first = km_load_acquire(&cpu->pair.first);
	return seen;
}

static bool commit(struct km_chain_cpu *cpu, struct km_pair *seen, void *freelist)
{
	struct km_pair next = { (uintptr_t)freelist, seen->second + 1 };

	if (!is_cmpxchg()) {
		km_store(&cpu->top.freelist, freelist);
		return true;
	}
	if (km_cas_pair(&cpu->pair, seen, next))
		return true;
	km_add(&cpu->failures, 1ul);
	return false;
}

static uint64_t *slab_word(struct km_chain_cpu *cpu)
{
	return is_cmpxchg() ? &cpu->slab : &cpu->top.slab;
}

static void **link_of(const struct km_chain *chain, void *object)
{
	return (void **)((char *)object + chain->freeptr);
}

void *km_chain_soft_pop(struct km_chain *chain)
{
	struct km_chain_cpu *cpu = soft_enter(chain, false);
	void *object = NULL;

	if (!cpu)
		return NULL;
	for (int i = 0; i < TRIES; i++) {
		struct km_pair seen = look(cpu);

		object = (void *)(uintptr_t)seen.first;
		/* Under cmpxchg a speculative read: slab memory stays readable for ever. */
		if (!object || commit(cpu, &seen, km_load(link_of(chain, object))))
			break;
		object = NULL;
	}
	soft_leave(cpu, false);
	return object;
}

/*
 * Follow the links from `object`, up to count objects; *rest is where it stopped. False: a link leads out of
 * the slab, which under cmpxchg says that somebody took the object meanwhile and wrote to it.
 */
static bool follow(const struct km_chain *chain, uint64_t slab, void *object, void **out,
		   size_t count, size_t *moved, void **rest)
{
	size_t n = 0;

	for (; object && n < count; n++) {
		void **link = link_of(chain, object);

		if (!km_chain_tag_fits(slab, link) || ((uintptr_t)link & (sizeof(void *) - 1)))
			return false;
		out[n] = object;
		object = km_load(link);
	}
	*moved = n;
	*rest = object;
	return true;
}

size_t km_chain_soft_pop_n(struct km_chain *chain, void **out, size_t count)
{
	struct km_chain_cpu *cpu = soft_enter(chain, false);
	size_t moved = 0;

	if (!cpu)
		return 0;
	for (int i = 0; i < TRIES; i++) {
		struct km_pair seen = look(cpu);
		void *rest;

		moved = 0;
		if (!seen.first)
			break;
		if (follow(chain, km_load(slab_word(cpu)), (void *)(uintptr_t)seen.first, out,
			   count, &moved, &rest) && commit(cpu, &seen, rest))
			break;
		moved = 0;
	}
	soft_leave(cpu, false);
	return moved;
}

enum km_chain_push km_chain_soft_push(struct km_chain *chain, void *head, void *tail)
{
	struct km_chain_cpu *cpu = soft_enter(chain, false);
	enum km_chain_push result = KM_CHAIN_MISS;

	if (!cpu)
		return KM_CHAIN_MISS;
	for (int i = 0; i < TRIES && result == KM_CHAIN_MISS; i++) {
		struct km_pair seen = look(cpu);

		if (!km_chain_tag_fits(km_load(slab_word(cpu)), head))
			break;
		if ((uintptr_t)head == seen.first) {
			result = KM_CHAIN_TWICE;
			break;
		}
		km_store(link_of(chain, tail), (void *)(uintptr_t)seen.first);
		if (commit(cpu, &seen, head))
			result = KM_CHAIN_PUSHED;
	}
	soft_leave(cpu, false);
	return result;
}

/* Exchange what lies on a CPU; its lock is held. */
static void exchange(struct km_chain_cpu *cpu, struct km_chain_top new_top,
		     struct km_chain_top *old)
{
	uint64_t *slab = slab_word(cpu);
	struct km_pair seen;

	old->slab = *slab;
	km_store(slab, (uint64_t)0);
	do
		seen = look(cpu);
	while (!commit(cpu, &seen, new_top.freelist));
	old->freelist = (void *)(uintptr_t)seen.first;
	/* Release pairs with the acquire in look: nobody sees the slab with an id from before it. */
	km_store_release(slab, new_top.slab);
}

static bool soft_swap(const struct km_chain *chain, struct km_chain_top new_top,
		      struct km_chain_top *old)
{
	struct km_chain_cpu *cpu = soft_enter(chain, true);

	if (!cpu)
		return false;
	exchange(cpu, new_top, old);
	soft_leave(cpu, true);
	return true;
}

static struct km_chain_link *soft_partial_pop(const struct km_chain *chain)
{
	struct km_chain_cpu *cpu = soft_enter(chain, true);
	struct km_chain_link *link;

	if (!cpu)
		return NULL;
	link = cpu->partial;
	if (link)
		km_store(&cpu->partial, link->next);
	soft_leave(cpu, true);
	return link;
}

static bool soft_partial_push(const struct km_chain *chain, struct km_chain_link *link,
			      uint64_t most, struct km_chain_link **drained)
{
	struct km_chain_cpu *cpu = soft_enter(chain, true);

	if (!cpu)
		return false;
	struct km_chain_link *next = cpu->partial;
	*drained = NULL;
	if (next && next->count >= most) {
		*drained = next;
		next = NULL;
	}
	km_store(&link->next, next);
	km_store(&link->count, next ? next->count + 1 : 1);
	km_store(&cpu->partial, link);
	soft_leave(cpu, true);
	return true;
}

/* ------------------------------------------------------------------ the verbs */

bool km_chain_swap(struct km_chain *chain, struct km_chain_top new_top, struct km_chain_top *old)
{
	for (int i = 0; i < TRIES; i++)
		if (KM_RSEQ(chain_swap, (chain, km_percpu.base, km_thread_rseq, &new_top, old),
			    soft_swap(chain, new_top, old)))
			return true;
		else if (!km_load(&chain->open))
			break;
	return false;
}

struct km_chain_link *km_chain_partial_pop(struct km_chain *chain)
{
	return KM_RSEQ(chain_partial_pop, (chain, km_percpu.base, km_thread_rseq),
		       soft_partial_pop(chain));
}

bool km_chain_partial_push(struct km_chain *chain, struct km_chain_link *link, uint64_t most,
			   struct km_chain_link **drained)
{
	for (int i = 0; i < TRIES; i++)
		if (KM_RSEQ(chain_partial_push, (chain, km_percpu.base, km_thread_rseq, link, most, drained),
			    soft_partial_push(chain, link, most, drained)))
			return true;
		else if (!km_load(&chain->open))
			break;
	return false;
}

/* ------------------------------------------------------------------ coming and going */

bool km_chain_init(struct km_chain *chain, uint32_t freeptr)
{
	chain->freeptr = freeptr;
	chain->slot = km_percpu_alloc(sizeof(struct km_chain_cpu));
	km_store_release(&chain->open, chain->slot);
	return chain->slot != 0;
}

void km_chain_fini(struct km_chain *chain)
{
	if (!chain->slot)
		return;
	km_chain_close(chain);
	/* No sequence may hold the offset when somebody else gets it: better to lose the words. */
	if (km_chain_fence()) {
		km_for_each_cpu(cpu)
			*state_of(chain, cpu) = (struct km_chain_cpu){ .partial = NULL };
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

bool km_chain_fence(void)
{
	return km_percpu.discipline != KM_DISCIPLINE_RSEQ || km_os_barrier() == 0;
}

void km_chain_open(struct km_chain *chain)
{
	km_store_release(&chain->open, chain->slot);
}

/* The holder may have lost its CPU for a while. False: it does not let go, as when we interrupted it. */
static bool wait_for_lock(struct km_chain_cpu *cpu)
{
	static uint32_t never;

	for (int i = 0; !soft_trylock(cpu); i++) {
		if (i == WAIT_TRIES)
			return false;
		if (i > WAIT_SPINS)
			km_os_wait(&never, 0, 1);
		km_relax();
	}
	return true;
}

void km_chain_take_cpu(struct km_chain *chain, unsigned cpu, struct km_chain_top *top,
		       struct km_chain_link **partial)
{
	struct km_chain_cpu *state = state_of(chain, cpu);
	bool rseq = km_percpu.discipline == KM_DISCIPLINE_RSEQ;

	*top = (struct km_chain_top){ NULL, 0 };
	*partial = NULL;
	/* What can't be had now a later drain finds. */
	if (!rseq && !wait_for_lock(state))
		return;
	if (rseq) {
		*top = state->top;
		state->top = (struct km_chain_top){ NULL, 0 };
	} else {
		exchange(state, *top, top);
	}
	*partial = state->partial;
	km_store(&state->partial, NULL);
	if (!rseq)
		soft_unlock(state);
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

		if (before) {
			cpu->for_fork = wait_for_lock(cpu);
		} else if (child || cpu->for_fork) {
			cpu->for_fork = 0;
			soft_unlock(cpu);
		}
	}
}

_Static_assert(sizeof(struct km_chain_cpu) == KM_CACHE_LINE, "one line a CPU");
