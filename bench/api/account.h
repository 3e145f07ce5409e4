/*
 * Charges in this process: with --account allocations are charged to one group, else they are uncharged; the rest of
 * the work is the same code. The driver selects the rules for charges (v1-drain ... shelf) through KMEM_OPTIONS. The
 * worker prints the rules in force, so a refused option cannot pass for a figure.
 *
 * With --several another group owns one object of every measured cache: the library has a shortcut for a cache with
 * objects of one group only, and the figure must name its side of the shortcut.
 */
#ifndef BENCH_ACCOUNT_H
#define BENCH_ACCOUNT_H

#include <kmem/memcg.h>
#include <stdio.h>

#include "frame/bench.h"

static struct {
	struct mem_cgroup *group, *other;	/* NULL: uncharged */
} account;

static struct mem_cgroup *account_group(const char *name)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, name, 0);

	if (!group)
		bench_die("cannot make a group");
	return group;
}

static const char *account_mode(void)
{
	static const char *const modes[] = { "v2-keep", "v2-drain", "v1-keep", "v1-drain" };

	if (!bench_amounts.account)
		return "off";
	if (mem_cgroup_mode(MEM_CGROUP_SHELF))
		return "shelf";
	return modes[2 * mem_cgroup_mode(MEM_CGROUP_V1) + mem_cgroup_mode(MEM_CGROUP_DRAIN)];
}

/* Activates the process's group in this thread, if the process has a group. */
static void account_enter(void)
{
	if (bench_amounts.account && !account.group) {
		account.group = account_group("bench");
		account.other = account_group("other");
	}
	if (account.group)
		set_active_memcg(account.group);
}

/* Activates the group in the main thread, and prints the rules in force. */
static void account_start(void)
{
	static bool started;

	if (!started)
		printf("info accounting %s\n", account_mode());
	started = true;
	account_enter();
}

/* The group with one object in every cache; NULL: one group only. */
static struct mem_cgroup *account_other(void)
{
	return bench_amounts.several ? account.other : NULL;
}

#endif
