/*
 * memcg_stock.c: a group's byte stock on a CPU. Charges and uncharges in turn stay within the stock, for any former
 * contents; and the stocks of groups active in turn are spread over the lines of a processor's cache. Disciplines:
 * all.
 */
#define _GNU_SOURCE
#include "kit/charged_cpus.h"

#include "memcg/memcg_group.h"

#define PAGE 4096ul

/* Bytes moved to the group on this CPU from the level of whole pages, minus the bytes moved back. */
static int64_t passed(const struct mem_cgroup *group)
{
	NEED(group->objcg->net);
	return *(volatile int64_t *)(km_area(km_cpu()) + group->objcg->net);
}

static void pairs_stay(void)
{
	static const unsigned long sizes[] = { 8, 16, 264, 520, 1032, 2056, 4096 };

	for (unsigned long left = 1; left < PAGE; left += 63)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			struct mem_cgroup *group = group_below(NULL, "pairs");

			NEED(charge(group, PAGE - left) && charge(group, sizes[i]));
			mem_cgroup_uncharge(group, sizes[i]);
			int64_t before = passed(group);
			for (int k = 0; k < 4; k++) {
				NEED(charge(group, sizes[i]) && passed(group) == before);
				mem_cgroup_uncharge(group, sizes[i]);
				NEED(passed(group) == before);
			}
			mem_cgroup_uncharge(group, PAGE - left);
			NEED(drained(group) == 0);
			mem_cgroup_put(group);
		}
}

/* After any charges: never more bytes in the stock than the bound. */
static void is_bounded(void)
{
	struct mem_cgroup *group = group_below(NULL, "bounded");
	unsigned long out = 0;

	for (int i = 0; i < 3000; i++) {
		unsigned long bytes = 1 + (unsigned long)i * 7 % 600;

		if (i / 100 % 2 == 0) {
			NEED(charge(group, bytes));
			out += bytes;
		} else {
			bytes = bytes < out ? bytes : out;
			mem_cgroup_uncharge(group, bytes);
			out -= bytes;
		}
		uint64_t now = *(volatile uint64_t *)(km_area(km_cpu()) + group->objcg->stock);
		NEED(now <= km_stock_most() && mem_cgroup_current(group) >= out);
	}
	NEED(drained(group) == out);
	mem_cgroup_uncharge(group, out);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
}

/* The first cache of many processors has 64 sets of lines, by these bits of the address. */
static void lines_differ(void)
{
	enum { GROUPS = 512, SETS = 64 };
	static struct mem_cgroup *groups[GROUPS];
	bool used[SETS] = { false };
	int sets = 0;

	for (int i = 0; i < GROUPS; i++) {
		groups[i] = group_below(NULL, "in turn");
		size_t set = (uintptr_t)&groups[i]->objcg / 64 % SETS;

		sets += !used[set];
		used[set] = true;
	}
	NEED(sets >= SETS / 4);
	for (int i = 0; i < GROUPS; i++)
		mem_cgroup_put(groups[i]);
}

static const struct test_case cases[] = {
	{ "pairs stay in the stock", pairs_stay },
	{ "the stock is bounded", is_bounded },
	{ "groups lie on different lines", lines_differ },
};

CHARGED_MAIN(cases)
