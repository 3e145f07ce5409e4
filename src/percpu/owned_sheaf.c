/*
 * owned_sheaf.c: operations on owned sheaves: the operations of pcpu.c with an owner, and adopt and install, which
 * set the owner. Invariant: while a sheaf has an object, the CPU's owner word names the object's owner. Under the
 * soft disciplines the owner word changes under the lock, and only while the sheaf is empty (owned_sheaf.h shows
 * why a pop needs no lock).
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
	km_debug(!((uintptr_t)memory & pcs->sheaf_mask), "a sheaf is aligned to its size");
	*km_sheaf_header(pcs, memory) = 0;
	*km_sheaf_pad(pcs, memory) = 0;
	return km_sheaf_bottom(pcs, memory);
}

/* ------------------------------------------------------------------ operations */

void *km_owned_pop(struct km_pcs *pcs, uintptr_t owner)
{
	void *object;

	return KM_RSEQ(owned_pop, (&pcs->inner, km_percpu.base, km_thread_rseq, owner),
		       km_soft_pop_n(pcs, owner, &object, 1) ? object : NULL);
}

bool km_owned_push(struct km_pcs *pcs, uintptr_t owner, void *object)
{
	return KM_RSEQ(owned_push, (&pcs->inner, km_percpu.base, km_thread_rseq, owner, object),
		       km_soft_push_n(pcs, owner, &object, 1) == 1);
}

size_t km_owned_pop_n(struct km_pcs *pcs, uintptr_t owner, void **out, size_t count)
{
	const uint32_t mask = km_load(&pcs->sheaf_mask);

	/* A mask of 0: another thread is making the pcs, and this call must miss. */
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

/* Returns: the owner word. The owner word follows the top, where hits read it; in struct km_soft the pair comes
 * between. */
static km_word *owner_at(km_word *word)
{
	return km_visits_by_rseq() ? word + 1 : (km_word *)&((struct km_soft *)word)->owner;
}

/* Sets the owner of an empty sheaf. The commit compares the top: an empty sheaf stays empty until a push, and a push
 * moves the top. */
bool km_owned_adopt(struct km_pcs *pcs, uintptr_t owner)
{
	km_visit_scope(visit, &pcs->inner.pcs, true);

	km_debug(owner, "an adopted sheaf has an owner");
	while (km_visit_look(&visit) && visit.top) {
		if (km_visit_read(&visit, (km_word *)(visit.area + visit.top)))
			return false;
		if (km_visit_commit(&visit, NULL, 0, owner_at(visit.word), owner))
			return true;
	}
	return false;
}

/* Store the owner first: no thread reads the owner beside a top of 0, and the store of the top publishes both. */
bool km_owned_install(struct km_pcs *pcs, void **sheaf, uintptr_t owner)
{
	km_visit_scope(visit, &pcs->inner.pcs, true);

	km_debug(!*sheaf, "an installed sheaf has no object");
	while (km_visit_look(&visit) && !visit.top)
		if (km_visit_commit(&visit, owner_at(visit.word), owner, visit.word, (uintptr_t)sheaf - visit.area))
			return true;
	return false;
}

static km_word *owner_of(const struct km_pcs *pcs, unsigned cpu)
{
	return owner_at((km_word *)(km_area(cpu) + pcs->slot));
}

/* Returns 0 if the top is 0: an interrupted install leaves an owner without a sheaf. */
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
		 "a sheaf changes its owner only while closed");
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
		 "per-CPU sheaves are closed during their drain");
	do {
		top = km_soft_look(&visit);
		bottom = top ? (uintptr_t)km_sheaf_bottom(pcs, (void **)(visit.area + top)) - visit.area : 0;
	} while (!km_soft_commit(&visit, bottom));
	/* Copy the objects; they are in the sheaf until a push overwrites them. */
	for (; top != bottom; top += sizeof(void *))
		out[count++] = km_load((void **)(visit.area + top));
	*owner = km_load(owner_of(pcs, cpu));
	km_debug(!count || *owner, "objects of an owned sheaf have an owner");
	km_debug(count <= km_owned_capacity(pcs), "a sheaf has at most as many objects as fit");
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
	/* Clear the owner also without a sheaf: an interrupted install leaves an owner. */
	if (!top || sheaf)
		km_store(owner_of(pcs, cpu), (uint64_t)0);
	km_visit_leave(&visit);
	return sheaf;
}
