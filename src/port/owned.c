/*
 * owned.c: the verbs of an owner's shelf: the rseq ones, or the soft ones (lock, cmpxchg), by the discipline in force.
 * Invariant: while a block has an object, its CPU's owner word names that object's owner; in the soft slots it changes
 * under the lock, and while there is none (owned.h has the argument for a pop without the lock).
 */
#include "owned.h"

#include "bits.h"
#include "soft.h"

/* The owner of a CPU's block under rseq: behind the word. */
struct owned_word {
	uint64_t top;
	uintptr_t owner;
} km_aligned(16);

size_t km_owned_word_bytes(void)
{
	return km_percpu.discipline == KM_DISCIPLINE_RSEQ ? sizeof(struct owned_word) :
							    sizeof(struct km_soft);
}

void **km_owned_prepare(const struct km_shelf *shelf, void *memory)
{
	*km_block_header(shelf, memory) = 0;
	*km_block_pad(shelf, memory) = 0;
	return km_block_bottom(shelf, memory);
}

/* ------------------------------------------------------------------ the soft disciplines */

static bool is_mine(const struct km_visit *visit, uintptr_t owner)
{
	return km_load(&visit->soft->owner) == owner;
}

static size_t soft_pop_n(struct km_shelf *shelf, uintptr_t owner, void **out, size_t count)
{
	struct km_visit visit;
	size_t moved = 0;

	if (!km_soft_enter(&visit, shelf, false))
		return 0;
	for (int i = 0; i < KM_SOFT_TRIES; i++) {
		uintptr_t top = km_soft_look(&visit);
		size_t there = is_mine(&visit, owner) && top ?
				       km_block_count(shelf, (void **)(visit.area + top)) : 0;

		/* Under cmpxchg the block may have gone meanwhile, but it stays readable: stay inside of it. */
		moved = km_min(km_min(there, km_soft_left(shelf, top)), count);
		for (size_t j = 0; j < moved; j++)
			out[count - moved + j] = km_load((void **)(visit.area + top) + j);
		if (!moved || km_soft_commit(&visit, top + moved * 8))
			break;
		moved = 0;
	}
	km_soft_leave(&visit);
	return moved;
}

static void *soft_pop(struct km_shelf *shelf, uintptr_t owner)
{
	void *object;

	return soft_pop_n(shelf, owner, &object, 1) ? object : NULL;
}

static size_t soft_push_n(struct km_shelf *shelf, uintptr_t owner, void *const *in, size_t count)
{
	struct km_visit visit;
	size_t moved = 0;

	if (!km_soft_enter(&visit, shelf, true))
		return 0;
	for (int i = 0; i < KM_SOFT_TRIES && is_mine(&visit, owner); i++) {
		uintptr_t top = km_soft_look(&visit);

		moved = km_min((top & km_load(&shelf->inner.mask)) / 8, count);
		/* Below top only the holder of the lock writes. */
		for (size_t j = 0; j < moved; j++)
			km_store((void **)(visit.area + top) - moved + j, in[count - moved + j]);
		if (!moved || km_soft_commit(&visit, top - moved * 8))
			break;
		moved = 0;
	}
	km_soft_leave(&visit);
	return moved;
}

/* What is empty stays so: only the holder of the lock pushes. */
static bool soft_adopt(struct km_shelf *shelf, uintptr_t owner)
{
	struct km_visit visit;

	if (!km_soft_enter(&visit, shelf, true))
		return false;
	uintptr_t top = km_soft_look(&visit);
	bool done = top && !km_load((void **)(visit.area + top));
	if (done)
		km_store(&visit.soft->owner, owner);
	km_soft_leave(&visit);
	return done;
}

static bool soft_found(struct km_shelf *shelf, void **block, uintptr_t owner)
{
	struct km_visit visit;

	if (!km_soft_enter(&visit, shelf, true))
		return false;
	bool done = !km_soft_look(&visit);
	if (done) {
		km_store(&visit.soft->owner, owner);
		done = km_soft_commit(&visit, (uintptr_t)block - visit.area);
	}
	km_soft_leave(&visit);
	return done;
}

/* ------------------------------------------------------------------ the verbs */

void *km_owned_pop(struct km_shelf *shelf, uintptr_t owner)
{
	return KM_RSEQ(owned_pop, (&shelf->inner, km_percpu.base, km_thread_rseq, owner),
		       soft_pop(shelf, owner));
}

bool km_owned_push(struct km_shelf *shelf, uintptr_t owner, void *object)
{
	return KM_RSEQ(owned_push, (&shelf->inner, km_percpu.base, km_thread_rseq, owner, object),
		       soft_push_n(shelf, owner, &object, 1) == 1);
}

size_t km_owned_pop_n(struct km_shelf *shelf, uintptr_t owner, void **out, size_t count)
{
	const uint32_t mask = km_load(&shelf->block_mask);

	/* It is being made: the copy must not begin with that mask, and find a block. */
	if (km_unlikely(!mask))
		return 0;
	return KM_RSEQ(owned_pop_n, (&shelf->inner, mask, km_percpu.base, km_thread_rseq, owner, out, count * 8) / 8,
		       soft_pop_n(shelf, owner, out, count));
}

size_t km_owned_push_n(struct km_shelf *shelf, uintptr_t owner, void *const *in, size_t count)
{
	return KM_RSEQ(owned_push_n, (&shelf->inner, km_percpu.base, km_thread_rseq, owner, in, count * 8) / 8,
		       soft_push_n(shelf, owner, in, count));
}

bool km_owned_adopt(struct km_shelf *shelf, uintptr_t owner)
{
	return KM_RSEQ(owned_adopt, (&shelf->inner, km_percpu.base, km_thread_rseq, owner),
		       soft_adopt(shelf, owner));
}

bool km_owned_found(struct km_shelf *shelf, void **block, uintptr_t owner)
{
	return KM_RSEQ(owned_found, (&shelf->inner, km_percpu.base, km_thread_rseq, block, owner),
		       soft_found(shelf, block, owner));
}

static uintptr_t *owner_of(const struct km_shelf *shelf, unsigned cpu)
{
	char *word = km_area(cpu) + shelf->slot;

	return km_percpu.discipline == KM_DISCIPLINE_RSEQ ? &((struct owned_word *)word)->owner :
							    &((struct km_soft *)word)->owner;
}

/* A `found` that was interrupted leaves an owner of no block, who must not take it for his. */
uintptr_t km_owned_owner(const struct km_shelf *shelf)
{
	if (!km_shelf_slot(shelf))
		return 0;
	unsigned cpu = km_cpu();
	return km_shelf_top_cpu(shelf, cpu) ? km_load(owner_of(shelf, cpu)) : 0;
}

/* ------------------------------------------------------------------ draining */

/* For a drain. Under rseq nobody is inside of a sequence, and the word lies where a soft slot has its top. */
static bool enter_drain(struct km_visit *visit, const struct km_shelf *shelf, unsigned cpu)
{
	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ)
		return km_soft_enter_cpu(visit, shelf->slot, cpu, false);
	return km_soft_wait(visit, shelf->slot, cpu);
}

uintptr_t km_owned_owner_cpu(const struct km_shelf *shelf, unsigned cpu)
{
	return km_load(owner_of(shelf, cpu));
}

size_t km_owned_take_cpu(struct km_shelf *shelf, unsigned cpu, void **out, uintptr_t *owner)
{
	struct km_visit visit;
	uintptr_t top, bottom;
	size_t count = 0;

	*owner = 0;
	if (!enter_drain(&visit, shelf, cpu))
		return 0;
	do {
		top = km_soft_look(&visit);
		bottom = top ? (uintptr_t)km_block_bottom(shelf, (void **)(visit.area + top)) - visit.area : 0;
	} while (!km_soft_commit(&visit, bottom));
	/* They lie there until somebody pushes. */
	for (; top != bottom; top += sizeof(void *))
		out[count++] = km_load((void **)(visit.area + top));
	*owner = km_load(owner_of(shelf, cpu));
	km_store(owner_of(shelf, cpu), (uintptr_t)0);
	km_soft_leave(&visit);
	return count;
}

void **km_owned_release_cpu(struct km_shelf *shelf, unsigned cpu)
{
	struct km_visit visit;
	void **block = NULL;

	if (!enter_drain(&visit, shelf, cpu))
		return NULL;
	uintptr_t top = km_soft_look(&visit);
	if (top && !km_load((void **)(visit.area + top)) && km_soft_commit(&visit, 0))
		block = (void **)(visit.area + top);
	/* A `found` that was interrupted leaves an owner of no block. */
	if (!top || block)
		km_store(owner_of(shelf, cpu), (uintptr_t)0);
	km_soft_leave(&visit);
	return block;
}
