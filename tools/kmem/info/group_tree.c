/*
 * group_tree.c: print the groups of a snapshot as a tree, as JSON, or as the texts of the cgroup files. Invariant: a
 * file's text has the lines that mem_cgroup_write_stat and similar functions write inside the process.
 */
#include "info/info_print.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

/* ------------------------------------------------------------------ names */

/* A group and its parent's index in the snapshot, counted from 1; 0 is the root. */
struct place {
	const struct km_group_stats *group;
	size_t parent;
};

static int by_name(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->parent != y->parent ? (x->parent > y->parent) - (x->parent < y->parent) :
					strcmp(x->group->name, y->group->name);
}

/* Returns: the group's depth, limited to 1 ... MEMCG_DEPTH_MAX. */
static size_t depth_of(const struct km_group_stats *group)
{
	return !group->depth ? 1 : group->depth <= MEMCG_DEPTH_MAX ? group->depth : MEMCG_DEPTH_MAX;
}

struct info_names info_group_names(const struct snapshot *snapshot)
{
	struct info_names names = { snapshot->groups, kmem_need(calloc(snapshot->group_count + 1, sizeof(bool))) };
	struct place *places = kmem_need(calloc(snapshot->group_count + 1, sizeof(*places)));
	size_t above[MEMCG_DEPTH_MAX + 1] = { 0 };

	/* In a snapshot, each group precedes the group's descendants. */
	for (size_t i = 0; i < snapshot->group_count; i++) {
		size_t depth = depth_of(&snapshot->groups[i]);

		places[i] = (struct place){ &snapshot->groups[i], above[depth - 1] };
		for (; depth <= MEMCG_DEPTH_MAX; depth++)
			above[depth] = i + 1;
	}
	qsort(places, snapshot->group_count, sizeof(*places), by_name);
	for (size_t i = 1; i < snapshot->group_count; i++) {
		bool shared = !by_name(&places[i - 1], &places[i]);

		names.shared[places[i - 1].group - names.first] |= shared;
		names.shared[places[i].group - names.first] |= shared;
	}
	free(places);
	return names;
}

struct info_name info_group_name(const struct info_names *names, const struct km_group_stats *group)
{
	struct info_name name;

	info_printable(name.text, group->name, MEMCG_NAME_MAX);
	if (names->shared[group - names->first] && group->number)
		snprintf(name.text + strlen(name.text), 12, "~%u", group->number);
	return name;
}

/* ------------------------------------------------------------------ the tree */

static struct info_bytes limit(uint64_t bytes)
{
	return bytes == MEMCG_NO_LIMIT ? (struct info_bytes){ "max" } :
	       info_bytes(bytes == KM_UNKNOWN_LIMIT ? KM_UNKNOWN : bytes);
}

/* Text of the events with a count above 0: names and counts, or "-". */
static struct text {
	char text[256];
} events_of(const struct km_group_stats *group)
{
	struct text events = { "-" };
	size_t length = 0;

	for (int i = 0; i < MEMCG_NR_MEMORY_EVENTS && length < sizeof(events.text); i++)
		if (group->events[i] && group->events[i] != KM_UNKNOWN)
			length += (size_t)snprintf(events.text + length, sizeof(events.text) - length, "%s%s %lu",
						   length ? " " : "", km_memcg_event_names[i],
						   (unsigned long)group->events[i]);
	return events;
}

/* Print the line `whose` (may be empty), then the tree; the children of a parent are sorted by size, largest
 * first. */
static void print_tree(const struct snapshot *snapshot, const char *whose)
{
	static const char *const heads[] = { "CURRENT", "PEAK", "MAX", "HIGH" };
	struct table_row *above[MEMCG_DEPTH_MAX + 1] = { NULL };
	struct info_names names = info_group_names(snapshot);
	struct table *table = table_new(true, "  ");

	printf("%s", whose);
	table_column(table, "GROUP", TABLE_TREE | TABLE_CUT);
	for (size_t i = 0; i < KMEM_COUNT(heads); i++)
		table_column(table, heads[i], TABLE_RIGHT);
	table_column(table, "EVENTS", TABLE_CUT);
	for (size_t i = 0; i < snapshot->group_count; i++) {
		const struct km_group_stats *group = &snapshot->groups[i];
		size_t depth = depth_of(group);
		struct table_row *row = table_row(
			table, above[depth - 1], (int64_t)group->current,
			(const char *const[]){ info_group_name(&names, group).text, BYTES(group->current),
					       BYTES(group->peak), limit(group->max).text,
					       limit(group->high).text, events_of(group).text });

		for (; depth <= MEMCG_DEPTH_MAX; depth++)
			above[depth] = row;
	}
	free(names.shared);
	table_print(table);
}

static void print_json(struct km_writer *writer, const struct snapshot *snapshot)
{
	km_print(writer, "{\"pid\": %u, \"groups\": [", snapshot->pid);
	for (size_t i = 0; i < snapshot->group_count; i++)
		km_print_json_group(writer, &snapshot->groups[i], i == 0);
	km_print(writer, "\n ]}");
}

/* ------------------------------------------------------------------ the files */

static void print_head(struct km_writer *writer, const struct snapshot *snapshot, const struct info_names *names,
		       size_t group, const char *file)
{
	size_t path[MEMCG_DEPTH_MAX + 1], levels = 0;

	/* In the snapshot, a group's ancestors precede the group, the nearest ancestor last. */
	for (size_t i = group + 1, depth = snapshot->groups[group].depth; i-- && depth;)
		if (snapshot->groups[i].depth == depth && levels <= MEMCG_DEPTH_MAX) {
			path[levels++] = i;
			depth--;
		}
	km_print(writer, "==> ");
	while (levels)
		km_print(writer, "%s/", info_group_name(names, &snapshot->groups[path[--levels]]).text);
	km_print(writer, "memory.%s <==\n", file);
}

const char *const info_group_files[INFO_GROUP_FILES] = {
	"current", "peak", "max", "high", "low", "min", "stat", "events", "events.local",
};

/* Append a line to a file's text: "key number", or the number alone. An unknown number appends nothing. */
static void add_line(char text[INFO_GROUP_TEXT], const char *key, uint64_t value)
{
	size_t length = strlen(text);

	if (value != INFO_UNKNOWN)
		snprintf(text + length, INFO_GROUP_TEXT - length, "%s%s%lu\n", key, *key ? " " : "",
			 (unsigned long)value);
}

static void add_limit(char text[INFO_GROUP_TEXT], uint64_t bytes)
{
	if (bytes == MEMCG_NO_LIMIT)
		strcpy(text, "max\n");
	else if (bytes != KM_UNKNOWN_LIMIT)
		add_line(text, "", bytes);
}

static void add_events(char text[INFO_GROUP_TEXT], const uint64_t *events)
{
	for (int i = 0; i < MEMCG_NR_MEMORY_EVENTS; i++)
		add_line(text, km_memcg_event_names[i], events[i]);
	add_line(text, "sock_throttled", 0);
}

bool info_group_text(const struct km_group_stats *group, unsigned file, char text[INFO_GROUP_TEXT])
{
	const uint64_t limits[] = { group->max, group->high, group->low, group->min };

	*text = '\0';
	if (file <= INFO_GROUP_PEAK)
		add_line(text, "", file == INFO_GROUP_PEAK ? group->peak : group->current);
	else if (file <= INFO_GROUP_MIN)
		add_limit(text, limits[file - INFO_GROUP_MAX]);
	else if (file != INFO_GROUP_STAT)
		add_events(text, file == INFO_GROUP_EVENTS ? group->events : group->local);
	else {
		add_line(text, "kernel", group->current);
		add_line(text, "stock", group->stock);
		add_line(text, "dying", group->dying);
	}
	return *text;
}

/* Print files in the format of head(1): a line with the name, the text, an empty line. */
static void print_files(struct km_writer *writer, const struct snapshot *snapshot, const struct info_names *names,
			size_t i)
{
	for (unsigned file = 0; file < INFO_GROUP_FILES; file++) {
		char text[INFO_GROUP_TEXT];

		if (!info_group_text(&snapshot->groups[i], file, text))
			continue;
		print_head(writer, snapshot, names, i, info_group_files[file]);
		km_print(writer, "%s\n", text);
	}
}

/* ------------------------------------------------------------------ all of it */

int info_tree(const struct snapshot *snapshot, enum info_style style)
{
	struct km_writer writer = { .fd = STDOUT_FILENO };

	if (style == INFO_TREE) {
		print_tree(snapshot, "");
		return fflush(stdout) ? errno : ferror(stdout) ? EIO : 0;
	}
	if (style == INFO_TREE_JSON) {
		print_json(&writer, snapshot);
		km_print(&writer, "\n");
	} else {
		struct info_names names = info_group_names(snapshot);

		for (size_t i = 0; i < snapshot->group_count; i++)
			print_files(&writer, snapshot, &names, i);
		free(names.shared);
	}
	return -km_print_end(&writer);
}

void info_tree_list_row(struct info_list *list, const struct snapshot *snapshot, const char *name)
{
	char whose[96];

	if (list->style == INFO_TREE_JSON) {
		km_print(&list->writer, list->more ? ",\n" : "\n");
		print_json(&list->writer, snapshot);
		return;
	}
	snprintf(whose, sizeof(whose), "%sprocess %u, %s\n", list->more ? "\n" : "", snapshot->pid, name);
	print_tree(snapshot, whose);
}
