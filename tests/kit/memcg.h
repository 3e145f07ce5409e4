/*
 * memcg.h: what the tests of groups share.
 */
#ifndef TESTS_CONTRACT_MEMCG_H
#define TESTS_CONTRACT_MEMCG_H

#include "contract.h"

#include <kmem/memcg.h>

#define PAGE	4096ul
#define MIB	(1ul << 20)

static struct mem_cgroup *group_below(struct mem_cgroup *parent, const char *name)
{
	struct mem_cgroup *group = mem_cgroup_create(parent, name, 0);

	if (!group) {
		printf("no group %s (errno %d)\n", name, errno);
		exit(1);
	}
	return group;
}

/* What is charged once nothing lies in stocks. */
static unsigned long drained(struct mem_cgroup *group)
{
	mem_cgroup_drain(group);
	return mem_cgroup_current(group);
}

static bool charge(struct mem_cgroup *group, unsigned long bytes)
{
	return mem_cgroup_charge(group, GFP_KERNEL, bytes) == 0;
}

/* Run it on the CPU at place n among ours, in a thread of its own. */
struct on_cpu {
	void (*run)(void *arg);
	void *arg;
	int n;
};

static void *on_cpu_main(void *arg)
{
	struct on_cpu *on = arg;

	contract_pin(contract_cpu(on->n));
	on->run(on->arg);
	return NULL;
}

static void run_on_cpu(int n, void (*run)(void *arg), void *arg)
{
	struct on_cpu on = { run, arg, n };
	pthread_t thread;

	if (pthread_create(&thread, NULL, on_cpu_main, &on))
		abort();
	pthread_join(thread, NULL);
}

static uint64_t random_state = 88172645463325252ull;

static uint64_t random_below(uint64_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % n;
}

#endif
