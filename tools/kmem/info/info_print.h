/*
 * How a snapshot is written: as slabinfo, JSON, or a table of bytes; and the list of processes.
 */
#ifndef KMEM_COMMAND_INFO_PRINT_H
#define KMEM_COMMAND_INFO_PRINT_H

#include "info/info.h"
#include "info/table.h"
#include "inspect/stats_print.h"

enum info_style {
	INFO_SLABINFO, INFO_JSON, INFO_MEMORY,
	INFO_TREE, INFO_TREE_JSON,	/* of groups */
	INFO_FILES,			/* the texts of the cgroup files of each group */
};

/* "1.5 MiB"; each caller's text has its own buffer. */
struct info_bytes {
	char text[24];
};
struct info_bytes info_bytes(unsigned long bytes);
#define BYTES(n) (info_bytes(n).text)
/* "1536"; of both what is not known is a dash. */
struct info_bytes info_count(unsigned long count);
#define COUNT(n) (info_count(n).text)

/* What /proc/PID/comm says, as a terminal may get it; "?": nothing. */
void info_process_name(unsigned pid, char name[64]);
/* Engine slob: its objects lie in pages that all caches share, and in no slab. */
bool info_in_shared_pages(const struct info_cache *cache);

/* On standard output: 0 or an errno. memory: what the kernel has of it, for INFO_MEMORY; NULL: of a file. */
int info_print(const struct snapshot *snapshot, enum info_style style, const struct info_memory *memory);

/* Of several processes. */
struct info_list {
	enum info_style style;
	struct km_writer writer;	/* JSON */
	struct table *table;		/* a row for each; NULL: other styles */
	bool more;			/* there was one already */
};
struct info_list info_list_begin(enum info_style style);
/* other: its libkmem is of another build, and only its version is known. */
void info_list_row(struct info_list *list, const struct snapshot *snapshot, bool other);
/* 0 or an errno. */
int info_list_end(struct info_list *list);

/* ---- info/group_tree.c */

/* Groups' names as they may go to a terminal, for the process might have written anything there; of one whose sibling
 * has the same, with its number behind it. */
struct info_name {
	char text[MEMCG_NAME_MAX + 12];
};
struct info_names {
	const struct km_group_stats *first;
	bool *shared;			/* of each group: a sibling has its name */
};
struct info_names info_group_names(const struct snapshot *snapshot);	/* `shared` is the caller's */
struct info_name info_group_name(const struct info_names *names, const struct km_group_stats *group);

/* The cgroup files of a group, each "memory." and its name, and their texts. False: its build does not tell. */
enum info_group_file {
	INFO_GROUP_CURRENT, INFO_GROUP_PEAK, INFO_GROUP_MAX, INFO_GROUP_HIGH, INFO_GROUP_LOW, INFO_GROUP_MIN,
	INFO_GROUP_STAT, INFO_GROUP_EVENTS, INFO_GROUP_EVENTS_LOCAL, INFO_GROUP_FILES
};
#define INFO_GROUP_TEXT 400
extern const char *const info_group_files[INFO_GROUP_FILES];
bool info_group_text(const struct km_group_stats *group, unsigned file, char text[INFO_GROUP_TEXT]);

/* A snapshot's groups, in one of the last three styles above: 0 or an errno. */
int info_tree(const struct snapshot *snapshot, enum info_style style);
/* One of several processes, and which. */
void info_tree_list_row(struct info_list *list, const struct snapshot *snapshot, const char *name);

#endif
