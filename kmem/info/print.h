/*
 * How a snapshot is written: as slabinfo, JSON, or a table of bytes; and the list of processes.
 */
#ifndef KMEM_COMMAND_INFO_PRINT_H
#define KMEM_COMMAND_INFO_PRINT_H

#include "info/info.h"
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
/* Columns of the terminal that standard output is, for rows that fit; 0: it is none. */
int info_columns(void);
/* What the system calls the process, or "?". */
void info_process_name(unsigned pid, char name[64]);

/* On standard output: 0 or an errno. live: the process itself can be looked at for more. */
int info_print(const struct snapshot *snapshot, enum info_style style, bool live);

void info_list_head(struct km_writer *writer, enum info_style style);
/* other: its libkmem is of another build, and only its version is known. */
void info_list_row(struct km_writer *writer, enum info_style style, const struct snapshot *snapshot,
		   bool other, bool more);
/* 0 or an errno. */
int info_list_tail(struct km_writer *writer, enum info_style style);

/* ---- info/tree.c: a snapshot's groups, in one of the last three styles above: 0 or an errno. */
int info_tree(const struct snapshot *snapshot, enum info_style style);
/* One of many processes, and which; more: another went before. */
void info_tree_list_row(struct km_writer *writer, enum info_style style, const struct snapshot *snapshot, bool more);

#endif
