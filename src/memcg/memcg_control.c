/*
 * memcg_control.c: writes from outside to a group's cgroup files (`kmem fs`, cache/mailbox.h). Invariants: a write
 * only stores a number. No callback runs here, in the middle of a user's free: a max below the usage, and a reclaim,
 * are left to the next charge. No write waits for the tree lock.
 */
#include <errno.h>

#include "base/text.h"
#include "os/die.h"
#include "memcg_group.h"

static struct mem_cgroup *find(uint64_t number)
{
	struct mem_cgroup *group = &km_memcg_root;

	while (group && (group->number != number || !group->online))
		group = km_memcg_next(&km_memcg_root, group);
	return group && !km_memcg_is_root(group) ? group : NULL;
}

static int store(struct mem_cgroup *group, const char *file, uint64_t bytes)
{
	const struct {
		const char *file;
		uint64_t *limit;
	} limits[] = {
		{ "max", &group->memory.max }, { "high", &group->memory.high }, { "low", &group->memory.low },
		{ "min", &group->memory.min },
	};

	for (size_t i = 0; i < km_array_count(limits); i++)
		if (!__builtin_strcmp(limits[i].file, file)) {
			km_store(limits[i].limit, bytes);
			return 0;
		}
	if (!__builtin_strcmp(file, "peak"))
		km_counter_reset_peak(&group->memory);
	else if (!__builtin_strcmp(file, "reclaim"))
		km_memcg_ask(group, bytes);
	else
		return -EINVAL;
	return 0;
}

int km_memcg_write(const char *text, const char *file)
{
	uint64_t number, bytes;

	if (!km_text_number(&text, UINT64_MAX, &number) || *text++ != ' ' || !number ||
	    !km_text_number(&text, UINT64_MAX, &bytes) || *text)
		return -EINVAL;
	if (!km_memcg_trylock())
		return -EAGAIN;
	struct mem_cgroup *group = find(number);
	int error = group ? store(group, file, bytes) : -ENOENT;
	km_debug(!group || group->number == number, "a group is found by its number");
	km_memcg_unlock();
	return error;
}
