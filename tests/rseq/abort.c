/*
 * abort.c: aborts at every instruction of every restartable sequence in this program (those of the library, and the
 * inline ones of the test itself), each with every adversary, and pairs of them. Nothing may be lost, given twice or
 * done twice, and no instruction may be left out: each must be reached by some driver.
 *
 * Further sequences need no mention here: they are found by their descriptors. If no driver reaches one, the test
 * fails, and a fixture wants a driver more.
 */
#define _GNU_SOURCE
#include <kmem/kmem.h>
#include <time.h>

#include "fixture_cache.h"
#include "fixture_chain.h"
#include "fixture_charged.h"
#include "fixture_owned.h"
#include "fixture_large.h"

static const struct fixture fixtures[] = {
	CACHE_FIXTURE("sheaf", start_sheaf),
	CACHE_FIXTURE("kmalloc", start_sizes),
	CACHE_FIXTURE("malloc", start_malloc),
	CACHE_FIXTURE("slub", start_slub),
	CACHE_FIXTURE("slab", start_slab),
	CACHE_FIXTURE("proved", start_validated),
	CACHE_FIXTURE("proved slub", start_validated_chain),
	CHAIN_FIXTURE,
	OWNED_FIXTURE,
	STOCK_FIXTURE,
	CHARGED_FIXTURE,
	LARGE_FIXTURE,
	CACHE_FIXTURE("profiled", start_profiled),
};

/* A fork costs a millisecond, another thread's help two switches: so many for each instruction. */
#define DEAR_PER_POINT 4u
static unsigned short dear[MAX_POINTS][2];
/* Pairs are tried evenly spread, this many for each driver. */
#define PAIRS_PER_DRIVER 120u

/* By instruction and adversary: tried in this fixture. */
static bool tried[MAX_POINTS][32];

static struct {
	unsigned long pairs, struck_pairs;
	uint32_t known[4096];		/* instructions reached by earlier drivers: pairs are tried once for each
					 * such set */
	unsigned known_count;
} tally;

/*
 * One run: the driver's state, then the operation with a breakpoint at `first`. Returns: true if the
 * breakpoint was reached.
 */
static bool run(const struct fixture *fixture, unsigned driver, struct point *first,
		const struct adversary *adversary, struct point *second, bool early)
{
	char what[160];

	fixture->describe(driver, what, sizeof(what));
	snprintf(attempt, sizeof(attempt), "%s: %s; %s%+d (%u of %u), adversary %s%s%s",
		 fixture->name, what, first->sequence->name,
		 (int)(first->address - first->sequence->start), first->index,
		 first->sequence->points, adversary->name, second ? ", then " : "",
		 second ? second->sequence->name : "");
	come_home();
	if (!fixture->prepare(driver))
		return false;
	inject.aborts = 0;
	inject.adversary = adversary->act;
	inject.second = second;
	inject.second_early = early;
	arm(first);
	fixture->operate(driver);
	disarm();
	unsigned long aborts = inject.aborts;
	inject.second = NULL;
	need(aborts <= (second ? 2u : 1u), "%lu aborts of %u", aborts, second ? 2 : 1);
	fixture->verify();
	if (is_child)
		_exit(0);
	inject.injections += aborts;
	inject.all_aborts += aborts;
	return aborts != 0;
}

/* All adversaries at one instruction known to be reached by the driver. */
static void torment(const struct fixture *fixture, unsigned driver, struct point *point)
{
	for (unsigned i = 1; i < fixture->adversary_count; i++) {
		const struct adversary *adversary = &fixture->adversaries[i];

		if (fixture->is_dear(adversary) &&
		    dear[point - points][adversary->act == fork_now]++ >= DEAR_PER_POINT)
			continue;
		/*
		 * After an abort by the scheduler that led elsewhere: another try. For an abort that led here:
		 * other drivers reach this point by themselves, or the end reports the untried pair.
		 */
		int tries = 0;
		while (!run(fixture, driver, point, adversary, NULL, false))
			if (++tries == 10)
				return;
		tried[point - points][i] = true;
	}
}

/* Two aborts in one operation; the second comes in the adversary's own work, or in the retry. */
static void torment_twice(const struct fixture *fixture, unsigned driver, struct point **reached,
			  unsigned count)
{
	static unsigned turn;
	unsigned stride = count * count / PAIRS_PER_DRIVER + 1;

	for (unsigned pair = turn % stride; pair < count * count; pair += stride) {
		struct point *first = reached[pair / count], *second = reached[pair % count];
		const struct adversary *adversary;

		do
			adversary = &fixture->adversaries[turn++ % fixture->adversary_count];
		while (fixture->is_dear(adversary));
		unsigned long before = inject.all_aborts;
		run(fixture, driver, first, adversary, second, turn / 7 % 2);
		tally.pairs++;
		tally.struck_pairs += inject.all_aborts - before == 2;
	}
}

static bool is_new(struct point *const *reached, unsigned count)
{
	uint32_t hash = 2166136261u;

	for (unsigned i = 0; i < count; i++)
		hash = (hash ^ (uint32_t)(reached[i] - points)) * 16777619u;
	for (unsigned i = 0; i < tally.known_count; i++)
		if (tally.known[i] == hash)
			return false;
	if (tally.known_count < 4096)
		tally.known[tally.known_count++] = hash;
	return true;
}

static void try_fixture(const struct fixture *fixture)
{
	static struct point *reached[MAX_POINTS];

	tally.known_count = 0;
	memset(dear, 0, sizeof(dear));
	for (unsigned driver = 0; driver < fixture->drivers; driver++) {
		unsigned count = 0;
		bool entered = false;

		for (unsigned i = 0; i < point_count; i++) {
			const struct adversary *nothing = &fixture->adversaries[0];

			/*
			 * A run reaches a later instruction of a sequence only through the first one, in this run or
			 * in the next: some operations alternate between two ways. The eve has a way of its own.
			 */
			if (points[i].index > FIRST_POINT && !entered)
				continue;
			bool struck = run(fixture, driver, &points[i], nothing, NULL, false);

			if (points[i].index == FIRST_POINT)
				entered = struck || run(fixture, driver, &points[i], nothing, NULL, false);
			if (!struck)
				continue;
			reached[count++] = &points[i];
			tried[i][0] = true;
		}
		if (!is_new(reached, count))
			continue;
		for (unsigned i = 0; i < count; i++)
			torment(fixture, driver, reached[i]);
		torment_twice(fixture, driver, reached, count);
	}
}

enum { ROUNDS_MORE = 5 };

static bool has_met_all(const struct fixture *fixture)
{
	for (unsigned i = 0; i < point_count; i++)
		for (unsigned j = 0; tried[i][0] && j < fixture->adversary_count; j++)
			if (!tried[i][j])
				return false;
	return true;
}

/* Checks that each instruction reached in this fixture met each adversary. */
static void check_tried(const struct fixture *fixture)
{
	for (unsigned i = 0; i < point_count; i++)
		for (unsigned j = 0; tried[i][0] && j < fixture->adversary_count; j++)
			need(tried[i][j], "%s: %s, instruction %u never met %s", fixture->name,
			     points[i].sequence->name, points[i].index,
			     fixture->adversaries[j].name);
	memset(tried, 0, sizeof(tried));
}

static unsigned report_missed(void)
{
	unsigned missed = 0;

	for (unsigned i = 0; i < point_count; i++)
		if (!points[i].aborts) {
			printf("never reached: %s%+d, instruction %u of %u\n", points[i].sequence->name,
			       (int)(points[i].address - points[i].sequence->start),
			       points[i].index, points[i].sequence->points);
			missed++;
		}
	return missed;
}

/* Arguments: the fixtures to run; none: all, and every instruction must have been reached. */
int main(int argc, char **argv)
{
	unsigned adversaries = 0;

	if (strcmp(kmem_percpu_discipline(), "rseq") != 0) {
		printf("skipped: %s\n", kmem_percpu_reason());
		return 77;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	inject_start();
	cpus_start();
	helper_start();
	alarm(1400);
	/* Work by the clock would be done in some runs only. */
	km_alloc_tick = NULL;
	for (unsigned i = 0; i < sizeof(fixtures) / sizeof(fixtures[0]); i++) {
		unsigned long before = inject.all_aborts;
		time_t started = time(NULL);
		bool wanted = argc == 1;

		for (int j = 1; j < argc; j++)
			wanted |= strcmp(argv[j], fixtures[i].name) == 0;
		if (!wanted || !fixtures[i].start())
			continue;
		try_fixture(&fixtures[i]);
		/* An operation that alternates between two ways went the other way at an adversary's turn. */
		for (int again = 0; again < ROUNDS_MORE && !has_met_all(&fixtures[i]); again++)
			try_fixture(&fixtures[i]);
		check_tried(&fixtures[i]);
		adversaries = fixtures[i].adversary_count > adversaries ?
				      fixtures[i].adversary_count : adversaries;
		printf("%-12s %3u drivers, %2u adversaries, %lu aborts, %ld s\n", fixtures[i].name,
		       fixtures[i].drivers, fixtures[i].adversary_count,
		       inject.all_aborts - before, (long)(time(NULL) - started));
	}
	if (cpus.other < 0)
		printf("one CPU only: no migration\n");
	unsigned missed = report_missed();
	printf("%u sequences, %lu of %lu pairs struck twice\n", sequence_count, tally.struck_pairs,
	       tally.pairs);
	printf("%u instructions x %u adversaries = %lu injections, %lu aborts\n", point_count,
	       adversaries, inject.injections, inject.all_aborts);
	return missed && argc == 1;
}
