/*
 * From a root record to the numbers of every group, by reading alone, as info_walk.c does it for caches: they are those
 * that the process itself says when it is quiet. A group lies in metadata, which can be read for ever but may be
 * another's by then: so each is checked to hang where it was found, the walk is bounded, and the rest is numbers.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "cache/root.h"
#include "info.h"
#include "kmem.h"
#include "watch/group.h"

#define MAX_GROUPS	((size_t)1 << 20)
#define MAX_OBJCGS	((size_t)1 << 20)

struct walk {
	struct target *target;
	struct snapshot *snapshot;
	struct km_percpu percpu;
	struct km_stock *stocks;
	unsigned stock_count;
	uint64_t *words;		/* a group's stock on each CPU */
	size_t visited, objcgs;
};

/* A structure whose link of a list was read somewhere. */
static bool read_linked(struct walk *walk, void *to, const struct km_list *link, size_t offset, size_t bytes)
{
	uintptr_t address = (uintptr_t)link - offset;

	if (address % sizeof(void *))
		return target_torn(walk->target);
	return target_read(walk->target, to, (void *)address, bytes);
}

/* ------------------------------------------------------------------ one group */

/* km_stock_bytes, from outside. */
static bool add_stock(struct walk *walk, const struct mem_cgroup *group, const struct mem_cgroup *at,
		      struct km_group_stats *stats)
{
	struct obj_cgroup objcg;

	if (!target_read(walk->target, &objcg, group->objcg, sizeof(objcg)))
		return false;
	stats->stock = objcg.nr_charged_bytes;
	if (objcg.stock && !target_per_cpu(walk->target, &walk->percpu, objcg.stock, walk->words,
					   sizeof(*walk->words)))
		return false;
	for (unsigned cpu = 0; objcg.stock && cpu < walk->percpu.cpus; cpu++)
		stats->stock += walk->words[cpu];
	for (unsigned cpu = 0; cpu < walk->stock_count; cpu++)
		for (unsigned i = 0; i < KM_STOCK_SLOTS; i++)
			if (walk->stocks[cpu].groups[i] == at)
				stats->stock += (uint64_t)walk->stocks[cpu].pages[i] << KM_PAGE_SHIFT;
	return true;
}

/* Objcgs of other groups, which are gone, whose charges are here. */
static bool add_dying(struct walk *walk, const struct mem_cgroup *group, const struct mem_cgroup *at,
		      struct km_group_stats *stats)
{
	const struct km_list *head = &at->objcgs, *before = head;
	struct obj_cgroup objcg;

	for (const struct km_list *link = group->objcgs.next; link != head; link = objcg.link.next) {
		if (!read_linked(walk, &objcg, link, offsetof(struct obj_cgroup, link), sizeof(objcg)))
			return false;
		if (objcg.link.prev != before || walk->objcgs++ >= MAX_OBJCGS)
			return target_torn(walk->target);
		stats->dying += objcg.home != at;
		before = link;
	}
	return true;
}

static bool add_group(struct walk *walk, const struct mem_cgroup *group, const struct mem_cgroup *at)
{
	struct km_group_stats *stats = snapshot_grow_groups(walk->snapshot);

	memcpy(stats->name, group->name, sizeof(stats->name) - 1);
	stats->depth = group->depth;
	stats->current = group->memory.usage;
	stats->peak = group->memory.peak;
	stats->max = group->memory.max;
	stats->high = group->memory.high;
	stats->low = group->memory.low;
	stats->min = group->memory.min;
	stats->failcnt = group->memory.failcnt;
	stats->kmem = group->kmem.usage;
	memcpy(stats->events, group->events, sizeof(stats->events));
	memcpy(stats->local, group->local, sizeof(stats->local));
	if (add_stock(walk, group, at, stats) && add_dying(walk, group, at, stats))
		return true;
	walk->snapshot->group_count--;
	return false;
}

/* ------------------------------------------------------------------ the tree */

/* What hangs below a group: those that are online, as the process's own walk sees them. */
static bool add_children(struct walk *walk, const struct mem_cgroup *parent, const struct mem_cgroup *parent_at)
{
	const struct km_list *head = &parent_at->children, *before = head;
	struct mem_cgroup group;

	for (const struct km_list *link = parent->children.next; link != head; link = group.sibling.next) {
		const struct mem_cgroup *at = km_container_of(link, struct mem_cgroup, sibling);

		if (!read_linked(walk, &group, link, offsetof(struct mem_cgroup, sibling), sizeof(group)))
			return false;
		if (group.sibling.prev != before || group.parent != parent_at ||
		    group.depth != parent->depth + 1 || group.depth > MEMCG_DEPTH_MAX ||
		    walk->visited++ >= MAX_GROUPS)
			return target_torn(walk->target);
		if (group.online && (!add_group(walk, &group, at) || !add_children(walk, &group, at)))
			return false;
		before = link;
	}
	return true;
}

static bool read_stocks(struct walk *walk, const struct km_memcg_view *view)
{
	const struct km_stock *stocks;

	if (!target_read(walk->target, &stocks, view->stocks, sizeof(stocks)) ||
	    !target_read(walk->target, &walk->stock_count, view->stock_count, sizeof(walk->stock_count)))
		return false;
	/* The count is written first. */
	if (!stocks)
		walk->stock_count = 0;
	if (walk->stock_count > INFO_MAX_CPUS || walk->percpu.cpus > INFO_MAX_CPUS)
		return target_torn(walk->target);
	walk->words = kmem_need(calloc(walk->percpu.cpus + 1, sizeof(*walk->words)));
	walk->stocks = kmem_need(aligned_alloc(_Alignof(struct km_stock),
					       (walk->stock_count + 1) * sizeof(*walk->stocks)));
	return target_read(walk->target, walk->stocks, stocks, walk->stock_count * sizeof(*walk->stocks));
}

enum info_result walk_groups(struct target *target, const struct km_root *root, struct snapshot *snapshot)
{
	struct walk walk = { .target = target, .snapshot = snapshot };
	struct km_memcg_view view;
	struct mem_cgroup top;

	if (!root->memcg)
		return INFO_OK;
	if (!target_read(target, &view, root->memcg, sizeof(view)))
		return target->result;
	if (view.layout != KM_MEMCG_LAYOUT)
		return INFO_OTHER;
	bool ok = target_read(target, &walk.percpu, root->percpu, sizeof(walk.percpu)) &&
		  read_stocks(&walk, &view) && target_read(target, &top, view.root, sizeof(top)) &&
		  add_children(&walk, &top, view.root);
	free(walk.words);
	free(walk.stocks);
	return ok ? INFO_OK : target->result;
}
