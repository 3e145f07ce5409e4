/*
 * How a snapshot is written: as slabinfo, JSON, or a table of bytes; and the list of processes.
 */
#ifndef KMEM_COMMAND_INFO_PRINT_H
#define KMEM_COMMAND_INFO_PRINT_H

#include "info/info.h"
#include "info/table.h"
#include "watch/print.h"

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

/* What /proc/PID/comm says, as a terminal may get it; "?": nothing. */
void info_process_name(unsigned pid, char name[64]);
/* Engine slob: its objects lie in pages that all caches share, and in no slab. */
bool info_in_shared_pages(const struct info_cache *cache);

/* On standard output: 0 or an errno. live: the process itself can be looked at for more. */
int info_print(const struct snapshot *snapshot, enum info_style style, bool live);

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

/* ---- info/tree.c: a snapshot's groups, in one of the last three styles above: 0 or an errno. */
int info_tree(const struct snapshot *snapshot, enum info_style style);
/* One of several processes, and which. */
void info_tree_list_row(struct info_list *list, const struct snapshot *snapshot, const char *name);

#endif
