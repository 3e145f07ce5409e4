/*
 * The works of works/pair.h, charged to a group: the cost, and the atomic operations on shared lines for each
 * alloc+free; `groups` (a number of groups in turn, an object each time) and `churn` (a group is made, allocates and
 * frees some objects, and goes). Included after an interface with accounting (api/).
 */
#ifndef BENCH_WORK_ACCOUNT_H
#define BENCH_WORK_ACCOUNT_H

#include "works/pair.h"

#define ACCOUNT_COUNTED 10000u	/* iterations with counted atomic operations */
#define ACCOUNT_GROUPS 1000u

static struct mem_cgroup *turn_groups[ACCOUNT_GROUPS];

/* cost_cell, and the atomic operations of one further run. */
static void account_cell(const struct cell *cell, bench_window *window, unsigned int objects)
{
	uint64_t before;

	bench_pin();
	cost_api = api_open(cell->size);
	bench_print("cycles/object", "-", "-", bench_cost(window, cell, objects));
	before = mem_cgroup_atomics();
	window(cell, ACCOUNT_COUNTED);
	bench_print("atomics/op", "-", "-", (double)(mem_cgroup_atomics() - before) /
					    ((double)ACCOUNT_COUNTED * objects));
	api_close(cost_api);
}

static void account_pair(const struct cell *cell)
{
	account_cell(cell, pair_window, 1);
}

static void account_loop(const struct cell *cell)
{
	account_cell(cell, loop_window, cell->batch);
}

/* Without charges the groups exist, too, and the change of the group takes its time. */
bench_noinline uint64_t groups_window(const struct cell *cell, uint64_t count)
{
	const struct api api = cost_api;
	unsigned int turn = 0;
	uint64_t start = clock_start();

	for (uint64_t i = 0; i < count; i++) {
		set_active_memcg(turn_groups[turn]);
		turn = turn + 1 < cell->groups ? turn + 1 : 0;
		void *object = api_alloc(api);

		bench_check(object);
		bench_use(object);
		api_free(api, object);
	}
	return clock_stop() - start;
}

static void account_groups(const struct cell *cell)
{
	if (!cell->groups || cell->groups > ACCOUNT_GROUPS)
		bench_die("too many groups, or none");
	for (unsigned int i = 0; i < cell->groups; i++)
		turn_groups[i] = account_group("turn");
	account_cell(cell, groups_window, 1);
	set_active_memcg(account.group);
	for (unsigned int i = 0; i < cell->groups; i++)
		mem_cgroup_put(turn_groups[i]);
}

bench_noinline uint64_t churn_window(const struct cell *cell, uint64_t count)
{
	const struct api api = cost_api;
	const unsigned int batch = cell->batch;
	void *objects[BENCH_MAX_BATCH];
	uint64_t start = clock_start();

	for (uint64_t i = 0; i < count; i++) {
		struct mem_cgroup *group = mem_cgroup_create(NULL, "churn", 0);

		bench_check(group);
		set_active_memcg(group);
		for (unsigned int k = 0; k < batch; k++) {
			objects[k] = api_alloc(api);
			bench_check(objects[k]);
		}
		bench_use(objects);
		for (unsigned int k = 0; k < batch; k++)
			api_free(api, objects[k]);
		set_active_memcg(NULL);
		mem_cgroup_put(group);
	}
	return clock_stop() - start;
}

static void account_churn(const struct cell *cell)
{
	bench_pin();
	cost_api = api_open(cell->size);
	bench_print("cycles", "-", "-", bench_cost(churn_window, cell, 1));
	set_active_memcg(account.group);
	api_close(cost_api);
}

#endif
