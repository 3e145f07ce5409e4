/*
 * openmetrics.c: statistics as OpenMetrics 1.0 and Prometheus's text format. Invariants: all samples of a family are
 * adjacent, and no two samples have the same labels: caches of one name are merged, and so are groups of one path. A
 * counter only grows while its series exists. The number of series is bounded. Nothing is allocated, and the source
 * of the numbers is unknown here, so the tools use this file too.
 */
#include "openmetrics.h"

#include "slab/engine.h"
#include "base/bits.h"
#include "os/die.h"

/* ------------------------------------------------------------------ order */

/* Returns: below 0 if row a comes before row b, 0 for equal rows. */
typedef int compare_fn(const struct km_metrics *metrics, size_t a, size_t b);

static bool before(const struct km_metrics *metrics, size_t a, size_t b, compare_fn *compare)
{
	const int order = compare(metrics, a, b);

	return order ? order < 0 : a < b;
}

static void swap(size_t *a, size_t *b)
{
	const size_t was = *a;

	*a = *b;
	*b = was;
}

static void sink(const struct km_metrics *metrics, size_t at, size_t count, compare_fn *compare)
{
	size_t *order = metrics->order;

	for (size_t child; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && before(metrics, order[child], order[child + 1], compare))
			child++;
		if (!before(metrics, order[at], order[child], compare))
			return;
		swap(&order[at], &order[child]);
	}
}

/* Heap sort: no extra memory and no recursion. */
static void sort(const struct km_metrics *metrics, size_t count, compare_fn *compare)
{
	size_t *order = metrics->order;

	for (size_t i = count / 2; i--;)
		sink(metrics, i, count, compare);
	for (size_t i = count; i-- > 1;) {
		swap(&order[0], &order[i]);
		sink(metrics, 0, i, compare);
	}
	for (size_t i = 1; i < count; i++)
		km_debug(before(metrics, order[i - 1], order[i], compare), "sorted entries are in order");
}

static unsigned long known(unsigned long n)
{
	return n == KM_UNKNOWN ? 0 : n;
}

/* ------------------------------------------------------------------ families of samples */

enum kind { GAUGE, COUNTER, INFO };

struct family {
	const char *name;		/* name of the family behind "kmem_", without the suffix of the kind; its end is
					 * the unit */
	enum kind kind;
	const char *help;
};

/* A family of caches or of groups, and the place of the number in a row. */
struct column {
	struct family family;
	size_t at;
	bool is_limit;			/* the number is a limit: no sample if there is no limit */
};

#define CACHE(member)	offsetof(struct km_metrics_cache, member)
static const struct column object_bytes = {
	{ "cache_object_bytes", GAUGE, "Bytes of one object." }, CACHE(object_bytes), false,
};
/* Families of a cache's numbers; caches of one name are summed. */
static const struct column cache_columns[] = {
	{ { "cache_live_objects", GAUGE, "Allocated objects." }, CACHE(live_objects), false },
	{ { "cache_live_bytes", GAUGE, "Bytes of allocated objects." }, CACHE(live_bytes), false },
	{ { "cache_ready_bytes", GAUGE, "Free objects cached on CPUs and in barns." }, CACHE(ready_bytes), false },
	{ { "cache_slabs", GAUGE, "Slabs." }, CACHE(slabs), false },
	{ { "cache_slab_bytes", GAUGE, "Memory of slabs: allocated, cached and free objects." },
	  CACHE(slab_bytes), false },
	{ { "cache_slabs_taken", COUNTER, "Slabs allocated from free pages." }, CACHE(new_slabs), false },
	{ { "cache_slabs_given_back", COUNTER, "Slabs returned to free pages." }, CACHE(freed_slabs), false },
};

#define GROUP(member)	offsetof(struct km_group_stats, member)
static const struct column group_columns[] = {
	{ { "group_current_bytes", GAUGE, "Memory charged to the group and its descendants." }, GROUP(current), false },
	{ { "group_peak_bytes", GAUGE, "Greatest memory charged so far." }, GROUP(peak), false },
	{ { "group_max_bytes", GAUGE, "Hard limit of charged memory." }, GROUP(max), true },
	{ { "group_high_bytes", GAUGE, "Threads of the group are throttled above this limit." }, GROUP(high), true },
	{ { "group_low_bytes", GAUGE, "Below this bound, reclaim spares the group while other groups have "
					    "reclaimable memory." }, GROUP(low), true },
	{ { "group_min_bytes", GAUGE, "Below this bound, reclaim spares the group." }, GROUP(min), true },
	{ { "group_stock_bytes", GAUGE, "Memory charged in advance in per-CPU stocks." }, GROUP(stock), false },
	{ { "group_failures", COUNTER, "Charges that reached the hard limit." }, GROUP(failcnt), false },
};

static uint64_t *number_at(void *row, const struct column *column)
{
	return (uint64_t *)((char *)row + column->at);
}

static void add_limit(uint64_t *sum, uint64_t limit)
{
	*sum = *sum == MEMCG_NO_LIMIT || limit == MEMCG_NO_LIMIT ? MEMCG_NO_LIMIT :
	       *sum == KM_UNKNOWN_LIMIT || limit == KM_UNKNOWN_LIMIT ? KM_UNKNOWN_LIMIT : *sum + limit;
}

/* Add the numbers of a row to another row. */
static void merge(void *into, void *from, const struct column *columns, size_t count)
{
	for (const struct column *column = columns; column < columns + count; column++)
		(column->is_limit ? add_limit : km_stats_sum)(number_at(into, column), *number_at(from, column));
}

/* ------------------------------------------------------------------ caches of one name */

static unsigned long times(unsigned long n, unsigned long bytes)
{
	unsigned long product;

	return n == KM_UNKNOWN || bytes == KM_UNKNOWN || __builtin_mul_overflow(n, bytes, &product) ? KM_UNKNOWN :
												      product;
}

void km_metrics_cache(struct km_metrics_cache *row, const struct kmem_cache_stats *stats, const char *of)
{
	unsigned long pages = stats->pages_per_slab == (unsigned)KM_UNKNOWN ? KM_UNKNOWN : stats->pages_per_slab;

	km_debug(!of || *of, "a cache has a name");
	*row = (struct km_metrics_cache){
		.object_bytes = stats->size,
		.live_objects = stats->active_objects,
		.live_bytes = times(stats->active_objects, stats->size),
		.ready_bytes = times(stats->shelf_objects, stats->size),
		.slabs = stats->total_slabs,
		.slab_bytes = times(stats->total_slabs, times(pages, KM_PAGE_SIZE)),
		.new_slabs = stats->alloc_slab,
		.freed_slabs = stats->free_slab,
	};
	/* Replace bad characters before comparing names: equal output names are merged. */
	km_text_take(row->name, sizeof(row->name), of ?: stats->name, "", '?');
	km_text_take(row->engine, sizeof(row->engine), stats->engine ?: "", "", '?');
}

static int cache_by_name(const struct km_metrics *metrics, size_t a, size_t b)
{
	return __builtin_strcmp(metrics->caches[a].name, metrics->caches[b].name);
}

static unsigned long weight(const struct km_metrics_cache *cache)
{
	return km_max(known(cache->slab_bytes), known(cache->live_bytes));
}

static int cache_by_weight(const struct km_metrics *metrics, size_t a, size_t b)
{
	unsigned long x = weight(&metrics->caches[a]), y = weight(&metrics->caches[b]);

	return (x < y) - (x > y);
}

/* Merge caches of one name and mark the shown caches. Returns: the number of caches left out. */
static size_t choose_caches(struct km_metrics *metrics)
{
	size_t *order = metrics->order, kept = 0;

	for (size_t i = 0; i < metrics->cache_count; i++)
		order[i] = i;
	sort(metrics, metrics->cache_count, cache_by_name);
	for (size_t i = 0; i < metrics->cache_count; i++) {
		if (kept && !cache_by_name(metrics, order[kept - 1], order[i]))
			merge(&metrics->caches[order[kept - 1]], &metrics->caches[order[i]], cache_columns,
			      km_array_count(cache_columns));
		else
			order[kept++] = order[i];
	}
	sort(metrics, kept, cache_by_weight);
	for (size_t i = 0; i < kept && i < metrics->most_caches; i++)
		metrics->caches[order[i]].shown = true;
	return metrics->caches_left_out + kept - km_min(kept, metrics->most_caches);
}

/* ------------------------------------------------------------------ groups of one path */

/* Replace bad characters in names, and find each group's parent. Groups come as a tree, parents before children. */
static void link_groups(struct km_metrics *metrics)
{
	size_t above[MEMCG_DEPTH_MAX + 1] = { 0 };

	for (size_t i = 0; i < metrics->group_count; i++) {
		struct km_metrics_group *group = &metrics->groups[i];
		size_t depth = km_max(1u, km_min(group->stats.depth, (unsigned)MEMCG_DEPTH_MAX));

		km_text_take(group->stats.name, sizeof(group->stats.name), group->stats.name, "", '?');
		group->above = above[depth - 1];
		km_debug(group->above <= i, "a group follows its parent");
		for (; depth <= MEMCG_DEPTH_MAX; depth++)
			above[depth] = i + 1;
	}
}

static int group_by_current(const struct km_metrics *metrics, size_t a, size_t b)
{
	unsigned long x = known(metrics->groups[a].stats.current), y = known(metrics->groups[b].stats.current);

	return (x < y) - (x > y);
}

#define PATH_BYTES	(MEMCG_DEPTH_MAX * MEMCG_NAME_MAX)

/* The names from the root down, with slashes; a name may contain slashes. Returns: the text, at the end of room. */
static const char *path_of(const struct km_metrics *metrics, size_t place, char room[PATH_BYTES])
{
	char *at = room + PATH_BYTES - 1;

	*at = '\0';
	for (size_t group = place + 1, above; group; group = above) {
		const char *name = metrics->groups[group - 1].stats.name;
		const size_t length = __builtin_strlen(name);

		at -= length;
		__builtin_memcpy(at, name, length);
		above = metrics->groups[group - 1].above;
		if (above)
			*--at = '/';
	}
	km_debug(at >= room, "a path has at most MEMCG_DEPTH_MAX names");
	return at;
}

static int group_by_path(const struct km_metrics *metrics, size_t a, size_t b)
{
	char of_a[PATH_BYTES], of_b[PATH_BYTES];

	return __builtin_strcmp(path_of(metrics, a, of_a), path_of(metrics, b, of_b));
}

static void merge_group(struct km_group_stats *into, struct km_group_stats *from)
{
	merge(into, from, group_columns, km_array_count(group_columns));
	for (int i = 0; i < MEMCG_NR_MEMORY_EVENTS; i++)
		km_stats_sum(&into->events[i], from->events[i]);
}

/* Merge groups of one path and mark the shown groups. Returns: the number of groups left out. */
static size_t choose_groups(struct km_metrics *metrics)
{
	size_t *order = metrics->order, kept = 0;

	link_groups(metrics);
	for (size_t i = 0; i < metrics->group_count; i++)
		order[i] = i;
	sort(metrics, metrics->group_count, group_by_path);
	for (size_t i = 0; i < metrics->group_count; i++) {
		if (kept && !group_by_path(metrics, order[kept - 1], order[i]))
			merge_group(&metrics->groups[order[kept - 1]].stats, &metrics->groups[order[i]].stats);
		else
			order[kept++] = order[i];
	}
	sort(metrics, kept, group_by_current);
	for (size_t i = 0; i < kept && i < metrics->most_groups; i++)
		metrics->groups[order[i]].shown = true;
	return metrics->groups_left_out + kept - km_min(kept, metrics->most_groups);
}

/* ------------------------------------------------------------------ lines */

struct printing {
	struct km_writer *writer;
	const struct km_metrics *metrics;
	bool labelled;			/* the present sample has a label already */
};

static void put(struct printing *printing, const char *text)
{
	km_print_bytes(printing->writer, text, __builtin_strlen(text));
}

static const char *suffix(const struct family *family)
{
	return family->kind == COUNTER ? "_total" : family->kind == INFO ? "_info" : "";
}

static bool has_bytes(const char *name)
{
	static const char unit[] = "_bytes";
	const size_t length = __builtin_strlen(name);

	return length >= sizeof(unit) && !__builtin_strcmp(name + length - (sizeof(unit) - 1), unit);
}

/* In Prometheus's format a family has the name of its samples and no unit, and kind "info" does not exist. */
static void begin_family(struct printing *printing, const struct family *family)
{
	const bool classic = printing->metrics->classic;
	const char *kind = family->kind == COUNTER ? "counter" : family->kind == GAUGE || classic ? "gauge" : "info";
	const char *end = classic ? suffix(family) : "";

	km_print(printing->writer, "# HELP kmem_%s%s %s\n", family->name, end, family->help);
	km_print(printing->writer, "# TYPE kmem_%s%s %s\n", family->name, end, kind);
	if (has_bytes(family->name) && !classic)
		km_print(printing->writer, "# UNIT kmem_%s bytes\n", family->name);
}

/* Escape characters with a meaning in the formats by a backslash. */
static void put_value(struct printing *printing, const char *text)
{
	for (size_t plain; *text; text += plain + (text[plain] != '\0')) {
		plain = 0;
		while (text[plain] && text[plain] != '"' && text[plain] != '\\' && text[plain] != '\n')
			plain++;
		km_print_bytes(printing->writer, text, plain);
		if (text[plain])
			put(printing, text[plain] == '\n' ? "\\n" : text[plain] == '"' ? "\\\"" : "\\\\");
	}
}

static void label(struct printing *printing, const char *name, const char *value)
{
	km_debug(*name, "a label has a name");
	put(printing, printing->labelled ? "," : "{");
	put(printing, name);
	put(printing, "=\"");
	put_value(printing, value);
	put(printing, "\"");
	printing->labelled = true;
}

static void begin_sample(struct printing *printing, const struct family *family)
{
	const struct km_metrics *metrics = printing->metrics;

	put(printing, "kmem_");
	put(printing, family->name);
	put(printing, suffix(family));
	printing->labelled = false;
	for (size_t i = 0; i < metrics->label_count; i++)
		label(printing, metrics->labels[i].name, metrics->labels[i].value);
}

static void end_sample(struct printing *printing, unsigned long value)
{
	km_print(printing->writer, "%s %lu\n", printing->labelled ? "}" : "", value);
}

/* Print one sample of a family, distinguished by one label unless name is NULL. */
static void print_sample(struct printing *printing, const struct family *family, const char *name, const char *value,
			 unsigned long n)
{
	begin_sample(printing, family);
	if (name)
		label(printing, name, value);
	end_sample(printing, n);
}

/* ------------------------------------------------------------------ the process */

static void print_build(struct printing *printing)
{
	static const struct family build = { "build", INFO, "Version and per-CPU discipline of the library." };
	const struct km_print_process *process = &printing->metrics->process;
	char version[32], discipline[32], hardened[192];

	km_text_take(version, sizeof(version), process->version, "", '?');
	km_text_take(discipline, sizeof(discipline), process->discipline, "", '?');
	km_text_take(hardened, sizeof(hardened), process->hardened, "", '?');
	begin_family(printing, &build);
	begin_sample(printing, &build);
	label(printing, "version", version);
	label(printing, "discipline", discipline);
	label(printing, "hardened", hardened);
	end_sample(printing, 1);
}

struct part {
	const char *value;
	unsigned long n;
};

/* Print the known parts of a family, distinguished by a label. */
static void print_parts(struct printing *printing, const struct family *family, const char *name,
			const struct part *parts, size_t count)
{
	bool begun = false;

	for (size_t i = 0; i < count; i++) {
		if (parts[i].n == KM_UNKNOWN)
			continue;
		if (!begun)
			begin_family(printing, family);
		begun = true;
		print_sample(printing, family, name, parts[i].value, parts[i].n);
	}
}

static void print_memory(struct printing *printing)
{
	static const struct family pages = { "page_bytes", GAUGE,
		"Committed pages: used by slabs and large blocks, free and possibly resident, free and not resident." };
	static const struct family resident = { "resident_bytes", GAUGE,
		"Resident memory of used pages, of free pages, and of metadata." };
	const struct km_metrics *metrics = printing->metrics;
	const struct kmem_stats *stats = &metrics->stats;

	print_parts(printing, &pages, "state", (const struct part[]){
		{ "used", times(stats->pages_used, KM_PAGE_SIZE) },
		{ "dirty", times(stats->pages_free_dirty, KM_PAGE_SIZE) },
		{ "clean", times(stats->pages_free_clean, KM_PAGE_SIZE) } }, 3);
	print_parts(printing, &resident, "of", (const struct part[]){
		{ "used", metrics->resident_used }, { "free", metrics->resident_free },
		{ "records", metrics->resident_records } }, 3);
}

static void print_process(struct printing *printing, size_t caches_omitted, size_t groups_omitted)
{
	const struct km_metrics *metrics = printing->metrics;
	const struct kmem_stats *s = &metrics->stats;
	const struct {
		struct family family;
		unsigned long value;
	} rows[] = {
		{ { "caches", GAUGE, "Caches." }, s->caches },
		{ { "caches_omitted", GAUGE, "Smallest caches, left out of this output." }, caches_omitted },
		{ { "groups", GAUGE, "Groups." }, metrics->group_count + metrics->groups_left_out },
		{ { "groups_omitted", GAUGE, "Groups with the least memory, left out of this output." },
		  groups_omitted },
		{ { "reserved_bytes", GAUGE, "Address space reserved for pages." }, s->arena_reserved_bytes },
		{ { "committed_bytes", GAUGE, "Address space of pages that is accessible." },
		  s->arena_committed_bytes },
		{ { "large_blocks", GAUGE, "Allocated blocks of whole pages, outside of caches." }, s->large_blocks },
		{ { "large_bytes", GAUGE, "Bytes of these blocks." }, s->large_bytes },
		{ { "mapped_blocks", GAUGE, "Huge blocks among the large blocks, each a mapping of its own." },
		  s->mapped_blocks },
		{ { "mapped_bytes", GAUGE, "Bytes of these huge blocks." }, s->mapped_bytes },
		{ { "meta_bytes", GAUGE, "Metadata of the library." }, s->meta_bytes },
		{ { "purged_bytes", COUNTER, "Memory returned to the system." }, times(s->purged_pages, KM_PAGE_SIZE) },
		{ { "slabs_taken", COUNTER, "Slabs allocated by all caches, destroyed caches included." },
		  metrics->new_slabs },
		{ { "slabs_given_back", COUNTER, "Slabs freed by all caches, destroyed caches included." },
		  metrics->freed_slabs },
		{ { "guarded_objects", GAUGE, "Guarded objects, allocated now." }, metrics->process.guard.live },
		{ { "guarded_samples", COUNTER, "Guarded objects, allocated since the start." },
		  metrics->process.guard.samples },
		{ { "guarded_mistakes", COUNTER, "Reported misuses of guarded objects." },
		  metrics->process.guard.reports },
		{ { "bind_failures", COUNTER, "Pieces of 4 MiB that the system refused to bind to their node." },
		  s->bind_failures },
		{ { "rss_bytes", GAUGE, "Resident memory of the process." }, metrics->rss },
	};

	for (size_t i = 0; i < km_array_count(rows); i++)
		print_parts(printing, &rows[i].family, NULL, &(struct part){ NULL, rows[i].value }, 1);
}

/* ------------------------------------------------------------------ caches and groups */

static void print_cache_column(struct printing *printing, const struct column *column)
{
	const struct km_metrics *metrics = printing->metrics;

	begin_family(printing, &column->family);
	for (size_t i = 0; i < metrics->cache_count; i++) {
		struct km_metrics_cache *cache = &metrics->caches[i];

		if (cache->shown && *number_at(cache, column) != KM_UNKNOWN)
			print_sample(printing, &column->family, "cache", cache->name, *number_at(cache, column));
	}
}

static void print_caches(struct printing *printing)
{
	static const struct family info = { "cache", INFO, "The engine that makes the cache's objects." };
	const struct km_metrics *metrics = printing->metrics;

	if (!metrics->cache_count)
		return;
	begin_family(printing, &info);
	for (size_t i = 0; i < metrics->cache_count; i++)
		if (metrics->caches[i].shown) {
			begin_sample(printing, &info);
			label(printing, "cache", metrics->caches[i].name);
			label(printing, "engine", metrics->caches[i].engine);
			end_sample(printing, 1);
		}
	print_cache_column(printing, &object_bytes);
	for (size_t i = 0; i < km_array_count(cache_columns); i++)
		print_cache_column(printing, &cache_columns[i]);
}

static void group_label(struct printing *printing, size_t place)
{
	char room[PATH_BYTES];

	label(printing, "group", path_of(printing->metrics, place, room));
}

/* Returns: whether the number is printed: a low or min of 0 means no limit. */
static bool is_there(uint64_t n, bool limit)
{
	return limit ? n && n != MEMCG_NO_LIMIT && n != KM_UNKNOWN_LIMIT : n != KM_UNKNOWN;
}

static void print_events(struct printing *printing)
{
	static const struct family family = { "group_events", COUNTER,
					      "Events of the group and its descendants, as in memory.events." };
	const struct km_metrics *metrics = printing->metrics;

	begin_family(printing, &family);
	for (size_t i = 0; i < metrics->group_count; i++)
		for (int event = 0; metrics->groups[i].shown && event < MEMCG_NR_MEMORY_EVENTS; event++) {
			if (metrics->groups[i].stats.events[event] == KM_UNKNOWN)
				continue;
			begin_sample(printing, &family);
			group_label(printing, i);
			label(printing, "event", km_memcg_event_names[event]);
			end_sample(printing, metrics->groups[i].stats.events[event]);
		}
}

static void print_groups(struct printing *printing)
{
	const struct km_metrics *metrics = printing->metrics;

	if (!metrics->group_count)
		return;
	for (size_t c = 0; c < km_array_count(group_columns); c++) {
		const struct column *column = &group_columns[c];

		begin_family(printing, &column->family);
		for (size_t i = 0; i < metrics->group_count; i++) {
			struct km_metrics_group *group = &metrics->groups[i];
			const uint64_t n = *number_at(&group->stats, column);

			if (!group->shown || !is_there(n, column->is_limit))
				continue;
			begin_sample(printing, &column->family);
			group_label(printing, i);
			end_sample(printing, n);
		}
	}
	print_events(printing);
}

/* ------------------------------------------------------------------ all of it */

bool km_metrics_is_label(const char *name)
{
	static const char *const own[] = { "cache", "group", "engine", "event", "state", "of", "version", "discipline",
					   "hardened" };

	for (size_t i = 0; i < km_array_count(own); i++)
		if (!__builtin_strcmp(own[i], name))
			return false;
	if (!*name || (*name >= '0' && *name <= '9') || (name[0] == '_' && name[1] == '_'))
		return false;
	for (; *name; name++)
		if (*name != '_' && (*name < '0' || *name > '9') && ((*name | 0x20) < 'a' || (*name | 0x20) > 'z'))
			return false;
	return true;
}

/* Sum the slab counters over all caches, before caches are merged. */
static void sum_slabs(struct km_metrics *metrics)
{
	metrics->new_slabs = metrics->process.past_new_slabs;
	metrics->freed_slabs = metrics->process.past_freed_slabs;
	for (size_t i = 0; i < metrics->cache_count; i++) {
		km_stats_sum(&metrics->new_slabs, metrics->caches[i].new_slabs);
		km_stats_sum(&metrics->freed_slabs, metrics->caches[i].freed_slabs);
	}
}

void km_metrics_print(struct km_writer *writer, struct km_metrics *metrics)
{
	struct printing printing = { .writer = writer, .metrics = metrics };

	sum_slabs(metrics);
	size_t caches = choose_caches(metrics), groups = choose_groups(metrics);

	print_build(&printing);
	print_memory(&printing);
	print_process(&printing, caches, groups);
	print_caches(&printing);
	print_groups(&printing);
	if (!metrics->classic)
		put(&printing, "# EOF\n");
}
