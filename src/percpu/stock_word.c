/*
 * stock_word.c: a CPU's stock of bytes: the rseq verbs, or one pair of words that is compared and swapped, under both
 * soft disciplines. Invariant of the pair: {bytes, tag}; without a tag there are no bytes.
 */
#include "stock_word.h"

#include "os/die.h"
#include "visit.h"

size_t km_stock_word_bytes(void)
{
	return km_percpu.discipline == KM_DISCIPLINE_RSEQ ? sizeof(uint64_t) : sizeof(struct km_pair);
}

static struct km_pair *pair_at(uint32_t offset, unsigned cpu)
{
	return (struct km_pair *)(km_area(cpu) + offset);
}

/* The value that lies there, perhaps half of it from before a change: then the compare-and-swap fails. */
static struct km_pair look(const struct km_pair *pair)
{
	return (struct km_pair){ km_load(&pair->first), km_load(&pair->second) };
}

/* This CPU's pair, if `slot` is open and it is tagged so. */
static struct km_pair *enter(const uint32_t *slot, struct km_pair *seen)
{
	uint32_t offset = km_load(slot);

	if (!offset)
		return NULL;
	struct km_pair *pair = pair_at(offset, km_cpu());
	*seen = look(pair);
	return pair;
}

/* A tag that is another one is a slot that was closed: its words may be another group's stock by now, whose bytes are
 * not this one's to take. */
static bool is_tagged(const struct km_pair *seen, const uint32_t *slot)
{
	return seen->second == (uintptr_t)slot;
}

/* Under both soft disciplines: a stock has no lock, because a drain compares and swaps as well. */
static bool soft_take(const uint32_t *slot, uint64_t bytes)
{
	struct km_pair seen, *pair = enter(slot, &seen);

	km_debug(bytes, "somebody wants some bytes of a stock");
	for (int i = 0; pair && i < KM_VISIT_TRIES && is_tagged(&seen, slot) && seen.first >= bytes; i++)
		if (km_cas_pair(pair, &seen, (struct km_pair){ seen.first - bytes, seen.second }))
			return true;
	return false;
}

static bool soft_put(const uint32_t *slot, uint64_t bytes, uint64_t limit)
{
	struct km_pair seen, *pair = enter(slot, &seen);

	for (int i = 0; pair && i < KM_VISIT_TRIES && is_tagged(&seen, slot) &&
			seen.first + bytes <= limit; i++)
		if (km_cas_pair(pair, &seen, (struct km_pair){ seen.first + bytes, seen.second }))
			return true;
	return false;
}

static uint64_t soft_empty(const uint32_t *slot)
{
	struct km_pair seen, *pair = enter(slot, &seen);

	for (int i = 0; pair && i < KM_VISIT_TRIES && is_tagged(&seen, slot) && seen.first; i++) {
		uint64_t all = seen.first;

		if (km_cas_pair(pair, &seen, (struct km_pair){ 0, seen.second }))
			return all;
	}
	return 0;
}

bool km_stock_take(const uint32_t *slot, uint64_t bytes)
{
	return KM_RSEQ(stock_take, (slot, km_percpu.base, km_thread_rseq, bytes), soft_take(slot, bytes));
}

bool km_stock_put(const uint32_t *slot, uint64_t bytes, uint64_t limit)
{
	return KM_RSEQ(stock_put, (slot, km_percpu.base, km_thread_rseq, bytes, limit),
		       soft_put(slot, bytes, limit));
}

uint64_t km_stock_empty(const uint32_t *slot)
{
	return KM_RSEQ(stock_empty, (slot, km_percpu.base, km_thread_rseq), soft_empty(slot));
}

void km_stock_open(uint32_t *slot, uint32_t offset)
{
	km_debug(!offset || !*slot, "a slot is opened once");
	if (km_percpu.discipline != KM_DISCIPLINE_RSEQ)
		for (unsigned cpu = 0; offset && cpu < km_percpu.cpus; cpu++)
			km_store(&pair_at(offset, cpu)->second, (uint64_t)(uintptr_t)slot);
	/* Release pairs with the sequences' first load, and the loads that follow from it. */
	km_store_release(slot, offset);
}

/* Closed is only said here; a sequence that read the offset before may go on until the fence, or fails by its tag. */
void km_stock_close(uint32_t *slot)
{
	km_store(slot, 0u);
}

uint64_t km_stock_take_cpu(uint32_t offset, unsigned cpu)
{
	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ) {
		uint64_t *word = (uint64_t *)(km_area(cpu) + offset), all = km_load(word);

		km_store(word, (uint64_t)0);
		return all;
	}
	struct km_pair *pair = pair_at(offset, cpu);
	/* Another thread that changes it has read the slot before it was closed: each does so once, and then this
	 * succeeds. */
	for (struct km_pair seen = look(pair);;) {
		uint64_t all = seen.first;

		if (km_cas_pair(pair, &seen, (struct km_pair){ 0, 0 })) {
			km_debug(seen.second || !all, "without a tag there are no bytes");
			return all;
		}
	}
}
