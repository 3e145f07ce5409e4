/*
 * info_print.h: print a snapshot as slabinfo, as JSON, or as a table of bytes; print the list of processes.
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

/* Text of a number of bytes, such as "1.5 MiB"; each text has a separate buffer. */
struct info_bytes {
	char text[24];
};
struct info_bytes info_bytes(unsigned long bytes);
#define BYTES(n) (info_bytes(n).text)
/* Format a plain number, such as "1536". Both functions print an unknown number as a dash. */
struct info_bytes info_count(unsigned long count);
#define COUNT(n) (info_count(n).text)

/* Read the process's name from /proc/PID/comm, made printable; "?" if the file can't be read. */
void info_process_name(unsigned pid, char name[64]);
/* Returns: true for a cache of engine slob with objects in pages shared by all caches, outside slabs. */
bool info_in_shared_pages(const struct info_cache *cache);

/* Print to standard output. memory: resident memory for INFO_MEMORY; NULL for a file. Returns: 0 or an errno. */
int info_print(const struct snapshot *snapshot, enum info_style style, const struct info_memory *memory);

/* List of several processes. */
struct info_list {
	enum info_style style;
	struct km_writer writer;	/* JSON */
	struct table *table;		/* a row for each process; NULL: other styles */
	bool more;			/* the list has a process already */
};
struct info_list info_list_begin(enum info_style style);
/* other: the process has another build of libkmem, and only the version is known. */
void info_list_row(struct info_list *list, const struct snapshot *snapshot, bool other);
/* Returns: 0 or an errno. */
int info_list_end(struct info_list *list);

/* ---- info/group_tree.c */

/* Printable names of groups, because the process may write any bytes to a name. If another child of the same parent
 * has the same name, the group's number follows. */
struct info_name {
	char text[MEMCG_NAME_MAX + 12];
};
struct info_names {
	const struct km_group_stats *first;
	bool *shared;			/* for each group: another child of the parent has the same name */
};
struct info_names info_group_names(const struct snapshot *snapshot);	/* the caller frees `shared` */
struct info_name info_group_name(const struct info_names *names, const struct km_group_stats *group);

/* cgroup files of a group: info_group_files has the names without "memory.". info_group_text formats the text of one
 * file. Returns: false if the target's build lacks the numbers. */
enum info_group_file {
	INFO_GROUP_CURRENT, INFO_GROUP_PEAK, INFO_GROUP_MAX, INFO_GROUP_HIGH, INFO_GROUP_LOW, INFO_GROUP_MIN,
	INFO_GROUP_STAT, INFO_GROUP_EVENTS, INFO_GROUP_EVENTS_LOCAL, INFO_GROUP_FILES
};
#define INFO_GROUP_TEXT 400
extern const char *const info_group_files[INFO_GROUP_FILES];
bool info_group_text(const struct km_group_stats *group, unsigned file, char text[INFO_GROUP_TEXT]);

/* Print a snapshot's groups, in one of the last three styles above. Returns: 0 or an errno. */
int info_tree(const struct snapshot *snapshot, enum info_style style);
/* Print the groups of one of several processes, with the process's number and name. */
void info_tree_list_row(struct info_list *list, const struct snapshot *snapshot, const char *name);

#endif
