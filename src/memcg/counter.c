/*
 * counter.c: charges up a tree of counters, all or nothing. A refused charge gives the bytes of the counters below the
 * refusing counter back at once. Invariant: only a forced charge raises the usage of a counter above max. Other charges
 * raise a limited counter by compare-and-swap, so a charge that will fail does not exceed max either. A lowered max may
 * lie below the usage.
 */
#include "counter.h"

#include "os/die.h"

void (*km_counter_touched)(const void *line);

void km_counter_init(struct km_counter *counter, struct km_counter *parent)
{
	km_debug(counter != parent, "a counter is not its own parent");
	*counter = (struct km_counter){ .max = UINT64_MAX, .high = UINT64_MAX, .parent = parent };
}

/* Raises the peak to the usage after a charge; most charges only read. */
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

/* Kernel: adds first, and subtracts an excess, so that another charge with room may meet the excess and fail. Without
 * a limit one addition suffices here, too. */
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
	km_debug(usage + bytes >= bytes, "the usage of a limited counter does not overflow");
	note_peak(counter, usage + bytes);
	return true;
}

/*
 * Charges from below upwards. Another thread may see counters below raised for a moment by a charge then refused
 * above. Each of these counters had room, so none exceeds its max. Another charge may be refused meanwhile although
 * there would be room a moment later (kernel: the same). km_press (pressure.c) tries again; a charge that may not wait
 * fails.
 */
struct km_counter *km_counter_try_charge(struct km_counter *counter, uint64_t bytes)
{
	for (struct km_counter *at = counter; at; at = at->parent)
		if (!try_add(at, bytes)) {
			for (; counter != at; counter = counter->parent) {
				uint64_t had = KM_SHARED(&counter->usage, km_sub(&counter->usage, bytes));

				km_debug(had >= bytes, "the lower counters have the bytes of a refused charge");
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

/* Reports an uncharge of more bytes than are charged. Returns: the bytes that were charged; only these are uncharged,
 * also from the counters above. Kernel: the same. */
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
 * A max lowered below the usage gives a margin of 0, never an overflow. The loads are not one snapshot: a charge by
 * this answer may still be refused. So the answer chooses a size, and never replaces a charge.
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
