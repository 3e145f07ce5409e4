/* The files of a group in /sys/fs/cgroup: those of info/tree.c, and what can only be written to. */
#include "fs/fs.h"
#include "info/print.h"

static bool show(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text)
{
	char of_file[INFO_GROUP_TEXT];

	if (!info_group_text(&tree->snapshot.groups[index], (unsigned)what, of_file))
		return false;
	fs_print(text, "%s", of_file);
	return true;
}

/* No group is ended as a whole. */
static bool show_zero(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text)
{
	fs_print(text, "0\n");
	return true;
}

/* Of several nodes nobody says where what is charged lies, but of a private group: in its caches' slabs. */
static bool show_nodes(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text)
{
	const struct snapshot *snapshot = &tree->snapshot;
	const struct km_group_stats *group = &snapshot->groups[index];
	unsigned long pages[KM_MAX_NODES] = { 0 };
	bool is_private = false;

	if (snapshot->stats.nodes == 1 && group->current != INFO_UNKNOWN)
		fs_print(text, "kernel N0=%lu\n", (unsigned long)group->current);
	if (snapshot->stats.nodes == 1 || !group->number || snapshot->stats.nodes > KM_MAX_NODES)
		return text->length;
	for (size_t i = 0; i < snapshot->count; i++) {
		const struct info_cache *cache = &snapshot->caches[i];

		if (cache->group != group->number || cache->stats.pages_per_slab == (unsigned)INFO_UNKNOWN)
			continue;
		is_private = true;
		for (unsigned node = 0; node < snapshot->stats.nodes; node++)
			pages[node] += cache->full->node[node].slabs * cache->stats.pages_per_slab;
	}
	for (unsigned node = 0; is_private && node < snapshot->stats.nodes; node++)
		fs_print(text, "%s N%u=%lu", node ? "" : "slab", node, pages[node] * KM_PAGE_SIZE);
	if (is_private)
		fs_print(text, "\n");
	return is_private;
}

const struct fs_file fs_group_files[] = {
	{ "memory.current", 0444, show, INFO_GROUP_CURRENT, 0 },
	{ "memory.peak", 0644, show, INFO_GROUP_PEAK, KM_MAIL_GROUP },
	{ "memory.max", 0644, show, INFO_GROUP_MAX, KM_MAIL_GROUP },
	{ "memory.high", 0644, show, INFO_GROUP_HIGH, KM_MAIL_GROUP },
	{ "memory.low", 0644, show, INFO_GROUP_LOW, KM_MAIL_GROUP },
	{ "memory.min", 0644, show, INFO_GROUP_MIN, KM_MAIL_GROUP },
	{ "memory.stat", 0444, show, INFO_GROUP_STAT, 0 },
	{ "memory.numa_stat", 0444, show_nodes, 0, 0 },
	{ "memory.events", 0444, show, INFO_GROUP_EVENTS, 0 },
	{ "memory.events.local", 0444, show, INFO_GROUP_EVENTS_LOCAL, 0 },
	{ "memory.oom.group", 0444, show_zero, 0, 0 },
	{ "memory.reclaim", 0200, NULL, 0, KM_MAIL_GROUP },
};
const size_t fs_group_file_count = km_array_count(fs_group_files);
