/*
 * counter.c: charging up a tree of counters, all or nothing. Invariant: a limited counter is raised by
 * compare-and-swap, so that it is never above its max, not even while a charge that will fail is on its way; what
 * such a charge took from the counters below the refusing one is given back at once.
 */
#include "counter.h"

#include "os/die.h"

km_tls uint64_t km_counter_atomics;
void (*km_counter_touched)(const void *line);

void km_counter_init(struct km_counter *counter, struct km_counter *parent)
{
	km_debug(counter != parent, "a counter is not its own parent");
	*counter = (struct km_counter){ .max = UINT64_MAX, .high = UINT64_MAX, .parent = parent };
}

/* The greatest of all values that a charge made; most charges only look. */
static void note_peak(struct km_counter *counter, uint64_t usage)
{
	uint64_t peak = km_load(&counter->peak);

	while (usage > peak &&
	       !KM_SHARED(&counter->usage, km_cas_release(&counter->peak, &peak, usage)))
		;
}

static void add(struct km_counter *counter, uint64_t bytes)
{
	note_peak(counter, KM_SHARED(&counter->usage, km_add(&counter->usage, bytes)) + bytes);
}

static bool fits(const struct km_counter *counter, uint64_t usage, uint64_t bytes)
{
	uint64_t max = km_load(&counter->max);

	return max == UINT64_MAX || (bytes <= max && usage <= max - bytes);
}

struct km_counter *km_counter_would_refuse(struct km_counter *counter, uint64_t bytes)
{
	for (; counter; counter = counter->parent)
		if (!fits(counter, km_load(&counter->usage), bytes)) {
			KM_SHARED(&counter->usage, km_add(&counter->failcnt, 1u));
			return counter;
		}
	return NULL;
}

/* Kernel: adds first and takes it back where that was too much, so that another charge, which would fit, may meet
 * the excess and fail. Where there is no limit it is one addition here too. */
static bool try_add(struct km_counter *counter, uint64_t bytes)
{
	uint64_t usage = km_load(&counter->usage);

	if (km_load(&counter->max) == UINT64_MAX) {
		add(counter, bytes);
		return true;
	}
	do
		if (!fits(counter, usage, bytes)) {
			KM_SHARED(&counter->usage, km_add(&counter->failcnt, 1u));
			return false;
		}
	while (!KM_SHARED(&counter->usage, km_cas_acquire(&counter->usage, &usage, usage + bytes)));
	km_debug(usage + bytes >= bytes, "the usage of a limited counter does not run over");
	note_peak(counter, usage + bytes);
	return true;
}

/*
 * From below upwards. Another thread may see the counters below raised for a moment by a charge that is then refused
 * above; as each of them had room for it, none of them is above its own max, and what such a thread is refused by it
 * would have been refused a moment later by bytes that are really out.
 */
struct km_counter *km_counter_try_charge(struct km_counter *counter, uint64_t bytes)
{
	for (struct km_counter *at = counter; at; at = at->parent)
		if (!try_add(at, bytes)) {
			for (; counter != at; counter = counter->parent) {
				uint64_t had = KM_SHARED(&counter->usage, km_sub(&counter->usage, bytes));

				km_debug(had >= bytes, "what a refused charge took below is there to be given back");
			}
			return at;
		}
	return NULL;
}

void km_counter_charge(struct km_counter *counter, uint64_t bytes)
{
	for (; counter; counter = counter->parent)
		add(counter, bytes);
}

/* More was uncharged than charged. All that there was goes, from those above as well. Kernel: the same. */
static km_cold uint64_t too_much(struct km_counter *counter, uint64_t had, uint64_t bytes)
{
	km_misuse(KM_MISUSE_UNCHARGE, "mem_cgroup_uncharge", counter, NULL);
	km_add(&counter->usage, bytes - had);
	return had;
}

void km_counter_uncharge(struct km_counter *counter, uint64_t bytes)
{
	for (; counter; counter = counter->parent) {
		uint64_t had = KM_SHARED(&counter->usage, km_sub(&counter->usage, bytes));

		if (km_unlikely(had < bytes))
			bytes = too_much(counter, had, bytes);
	}
}

/*
 * A max that was lowered below what is in use leaves a margin of 0, not one that has run over. The loads are not one
 * look: a charge by this answer may still be refused, so it is used to choose a size, and never in place of a charge.
 */
uint64_t km_counter_margin(const struct km_counter *counter)
{
	uint64_t margin = UINT64_MAX;

	for (; counter; counter = counter->parent) {
		uint64_t max = km_load(&counter->max), usage = km_load(&counter->usage);

		if (max == UINT64_MAX)
			continue;
		uint64_t left = usage < max ? max - usage : 0;
		margin = left < margin ? left : margin;
	}
	return margin;
}

uint64_t km_counter_spare(const struct km_counter *counter)
{
	for (const struct km_counter *at = counter; at; at = at->parent)
		if (km_unlikely(km_load(&at->squeezed)))
			return 0;
	return km_counter_margin(counter);
}

void km_counter_reset_peak(struct km_counter *counter)
{
	km_store(&counter->peak, km_load(&counter->usage));
}
