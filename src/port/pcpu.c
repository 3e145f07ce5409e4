/*
 * pcpu.c: the verbs for everybody but the hot path: the rseq ones, or the soft ones (lock, cmpxchg), by the
 * discipline in force. Invariant: see soft.h.
 */
#include "bits.h"
#include "soft.h"

static uint64_t *header_at(const struct km_shelf *shelf, const struct km_visit *visit, uintptr_t top)
{
	return (uint64_t *)(visit->area + (top | shelf->block_mask) - 7);
}

static void *soft_pop(struct km_shelf *shelf)
{
	struct km_visit visit;
	void *object = NULL;

	if (!km_soft_enter(&visit, shelf, false))
		return NULL;
	for (int i = 0; i < KM_SOFT_TRIES; i++) {
		uintptr_t top = km_soft_look(&visit);

		/* Under cmpxchg a speculative read: blocks stay readable for ever. */
		object = km_load((void **)(visit.area + top));
		if (!object || km_soft_commit(&visit, top + 8))
			break;
		object = NULL;
	}
	km_soft_leave(&visit);
	return object;
}

static size_t soft_pop_n(struct km_shelf *shelf, void **out, size_t count)
{
	struct km_visit visit;
	size_t moved = 0;

	if (!km_soft_enter(&visit, shelf, false))
		return 0;
	for (int i = 0; i < KM_SOFT_TRIES; i++) {
		uintptr_t top = km_soft_look(&visit);
		size_t there = top ? km_block_count(shelf, (void **)(visit.area + top)) : 0;

		/* Under cmpxchg the block may be somebody's else by now: stay inside of it. */
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

static size_t soft_push_n(struct km_shelf *shelf, void *const *in, size_t count)
{
	struct km_visit visit;
	size_t moved = 0;

	if (!km_soft_enter(&visit, shelf, true))
		return 0;
	for (int i = 0; i < KM_SOFT_TRIES; i++) {
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

/* Where `from` has that much more than `to`, half of it moves; what is copied lies where nobody looks. */
static void share(const struct km_shelf *shelf, const struct km_visit *visit, uintptr_t *from,
		  uintptr_t *to, uint32_t bytes)
{
	uintptr_t high = *to & shelf->block_mask, low = *from & shelf->block_mask;

	if (high <= low || high - low <= bytes)
		return;
	size_t count = (high - low) / 2 / 8;
	for (size_t i = 0; i < count; i++)
		km_store((void **)(visit->area + *to) - count + i,
			 km_load((void **)(visit->area + *from) + i));
	*to -= count * 8;
	*from += count * 8;
}

static bool soft_swap(struct km_shelf *shelf, bool for_pop, uint32_t bytes)
{
	struct km_visit visit;
	bool done = false;

	if (!km_soft_enter(&visit, shelf, true))
		return false;
	for (int i = 0; i < KM_SOFT_TRIES && !done; i++) {
		uintptr_t top = km_soft_look(&visit);
		uintptr_t partner = top ? *header_at(shelf, &visit, top) : 0;

		if (!partner)
			break;
		if (for_pop ? !km_load((void **)(visit.area + partner)) :
			      !(partner & km_load(&shelf->inner.mask)))
			break;
		if (for_pop)
			share(shelf, &visit, &partner, &top, bytes);
		else
			share(shelf, &visit, &top, &partner, bytes);
		km_store(header_at(shelf, &visit, partner), (uint64_t)top);
		done = km_soft_commit(&visit, partner);
	}
	km_soft_leave(&visit);
	return done;
}

static void **soft_detach(struct km_shelf *shelf, bool for_pop, bool lone)
{
	struct km_visit visit;
	void **block = NULL;

	if (!km_soft_enter(&visit, shelf, true))
		return NULL;
	for (int i = 0; i < KM_SOFT_TRIES && !block; i++) {
		uintptr_t top = km_soft_look(&visit);

		if (!top || (for_pop ? km_load((void **)(visit.area + top)) != NULL :
				       (top & km_load(&shelf->inner.mask)) != 0))
			break;
		uintptr_t partner = *header_at(shelf, &visit, top);
		if (!partner && !lone)
			break;
		if (partner)
			km_store(header_at(shelf, &visit, partner), (uint64_t)0);
		if (km_soft_commit(&visit, partner))
			block = (void **)(visit.area + top);
	}
	km_soft_leave(&visit);
	return block;
}

static bool soft_install(struct km_shelf *shelf, void **block, void ***evicted)
{
	struct km_visit visit;
	bool done = false;

	if (!km_soft_enter(&visit, shelf, true))
		return false;
	for (int i = 0; i < KM_SOFT_TRIES && !done; i++) {
		uintptr_t top = km_soft_look(&visit), offset = (uintptr_t)block - visit.area;
		uintptr_t partner = top ? *header_at(shelf, &visit, top) : 0;

		km_store(header_at(shelf, &visit, offset), (uint64_t)top);
		done = km_soft_commit(&visit, offset);
		*evicted = partner ? (void **)(visit.area + partner) : NULL;
	}
	km_soft_leave(&visit);
	return done;
}

/* A pop that needs no lock stays within the main block: its header is the lock's alone. */
static void **soft_take_partner(struct km_shelf *shelf)
{
	struct km_visit visit;

	if (!km_soft_enter(&visit, shelf, true))
		return NULL;
	uintptr_t top = km_soft_look(&visit);
	uintptr_t partner = top ? *header_at(shelf, &visit, top) : 0;
	if (partner)
		km_store(header_at(shelf, &visit, top), (uint64_t)0);
	km_soft_leave(&visit);
	return partner ? (void **)(visit.area + partner) : NULL;
}

static bool soft_put_partner(struct km_shelf *shelf, void **block)
{
	struct km_visit visit;

	if (!km_soft_enter(&visit, shelf, true))
		return false;
	uintptr_t top = km_soft_look(&visit);
	bool done = top && !*header_at(shelf, &visit, top);
	if (done)
		km_store(header_at(shelf, &visit, top), (uint64_t)((uintptr_t)block - visit.area));
	km_soft_leave(&visit);
	return done;
}

void *km_shelf_pop(struct km_shelf *shelf)
{
	return KM_RSEQ(pop, (&shelf->inner, km_percpu.base, km_thread_rseq), soft_pop(shelf));
}

bool km_shelf_push(struct km_shelf *shelf, void *object)
{
	return KM_RSEQ(push, (&shelf->inner, km_percpu.base, km_thread_rseq, object),
		       soft_push_n(shelf, &object, 1) == 1);
}

size_t km_shelf_pop_n(struct km_shelf *shelf, void **out, size_t count)
{
	return KM_RSEQ(pop_n, (&shelf->inner, shelf->block_mask, km_percpu.base, km_thread_rseq, out, count * 8) / 8,
		       soft_pop_n(shelf, out, count));
}

size_t km_shelf_push_n(struct km_shelf *shelf, void *const *in, size_t count)
{
	return KM_RSEQ(push_n, (&shelf->inner, km_percpu.base, km_thread_rseq, in, count * 8) / 8,
		       soft_push_n(shelf, in, count));
}

bool km_shelf_swap(struct km_shelf *shelf, bool for_pop, bool share)
{
	uint32_t bytes = share ? km_load(&shelf->inner.mask) / 2 : UINT32_MAX;

	return KM_RSEQ(swap, (&shelf->inner, shelf->block_mask, km_percpu.base, km_thread_rseq, for_pop, bytes),
		       soft_swap(shelf, for_pop, bytes));
}

void **km_shelf_detach(struct km_shelf *shelf, bool for_pop, bool lone)
{
	return KM_RSEQ(detach, (&shelf->inner, shelf->block_mask, km_percpu.base, km_thread_rseq, for_pop, lone),
		       soft_detach(shelf, for_pop, lone));
}

bool km_shelf_install(struct km_shelf *shelf, void **block, void ***evicted)
{
	return KM_RSEQ(install, (&shelf->inner, shelf->block_mask, km_percpu.base, km_thread_rseq, block, evicted),
		       soft_install(shelf, block, evicted));
}

void **km_shelf_take_partner(struct km_shelf *shelf)
{
	return KM_RSEQ(take_partner, (&shelf->inner, shelf->block_mask, km_percpu.base, km_thread_rseq),
		       soft_take_partner(shelf));
}

bool km_shelf_put_partner(struct km_shelf *shelf, void **block)
{
	return KM_RSEQ(put_partner, (&shelf->inner, shelf->block_mask, km_percpu.base, km_thread_rseq, block),
		       soft_put_partner(shelf, block));
}

void km_shelf_close(struct km_shelf *shelf)
{
	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ) {
		km_store(&shelf->front.open.shelf, 0u);
		km_store(&shelf->inner.shelf, 0u);
	}
}

bool km_shelf_fence(void)
{
	return km_percpu.discipline != KM_DISCIPLINE_RSEQ || km_os_barrier() == 0;
}

void km_shelf_open(struct km_shelf *shelf, bool to_hot_path)
{
	km_store_release(&shelf->inner.shelf, shelf->slot);
	if (to_hot_path && km_percpu.discipline == KM_DISCIPLINE_RSEQ)
		km_store_release(&shelf->front.open.shelf, shelf->slot);
}

/* The word that holds the CPU's top: the first of its slot under every discipline. */
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
	if (other)
		*partner = (void **)(area + other);
}

void km_shelf_take_cpu(struct km_shelf *shelf, unsigned cpu, void ***main_block, void ***partner)
{
	struct km_visit visit;

	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ) {
		uint64_t *word = word_of(shelf, cpu);

		take_top(shelf, cpu, km_load(word), main_block, partner);
		km_store(word, (uint64_t)0);
		return;
	}
	*main_block = *partner = NULL;
	if (!km_soft_wait(&visit, shelf->slot, cpu))
		return;
	for (;;) {
		uintptr_t top = km_soft_look(&visit);

		take_top(shelf, cpu, top, main_block, partner);
		if (km_soft_commit(&visit, 0))
			break;
	}
	km_soft_leave(&visit);
}

bool km_shelf_put_cpu(struct km_shelf *shelf, unsigned cpu, void **block)
{
	uintptr_t offset = (uintptr_t)block - (uintptr_t)km_area(cpu);
	struct km_visit visit;
	bool done = false;

	km_store(km_block_header(shelf, block), (uint64_t)0);
	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ) {
		done = !km_load(word_of(shelf, cpu));
		if (done)
			km_store(word_of(shelf, cpu), (uint64_t)offset);
		return done;
	}
	if (!km_soft_enter_cpu(&visit, shelf->slot, cpu, true))
		return false;
	done = !km_soft_look(&visit) && km_soft_commit(&visit, offset);
	km_soft_leave(&visit);
	return done;
}

/* Each verb commits with one store: what its thread was about has happened, or has not. */
void km_shelf_fork_child(struct km_shelf *shelf)
{
	struct km_visit visit;

	if (!shelf->slot || km_percpu.discipline == KM_DISCIPLINE_RSEQ)
		return;
	km_for_each_cpu(cpu) {
		km_soft_enter_cpu(&visit, shelf->slot, cpu, false);
		km_store(&visit.soft->lock, 0u);
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
