/* fs_groups.c: the files of a group in /sys/fs/cgroup: files of info/group_tree.c, and write-only memory.reclaim. */
#include <stdlib.h>

#include "fs/fs.h"
#include "info/info_print.h"
#include "command.h"

static bool show(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text)
{
	char of_file[INFO_GROUP_TEXT];

	if (!info_group_text(&tree->snapshot.groups[index], (unsigned)what, of_file))
		return false;
	fs_print(text, "%s", of_file);
	return true;
}

/* Print 0: libkmem never kills a group as a whole (memory.oom.group). */
static bool show_zero(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text)
{
	fs_print(text, "0\n");
	return true;
}

static int by_group(const void *a, const void *b)
{
	const struct fs_private *x = a, *y = b;

	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	return (x->cache > y->cache) - (x->cache < y->cache);
}

/* Sort the private caches by group, once for all groups: there may be as many groups as caches. */
static void find_private(struct fs_tree *tree)
{
	const struct snapshot *snapshot = &tree->snapshot;

	tree->private = kmem_need(calloc(snapshot->count + 1, sizeof(*tree->private)));
	for (size_t i = 0; i < snapshot->count; i++)
		if (snapshot->caches[i].group)
			tree->private[tree->private_count++] = (struct fs_private){ snapshot->caches[i].group, i };
	qsort(tree->private, tree->private_count, sizeof(*tree->private), by_group);
}

/* Count the slab pages of a private group's caches by node. Returns: false if no cache has known pages. */
static bool count_pages(struct fs_tree *tree, unsigned group, unsigned long *pages)
{
	const unsigned nodes = tree->snapshot.stats.nodes;
	bool some = false;

	if (!tree->private)
		find_private(tree);
	const struct fs_private first = { group, 0 };
	for (size_t i = fs_first(tree->private, tree->private_count, sizeof(first), &first, by_group);
	     i < tree->private_count && tree->private[i].group == group; i++) {
		const struct info_cache *cache = &tree->snapshot.caches[tree->private[i].cache];

		if (cache->stats.pages_per_slab == (unsigned)INFO_UNKNOWN)
			continue;
		some = true;
		for (unsigned node = 0; node < nodes; node++)
			pages[node] += cache->full->node[node].slabs * cache->stats.pages_per_slab;
	}
	return some;
}

/* Print memory by node. With several nodes, only a private group is known by node: the slabs of its caches. */
static bool show_nodes(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text)
{
	const struct snapshot *snapshot = &tree->snapshot;
	const struct km_group_stats *group = &snapshot->groups[index];
	const unsigned nodes = snapshot->stats.nodes;
	unsigned long pages[KMEM_RECORD_NODES] = { 0 };

	if (nodes == 1 && group->current != INFO_UNKNOWN)
		fs_print(text, "kernel N0=%lu\n", (unsigned long)group->current);
	if (nodes == 1 || !group->number || nodes > KMEM_RECORD_NODES)
		return text->length;
	if (!count_pages(tree, group->number, pages))
		return false;
	for (unsigned node = 0; node < nodes; node++)
		fs_print(text, "%s N%u=%lu", node ? "" : "slab", node, pages[node] * KMEM_PAGE_BYTES);
	fs_print(text, "\n");
	return true;
}

const struct fs_file fs_group_files[] = {
	{ "memory.current", 0444, show, INFO_GROUP_CURRENT, 0 },
	{ "memory.peak", 0644, show, INFO_GROUP_PEAK, KMEM_MAIL_GROUP },
	{ "memory.max", 0644, show, INFO_GROUP_MAX, KMEM_MAIL_GROUP },
	{ "memory.high", 0644, show, INFO_GROUP_HIGH, KMEM_MAIL_GROUP },
	{ "memory.low", 0644, show, INFO_GROUP_LOW, KMEM_MAIL_GROUP },
	{ "memory.min", 0644, show, INFO_GROUP_MIN, KMEM_MAIL_GROUP },
	{ "memory.stat", 0444, show, INFO_GROUP_STAT, 0 },
	{ "memory.numa_stat", 0444, show_nodes, 0, 0 },
	{ "memory.events", 0444, show, INFO_GROUP_EVENTS, 0 },
	{ "memory.events.local", 0444, show, INFO_GROUP_EVENTS_LOCAL, 0 },
	{ "memory.oom.group", 0444, show_zero, 0, 0 },
	{ "memory.reclaim", 0200, NULL, 0, KMEM_MAIL_GROUP },
};
const size_t fs_group_file_count = KMEM_COUNT(fs_group_files);
