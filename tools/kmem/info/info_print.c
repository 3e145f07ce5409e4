/*
 * info_print.c: print a snapshot as text. Invariant: the library's own code (src/inspect/stats_print.c) writes
 * slabinfo and JSON, so that the command's output can't differ from the process's own output.
 */
#define _GNU_SOURCE
#include "info/info_print.h"
#include "command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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
		.reason = snapshot->reason, .hardened = snapshot->hardened,
		.pid = snapshot->pid, .mapped_ready = snapshot->mapped_ready,
		.past_new_slabs = snapshot->past_new_slabs, .past_freed_slabs = snapshot->past_freed_slabs,
		.guard = snapshot->guard,
	};

	km_print_json_head(&writer, &process, &snapshot->stats);
	for (size_t i = 0; i < snapshot->count; i++) {
		const struct info_cache *cache = &snapshot->caches[i];
		struct kmem_cache_stats stats = with_engine(cache);

		km_print_json_cache(&writer, &stats, cache->group, *cache->of ? cache->of : NULL, i == 0);
	}
	km_print_json_groups(&writer);
	for (size_t i = 0; i < snapshot->group_count; i++)
		km_print_json_group(&writer, &snapshot->groups[i], i == 0);
	km_print_json_tail(&writer);
	return -km_print_end(&writer);
}

/* ------------------------------------------------------------------ bytes */

#define UNKNOWN KM_UNKNOWN

/* A row of the table. */
struct row {
	const struct info_cache *cache;
	unsigned long active, slabs;	/* bytes, or UNKNOWN */
};

/* Multiply a number by a size in bytes. Returns: UNKNOWN for an unknown operand, or on overflow, because a file may
 * hold any number. */
static unsigned long times(unsigned long n, unsigned long bytes)
{
	unsigned long product;

	return n == UNKNOWN || bytes == UNKNOWN || __builtin_mul_overflow(n, bytes, &product) ? UNKNOWN : product;
}

static unsigned long slab_bytes(const struct kmem_cache_stats *stats)
{
	unsigned long pages = stats->pages_per_slab == (unsigned)UNKNOWN ? UNKNOWN : stats->pages_per_slab;

	return times(times(stats->total_slabs, pages), KMEM_PAGE_BYTES);
}

/* Add to a sum. The sum is unknown if one part is unknown. */
static void add(unsigned long *sum, unsigned long n)
{
	*sum = *sum == UNKNOWN || n == UNKNOWN ? UNKNOWN : *sum + n;
}

bool info_in_shared_pages(const struct info_cache *cache)
{
	return !strcmp(cache->engine, "slob") && cache->stats.size < KMEM_PAGE_BYTES;
}

/* Returns: true for the kmalloc cache of engine slob. Its objects have the requested sizes, known only to headers. */
static bool has_any_size(const struct info_cache *cache)
{
	return info_in_shared_pages(cache) && !strcmp(cache->stats.name, "kmalloc") &&
	       cache->stats.size == KMALLOC_MIN_SIZE;
}

/* Returns: bytes of slob's kmalloc objects with headers: used bytes of shared pages, less the other caches' bytes. */
static unsigned long any_size_bytes(const struct snapshot *snapshot)
{
	unsigned long caches = 0, kmallocs = 0;

	for (size_t i = 0; i < snapshot->count; i++) {
		const struct info_cache *cache = &snapshot->caches[i];

		if (has_any_size(cache))
			kmallocs++;
		else if (info_in_shared_pages(cache))
			add(&caches, times(cache->stats.total_objects, cache->stats.size));
	}
	/* With two copies of libkmem only the sum is known. Numbers read during a change may not fit together. */
	unsigned long all = snapshot->stats.slob_bytes;
	return kmallocs == 1 && all != UNKNOWN && all > caches ? all - caches : UNKNOWN;
}

static struct row row_of(const struct snapshot *snapshot, const struct info_cache *cache)
{
	const struct kmem_cache_stats *stats = &cache->stats;

	return (struct row){
		.cache = cache,
		.active = has_any_size(cache) ? any_size_bytes(snapshot) :
						times(stats->active_objects, stats->size),
		.slabs = info_in_shared_pages(cache) ? UNKNOWN : slab_bytes(stats),
	};
}

/* Returns: active bytes of all caches together. */
static unsigned long active_bytes(const struct snapshot *snapshot)
{
	unsigned long bytes = 0;

	add(&bytes, snapshot->stats.slob_bytes);
	for (size_t i = 0; i < snapshot->count; i++)
		if (!info_in_shared_pages(&snapshot->caches[i]))
			add(&bytes, row_of(snapshot, &snapshot->caches[i]).active);
	return bytes;
}

/* Returns: bytes of the cache's own slabs; else its active bytes; 0 if both are unknown. */
static unsigned long taken(const struct row *row)
{
	return row->slabs != UNKNOWN ? row->slabs : row->active != UNKNOWN ? row->active : 0;
}

struct info_bytes info_bytes(unsigned long bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	struct info_bytes result;
	double amount = (double)bytes;
	unsigned unit = 0;

	if (bytes == UNKNOWN)
		return (struct info_bytes){ "-" };
	for (; amount >= 1024 && unit < 4; unit++)
		amount /= 1024;
	snprintf(result.text, sizeof(result.text), unit ? "%.1f %s" : "%.0f %s", amount,
		 units[unit]);
	return result;
}

/* Returns: columns of the terminal on standard output; 0: no terminal. */
static int columns_of_terminal(void)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO))
		return 0;
	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

struct info_bytes info_count(unsigned long count)
{
	struct info_bytes result = { "-" };

	if (count != UNKNOWN)
		snprintf(result.text, sizeof(result.text), "%lu", count);
	return result;
}

static struct info_bytes share_text(unsigned long part, unsigned long whole)
{
	struct info_bytes result = { "-" };

	if (part != UNKNOWN && whole != UNKNOWN)
		snprintf(result.text, sizeof(result.text), "%.1f%%",
			 whole ? 100.0 * (double)part / (double)whole : 0.0);
	return result;
}

/* Add a row: bytes of objects in use, bytes of cached objects, and bytes of slabs. */
static void add_row(struct table *table, int64_t key, const char *name, unsigned long objects, unsigned long active,
		    unsigned long pcs, unsigned long slabs)
{
	table_row(table, NULL, key, (const char *const[]){ name, COUNT(objects), BYTES(active), BYTES(pcs),
							   BYTES(slabs), share_text(active, slabs).text });
}

/* A table with rows in the order of calls. */
struct totals {
	struct table *table;
	int64_t rows;
};

static void add_text(struct totals *totals, const char *what, const char *text)
{
	table_row(totals->table, NULL, -totals->rows++, (const char *const[]){ what, text });
}

static void add_total(struct totals *totals, const char *what, unsigned long bytes)
{
	add_text(totals, what, BYTES(bytes));
}

/* Find clean free pages (given back, or never touched) with memory. The kernel brings clean pages in for locked
 * memory or a huge page. *clean, bytes of all clean pages, is reduced to pages without memory. Returns: bytes with
 * memory. */
static unsigned long brought_in(const struct kmem_stats *stats, const struct info_resident *resident,
				unsigned long *clean)
{
	unsigned long dirty = times(stats->pages_free_dirty, KMEM_PAGE_BYTES), brought = 0;

	if (*clean != UNKNOWN && dirty != UNKNOWN && resident->free != UNKNOWN && resident->free > dirty)
		brought = resident->free - dirty < *clean ? resident->free - dirty : *clean;
	*clean -= brought;
	return brought;
}

static void print_totals(const struct snapshot *snapshot, const struct info_memory *memory)
{
	const struct kmem_stats *stats = &snapshot->stats;
	unsigned long clean = times(stats->pages_free_clean, KMEM_PAGE_BYTES);
	const bool said = memory && memory->told;
	const struct info_resident unknown = { .used = UNKNOWN, .free = UNKNOWN, .records = UNKNOWN };
	const struct info_resident resident = said ? memory->resident : unknown;
	const unsigned long brought = said ? brought_in(stats, &resident, &clean) : 0;
	unsigned long ready = snapshot->mapped_ready, dirty = stats->pages_free_dirty;
	struct totals totals = { table_new(false, "  "), 0 };

	table_column(totals.table, "", TABLE_CUT);
	table_column(totals.table, "", TABLE_RIGHT);
	printf("\n");
	add_total(&totals, "pages in slabs and large blocks", times(stats->pages_used, KMEM_PAGE_BYTES));
	if (stats->slob_pages && stats->slob_pages != UNKNOWN) {
		add_total(&totals, "pages shared by the caches of slob", times(stats->slob_pages, KMEM_PAGE_BYTES));
		add_total(&totals, "in use of these pages", stats->slob_bytes);
	}
	/* A file may hold more cached pages than dirty pages. */
	unsigned long pages = dirty == UNKNOWN ? UNKNOWN : dirty - (ready < dirty ? ready : dirty);
	add_total(&totals, "free pages, not yet returned", times(pages, KMEM_PAGE_BYTES));
	if (brought)
		add_total(&totals, "free pages, made resident by the system", brought);
	add_total(&totals, "free pages, not resident", clean);
	add_total(&totals, "returned to the system, since the start", times(stats->purged_pages, KMEM_PAGE_BYTES));
	add_total(&totals, "huge blocks, mapped one by one", stats->mapped_bytes);
	if (ready)
		add_total(&totals, "huge blocks, cached", times(ready, KMEM_PAGE_BYTES));
	add_total(&totals, "address space kept for huge blocks", stats->mapped_spare_bytes);
	/* Without arrays by page and areas by CPU: both are reserved whole, and only their resident bytes count. */
	add_total(&totals, "metadata, without page and CPU arrays", stats->meta_bytes);
	add_total(&totals, "address space reserved for pages", stats->arena_reserved_bytes);
	if (stats->nodes > 1 && stats->nodes != UNKNOWN)
		add_text(&totals, "memory nodes", COUNT(stats->nodes));
	if (stats->bind_failures && stats->bind_failures != UNKNOWN)
		add_total(&totals, "not bound to their memory node", times(stats->bind_failures, 1ul << 22));
	if (snapshot->guard.objects && snapshot->guard.objects != UNKNOWN) {
		add_text(&totals, "guarded objects, allocated now", COUNT(snapshot->guard.live));
		add_text(&totals, "guarded objects, since the start", COUNT(snapshot->guard.samples));
		add_text(&totals, "misuses of guarded objects, reported", COUNT(snapshot->guard.reports));
	}
	/* For a running process: a dash for figures withheld by the kernel. */
	if (memory) {
		add_total(&totals, "resident of slabs and large blocks", resident.used);
		add_total(&totals, "resident of free pages", resident.free);
		add_total(&totals, "resident of all metadata", resident.records);
		add_total(&totals, "the process, resident (Rss)", memory->rollup.rss ?: UNKNOWN);
		add_total(&totals, "the process, its share (Pss)", memory->rollup.pss ?: UNKNOWN);
	}
	table_print(totals.table);
}

/* Print the line of the process. The reason for the discipline is left out if the line exceeds the terminal. */
static void print_process(const struct snapshot *snapshot)
{
	int columns = columns_of_terminal();
	char line[320];

	snprintf(line, sizeof(line), "process %u, libkmem %s,%s discipline %s (%s)", snapshot->pid, snapshot->version,
		 *snapshot->hardened ? " hardened," : "", snapshot->discipline, snapshot->reason);
	if (columns && strlen(line) > (size_t)columns)
		*strchr(line, '(') = '\0';
	printf("%.*s\n\n", columns ? columns : (int)sizeof(line), line);
}

/* Print the caches, the largest first, then the sums of all caches, then the large blocks. */
static void print_caches(const struct snapshot *snapshot)
{
	static const char *const heads[] = { "objects", "in use", "cached", "in slabs", "used" };
	unsigned long objects = 0, pcs = 0, slabs = 0;
	struct table *table = table_new(true, "  ");

	print_process(snapshot);
	table_column(table, "cache", TABLE_CUT);
	for (size_t i = 0; i < KMEM_COUNT(heads); i++)
		table_column(table, heads[i], TABLE_RIGHT);
	/* Count the pages shared by the caches of slob once, here. */
	add(&slabs, times(snapshot->stats.slob_pages, KMEM_PAGE_BYTES));
	for (size_t i = 0; i < snapshot->count; i++) {
		struct row row = row_of(snapshot, &snapshot->caches[i]);
		const struct kmem_cache_stats *stats = &row.cache->stats;
		unsigned long on_pcs = times(stats->shelf_objects, stats->size);

		if (stats->total_slabs || stats->active_objects)
			add_row(table, (int64_t)taken(&row), stats->name, stats->active_objects, row.active, on_pcs,
				row.slabs);
		add(&objects, stats->active_objects);
		add(&pcs, on_pcs);
		add(&slabs, slab_bytes(stats));
	}
	add_row(table, -1, "all caches", objects, active_bytes(snapshot), pcs, slabs);
	if (snapshot->stats.large_blocks != UNKNOWN)
		table_row(table, NULL, -2, (const char *const[]){
			"large blocks", COUNT(snapshot->stats.large_blocks), BYTES(snapshot->stats.large_bytes),
			NULL, NULL, NULL });
	table_print(table);
}

static int print_memory(const struct snapshot *snapshot, const struct info_memory *memory)
{
	print_caches(snapshot);
	print_totals(snapshot, memory);
	return fflush(stdout) ? errno : ferror(stdout) ? EIO : 0;
}

int info_print(const struct snapshot *snapshot, enum info_style style, const struct info_memory *memory)
{
	if (style == INFO_JSON)
		return print_json(snapshot);
	if (style >= INFO_TREE)
		return info_tree(snapshot, style);
	return style == INFO_MEMORY ? print_memory(snapshot, memory) : print_slabinfo(snapshot);
}

/* ------------------------------------------------------------------ the list of processes */

/* Read the process's name from /proc/PID/comm, or "?". */
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
	info_printable(name, name, 64);
}

static unsigned long all_bytes(const struct snapshot *snapshot)
{
	unsigned long bytes = active_bytes(snapshot);

	add(&bytes, snapshot->stats.large_bytes);
	return bytes;
}

struct info_list info_list_begin(enum info_style style)
{
	static const char *const heads[] = { "PID", "NAME", "DISCIPLINE", "CACHES", "BYTES" };
	struct info_list list = { .style = style, .writer = { .fd = STDOUT_FILENO } };

	if (style == INFO_JSON || style == INFO_TREE_JSON)
		km_print(&list.writer, "[");
	else if (style != INFO_TREE)
		list.table = table_new(true, " ");
	for (size_t i = 0; list.table && i < KMEM_COUNT(heads); i++)
		table_column(list.table, heads[i], i == 0 || i > 2 ? TABLE_RIGHT : i == 1 ? TABLE_CUT : 0);
	return list;
}

/* Print an object of the list. Strings are escaped, because the process's strings may hold any bytes. */
static void list_json(struct km_writer *writer, const struct snapshot *snapshot, const char *name, bool other)
{
	km_print(writer, "\n {\"pid\": %u, \"name\": ", snapshot->pid);
	km_print_string(writer, name);
	km_print(writer, ", \"version\": ");
	km_print_string(writer, snapshot->version);
	if (!other) {
		km_print(writer, ", \"discipline\": ");
		km_print_string(writer, snapshot->discipline);
		km_print(writer, ", \"caches\": %zu, \"active_bytes\": %lu", snapshot->count, all_bytes(snapshot));
	}
	km_print(writer, "}");
}

static void list_row(struct info_list *list, const struct snapshot *snapshot, const char *name, bool other)
{
	char build[64];

	snprintf(build, sizeof(build), "libkmem %s, of another build", snapshot->version);
	table_row(list->table, NULL, -(int64_t)snapshot->pid, (const char *const[]){
		COUNT(snapshot->pid), name, other ? build : snapshot->discipline,
		other ? NULL : COUNT(snapshot->count), other ? NULL : COUNT(all_bytes(snapshot)) });
}

void info_list_row(struct info_list *list, const struct snapshot *snapshot, bool other)
{
	char name[64];

	info_process_name(snapshot->pid, name);
	if (list->style >= INFO_TREE) {
		info_tree_list_row(list, snapshot, name);
	} else if (list->style == INFO_JSON) {
		km_print(&list->writer, list->more ? "," : "");
		list_json(&list->writer, snapshot, name, other);
	} else {
		list_row(list, snapshot, name, other);
	}
	list->more = true;
}

int info_list_end(struct info_list *list)
{
	if (list->table)
		table_print(list->table);
	if (list->style == INFO_JSON || list->style == INFO_TREE_JSON)
		km_print(&list->writer, "\n]\n");
	return fflush(stdout) ? errno : ferror(stdout) ? EIO : -km_print_end(&list->writer);
}
