/*
 * openmetrics.h: the numbers as OpenMetrics 1.0, or in Prometheus' own text format, whoever took them: the library in
 * its own process (openmetrics_own.c), or `kmem metrics` from outside of it.
 */
#ifndef KM_INSPECT_OPENMETRICS_H
#define KM_INSPECT_OPENMETRICS_H

#include "stats_print.h"

/* Of so many caches, and so many groups, there are series; where there are more: of those with the most memory. */
#define KM_METRICS_MOST	1000u

/* All caches of one name: a private group's count as the cache that it has them of. */
struct km_metrics_cache {
	char name[32], engine[16];
	unsigned long object_bytes;
	unsigned long live_objects, live_bytes, ready_bytes, slabs, slab_bytes, new_slabs, freed_slabs;
	bool shown;
};

struct km_metrics_group {
	struct km_group_stats stats;
	uint64_t key;		/* of its path */
	size_t above;		/* the place of the group that it is in, plus 1 */
	bool shown;
};

struct km_metrics_label {
	const char *name, *value;
};

struct km_metrics {
	bool classic;		/* Prometheus' text format 0.0.4; else OpenMetrics */
	const struct km_metrics_label *labels;	/* that each series has */
	size_t label_count;
	struct km_print_process process;
	struct kmem_stats stats;
	/* In memory, as the kernel says, of ours and of the process; KM_UNKNOWN: nobody looked. */
	unsigned long resident_used, resident_free, resident_records, rss;
	struct km_metrics_cache *caches;
	size_t cache_count, most_caches;
	struct km_metrics_group *groups;	/* each before those below it */
	size_t group_count, most_groups;
	size_t caches_left_out, groups_left_out;	/* for which the caller had no room */
	unsigned long new_slabs, freed_slabs;	/* of all caches, ever: found out as it is written */
	size_t *order;		/* room for as many as there are caches, or groups, whichever are more */
};

/* The row of a cache. `of`: by whose name it goes, if not its own. */
void km_metrics_cache(struct km_metrics_cache *row, const struct kmem_cache_stats *stats, const char *of);
/* Write all; rows change: those of one name become one. The writer's errors are the caller's. */
void km_metrics_print(struct km_writer *writer, struct km_metrics *metrics);
/* May a label of the caller's have that name? */
bool km_metrics_is_label(const char *name);

#endif
