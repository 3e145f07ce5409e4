/*
 * Tables on standard output, as wide as a terminal has room for, and trees in them: by libsmartcols (table.c). Where
 * that was not there to build with, the command ends with one line that says so (table_none.c).
 */
#ifndef KMEM_COMMAND_TABLE_H
#define KMEM_COMMAND_TABLE_H

#include <stdbool.h>
#include <stdint.h>

struct table;
struct table_row;

enum {
	TABLE_RIGHT = 1,	/* figures */
	TABLE_CUT = 2,		/* cut where the terminal is too narrow */
	TABLE_TREE = 4,		/* what is below another row stands two columns further in */
};

/*
 * With a line of heads, or without; `gap` stands between columns. Memory that is not to be had ends the command, here
 * and below.
 */
struct table *table_new(bool heads, const char *gap);
void table_column(struct table *table, const char *head, unsigned flags);
/* A cell for each column; NULL: blank. Of the rows below one (NULL: below none) the largest key is first. */
struct table_row *table_row(struct table *table, struct table_row *above, int64_t key, const char *const *cells);
/* To stdout, and away with it. */
void table_print(struct table *table);

#endif
