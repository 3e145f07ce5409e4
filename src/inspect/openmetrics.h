/*
 * openmetrics.h: output of statistics as OpenMetrics 1.0 or in Prometheus's text format, shared by the library
 * (openmetrics_own.c) and `kmem metrics`.
 */
#ifndef KM_INSPECT_OPENMETRICS_H
#define KM_INSPECT_OPENMETRICS_H

#include "stats_print.h"

/* Maximum number of caches, and of groups, with series. Beyond the maximum, the largest by memory are shown. */
#define KM_METRICS_MOST	1000u

/* Sum over all caches of one name. A private group's cache counts under the name of its parent cache. */
struct km_metrics_cache {
	char name[32], engine[16];
	unsigned long object_bytes;
	unsigned long live_objects, live_bytes, ready_bytes, slabs, slab_bytes, new_slabs, freed_slabs;
	bool shown;
};

struct km_metrics_group {
	struct km_group_stats stats;
	size_t above;		/* index of the parent group in `groups`, plus 1; 0: none */
	bool shown;		/* chosen for the output; false at first */
};

struct km_metrics_label {
	const char *name, *value;
};

struct km_metrics {
	bool classic;		/* Prometheus's text format 0.0.4; else OpenMetrics */
	const struct km_metrics_label *labels;	/* labels added to every series */
	size_t label_count;
	struct km_print_process process;
	struct kmem_stats stats;
	/* Resident bytes of the library and of the process, from the kernel; KM_UNKNOWN: not determined. */
	unsigned long resident_used, resident_free, resident_records, rss;
	struct km_metrics_cache *caches;
	size_t cache_count, most_caches;
	struct km_metrics_group *groups;	/* groups, parents before their children */
	size_t group_count, most_groups;
	size_t caches_left_out, groups_left_out;	/* caches and groups for which the caller had no room */
	unsigned long new_slabs, freed_slabs;	/* sums over all caches, computed during the output */
	size_t *order;		/* array for sorting, with room for max(caches, groups) */
};

/* Fill the row of a cache. of: name to use instead of the cache's own name, or NULL. */
void km_metrics_cache(struct km_metrics_cache *row, const struct kmem_cache_stats *stats, const char *of);
/* Prints all families of samples. Merges rows of the same name in place. The caller must check writer->error. */
void km_metrics_print(struct km_writer *writer, struct km_metrics *metrics);
/* Returns: true if the caller may use the name for a label. */
bool km_metrics_is_label(const char *name);

#endif
