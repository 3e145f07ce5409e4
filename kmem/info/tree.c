/*
 * The groups of a snapshot, for those who know cgroups: as a tree, as JSON, or as the texts of the cgroup files. What a
 * text says is what mem_cgroup_write_stat and its like write in the process itself.
 */
#include "info/print.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kmem.h"

/* ------------------------------------------------------------------ names */

/* As it may go to a terminal, for the process might have written anything there, and with room for a number. */
struct name {
	char text[MEMCG_NAME_MAX + 12];
};

struct names {
	const struct km_group_stats *first;
	bool *shared;			/* of each group: a sibling has its name */
};

/* A group's place: whose it is below. Parents are counted from 1; 0 is the root. */
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

/* From 1 on. */
static size_t depth_of(const struct km_group_stats *group)
{
	return !group->depth ? 1 : group->depth <= MEMCG_DEPTH_MAX ? group->depth : MEMCG_DEPTH_MAX;
}

static struct names names_of(const struct snapshot *snapshot)
{
	struct names names = { snapshot->groups, kmem_need(calloc(snapshot->group_count + 1, sizeof(bool))) };
	struct place *places = kmem_need(calloc(snapshot->group_count + 1, sizeof(*places)));
	size_t above[MEMCG_DEPTH_MAX + 1] = { 0 };

	/* Each group stands before those below it. */
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

/* Its number is behind it, where a sibling has the same. */
static struct name name_of(const struct names *names, const struct km_group_stats *group)
{
	struct name name;

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

/* Those that there were, with their names. */
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

/* The largest first, below each parent; before it the line that says whose they are, or nothing. */
static void print_tree(const struct snapshot *snapshot, const char *whose)
{
	static const char *const heads[] = { "CURRENT", "PEAK", "MAX", "HIGH" };
	struct table_row *above[MEMCG_DEPTH_MAX + 1] = { NULL };
	struct names names = names_of(snapshot);
	struct table *table = table_new(true, "  ");

	printf("%s", whose);
	table_column(table, "GROUP", TABLE_TREE | TABLE_CUT);
	for (size_t i = 0; i < km_array_count(heads); i++)
		table_column(table, heads[i], TABLE_RIGHT);
	table_column(table, "EVENTS", TABLE_CUT);
	for (size_t i = 0; i < snapshot->group_count; i++) {
		const struct km_group_stats *group = &snapshot->groups[i];
		size_t depth = depth_of(group);
		struct table_row *row = table_row(
			table, above[depth - 1], (int64_t)group->current,
			(const char *const[]){ name_of(&names, group).text, BYTES(group->current), BYTES(group->peak),
					       limit(group->max).text, limit(group->high).text,
					       events_of(group).text });

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

static void print_head(struct km_writer *writer, const struct snapshot *snapshot, const struct names *names,
		       size_t group, const char *file)
{
	size_t path[MEMCG_DEPTH_MAX + 1], levels = 0;

	/* Those above stand before it, the nearest last. */
	for (size_t i = group + 1, depth = snapshot->groups[group].depth; i-- && depth;)
		if (snapshot->groups[i].depth == depth && levels <= MEMCG_DEPTH_MAX) {
			path[levels++] = i;
			depth--;
		}
	km_print(writer, "==> ");
	while (levels)
		km_print(writer, "%s/", name_of(names, &snapshot->groups[path[--levels]]).text);
	km_print(writer, "memory.%s <==\n", file);
}

static void print_events(struct km_writer *writer, const uint64_t *events)
{
	for (int i = 0; i < MEMCG_NR_MEMORY_EVENTS; i++)
		if (events[i] != KM_UNKNOWN)
			km_print(writer, "%s %lu\n", km_memcg_event_names[i], (unsigned long)events[i]);
	km_print(writer, "sock_throttled 0\n\n");
}

/* As head(1) shows files: a line with the name, the text, an empty line. */
static void print_files(struct km_writer *writer, const struct snapshot *snapshot, const struct names *names, size_t i)
{
	const struct km_group_stats *group = &snapshot->groups[i];
	const struct {
		const char *file;
		uint64_t value, unknown;
	} numbers[] = {
		{ "current", group->current, KM_UNKNOWN }, { "peak", group->peak, KM_UNKNOWN },
		{ "max", group->max, KM_UNKNOWN_LIMIT }, { "high", group->high, KM_UNKNOWN_LIMIT },
		{ "low", group->low, KM_UNKNOWN_LIMIT }, { "min", group->min, KM_UNKNOWN_LIMIT },
	};
	const struct {
		const char *key;
		uint64_t value;
	} stats[] = { { "kernel", group->current }, { "stock", group->stock }, { "dying", group->dying } };

	for (size_t file = 0; file < km_array_count(numbers); file++) {
		if (numbers[file].value == numbers[file].unknown)
			continue;
		print_head(writer, snapshot, names, i, numbers[file].file);
		if (numbers[file].value == MEMCG_NO_LIMIT)
			km_print(writer, "max\n\n");
		else
			km_print(writer, "%lu\n\n", (unsigned long)numbers[file].value);
	}
	print_head(writer, snapshot, names, i, "stat");
	for (size_t key = 0; key < km_array_count(stats); key++)
		if (stats[key].value != KM_UNKNOWN)
			km_print(writer, "%s %lu\n", stats[key].key, (unsigned long)stats[key].value);
	km_print(writer, "\n");
	print_head(writer, snapshot, names, i, "events");
	print_events(writer, group->events);
	print_head(writer, snapshot, names, i, "events.local");
	print_events(writer, group->local);
}

/* ------------------------------------------------------------------ all of it */

int info_tree(const struct snapshot *snapshot, enum info_style style)
{
	struct km_writer writer = { .fd = STDOUT_FILENO };

	if (style == INFO_TREE) {
		print_tree(snapshot, "");
		return fflush(stdout) || ferror(stdout) ? EIO : 0;
	}
	if (style == INFO_TREE_JSON) {
		print_json(&writer, snapshot);
		km_print(&writer, "\n");
	} else {
		struct names names = names_of(snapshot);

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
