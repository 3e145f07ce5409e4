/*
 * Who pays in this process: with --account a group of its own, else nobody; the rest of the work is the same code. How
 * charges are kept (v1-drain ... shelf) is chosen by the driver through KMEM_OPTIONS; what is really in force is said
 * here, so that a refused option cannot pass for a figure.
 *
 * With --several another group owns one object of every cache that is measured: the library has a shortcut for a cache
 * of which one group pays for all objects, and a figure must say on which side of it it was taken.
 */
#ifndef BENCH_ACCOUNT_H
#define BENCH_ACCOUNT_H

#include <kmem/memcg.h>
#include <stdio.h>

#include "frame/bench.h"

static struct {
	struct mem_cgroup *group, *other;	/* NULL: nobody pays */
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

/* From now on this thread's group pays, if anybody does. */
static void account_enter(void)
{
	if (bench_amounts.account && !account.group) {
		account.group = account_group("bench");
		account.other = account_group("other");
	}
	if (account.group)
		set_active_memcg(account.group);
}

/* The main thread's, once; then it also says how. */
static void account_start(void)
{
	static bool started;

	if (!started)
		printf("info accounting %s\n", account_mode());
	started = true;
	account_enter();
}

/* Whose object makes the cache one of several payers; NULL: nobody's. */
static struct mem_cgroup *account_other(void)
{
	return bench_amounts.several ? account.other : NULL;
}

#endif
