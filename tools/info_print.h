/*
 * How a snapshot is written: as slabinfo, JSON, or a table of bytes; and the list of processes.
 */
#ifndef TOOLS_INFO_PRINT_H
#define TOOLS_INFO_PRINT_H

#include "info.h"
#include "watch/print.h"

enum info_style { INFO_SLABINFO, INFO_JSON, INFO_MEMORY };

/* On standard output: 0 or an errno. live: the process itself can be looked at for more. */
int info_print(const struct snapshot *snapshot, enum info_style style, bool live);

void info_list_head(struct km_writer *writer, enum info_style style);
/* other: its libkmem is of another build, and only its version is known. */
void info_list_row(struct km_writer *writer, enum info_style style, const struct snapshot *snapshot,
		   bool other, bool more);
/* 0 or an errno. */
int info_list_tail(struct km_writer *writer, enum info_style style);

#endif
