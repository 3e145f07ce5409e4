/*
 * stock_word.c: a CPU's stock of bytes: rseq operations, or a compare-and-swap of a pair of words under both soft
 * disciplines. Invariant of the pair {bytes, tag}: without a tag there are no bytes.
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

/* Returns: the pair's value, read in two loads: if the pair changes in between, the compare-and-swap fails. */
static struct km_pair look(const struct km_pair *pair)
{
	return (struct km_pair){ km_load(&pair->first), km_load(&pair->second) };
}

/* Returns: this CPU's pair, with its value in *seen; NULL if `slot` is closed. The caller must check the tag. */
static struct km_pair *enter(const uint32_t *slot, struct km_pair *seen)
{
	uint32_t offset = km_load(slot);

	if (!offset)
		return NULL;
	struct km_pair *pair = pair_at(offset, km_cpu());
	*seen = look(pair);
	return pair;
}

/* Returns: false after a close. With another tag, the word may be another objcg's stock by now, whose bytes must not be
 * taken for this objcg. */
static bool is_tagged(const struct km_pair *seen, const uint32_t *slot)
{
	return seen->second == (uintptr_t)slot;
}

/* Take `bytes` from this CPU's pair, or all bytes, at least so many. Used under both soft disciplines: a stock has no
 * lock, because a drain compares and swaps as well. Returns: the bytes taken; 0: none. */
static uint64_t soft_take(const uint32_t *slot, uint64_t bytes, bool all)
{
	struct km_pair seen, *pair = enter(slot, &seen);

	km_debug(bytes, "a request to a stock has bytes");
	for (int i = 0; pair && i < KM_VISIT_TRIES && is_tagged(&seen, slot) && seen.first >= bytes; i++) {
		const uint64_t taken = all ? seen.first : bytes;

		if (km_cas_pair(pair, &seen, (struct km_pair){ seen.first - taken, seen.second }))
			return taken;
	}
	return 0;
}

static bool soft_put(const uint32_t *slot, uint64_t bytes, uint64_t limit)
{
	struct km_pair seen, *pair = enter(slot, &seen);

	for (int i = 0; pair && i < KM_VISIT_TRIES && is_tagged(&seen, slot) && seen.first + bytes <= limit; i++)
		if (km_cas_pair(pair, &seen, (struct km_pair){ seen.first + bytes, seen.second }))
			return true;
	return false;
}

bool km_stock_take(const uint32_t *slot, uint64_t bytes)
{
	return KM_RSEQ(stock_take, (slot, km_percpu.base, km_thread_rseq, bytes), soft_take(slot, bytes, false) != 0);
}

bool km_stock_put(const uint32_t *slot, uint64_t bytes, uint64_t limit)
{
	return KM_RSEQ(stock_put, (slot, km_percpu.base, km_thread_rseq, bytes, limit), soft_put(slot, bytes, limit));
}

uint64_t km_stock_empty(const uint32_t *slot)
{
	if (!km_visits_by_rseq())
		return soft_take(slot, 1, true);
	km_visit_scope(visit, slot, true);
	while (km_visit_look(&visit) && visit.top)
		if (km_visit_commit(&visit, NULL, 0, visit.word, 0))
			return visit.top;
	return 0;
}

void km_stock_open(uint32_t *slot, uint32_t offset)
{
	km_debug(!offset || !*slot, "a per-CPU offset is opened once");
	if (km_percpu.discipline != KM_DISCIPLINE_RSEQ)
		for (unsigned cpu = 0; offset && cpu < km_percpu.cpus; cpu++)
			km_store(&pair_at(offset, cpu)->second, (uint64_t)(uintptr_t)slot);
	/* Release pairs with the first load of a sequence, and with the loads depending on the first load. */
	km_store_release(slot, offset);
}

/* Closes a stock by one store: a sequence that has read the old offset may go on until the fence. An operation without
 * rseq fails by its tag. */
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
	/* Another thread may change the pair only with a slot read before the close. Each such thread does so once, and
	 * then this loop succeeds. */
	for (struct km_pair seen = look(pair);;) {
		uint64_t all = seen.first;

		if (km_cas_pair(pair, &seen, (struct km_pair){ 0, 0 })) {
			km_debug(seen.second || !all, "a stock without a tag has no bytes");
			return all;
		}
	}
}
