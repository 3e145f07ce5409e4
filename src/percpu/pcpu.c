/*
 * pcpu.c: the verbs for everybody but the hot path: the rseq ones, or the soft ones (lock, cmpxchg), by the
 * discipline in force. Invariant: see visit.h.
 *
 * Hits, copies and the swap are sequences under rseq, and have a soft half here. The other verbs store two words at
 * most: they are C and one commit, the same under every discipline.
 *
 * A soft pop under cmpxchg has no lock. Between its look at the word and its compare-and-swap the block may have gone
 * to another CPU, or to the engine. The read of such a block does no harm, because blocks are memory of ours, which
 * stays readable for ever; and the compare-and-swap fails, because each change of the word has moved the transaction
 * id. A push does have the lock, because it writes below the top before it commits, and two pushes at once would write
 * to one place. A pop reads at the top and a push writes below it: never the same place.
 *
 * Each verb ends: a try that lost says so, and after KM_VISIT_TRIES of them the verb has missed.
 */
#include "base/bits.h"
#include "os/die.h"
#include "visit.h"

static km_word *header_at(const struct km_shelf *shelf, const struct km_visit *visit, uintptr_t top)
{
	return (km_word *)(visit->area + (top | shelf->block_mask) - 7);
}

static void **at(const struct km_visit *visit, uintptr_t top)
{
	return (void **)(visit->area + top);
}

/* ------------------------------------------------------------------ the hits and the copies, softly */

static bool is_of(const struct km_visit *visit, uintptr_t owner)
{
	return km_load(&km_soft(visit)->owner) == owner;
}

void *km_soft_pop(struct km_shelf *shelf, uintptr_t owner)
{
	struct km_visit visit;
	void *object = NULL;

	if (!km_soft_enter(&visit, &shelf->inner.shelf, false))
		return NULL;
	while (km_soft_try(&visit) && is_of(&visit, owner)) {
		/* Under cmpxchg a speculative read: blocks stay readable for ever. */
		object = km_load(at(&visit, visit.top));
		if (!object || km_soft_commit(&visit, visit.top + 8))
			break;
		object = NULL;
	}
	km_visit_leave(&visit);
	return object;
}

size_t km_soft_pop_n(struct km_shelf *shelf, uintptr_t owner, void **out, size_t count)
{
	struct km_visit visit;
	size_t moved = 0;

	if (!km_soft_enter(&visit, &shelf->inner.shelf, false))
		return 0;
	while (km_soft_try(&visit) && is_of(&visit, owner)) {
		void **top = at(&visit, visit.top);
		size_t there = visit.top ? km_block_count(shelf, top) : 0;

		/* Under cmpxchg the block may be somebody's else by now: stay inside of it. */
		moved = km_min(km_min(there, km_visit_words(shelf, visit.top)), count);
		for (size_t i = 0; i < moved; i++)
			out[count - moved + i] = km_load(top + i);
		if (!moved || km_soft_commit(&visit, visit.top + moved * 8))
			break;
		moved = 0;
	}
	km_visit_leave(&visit);
	return moved;
}

size_t km_soft_push_n(struct km_shelf *shelf, uintptr_t owner, void *const *in, size_t count)
{
	struct km_visit visit;
	size_t moved = 0;

	if (!km_soft_enter(&visit, &shelf->inner.shelf, true))
		return 0;
	while (km_soft_try(&visit) && is_of(&visit, owner)) {
		moved = km_min((visit.top & km_load(&shelf->inner.mask)) / 8, count);
		/* Below top only the holder of the lock writes. */
		km_debug(visit.locked, "who writes below a top has its slot's lock");
		for (size_t i = 0; i < moved; i++)
			km_store(at(&visit, visit.top) - moved + i, in[count - moved + i]);
		if (!moved || km_soft_commit(&visit, visit.top - moved * 8))
			break;
		moved = 0;
	}
	km_visit_leave(&visit);
	return moved;
}

/*
 * The lock keeps pushes and other swaps away, and a pop under cmpxchg commits on the word alone: so the blocks' headers
 * and what lies below their tops are this verb's. A pop that took an object meanwhile has moved the id.
 *
 * Where `from` has that much more than `to`, half of it moves; what is copied lies where nobody looks.
 */
static void share(const struct km_shelf *shelf, const struct km_visit *visit, uintptr_t *from,
		  uintptr_t *to, uint32_t bytes)
{
	uintptr_t high = *to & shelf->block_mask, low = *from & shelf->block_mask;

	km_debug(visit->locked, "a block's header and what lies below its top are the holder's of the lock");
	if (high <= low || high - low <= bytes)
		return;
	size_t count = (high - low) / 2 / 8;
	for (size_t i = 0; i < count; i++)
		km_store(at(visit, *to) - count + i, km_load(at(visit, *from) + i));
	km_debug(count * 8 <= high, "a block has room for what is moved to it");
	*to -= count * 8;
	*from += count * 8;
}

static bool soft_swap(struct km_shelf *shelf, bool for_pop, uint32_t bytes)
{
	struct km_visit visit;
	bool done = false;

	if (!km_soft_enter(&visit, &shelf->inner.shelf, true))
		return false;
	while (!done && km_soft_try(&visit)) {
		uintptr_t top = visit.top, partner = top ? km_load(header_at(shelf, &visit, top)) : 0;

		if (!partner || (for_pop ? !km_load(at(&visit, partner)) : !(partner & km_load(&shelf->inner.mask))))
			break;
		if (for_pop)
			share(shelf, &visit, &partner, &top, bytes);
		else
			share(shelf, &visit, &top, &partner, bytes);
		km_store(header_at(shelf, &visit, partner), (uint64_t)top);
		done = km_soft_commit(&visit, partner);
	}
	km_visit_leave(&visit);
	return done;
}

/* ------------------------------------------------------------------ what one commit carries */

/*
 * The comparisons are the reason why the block may go: the word leads to it, its first object is still NULL (for_pop),
 * its header still names the partner that becomes the main block. Whatever happened meanwhile and left these three as
 * they were, the block is empty now. Full (for a push) is read off the word itself.
 */
void **km_shelf_detach(struct km_shelf *shelf, bool for_pop, bool lone)
{
	struct km_visit visit;
	void **block = NULL;

	if (!km_visit_enter(&visit, &shelf->inner.shelf, true))
		return NULL;
	while (!block && km_visit_look(&visit) && visit.top) {
		if (for_pop ? km_visit_read(&visit, (km_word *)at(&visit, visit.top)) != 0 :
			      (visit.top & km_load(&shelf->inner.mask)) != 0)
			break;
		uintptr_t partner = km_visit_read(&visit, header_at(shelf, &visit, visit.top));
		if (!partner && !lone)
			break;
		if (km_visit_commit(&visit, partner ? header_at(shelf, &visit, partner) : NULL, 0,
				    visit.word, partner))
			block = at(&visit, visit.top);
	}
	km_visit_leave(&visit);
	return block;
}

/* The header of the block in hand is the first store, which nobody sees before the word leads to it. The former main
 * block becomes the partner; the former partner is in nobody's way, and the caller's. */
bool km_shelf_install(struct km_shelf *shelf, void **block, void ***evicted)
{
	struct km_visit visit;
	bool done = false;

	if (!km_visit_enter(&visit, &shelf->inner.shelf, true))
		return false;
	while (!done && km_visit_look(&visit)) {
		uintptr_t offset = (uintptr_t)block - visit.area;

		km_debug(offset != visit.top, "a block that comes lies on no CPU");
		uintptr_t partner = visit.top ? km_visit_read(&visit, header_at(shelf, &visit, visit.top)) : 0;

		done = km_visit_commit(&visit, header_at(shelf, &visit, offset), visit.top,
				       visit.word, offset);
		*evicted = partner ? at(&visit, partner) : NULL;
	}
	km_visit_leave(&visit);
	return done;
}

/* A pop that needs no lock stays within the main block: its header is the lock's alone. */
void **km_shelf_take_partner(struct km_shelf *shelf)
{
	struct km_visit visit;
	void **block = NULL;

	if (!km_visit_enter(&visit, &shelf->inner.shelf, true))
		return NULL;
	while (!block && km_visit_look(&visit) && visit.top) {
		km_word *header = header_at(shelf, &visit, visit.top);
		uintptr_t partner = km_visit_read(&visit, header);

		if (!partner)
			break;
		if (km_visit_commit(&visit, NULL, 0, header, 0))
			block = at(&visit, partner);
	}
	km_visit_leave(&visit);
	return block;
}

/* Where the word has changed the header may be another block's by now: so the word is compared, too. */
bool km_shelf_put_partner(struct km_shelf *shelf, void **block)
{
	struct km_visit visit;
	bool done = false;

	if (!km_visit_enter(&visit, &shelf->inner.shelf, true))
		return false;
	while (!done && km_visit_look(&visit) && visit.top) {
		km_word *header = header_at(shelf, &visit, visit.top);

		if (km_visit_read(&visit, header))
			break;
		done = km_visit_commit(&visit, NULL, 0, header, (uintptr_t)block - visit.area);
	}
	km_visit_leave(&visit);
	return done;
}

/* ------------------------------------------------------------------ the hits and the copies */

void *km_shelf_pop(struct km_shelf *shelf)
{
	return KM_RSEQ(pop, (&shelf->inner, km_percpu.base, km_thread_rseq), km_soft_pop(shelf, 0));
}

bool km_shelf_push(struct km_shelf *shelf, void *object)
{
	return KM_RSEQ(push, (&shelf->inner, km_percpu.base, km_thread_rseq, object),
		       km_soft_push_n(shelf, 0, &object, 1) == 1);
}

size_t km_shelf_pop_n(struct km_shelf *shelf, void **out, size_t count)
{
	return KM_RSEQ(pop_n, (&shelf->inner, shelf->block_mask, km_percpu.base, km_thread_rseq, out, count * 8) / 8,
		       km_soft_pop_n(shelf, 0, out, count));
}

size_t km_shelf_push_n(struct km_shelf *shelf, void *const *in, size_t count)
{
	return KM_RSEQ(push_n, (&shelf->inner, km_percpu.base, km_thread_rseq, in, count * 8) / 8,
		       km_soft_push_n(shelf, 0, in, count));
}

bool km_shelf_swap(struct km_shelf *shelf, bool for_pop, bool share)
{
	uint32_t bytes = share ? km_load(&shelf->inner.mask) / 2 : UINT32_MAX;

	return KM_RSEQ(swap, (&shelf->inner, shelf->block_mask, km_percpu.base, km_thread_rseq, for_pop, bytes),
		       soft_swap(shelf, for_pop, bytes));
}

/* Both words of the cache that lead to the shelf: hits read one, the verbs of this file the other. */
void km_shelf_close(struct km_shelf *shelf)
{
	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ) {
		km_store(&shelf->front.open.shelf, 0u);
		km_store(&shelf->inner.shelf, 0u);
	}
}

/* Membarrier aborts the sequences of all of the process's threads: an interrupt to each CPU that runs one. */
bool km_shelf_fence(void)
{
	return km_percpu.discipline != KM_DISCIPLINE_RSEQ || km_os_barrier() == 0;
}

void km_shelf_open(struct km_shelf *shelf, bool to_hot_path)
{
	km_debug(!shelf->slot || shelf->inner.mask <= shelf->block_mask,
		 "a shelf's mask is its block's or smaller");
	km_store_release(&shelf->inner.shelf, shelf->slot);
	if (to_hot_path && km_percpu.discipline == KM_DISCIPLINE_RSEQ)
		km_store_release(&shelf->front.open.shelf, shelf->slot);
}

/* The word that holds the CPU's top: the first of its slot under every discipline, so that who counts objects from
 * outside (kmem info) need not know which it is. */
static uint64_t *word_of(const struct km_shelf *shelf, unsigned cpu)
{
	return (uint64_t *)(km_area(cpu) + shelf->slot);
}

static void take_top(struct km_shelf *shelf, unsigned cpu, uintptr_t top, void ***main_block,
		     void ***partner)
{
	uintptr_t area = (uintptr_t)km_area(cpu);

	*main_block = *partner = NULL;
	if (!top)
		return;
	*main_block = (void **)(area + top);
	uintptr_t other = *km_block_header(shelf, *main_block);
	km_debug(other != top, "a block is not its own partner");
	km_debug((km_block_count(shelf, *main_block) <= km_mask_capacity(shelf->block_mask)),
		 "a block has no more objects than room");
	if (other)
		*partner = (void **)(area + other);
}

void km_shelf_take_cpu(struct km_shelf *shelf, unsigned cpu, void ***main_block, void ***partner)
{
	struct km_visit visit;

	*main_block = *partner = NULL;
	if (!km_visit_wait(&visit, shelf->slot, cpu))
		return;
	km_debug(!km_visits_by_rseq() || !km_load(&shelf->inner.shelf), "a shelf is closed while it is drained");
	do
		take_top(shelf, cpu, km_soft_look(&visit), main_block, partner);
	while (!km_soft_commit(&visit, 0));
	km_visit_leave(&visit);
}

bool km_shelf_put_cpu(struct km_shelf *shelf, unsigned cpu, void **block)
{
	uintptr_t offset = (uintptr_t)block - (uintptr_t)km_area(cpu);
	struct km_visit visit;
	bool done = false;

	km_store(km_block_header(shelf, block), (uint64_t)0);
	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ) {
		km_debug(!km_load(&shelf->inner.shelf), "a shelf is closed while it is drained");
		done = !km_load(word_of(shelf, cpu));
		if (done)
			km_store(word_of(shelf, cpu), (uint64_t)offset);
		return done;
	}
	if (!km_visit_cpu(&visit, shelf->slot, cpu, true))
		return false;
	done = !km_soft_look(&visit) && km_soft_commit(&visit, offset);
	km_visit_leave(&visit);
	return done;
}

/* Each verb commits with one store: what its thread was about has happened, or has not. */
void km_shelf_fork_child(struct km_shelf *shelf)
{
	struct km_visit visit;

	if (!shelf->slot || km_percpu.discipline == KM_DISCIPLINE_RSEQ)
		return;
	km_for_each_cpu(cpu) {
		km_visit_cpu(&visit, shelf->slot, cpu, false);
		km_visit_fork_child(km_soft(&visit));
	}
}

uint64_t km_shelf_top_cpu(const struct km_shelf *shelf, unsigned cpu)
{
	return km_load(word_of(shelf, cpu));
}

static uintptr_t partner_of(const struct km_shelf *shelf, uintptr_t area, uintptr_t top)
{
	return top ? km_load_speculative(km_block_header(shelf, (void **)(area + top))) : 0;
}

bool km_shelf_has_partner_cpu(const struct km_shelf *shelf, unsigned cpu)
{
	return partner_of(shelf, (uintptr_t)km_area(cpu), km_load(word_of(shelf, cpu))) != 0;
}

/* From offset `top` to the bottom of its block, whose pad is known. Nonsense in, 0 out. */
static size_t count_above(const struct km_shelf *shelf, uintptr_t top, uint64_t pad)
{
	size_t count = (shelf->block_mask - 15 - (top & shelf->block_mask) - pad) / sizeof(void *);

	return count <= shelf->block_mask / sizeof(void *) ? count : 0;
}

/*
 * The main block may have gone meanwhile, and what is read of it mean nothing: its memory stays readable, but where it
 * says that its partner is nobody may look. The partner has the same pad, but for one that a race left over.
 */
size_t km_shelf_count_cpu(const struct km_shelf *shelf, unsigned cpu)
{
	uintptr_t area = (uintptr_t)km_area(cpu), top = km_load(word_of(shelf, cpu));

	if (!top)
		return 0;
	uint64_t pad = km_load_speculative(km_block_pad(shelf, (void **)(area + top)));
	uintptr_t partner = partner_of(shelf, area, top);
	return count_above(shelf, top, pad) + (partner ? count_above(shelf, partner, pad) : 0);
}
