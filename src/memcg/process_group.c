/*
 * process_group.c: one group charged for the whole process, as KMEM_OPTIONS requests (account:1, memcg_limit,
 * memcg_group); or malloc follows each thread's group from the start (account:malloc). Invariant: the group exists
 * before the first allocation, so no object of the process is uncharged. All further groups are created below, so a
 * thread's group, or another default, is charged within the same limit.
 */
#include "os/die.h"
#include "os/os.h"
#include "objcg.h"

#define PAUSE_MS 60000u

/* The callback of a refused charge: prints a line, at most once a minute; a child of fork prints its own line. */
static bool say_limit(struct mem_cgroup *group, uint64_t bytes km_unused, void *arg km_unused)
{
	static unsigned said_by;
	static uint64_t said_ms;
	uint64_t now = km_os_now_ms(), before = km_load(&said_ms);
	unsigned pid = km_os_pid();

	if ((km_swap_acquire(&said_by, pid) != pid || now - before >= PAUSE_MS) &&
	    km_cas_acquire(&said_ms, &before, now))
		km_warn("group %s has reached its limit of %lu bytes: allocations fail with ENOMEM; raise "
			"memcg_limit or free memory",
			mem_cgroup_name(group), (unsigned long)mem_cgroup_max(group));
	return false;
}

void km_memcg_start_process(void)
{
	char name[MEMCG_NAME_MAX];

	if (!km_options.account && km_options.account_malloc && mem_cgroup_account_malloc(true))
		km_warn("KMEM_OPTIONS: account:malloc is ignored: malloc is not libkmem's, or its engine cannot "
			"charge; use engine:sheaf");
	if (!km_options.account)
		return;
	km_os_program(name, sizeof(name));
	struct mem_cgroup *group = mem_cgroup_create(NULL, km_options.group[0] ? km_options.group : name, 0);
	if (!group) {
		km_warn("KMEM_OPTIONS: no memory for the group of the process: nothing is charged, and no limit is "
			"enforced");
		return;
	}
	if (km_options.limit)
		mem_cgroup_set_max(group, km_options.limit);
	mem_cgroup_set_oom_callback(group, say_limit, NULL);
	mem_cgroup_set_default(group);
	km_memcg_set_top(group);
}
