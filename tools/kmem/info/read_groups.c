/*
 * read_groups.c: read the statistics of every group of a process, from a root record on; info/read_caches.c does the
 * same for caches. While the process is quiet, the numbers equal the process's own. Invariant: group metadata stays
 * readable for ever, but may be reused during the walk. The walk is therefore bounded, and checks every group's
 * links, parent and depth; all other fields are only numbers.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "info/info.h"
#include "command.h"

#define MAX_GROUPS	((size_t)1 << 20)
/* Fields of the target's build for the sums `stock` and `dying`. */
#define STOCK_NEEDS "group.objcg objcg.stock objcg.nr_charged_bytes view.stocks view.stock_count stock.groups " \
	"stock.pages"
#define DYING_NEEDS "group.objcgs.next objcg.link.next objcg.link.prev objcg.home"

#define MAX_OBJCGS	((size_t)1 << 20)

struct walk {
	struct target *target;
	const struct info_root *root;
	const struct layout *layout;
	struct snapshot *snapshot;
	size_t children, sibling, objcgs_at, link;	/* offsets in the target's structures, in bytes */
	bool has_stock, has_dying;
	struct rec_percpu percpu;
	struct rec_stock *stocks;
	unsigned stock_count;
	uint64_t *words;		/* a group's stock on each CPU, in bytes */
	size_t visited, objcgs;
};

/* Read the structure around a list link of the target; the link stands `offset` bytes into the structure.
 * Returns: false, with the target marked torn, for a misaligned address. */
static bool read_linked(struct walk *walk, enum info_ops ops, void *to, const struct rec_list *link, size_t offset)
{
	uintptr_t address = (uintptr_t)link - offset;

	if (address % sizeof(void *))
		return target_torn(walk->target);
	target_charge(walk->target, sizeof(struct km_group_stats));
	return target_struct(walk->target, walk->layout, ops, to, (void *)address);
}

/* Address of the field `offset` bytes into a structure of the target. */
static const void *in(const void *at, size_t offset)
{
	return (const char *)at + offset;
}

/* ------------------------------------------------------------------ one group */

/* Sum a group's stock, in bytes, as km_stock_bytes does inside the process. */
static bool add_stock(struct walk *walk, const struct rec_group *group, const struct mem_cgroup *at,
		      struct km_group_stats *stats)
{
	struct rec_objcg objcg;

	if (!target_struct(walk->target, walk->layout, INFO_OBJCG, &objcg, group->objcg))
		return false;
	stats->stock = objcg.nr_charged_bytes;
	if (objcg.stock && !target_per_cpu(walk->target, walk->root, &walk->percpu, objcg.stock, walk->words,
					   sizeof(*walk->words)))
		return false;
	for (unsigned cpu = 0; objcg.stock && cpu < walk->percpu.cpus; cpu++)
		stats->stock += walk->words[cpu];
	for (unsigned cpu = 0; cpu < walk->stock_count; cpu++)
		for (unsigned i = 0; i < KMEM_RECORD_STOCKS; i++)
			if (walk->stocks[cpu].groups[i] == at)
				stats->stock += (uint64_t)walk->stocks[cpu].pages[i] << KMEM_PAGE_SHIFT;
	return true;
}

/* Count the objcgs of dead groups in the group's list: the charges of a dead group's objcg move to this group.
 * Returns: false if the list changed during the walk or the walk passes MAX_OBJCGS objcgs. */
static bool add_dying(struct walk *walk, const struct rec_group *group, const struct mem_cgroup *at,
		      struct km_group_stats *stats)
{
	const struct rec_list *head = in(at, walk->objcgs_at), *before = head;
	struct rec_objcg objcg;

	for (const struct rec_list *link = group->objcgs.next; link != head; link = objcg.link.next) {
		if (!read_linked(walk, INFO_OBJCG, &objcg, link, walk->link))
			return false;
		if (objcg.link.prev != before || walk->objcgs++ >= MAX_OBJCGS)
			return target_torn(walk->target);
		stats->dying += objcg.home != at;
		before = link;
	}
	return true;
}

/* Mark every number as unknown for which the process's build has no field. */
static void mark_unknown(const struct layout *layout, struct km_group_stats *stats)
{
#define VALUE(member) offsetof(struct km_group_stats, member)
	static const struct {
		const char *names;
		size_t at;
		uint64_t unknown;
	} needs[] = {
		{ "group.memory.usage", VALUE(current), INFO_UNKNOWN },
		{ "group.memory.peak", VALUE(peak), INFO_UNKNOWN },
		{ "group.memory.failcnt", VALUE(failcnt), INFO_UNKNOWN },
		{ "group.kmem.usage", VALUE(kmem), INFO_UNKNOWN },
		{ "group.memory.max", VALUE(max), KM_UNKNOWN_LIMIT },
		{ "group.memory.high", VALUE(high), KM_UNKNOWN_LIMIT },
		{ "group.memory.low", VALUE(low), KM_UNKNOWN_LIMIT },
		{ "group.memory.min", VALUE(min), KM_UNKNOWN_LIMIT },
		{ STOCK_NEEDS, VALUE(stock), INFO_UNKNOWN }, { DYING_NEEDS, VALUE(dying), INFO_UNKNOWN },
	};
#undef VALUE

	for (size_t i = 0; i < KMEM_COUNT(needs); i++)
		if (!layout_has(layout, needs[i].names))
			*(uint64_t *)((char *)stats + needs[i].at) = needs[i].unknown;
	for (int i = 0; i < MEMCG_NR_MEMORY_EVENTS; i++) {
		stats->events[i] = layout_has(layout, "group.events") ? stats->events[i] : INFO_UNKNOWN;
		stats->local[i] = layout_has(layout, "group.local") ? stats->local[i] : INFO_UNKNOWN;
	}
}

static bool add_group(struct walk *walk, const struct rec_group *group, const struct mem_cgroup *at)
{
	struct km_group_stats *stats = snapshot_grow_groups(walk->snapshot);

	walk->snapshot->group_at[walk->snapshot->group_count - 1].address = at;
	info_printable(stats->name, group->name, sizeof(stats->name));
	stats->depth = group->depth;
	stats->number = group->number;
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
	if ((!walk->has_stock || add_stock(walk, group, at, stats)) &&
	    (!walk->has_dying || add_dying(walk, group, at, stats))) {
		mark_unknown(walk->layout, stats);
		return true;
	}
	walk->snapshot->group_count--;
	return false;
}

/* ------------------------------------------------------------------ the tree */

/* Add the online groups below a group, in the order of the process's own walk. */
static bool add_children(struct walk *walk, const struct rec_group *parent, const struct mem_cgroup *parent_at)
{
	const struct rec_list *head = in(parent_at, walk->children), *before = head;
	struct rec_group group;

	for (const struct rec_list *link = parent->children.next; link != head; link = group.sibling.next) {
		const struct mem_cgroup *at = (const void *)((uintptr_t)link - walk->sibling);

		if (!read_linked(walk, INFO_GROUP, &group, link, walk->sibling))
			return false;
		if (group.sibling.prev != before || group.parent != parent_at ||
		    group.depth != parent->depth + 1 || group.depth > MEMCG_DEPTH_MAX ||
		    walk->visited++ >= MAX_GROUPS)
			return target_torn(walk->target);
		if (info_true(&group.online) && (!add_group(walk, &group, at) || !add_children(walk, &group, at)))
			return false;
		before = link;
	}
	return true;
}

static bool read_stocks(struct walk *walk, const struct rec_view *view)
{
	const void *stocks = NULL;

	if (layout_has(walk->layout, "view.stocks view.stock_count") &&
	    (!target_read(walk->target, &stocks, view->stocks, sizeof(stocks)) ||
	     !target_read(walk->target, &walk->stock_count, view->stock_count, sizeof(walk->stock_count))))
		return false;
	/* The process writes the count before the pointer: with no stocks, the count may be set already. */
	if (!stocks)
		walk->stock_count = 0;
	if (walk->stock_count > INFO_MAX_CPUS || walk->percpu.cpus > INFO_MAX_CPUS)
		return target_torn(walk->target);
	walk->words = kmem_need(calloc(walk->percpu.cpus + 1, sizeof(*walk->words)));
	walk->stocks = kmem_need(calloc(walk->stock_count + 1, sizeof(*walk->stocks)));
	return target_structs(walk->target, walk->layout, INFO_STOCK, walk->stocks, stocks, walk->stock_count);
}

bool groups_load(struct target *target, struct info_root *root)
{
	struct rec_view_head head;
	unsigned count;

	return layout_bytes(&root->layout, INFO_VIEW) ||
	       (target_read(target, &head, root->record.memcg, sizeof(head)) &&
		target_read(target, &count, head.field_count, sizeof(count)) &&
		layout_load(target, &root->layout, &rec_groups, head.fields, count));
}

/* Load the field table of the groups and read the view.
 * Returns: INFO_OTHER if the table lacks a field that the walk needs. */
static enum info_result begin(struct walk *walk, struct info_root *root, struct rec_view *view)
{
	if (!groups_load(walk->target, root))
		return walk->target->result;
	if (!layout_has(&root->layout, "view.root group.name group.parent group.online group.depth group.children.next "
			"group.sibling.next group.sibling.prev"))
		return INFO_OTHER;
	walk->children = layout_offset(walk->layout, "group.children.next");
	walk->sibling = layout_offset(walk->layout, "group.sibling.next");
	walk->objcgs_at = layout_offset(walk->layout, "group.objcgs.next");
	walk->link = layout_offset(walk->layout, "objcg.link.next");
	walk->has_stock = layout_has(walk->layout, STOCK_NEEDS);
	walk->has_dying = layout_has(walk->layout, DYING_NEEDS);
	return target_struct(walk->target, walk->layout, INFO_VIEW, view, root->record.memcg) &&
	       target_struct(walk->target, walk->layout, INFO_PERCPU, &walk->percpu, root->record.percpu) ?
	       INFO_OK : walk->target->result;
}

/* Read the group `one` if the group is online; NULL: read all online groups. */
static enum info_result walk_from(struct target *target, struct info_root *root, const struct mem_cgroup *one,
				  struct snapshot *snapshot)
{
	struct walk walk = { .target = target, .root = root, .layout = &root->layout, .snapshot = snapshot };
	struct rec_view view;
	struct rec_group group;
	enum info_result result = begin(&walk, root, &view);

	if (result != INFO_OK)
		return result;
	const struct mem_cgroup *at = one ? one : view.root;
	bool ok = read_stocks(&walk, &view) && target_struct(target, walk.layout, INFO_GROUP, &group, at);
	if (ok && one)
		ok = info_true(&group.online) ? add_group(&walk, &group, at) : target_torn(target);
	else if (ok)
		ok = add_children(&walk, &group, at);
	free(walk.words);
	free(walk.stocks);
	return ok ? INFO_OK : target->result;
}

enum info_result walk_groups(struct target *target, struct info_root *root, struct snapshot *snapshot)
{
	return root->record.memcg ? walk_from(target, root, NULL, snapshot) : INFO_OK;
}

enum info_result walk_group(struct target *target, struct info_root *root, const struct mem_cgroup *at,
			    struct snapshot *snapshot)
{
	return root->record.memcg ? walk_from(target, root, at, snapshot) : INFO_TORN;
}
