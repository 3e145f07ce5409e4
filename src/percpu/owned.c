/*
 * owned.c: the verbs of an owner's shelf: those of pcpu.c with an owner, and two that change whose a block is.
 * Invariant: while a block has an object, its CPU's owner word names that object's owner; in the soft slots it changes
 * under the lock, and while there is none (owned.h has the argument for a pop without the lock).
 */
#include "owned.h"

#include "base/bits.h"
#include "os/die.h"
#include "visit.h"

size_t km_owned_word_bytes(void)
{
	return km_percpu.discipline == KM_DISCIPLINE_RSEQ ? sizeof(struct km_pair) :
							    sizeof(struct km_soft);
}

void **km_owned_prepare(const struct km_shelf *shelf, void *memory)
{
	km_debug(!((uintptr_t)memory & shelf->block_mask), "a block is aligned to its size");
	*km_block_header(shelf, memory) = 0;
	*km_block_pad(shelf, memory) = 0;
	return km_block_bottom(shelf, memory);
}

/* ------------------------------------------------------------------ the verbs */

void *km_owned_pop(struct km_shelf *shelf, uintptr_t owner)
{
	return KM_RSEQ(owned_pop, (&shelf->inner, km_percpu.base, km_thread_rseq, owner),
		       km_soft_pop(shelf, owner));
}

bool km_owned_push(struct km_shelf *shelf, uintptr_t owner, void *object)
{
	return KM_RSEQ(owned_push, (&shelf->inner, km_percpu.base, km_thread_rseq, owner, object),
		       km_soft_push_n(shelf, owner, &object, 1) == 1);
}

size_t km_owned_pop_n(struct km_shelf *shelf, uintptr_t owner, void **out, size_t count)
{
	const uint32_t mask = km_load(&shelf->block_mask);

	/* It is being made: the copy must not begin with that mask, and find a block. */
	if (km_unlikely(!mask))
		return 0;
	return KM_RSEQ(owned_pop_n, (&shelf->inner, mask, km_percpu.base, km_thread_rseq, owner, out, count * 8) / 8,
		       km_soft_pop_n(shelf, owner, out, count));
}

size_t km_owned_push_n(struct km_shelf *shelf, uintptr_t owner, void *const *in, size_t count)
{
	return KM_RSEQ(owned_push_n, (&shelf->inner, km_percpu.base, km_thread_rseq, owner, in, count * 8) / 8,
		       km_soft_push_n(shelf, owner, in, count));
}

/* Beside the word where hits find it; in a soft slot, where the pair is more than the word, behind that. */
static km_word *owner_at(km_word *word)
{
	return km_visits_by_rseq() ? word + 1 : (km_word *)&((struct km_soft *)word)->owner;
}

/* An empty shelf stays so until somebody pushes, and that moves the top. */
bool km_owned_adopt(struct km_shelf *shelf, uintptr_t owner)
{
	struct km_visit visit;
	bool done = false;

	if (!km_visit_enter(&visit, &shelf->inner.shelf, true))
		return false;
	km_debug(owner, "a block that is taken over is somebody's");
	while (!done && km_visit_look(&visit) && visit.top) {
		if (km_visit_read(&visit, (km_word *)(visit.area + visit.top)))
			break;
		done = km_visit_commit(&visit, NULL, 0, owner_at(visit.word), owner);
	}
	km_visit_leave(&visit);
	return done;
}

/* The owner first: beside a word that is 0 nobody reads it, and with the word it is there. */
bool km_owned_install(struct km_shelf *shelf, void **block, uintptr_t owner)
{
	struct km_visit visit;
	bool done = false;

	km_debug(!*block, "a block that comes has no object");
	if (!km_visit_enter(&visit, &shelf->inner.shelf, true))
		return false;
	while (!done && km_visit_look(&visit) && !visit.top)
		done = km_visit_commit(&visit, owner_at(visit.word), owner, visit.word,
				       (uintptr_t)block - visit.area);
	km_visit_leave(&visit);
	return done;
}

static km_word *owner_of(const struct km_shelf *shelf, unsigned cpu)
{
	return owner_at((km_word *)(km_area(cpu) + shelf->slot));
}

/* A `install` that was interrupted leaves an owner's name beside no block, which must not count as that owner's. */
uintptr_t km_owned_owner(const struct km_shelf *shelf)
{
	if (!km_shelf_slot(shelf))
		return 0;
	unsigned cpu = km_cpu();
	return km_shelf_top_cpu(shelf, cpu) ? km_load(owner_of(shelf, cpu)) : 0;
}

/* ------------------------------------------------------------------ draining */

uintptr_t km_owned_owner_cpu(const struct km_shelf *shelf, unsigned cpu)
{
	return km_load(owner_of(shelf, cpu));
}

void km_owned_rename_cpu(struct km_shelf *shelf, unsigned cpu, uintptr_t owner)
{
	km_debug(km_percpu.discipline == KM_DISCIPLINE_RSEQ && !km_load(&shelf->inner.shelf),
		 "a block that changes its owner is on a closed shelf");
	if (km_load(owner_of(shelf, cpu)))
		km_store(owner_of(shelf, cpu), owner);
}

size_t km_owned_take_cpu(struct km_shelf *shelf, unsigned cpu, void **out, uintptr_t *owner)
{
	struct km_visit visit;
	uintptr_t top, bottom;
	size_t count = 0;

	*owner = 0;
	if (!km_visit_wait(&visit, shelf->slot, cpu))
		return 0;
	km_debug(km_percpu.discipline != KM_DISCIPLINE_RSEQ || !km_load(&shelf->inner.shelf),
		 "a shelf is closed while it is drained");
	do {
		top = km_soft_look(&visit);
		bottom = top ? (uintptr_t)km_block_bottom(shelf, (void **)(visit.area + top)) - visit.area : 0;
	} while (!km_soft_commit(&visit, bottom));
	/* They lie there until somebody pushes. */
	for (; top != bottom; top += sizeof(void *))
		out[count++] = km_load((void **)(visit.area + top));
	*owner = km_load(owner_of(shelf, cpu));
	km_debug(!count || *owner, "what lies on an owned shelf has an owner");
	km_debug(count <= km_owned_capacity(shelf), "a block has no more objects than room");
	km_store(owner_of(shelf, cpu), (uint64_t)0);
	km_visit_leave(&visit);
	return count;
}

void **km_owned_release_cpu(struct km_shelf *shelf, unsigned cpu)
{
	struct km_visit visit;
	void **block = NULL;

	if (!km_visit_wait(&visit, shelf->slot, cpu))
		return NULL;
	uintptr_t top = km_soft_look(&visit);
	if (top && !km_load((void **)(visit.area + top)) && km_soft_commit(&visit, 0))
		block = (void **)(visit.area + top);
	/* A `install` that was interrupted leaves an owner of no block. */
	if (!top || block)
		km_store(owner_of(shelf, cpu), (uint64_t)0);
	km_visit_leave(&visit);
	return block;
}
