/*
 * owned_sheaf.c: the verbs of an owner's shelf: those of pcpu.c with an owner, and two that change whose a block is.
 * Invariant: while a block has an object, its CPU's owner word names that object's owner; in the soft slots it changes
 * under the lock, and while there is none (owned_sheaf.h has the argument for a pop without the lock).
 */
#include "owned_sheaf.h"

#include "base/bits.h"
#include "os/die.h"
#include "visit.h"

size_t km_owned_word_bytes(void)
{
	return km_percpu.discipline == KM_DISCIPLINE_RSEQ ? sizeof(struct km_pair) :
							    sizeof(struct km_soft);
}

void **km_owned_prepare(const struct km_pcs *pcs, void *memory)
{
	km_debug(!((uintptr_t)memory & pcs->sheaf_mask), "a block is aligned to its size");
	*km_sheaf_header(pcs, memory) = 0;
	*km_sheaf_pad(pcs, memory) = 0;
	return km_sheaf_bottom(pcs, memory);
}

/* ------------------------------------------------------------------ the verbs */

void *km_owned_pop(struct km_pcs *pcs, uintptr_t owner)
{
	return KM_RSEQ(owned_pop, (&pcs->inner, km_percpu.base, km_thread_rseq, owner),
		       km_soft_pop(pcs, owner));
}

bool km_owned_push(struct km_pcs *pcs, uintptr_t owner, void *object)
{
	return KM_RSEQ(owned_push, (&pcs->inner, km_percpu.base, km_thread_rseq, owner, object),
		       km_soft_push_n(pcs, owner, &object, 1) == 1);
}

size_t km_owned_pop_n(struct km_pcs *pcs, uintptr_t owner, void **out, size_t count)
{
	const uint32_t mask = km_load(&pcs->sheaf_mask);

	/* It is being made: the copy must not begin with that mask, and find a block. */
	if (km_unlikely(!mask))
		return 0;
	return KM_RSEQ(owned_pop_n, (&pcs->inner, mask, km_percpu.base, km_thread_rseq, owner, out, count * 8) / 8,
		       km_soft_pop_n(pcs, owner, out, count));
}

size_t km_owned_push_n(struct km_pcs *pcs, uintptr_t owner, void *const *in, size_t count)
{
	return KM_RSEQ(owned_push_n, (&pcs->inner, km_percpu.base, km_thread_rseq, owner, in, count * 8) / 8,
		       km_soft_push_n(pcs, owner, in, count));
}

/* Beside the word where hits find it; in a soft slot, where the pair is more than the word, behind that. */
static km_word *owner_at(km_word *word)
{
	return km_visits_by_rseq() ? word + 1 : (km_word *)&((struct km_soft *)word)->owner;
}

/* An empty shelf stays so until somebody pushes, and that moves the top. */
bool km_owned_adopt(struct km_pcs *pcs, uintptr_t owner)
{
	struct km_visit visit;
	bool done = false;

	if (!km_visit_enter(&visit, &pcs->inner.pcs, true))
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
bool km_owned_install(struct km_pcs *pcs, void **sheaf, uintptr_t owner)
{
	struct km_visit visit;
	bool done = false;

	km_debug(!*sheaf, "a block that comes has no object");
	if (!km_visit_enter(&visit, &pcs->inner.pcs, true))
		return false;
	while (!done && km_visit_look(&visit) && !visit.top)
		done = km_visit_commit(&visit, owner_at(visit.word), owner, visit.word,
				       (uintptr_t)sheaf - visit.area);
	km_visit_leave(&visit);
	return done;
}

static km_word *owner_of(const struct km_pcs *pcs, unsigned cpu)
{
	return owner_at((km_word *)(km_area(cpu) + pcs->slot));
}

/* A `install` that was interrupted leaves an owner's name beside no block, which must not count as that owner's. */
uintptr_t km_owned_owner(const struct km_pcs *pcs)
{
	if (!km_pcs_slot(pcs))
		return 0;
	unsigned cpu = km_cpu();
	return km_pcs_top_cpu(pcs, cpu) ? km_load(owner_of(pcs, cpu)) : 0;
}

/* ------------------------------------------------------------------ draining */

uintptr_t km_owned_owner_cpu(const struct km_pcs *pcs, unsigned cpu)
{
	return km_load(owner_of(pcs, cpu));
}

void km_owned_rename_cpu(struct km_pcs *pcs, unsigned cpu, uintptr_t owner)
{
	km_debug(km_percpu.discipline == KM_DISCIPLINE_RSEQ && !km_load(&pcs->inner.pcs),
		 "a block that changes its owner is on a closed shelf");
	if (km_load(owner_of(pcs, cpu)))
		km_store(owner_of(pcs, cpu), owner);
}

size_t km_owned_take_cpu(struct km_pcs *pcs, unsigned cpu, void **out, uintptr_t *owner)
{
	struct km_visit visit;
	uintptr_t top, bottom;
	size_t count = 0;

	*owner = 0;
	if (!km_visit_wait(&visit, pcs->slot, cpu))
		return 0;
	km_debug(km_percpu.discipline != KM_DISCIPLINE_RSEQ || !km_load(&pcs->inner.pcs),
		 "a shelf is closed while it is drained");
	do {
		top = km_soft_look(&visit);
		bottom = top ? (uintptr_t)km_sheaf_bottom(pcs, (void **)(visit.area + top)) - visit.area : 0;
	} while (!km_soft_commit(&visit, bottom));
	/* They lie there until somebody pushes. */
	for (; top != bottom; top += sizeof(void *))
		out[count++] = km_load((void **)(visit.area + top));
	*owner = km_load(owner_of(pcs, cpu));
	km_debug(!count || *owner, "what lies on an owned shelf has an owner");
	km_debug(count <= km_owned_capacity(pcs), "a block has no more objects than room");
	km_store(owner_of(pcs, cpu), (uint64_t)0);
	km_visit_leave(&visit);
	return count;
}

void **km_owned_release_cpu(struct km_pcs *pcs, unsigned cpu)
{
	struct km_visit visit;
	void **sheaf = NULL;

	if (!km_visit_wait(&visit, pcs->slot, cpu))
		return NULL;
	uintptr_t top = km_soft_look(&visit);
	if (top && !km_load((void **)(visit.area + top)) && km_soft_commit(&visit, 0))
		sheaf = (void **)(visit.area + top);
	/* A `install` that was interrupted leaves an owner of no block. */
	if (!top || sheaf)
		km_store(owner_of(pcs, cpu), (uint64_t)0);
	km_visit_leave(&visit);
	return sheaf;
}
