/*
 * A snapshot as text. slabinfo and JSON are written by the library's own code (src/watch/print.c),
 * so that they can't differ from what the process itself would say.
 */
#define _GNU_SOURCE
#include "info_print.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "page/arena.h"

static struct kmem_cache_stats with_engine(const struct info_cache *cache)
{
	struct kmem_cache_stats stats = cache->stats;

	stats.engine = cache->engine;
	return stats;
}

static int print_slabinfo(const struct snapshot *snapshot)
{
	struct km_writer writer = { .fd = STDOUT_FILENO };

	km_print(&writer, "%s", km_slabinfo_head);
	for (size_t i = 0; i < snapshot->count; i++) {
		struct kmem_cache_stats stats = with_engine(&snapshot->caches[i]);
		char row[256];

		km_slabinfo_row(row, sizeof(row), &stats);
		km_print(&writer, "%s", row);
	}
	return -km_print_end(&writer);
}

static int print_json(const struct snapshot *snapshot)
{
	struct km_writer writer = { .fd = STDOUT_FILENO };
	struct km_print_process process = {
		.version = snapshot->version, .discipline = snapshot->discipline,
		.reason = snapshot->reason, .pid = snapshot->pid,
	};

	km_print_json_head(&writer, &process, &snapshot->stats);
	for (size_t i = 0; i < snapshot->count; i++) {
		struct kmem_cache_stats stats = with_engine(&snapshot->caches[i]);

		km_print_json_cache(&writer, &stats, i == 0);
	}
	km_print_json_groups(&writer);
	for (size_t i = 0; i < snapshot->group_count; i++)
		km_print_json_group(&writer, &snapshot->groups[i], i == 0);
	km_print_json_tail(&writer);
	return -km_print_end(&writer);
}

/* ------------------------------------------------------------------ bytes */

static unsigned long slab_bytes(const struct kmem_cache_stats *stats)
{
	return stats->total_slabs * stats->pages_per_slab * KM_PAGE_SIZE;
}

static int by_bytes(const void *a, const void *b)
{
	const struct info_cache *x = *(struct info_cache *const *)a;
	const struct info_cache *y = *(struct info_cache *const *)b;
	unsigned long i = slab_bytes(&x->stats), j = slab_bytes(&y->stats);

	return i != j ? (i < j) - (i > j) : strcmp(x->stats.name, y->stats.name);
}

struct info_bytes info_bytes(unsigned long bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	struct info_bytes result;
	double amount = (double)bytes;
	unsigned unit = 0;

	for (; amount >= 1024 && unit < 4; unit++)
		amount /= 1024;
	snprintf(result.text, sizeof(result.text), unit ? "%.1f %s" : "%.0f %s", amount,
		 units[unit]);
	return result;
}

static void print_cache_bytes(const struct kmem_cache_stats *stats)
{
	unsigned long in_slabs = slab_bytes(stats), active = stats->active_objects * stats->size;

	printf("%-24s %12lu %12s %12s %12s %5.1f%%\n", stats->name, stats->active_objects,
	       BYTES(active), BYTES(stats->shelf_objects * stats->size), BYTES(in_slabs),
	       in_slabs ? 100.0 * (double)active / (double)in_slabs : 0.0);
}

/* Kilobytes that /proc/PID/smaps_rollup has for the key; 0: it does not say. */
static unsigned long rollup_kb(unsigned pid, const char *key)
{
	char path[64], line[256];
	unsigned long kb = 0;

	snprintf(path, sizeof(path), "/proc/%u/smaps_rollup", pid);
	FILE *rollup = fopen(path, "re");
	if (!rollup)
		return 0;
	while (!kb && fgets(line, sizeof(line), rollup))
		if (!strncmp(line, key, strlen(key)))
			sscanf(line + strlen(key), "%lu", &kb);
	fclose(rollup);
	return kb;
}

static void print_total(const char *what, unsigned long bytes)
{
	printf("%-38s %12s\n", what, BYTES(bytes));
}

static void print_totals(const struct snapshot *snapshot, bool live)
{
	const struct kmem_stats *stats = &snapshot->stats;

	printf("\n");
	print_total("pages in slabs and large blocks", stats->pages_used * KM_PAGE_SIZE);
	if (stats->slob_pages) {
		print_total("pages shared by the caches of slob", stats->slob_pages * KM_PAGE_SIZE);
		print_total("in use of them", stats->slob_bytes);
	}
	print_total("free pages, still resident", stats->pages_free_dirty * KM_PAGE_SIZE);
	print_total("free pages, without memory", stats->pages_free_clean * KM_PAGE_SIZE);
	print_total("given back to the system, ever", stats->purged_pages * KM_PAGE_SIZE);
	print_total("mappings of their own", stats->mapped_bytes);
	print_total("our own records", stats->meta_bytes);
	print_total("address space reserved for pages", stats->arena_reserved_bytes);
	if (stats->nodes > 1)
		printf("%-38s %12lu\n", "memory nodes", stats->nodes);
	if (stats->bind_failures)
		print_total("refused to be bound to their node", stats->bind_failures << 22);
	unsigned long rss_kb = live ? rollup_kb(snapshot->pid, "Rss:") : 0;
	if (rss_kb) {
		print_total("the process, resident (Rss)", rss_kb * 1024);
		print_total("the process, its share (Pss)",
			    rollup_kb(snapshot->pid, "Pss:") * 1024);
	}
}

static int print_memory(const struct snapshot *snapshot, bool live)
{
	const struct info_cache **order = calloc(snapshot->count + 1, sizeof(*order));
	struct kmem_cache_stats all = { .name = "all caches" };
	unsigned long active = 0, shelves = 0, slabs = 0;

	if (!order)
		return ENOMEM;
	printf("process %u, libkmem %s, discipline %s (%s)\n\n", snapshot->pid, snapshot->version,
	       snapshot->discipline, snapshot->reason);
	printf("%-24s %12s %12s %12s %12s %6s\n", "cache", "objects", "in use", "on shelves",
	       "in slabs", "used");
	for (size_t i = 0; i < snapshot->count; i++)
		order[i] = &snapshot->caches[i];
	qsort(order, snapshot->count, sizeof(*order), by_bytes);
	for (size_t i = 0; i < snapshot->count; i++) {
		const struct kmem_cache_stats *stats = &order[i]->stats;

		/* Small objects of engine slob are in no slab. */
		if (stats->total_slabs || stats->active_objects)
			print_cache_bytes(stats);
		all.active_objects += stats->active_objects;
		active += stats->active_objects * stats->size;
		shelves += stats->shelf_objects * stats->size;
		slabs += slab_bytes(stats);
	}
	free(order);
	printf("%-24s %12lu %12s %12s %12s %5.1f%%\n", all.name, all.active_objects, BYTES(active),
	       BYTES(shelves), BYTES(slabs), slabs ? 100.0 * (double)active / (double)slabs : 0.0);
	printf("%-24s %12lu %12s\n", "large blocks", snapshot->stats.large_blocks,
	       BYTES(snapshot->stats.large_bytes));
	print_totals(snapshot, live);
	return fflush(stdout) || ferror(stdout) ? EIO : 0;
}

int info_print(const struct snapshot *snapshot, enum info_style style, bool live)
{
	if (style == INFO_JSON)
		return print_json(snapshot);
	if (style >= INFO_TREE)
		return info_tree(snapshot, style);
	return style == INFO_MEMORY ? print_memory(snapshot, live) : print_slabinfo(snapshot);
}

/* ------------------------------------------------------------------ the list of processes */

void info_process_name(unsigned pid, char name[64])
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/comm", pid);
	FILE *comm = fopen(path, "re");
	if (!comm || !fgets(name, 64, comm))
		strcpy(name, "?\n");
	if (comm)
		fclose(comm);
	name[strcspn(name, "\n")] = '\0';
	for (char *at = name; *at; at++)
		if ((unsigned char)*at < 0x20 || *at == 0x7f)
			*at = '?';
}

static unsigned long active_bytes(const struct snapshot *snapshot)
{
	unsigned long bytes = snapshot->stats.large_bytes;

	for (size_t i = 0; i < snapshot->count; i++)
		bytes += snapshot->caches[i].stats.active_objects * snapshot->caches[i].stats.size;
	return bytes;
}

void info_list_head(struct km_writer *writer, enum info_style style)
{
	if (style == INFO_JSON || style == INFO_TREE_JSON)
		km_print(writer, "[");
	else if (style != INFO_TREE)
		km_print(writer, "%8s %-16s %-10s %7s %14s\n", "PID", "NAME", "DISCIPLINE",
			 "CACHES", "BYTES");
}

/* What the process says of itself may hold anything. */
static void list_json(struct km_writer *writer, const struct snapshot *snapshot, const char *name,
		      bool other)
{
	km_print(writer, "\n {\"pid\": %u, \"name\": ", snapshot->pid);
	km_print_string(writer, name);
	km_print(writer, ", \"version\": ");
	km_print_string(writer, snapshot->version);
	if (!other) {
		km_print(writer, ", \"discipline\": ");
		km_print_string(writer, snapshot->discipline);
		km_print(writer, ", \"caches\": %zu, \"active_bytes\": %lu", snapshot->count,
			 active_bytes(snapshot));
	}
	km_print(writer, "}");
}

void info_list_row(struct km_writer *writer, enum info_style style, const struct snapshot *snapshot,
		   bool other, bool more)
{
	char name[64];

	if (style >= INFO_TREE) {
		info_tree_list_row(writer, style, snapshot, more);
		return;
	}
	info_process_name(snapshot->pid, name);
	if (style == INFO_JSON) {
		km_print(writer, more ? "," : "");
		list_json(writer, snapshot, name, other);
	} else if (other) {
		km_print(writer, "%8u %-16s libkmem %s, of another build\n", snapshot->pid, name,
			 snapshot->version);
	} else {
		km_print(writer, "%8u %-16s %-10s %7zu %14lu\n", snapshot->pid, name,
			 snapshot->discipline, snapshot->count, active_bytes(snapshot));
	}
}

int info_list_tail(struct km_writer *writer, enum info_style style)
{
	if (style == INFO_JSON || style == INFO_TREE_JSON)
		km_print(writer, "\n]\n");
	return -km_print_end(writer);
}
