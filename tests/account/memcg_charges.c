/*
 * memcg_charges.c: charges by hand are exact to the byte up the tree; a max is never exceeded, and usable to its last
 * byte; stocks are drained before a request fails; and the number of shared cache lines for all this, by both rules
 * and both hierarchies. Disciplines: all
 */
#include "kit/events.h"
#include "kit/groups.h"
#include "kit/random.h"

#include <limits.h>

#define PAGE	4096ul
#define MIB	(1ul << 20)

/* Charges of all sizes in a tree of groups; what each group must have is added up here. */
static void to_the_byte(void)
{
	enum { GROUPS = 12, LIVE = 4000 };
	struct mem_cgroup *groups[GROUPS];
	static struct { int group; unsigned long bytes; } live[LIVE];
	unsigned long sum[GROUPS] = { 0 };
	static const int parent[GROUPS] = { -1, 0, 0, 1, 1, 1, 2, 2, 3, 3, 6, 8 };
	int rounds = getenv("ROUNDS") ? atoi(getenv("ROUNDS")) : 1000000;

	memset(live, 0, sizeof(live));
	for (int i = 0; i < GROUPS; i++)
		groups[i] = group_below(parent[i] < 0 ? NULL : groups[parent[i]], "g");
	for (int i = 0; i < rounds; i++) {
		int k = (int)random_below(LIVE);

		if (live[k].bytes) {
			mem_cgroup_uncharge(groups[live[k].group], live[k].bytes);
			for (int g = live[k].group; g >= 0; g = parent[g])
				sum[g] -= live[k].bytes;
		}
		live[k].group = (int)random_below(GROUPS);
		live[k].bytes = random_below(8) ? 1 + random_below(600) : random_below(300000);
		CHECK(charge(groups[live[k].group], live[k].bytes));
		for (int g = live[k].group; g >= 0; g = parent[g])
			sum[g] += live[k].bytes;
		if (i % 100000 == 0)
			for (int g = 0; g < GROUPS; g++)
				CHECK(mem_cgroup_current(groups[g]) >= sum[g]);
	}
	mem_cgroup_drain(groups[0]);
	for (int g = 0; g < GROUPS; g++)
		CHECK_EQUAL(mem_cgroup_current(groups[g]), sum[g]);
	for (int k = 0; k < LIVE; k++)
		if (live[k].bytes)
			mem_cgroup_uncharge(groups[live[k].group], live[k].bytes);
	mem_cgroup_drain(groups[0]);
	for (int g = GROUPS - 1; g >= 0; g--) {
		CHECK_EQUAL(mem_cgroup_current(groups[g]), 0);
		mem_cgroup_put(groups[g]);
	}
}

static void last_byte(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *group = group_below(top, "group");
	int got = 0;

	CHECK_EQUAL(mem_cgroup_set_max(group, 10000), 0);
	for (; charge(group, 264); got++)
		CHECK(mem_cgroup_current(group) <= 10000);
	CHECK_EQUAL(got, 10000 / 264);
	for (; charge(group, 1); got++)
		CHECK(mem_cgroup_current(group) <= 10000);
	CHECK_EQUAL(got, 10000 / 264 + 10000 % 264);
	CHECK_EQUAL(mem_cgroup_current(group), 10000);
	CHECK_EQUAL(mem_cgroup_margin(group), 0);
	CHECK_EQUAL(mem_cgroup_current(top), 10000);
	/* The one above binds as well, and can be met in one piece. */
	mem_cgroup_uncharge(group, 10000);
	CHECK_EQUAL(mem_cgroup_set_max(group, MEMCG_NO_LIMIT), 0);
	CHECK_EQUAL(mem_cgroup_set_max(top, 9999), 0);
	/* More than the max is refused at once: what lies in stocks stays there, and does not stand in the way. */
	CHECK(!charge(group, 10000));
	CHECK(charge(group, 9999));
	CHECK(!charge(group, 1) && !charge(top, 1));
	CHECK_EQUAL(mem_cgroup_current(top), 9999);
	mem_cgroup_uncharge(group, 9999);
	CHECK_EQUAL(drained(top), 0);
	mem_cgroup_put(group);
	mem_cgroup_put(top);
}

/* A charge with __GFP_NOFAIL succeeds above the limit; any other fails until the excess is uncharged. */
static void forced(void)
{
	struct mem_cgroup *group = group_below(NULL, "forced");

	mem_cgroup_set_max(group, 1000);
	CHECK(!charge(group, 1001));
	CHECK_EQUAL(mem_cgroup_charge(group, GFP_NOWAIT, 1001), -ENOMEM);
	CHECK_EQUAL(mem_cgroup_charge(group, GFP_ATOMIC, 1001), 0);
	CHECK_EQUAL(mem_cgroup_charge(group, GFP_KERNEL | __GFP_NOFAIL, 5000), 0);
	CHECK_EQUAL(drained(group), 6001);
	CHECK(!charge(group, 1));
	mem_cgroup_uncharge(group, 5001);
	CHECK_EQUAL(drained(group), 1000);
	CHECK(!charge(group, 1));
	mem_cgroup_uncharge(group, 1);
	CHECK(charge(group, 1));
	mem_cgroup_uncharge(group, 1000);
	CHECK_EQUAL(drained(group), 0);
	/* More than all memory is refused at any limit. */
	mem_cgroup_set_max(group, MEMCG_NO_LIMIT);
	CHECK(!charge(group, ULONG_MAX) && !charge(group, 1ul << 63));
	CHECK_EQUAL(drained(group), 0);
	mem_cgroup_put(group);
}

static void peak_and_failures(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *group = group_below(top, "peak");

	mem_cgroup_set_max(top, 100000);
	CHECK(charge(group, 50000) && charge(group, 20000));
	mem_cgroup_uncharge(group, 60000);
	CHECK_EQUAL(drained(group), 10000);
	/* Stocks count: at most a batch of pages more than was used. */
	CHECK(mem_cgroup_peak(group) >= 70000 && mem_cgroup_peak(group) <= 100000);
	CHECK_EQUAL(mem_cgroup_peak(top), mem_cgroup_peak(group));
	mem_cgroup_reset_peak(group);
	CHECK_EQUAL(mem_cgroup_peak(group), 10000);
	CHECK(mem_cgroup_peak(top) >= 70000);
	CHECK_EQUAL(mem_cgroup_failcnt(top), 0);
	CHECK_EQUAL(mem_cgroup_charge(group, GFP_NOWAIT, 100000), -ENOMEM);
	CHECK_EQUAL(mem_cgroup_failcnt(top), 1);
	CHECK_EQUAL(mem_cgroup_failcnt(group), 0);
	/* Bytes refused by the group above were never charged. */
	CHECK_EQUAL(mem_cgroup_peak(group), 10000);
	CHECK_EQUAL(mem_cgroup_events(top, MEMCG_MAX), 1);
	CHECK_EQUAL(mem_cgroup_events(group, MEMCG_MAX), 0);
	mem_cgroup_uncharge(group, 10000);
	mem_cgroup_put(group);
	mem_cgroup_put(top);
}

/* Leave charged bytes behind, unused: in the byte stock and in the page stock of a CPU. */
static void leave_stock(void *group)
{
	CHECK(charge(group, 100000));
	mem_cgroup_uncharge(group, 99000);
}

static void stocks_are_drained(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *other = group_below(top, "other"),
			  *group = group_below(top, "group");

	mem_cgroup_set_max(top, 2 * MIB);
	run_on_cpu(1, leave_stock, other);
	run_on_cpu(0, leave_stock, other);
	run_on_cpu(1, leave_stock, group);
	CHECK(mem_cgroup_current(top) > 3000);
	/* 3000 bytes are in use: all other bytes can be charged in one piece, to any group. */
	CHECK(charge(group, 2 * MIB - 3000));
	CHECK_EQUAL(mem_cgroup_current(top), 2 * MIB);
	CHECK(!charge(other, 1));
	mem_cgroup_uncharge(group, 2 * MIB - 3000 + 1000);
	mem_cgroup_uncharge(other, 2000);
	CHECK_EQUAL(drained(top), 0);
	CHECK_EQUAL(mem_cgroup_drain(top), 0);
	mem_cgroup_put(group);
	mem_cgroup_put(other);
	mem_cgroup_put(top);
}

/* More groups than a page stock has places, in turn: a displaced group loses no bytes. */
static void many_groups(void)
{
	enum { GROUPS = 40 };
	struct mem_cgroup *top = group_below(NULL, "top"), *groups[GROUPS];

	for (int i = 0; i < GROUPS; i++)
		groups[i] = group_below(top, "one of many");
	for (int round = 0; round < 100; round++)
		for (int i = 0; i < GROUPS; i++)
			CHECK(charge(groups[i], 4104));
	/* Bytes that may be in stocks of this CPU, and of former CPUs of the thread. */
	unsigned long cpus = (unsigned long)sysconf(_SC_NPROCESSORS_CONF);
	CHECK(mem_cgroup_current(top) <= GROUPS * 100 * 4104ul + cpus * (7 * 64 + 2 * GROUPS) * PAGE);
	CHECK_EQUAL(drained(top), GROUPS * 100 * 4104ul);
	for (int i = 0; i < GROUPS; i++) {
		CHECK_EQUAL(mem_cgroup_current(groups[i]), 100 * 4104ul);
		for (int round = 0; round < 100; round++)
			mem_cgroup_uncharge(groups[i], 4104);
		mem_cgroup_put(groups[i]);
	}
	CHECK_EQUAL(drained(top), 0);
	mem_cgroup_put(top);
}

/* Atomic operations on shared lines for a charge of 4 KiB and its uncharge, in the long run, in hundredths. */
static unsigned long cost(struct mem_cgroup *group)
{
	enum { ROUNDS = 10000 };

	for (int i = 0; i < 100; i++) {
		charge(group, 4104);
		mem_cgroup_uncharge(group, 4104);
	}
	uint64_t before = mem_cgroup_atomics();
	for (int i = 0; i < ROUNDS; i++) {
		charge(group, 4104);
		mem_cgroup_uncharge(group, 4104);
	}
	return (mem_cgroup_atomics() - before) * 100 / ROUNDS;
}

static void shared_lines(void)
{
	unsigned long costs[2][2];

	for (int v1 = 0; v1 < 2; v1++)
		for (int drain = 0; drain < 2; drain++) {
			CHECK_EQUAL(mem_cgroup_set_mode(MEM_CGROUP_V1, v1), 0);
			CHECK_EQUAL(mem_cgroup_set_mode(MEM_CGROUP_DRAIN, drain), 0);
			struct mem_cgroup *top = group_below(NULL, "top"), *group = group_below(top, "group");
			costs[v1][drain] = cost(group);
			CHECK_EQUAL(mem_cgroup_set_mode(MEM_CGROUP_V1, !v1), -EBUSY);
			CHECK_EQUAL(drained(top), 0);
			CHECK_EQUAL(mem_cgroup_kmem(top), 0);
			mem_cgroup_put(group);
			mem_cgroup_put(top);
		}
	printf("     v2: keep %lu, drain %lu; v1: keep %lu, drain %lu (hundredths of an atomic operation)\n",
	       costs[0][0], costs[0][1], costs[1][0], costs[1][1]);
	/* v2 keeps all on this CPU; v1 walks up two groups for at least a page, both ways. */
	CHECK_EQUAL(costs[0][0] / 10, 0);
	CHECK(costs[0][1] >= 100);
	CHECK(costs[1][0] >= 400);
	CHECK(costs[1][1] >= costs[1][0] + 100);
	mem_cgroup_set_mode(MEM_CGROUP_V1, false);
	mem_cgroup_set_mode(MEM_CGROUP_DRAIN, false);
}

static void other_modes(void)
{
	for (int mode = 1; mode < 4; mode++) {
		mem_cgroup_set_mode(MEM_CGROUP_V1, mode & 1);
		mem_cgroup_set_mode(MEM_CGROUP_DRAIN, mode & 2);
		to_the_byte();
		last_byte();
		forced();
		stocks_are_drained();
		many_groups();
	}
	mem_cgroup_set_mode(MEM_CGROUP_V1, false);
	mem_cgroup_set_mode(MEM_CGROUP_DRAIN, false);
}

/* v1's second counter knows of what left the page level. */
static void second_counter(void)
{
	mem_cgroup_set_mode(MEM_CGROUP_V1, true);
	struct mem_cgroup *top = group_below(NULL, "top"), *group = group_below(top, "group");

	CHECK(charge(group, 5000));
	CHECK_EQUAL(mem_cgroup_kmem(group), 2 * PAGE);
	CHECK_EQUAL(mem_cgroup_kmem(top), 2 * PAGE);
	CHECK_EQUAL(drained(top), 5000);
	CHECK_EQUAL(mem_cgroup_kmem(group), 5000);
	mem_cgroup_uncharge(group, 5000);
	CHECK_EQUAL(drained(top), 0);
	CHECK_EQUAL(mem_cgroup_kmem(top), 0);
	mem_cgroup_put(group);
	mem_cgroup_put(top);
	mem_cgroup_set_mode(MEM_CGROUP_V1, false);
}

static const struct test_case cases[] = {
	{ "to the byte", to_the_byte },
	{ "to the last byte", last_byte },
	{ "forced", forced },
	{ "peak and failures", peak_and_failures },
	{ "stocks are drained first", stocks_are_drained },
	{ "more groups than places", many_groups },
	{ "shared lines", shared_lines },
	{ "other modes", other_modes },
	{ "v1's second counter", second_counter },
};

int main(void)
{
	return run_in_turn(cases, sizeof(cases) / sizeof(cases[0]), 1);
}
