/*
 * The groups of a snapshot, for those who know cgroups: as a tree, as JSON, or as the texts of the cgroup files. What a
 * text says is what mem_cgroup_write_stat and its like write in the process itself.
 */
#include "info/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kmem.h"

/* ------------------------------------------------------------------ groups below each parent */

/* A group's place among its siblings. Parents are counted from 1; 0 is the root. */
struct place {
	const struct km_group_stats *group;
	size_t self, parent;
};

struct order {
	struct place *place;		/* by parent, then as compared */
	size_t *first;			/* of each parent: where its groups begin; one more behind the last */
};

static int by_size(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->parent != y->parent)
		return x->parent < y->parent ? -1 : 1;
	if (x->group->current != y->group->current)
		return x->group->current > y->group->current ? -1 : 1;
	return x->self < y->self ? -1 : x->self > y->self;
}

static int by_name(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->parent != y->parent)
		return x->parent < y->parent ? -1 : 1;
	return strcmp(x->group->name, y->group->name);
}

static struct order order_of(const struct snapshot *snapshot, int (*compare)(const void *a, const void *b))
{
	size_t count = snapshot->group_count, above[MEMCG_DEPTH_MAX + 2] = { 0 }, at = 0;
	struct order order = {
		.place = kmem_need(calloc(count + 1, sizeof(*order.place))),
		.first = kmem_need(calloc(count + 2, sizeof(*order.first))),
	};

	/* Each group stands before those below it. */
	for (size_t i = 0; i < count; i++) {
		const struct km_group_stats *group = &snapshot->groups[i];
		size_t depth = group->depth <= MEMCG_DEPTH_MAX ? group->depth : MEMCG_DEPTH_MAX;

		depth = depth ? depth : 1;
		order.place[i] = (struct place){ group, i + 1, above[depth - 1] };
		for (size_t below = depth; below < MEMCG_DEPTH_MAX + 2; below++)
			above[below] = i + 1;
	}
	qsort(order.place, count, sizeof(*order.place), compare);
	for (size_t parent = 0; parent <= count + 1; parent++) {
		while (at < count && order.place[at].parent < parent)
			at++;
		order.first[parent] = at;
	}
	return order;
}

static void free_order(struct order *order)
{
	free(order->place);
	free(order->first);
}

/* ------------------------------------------------------------------ names */

/* As it may go to a terminal, for the process might have written anything there, and with room for a number. */
struct name {
	char text[MEMCG_NAME_MAX + 12];
};

struct names {
	const struct km_group_stats *first;
	bool *shared;			/* of each group: a sibling has its name */
};

static struct names names_of(const struct snapshot *snapshot)
{
	struct names names = { snapshot->groups, kmem_need(calloc(snapshot->group_count + 1, sizeof(bool))) };
	struct order order = order_of(snapshot, by_name);

	for (size_t i = 1; i < snapshot->group_count; i++)
		if (!by_name(&order.place[i - 1], &order.place[i]))
			names.shared[order.place[i - 1].self - 1] = names.shared[order.place[i].self - 1] = true;
	free_order(&order);
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

/* How far names reach, with two columns for each level. */
static int name_width(const struct snapshot *snapshot, const struct names *names)
{
	size_t width = 24;

	for (size_t i = 0; i < snapshot->group_count; i++) {
		const struct km_group_stats *group = &snapshot->groups[i];
		size_t length = 2 * (group->depth - 1) + strlen(name_of(names, group).text);

		width = length > width ? length : width;
	}
	return (int)width;
}

/* A terminal's row is cut where it ends, as ps(1) does. */
static void print_line(struct km_writer *writer, char *row)
{
	size_t columns = (size_t)info_columns();

	if (columns && strlen(row) > columns)
		row[columns] = '\0';
	km_print(writer, "%s\n", row);
}

static void print_row(struct km_writer *writer, const struct names *names, const struct km_group_stats *group,
		      int width)
{
	int indent = 2 * ((int)group->depth - 1);
	char row[512];
	size_t length = (size_t)snprintf(row, sizeof(row), "%*s%-*s %10s %10s %10s %10s ", indent, "", width - indent,
					 name_of(names, group).text, BYTES(group->current), BYTES(group->peak),
					 limit(group->max).text, limit(group->high).text), before = length;

	for (int i = 0; i < MEMCG_NR_MEMORY_EVENTS && length < sizeof(row); i++)
		if (group->events[i] && group->events[i] != KM_UNKNOWN)
			length += (size_t)snprintf(row + length, sizeof(row) - length, " %s %lu",
						   km_memcg_event_names[i], (unsigned long)group->events[i]);
	if (length == before)
		snprintf(row + length, sizeof(row) - length, " -");
	print_line(writer, row);
}

/* Groups are at most MEMCG_DEPTH_MAX deep, and so is this. */
static void print_below(struct km_writer *writer, const struct names *names, const struct order *order, size_t parent,
			int width)
{
	for (size_t i = order->first[parent]; i < order->first[parent + 1]; i++) {
		print_row(writer, names, order->place[i].group, width);
		print_below(writer, names, order, order->place[i].self, width);
	}
}

static void print_tree(struct km_writer *writer, const struct snapshot *snapshot)
{
	struct order order = order_of(snapshot, by_size);
	struct names names = names_of(snapshot);
	int width = name_width(snapshot, &names);
	char head[512];

	snprintf(head, sizeof(head), "%-*s %10s %10s %10s %10s  EVENTS", width, "GROUP", "CURRENT", "PEAK", "MAX",
		 "HIGH");
	print_line(writer, head);
	print_below(writer, &names, &order, 0, width);
	free(names.shared);
	free_order(&order);
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
		print_tree(&writer, snapshot);
	} else if (style == INFO_TREE_JSON) {
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

void info_tree_list_row(struct km_writer *writer, enum info_style style, const struct snapshot *snapshot, bool more)
{
	char name[64];

	if (style == INFO_TREE_JSON) {
		km_print(writer, more ? ",\n" : "\n");
		print_json(writer, snapshot);
		return;
	}
	info_process_name(snapshot->pid, name);
	km_print(writer, "%sprocess %u, %s\n", more ? "\n" : "", snapshot->pid, name);
	print_tree(writer, snapshot);
}
