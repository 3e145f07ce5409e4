/*
 * memcg_text.c: figures of a group, the texts of the cgroup files, and writes from outside to these files (`kmem fs`,
 * cache/mailbox.h). Invariants: only limits change, and requests for a reclaim. A write from outside only stores a
 * number. No callback runs there, in the middle of a user's free: a max below the usage, and a reclaim, are left to
 * the next charge. No write from outside waits for the tree lock.
 */
#include <errno.h>

#include "base/text.h"
#include "os/die.h"
#include "memcg_group.h"
#include "inspect/stats_print.h"

/* ------------------------------------------------------------------ a refusal */

void km_memcg_tell_refused(const struct mem_cgroup *group, uint64_t bytes, gfp_t gfp)
{
	static struct km_ratelimit often;
	char name[MEMCG_NAME_MAX + 8], reason[MEMCG_NAME_MAX + 64], suffix[KM_RATELIMIT_SUFFIX];

	for (const struct mem_cgroup *at = group; at; at = at->parent)
		if (km_load(&at->on_oom))
			return;
	if (!km_gfp_tells(gfp) || gfp & __GFP_HIGH || !km_ratelimit(&often, suffix))
		return;
	km_format(name, sizeof(name), "group %s", group->name);
	km_format(reason, sizeof(reason), "limit of group %s (%lu bytes)", group->name,
		  (unsigned long)km_load(&group->memory.max));
	km_alloc_tell_failed(name, bytes, gfp, reason, suffix);
}

/* ------------------------------------------------------------------ numbers */

static int set_limit(struct mem_cgroup *group, uint64_t *limit, uint64_t bytes)
{
	if (km_memcg_is_root(group))
		return -EINVAL;
	if (!km_load(&group->online))
		return -ENOENT;
	km_store(limit, bytes);
	return 0;
}

int mem_cgroup_set_high(struct mem_cgroup *group, uint64_t bytes)
{
	return set_limit(group, &group->memory.high, bytes);
}

int mem_cgroup_set_low(struct mem_cgroup *group, uint64_t bytes)
{
	return set_limit(group, &group->memory.low, bytes);
}

int mem_cgroup_set_min(struct mem_cgroup *group, uint64_t bytes)
{
	return set_limit(group, &group->memory.min, bytes);
}

uint64_t mem_cgroup_max(const struct mem_cgroup *group)
{
	return km_load(&group->memory.max);
}

uint64_t mem_cgroup_high(const struct mem_cgroup *group)
{
	return km_load(&group->memory.high);
}

uint64_t mem_cgroup_low(const struct mem_cgroup *group)
{
	return km_load(&group->memory.low);
}

uint64_t mem_cgroup_min(const struct mem_cgroup *group)
{
	return km_load(&group->memory.min);
}

/* The root has no counter: its figures stay 0. */
uint64_t mem_cgroup_current(const struct mem_cgroup *group)
{
	return km_load(&group->memory.usage);
}

uint64_t mem_cgroup_peak(const struct mem_cgroup *group)
{
	return km_load(&group->memory.peak);
}

void mem_cgroup_reset_peak(struct mem_cgroup *group)
{
	km_counter_reset_peak(&group->memory);
}

uint64_t mem_cgroup_failcnt(const struct mem_cgroup *group)
{
	return km_load(&group->memory.failcnt);
}

uint64_t mem_cgroup_kmem(const struct mem_cgroup *group)
{
	return km_load(&group->kmem.usage);
}

uint64_t mem_cgroup_margin(const struct mem_cgroup *group)
{
	return km_counter_margin(&group->memory);
}

uint64_t mem_cgroup_events(const struct mem_cgroup *group, enum memcg_memory_event event)
{
	return (unsigned)event < MEMCG_NR_MEMORY_EVENTS ? km_load(&group->events[event]) : 0;
}

uint64_t mem_cgroup_events_local(const struct mem_cgroup *group, enum memcg_memory_event event)
{
	return (unsigned)event < MEMCG_NR_MEMORY_EVENTS ? km_load(&group->local[event]) : 0;
}

uint64_t mem_cgroup_atomics(void)
{
	return km_thread.counter_atomics;
}

/* ------------------------------------------------------------------ texts */

/* Copies as much of a text of `length` bytes as fits into `bytes`, and a NUL. Returns: `length`. */
static size_t hand_out(const char *whole, size_t length, char *text, size_t bytes)
{
	if (!bytes)
		return length;
	const size_t count = km_min(length, bytes - 1);

	__builtin_memcpy(text, whole, count);
	text[count] = '\0';
	return length;
}

size_t mem_cgroup_write_current(const struct mem_cgroup *group, char *text, size_t bytes)
{
	char whole[32];
	size_t length = km_format(whole, sizeof(whole), "%lu\n", (unsigned long)mem_cgroup_current(group));

	return hand_out(whole, length, text, bytes);
}

static size_t write_events(const uint64_t *events, char *text, size_t bytes)
{
	char whole[64 * (MEMCG_NR_MEMORY_EVENTS + 1)];
	size_t length = 0;

	for (int i = 0; i < MEMCG_NR_MEMORY_EVENTS; i++)
		length += km_format(whole + length, sizeof(whole) - length, "%s %lu\n", km_memcg_event_names[i],
				    (unsigned long)km_load(&events[i]));
	length += km_format(whole + length, sizeof(whole) - length, "sock_throttled 0\n");
	return hand_out(whole, length, text, bytes);
}

size_t mem_cgroup_write_events(const struct mem_cgroup *group, char *text, size_t bytes)
{
	return write_events(group->events, text, bytes);
}

size_t mem_cgroup_write_events_local(const struct mem_cgroup *group, char *text, size_t bytes)
{
	return write_events(group->local, text, bytes);
}

/* Returns the number of orphans with charged bytes: objcgs of released or offline groups below that point to this
 * group. */
static uint64_t count_orphans(const struct mem_cgroup *group)
{
	uint64_t count = 0;

	km_memcg_scope();
	km_memcg_reap();
	km_list_for_each(entry, &group->objcgs)
		count += km_container_of(entry, struct obj_cgroup, link)->home != group;
	return count;
}

size_t mem_cgroup_write_stat(const struct mem_cgroup *group, char *text, size_t bytes)
{
	const unsigned long kernel = mem_cgroup_current(group), slab = km_memcg_slab_bytes(group);
	const unsigned long stock = km_stock_bytes(group), dying = count_orphans(group);
	char whole[256];
	size_t length = km_format(whole, sizeof(whole), "kernel %lu\nslab_reclaimable 0\nslab_unreclaimable %lu\n"
				  "slab %lu\nstock %lu\ndying %lu\n", kernel, slab, slab, stock, dying);

	return hand_out(whole, length, text, bytes);
}

/* ------------------------------------------------------------------ all groups */

struct telling {
	void (*visit)(const struct km_group_stats *stats, void *arg);
	void *arg;
	size_t count;
};

static int tell(struct mem_cgroup *group, unsigned depth, void *arg)
{
	struct telling *telling = arg;

	if (km_memcg_is_root(group))
		return 0;
	telling->count++;
	if (!telling->visit)
		return 0;
	struct km_group_stats stats = {
		.depth = depth, .number = group->number,
		.current = mem_cgroup_current(group), .peak = mem_cgroup_peak(group),
		.max = mem_cgroup_max(group), .high = mem_cgroup_high(group),
		.low = mem_cgroup_low(group), .min = mem_cgroup_min(group),
		.failcnt = mem_cgroup_failcnt(group), .kmem = mem_cgroup_kmem(group),
		.stock = km_stock_bytes(group), .dying = count_orphans(group),
	};
	km_debug(depth && depth <= MEMCG_DEPTH_MAX, "a group is below the root, within the greatest depth");
	__builtin_memcpy(stats.name, group->name, sizeof(stats.name));
	for (int i = 0; i < MEMCG_NR_MEMORY_EVENTS; i++) {
		stats.events[i] = km_load(&group->events[i]);
		stats.local[i] = km_load(&group->local[i]);
	}
	telling->visit(&stats, telling->arg);
	return 0;
}

size_t km_memcg_figures(void (*visit)(const struct km_group_stats *stats, void *arg), void *arg)
{
	struct telling telling = { visit, arg, 0 };

	mem_cgroup_walk(NULL, tell, &telling);
	return telling.count;
}

/* ------------------------------------------------------------------ writes from outside */

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
