/*
 * table.h: print tables and trees to standard output, at most as wide as the terminal, by libsmartcols (table.c). In
 * a build without libsmartcols, the command prints one line with the reason and ends (table_none.c).
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
	TABLE_TREE = 4,		/* rows below another row are indented by two columns */
};

/*
 * Make a table. `heads`: print a line of column heads. `gap`: text between two columns. Without memory, all functions
 * of this file end the command.
 */
struct table *table_new(bool heads, const char *gap);
void table_column(struct table *table, const char *head, unsigned flags);
/* Add a row below the row `above` (NULL: at the top). `cells`: one text for each column; NULL: blank. Rows with the
 * same `above` are sorted by key, the largest first. */
struct table_row *table_row(struct table *table, struct table_row *above, int64_t key, const char *const *cells);
/* Print the table to stdout and free the table. */
void table_print(struct table *table);

#endif
