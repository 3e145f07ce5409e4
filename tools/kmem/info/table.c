/* table.c: tables by libsmartcols. Invariant: cells are printed unchanged; callers must remove control characters. */
#include "info/table.h"

#include <libsmartcols/libsmartcols.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "command.h"

static struct libscols_table *scols(struct table *table)
{
	return (struct libscols_table *)table;
}

/* Every error of libsmartcols in this file means: out of memory. */
static void need(int error)
{
	kmem_need(error ? NULL : "");
}

static int by_key(struct libscols_cell *a, struct libscols_cell *b, void *data)
{
	int64_t x = (intptr_t)scols_cell_get_userdata(a), y = (intptr_t)scols_cell_get_userdata(b);

	return x != y ? (x < y) - (x > y) : strcmp(scols_cell_get_data(a), scols_cell_get_data(b));
}

struct table *table_new(bool heads, const char *gap)
{
	struct libscols_table *table = kmem_need(scols_new_table());
	struct libscols_symbols *symbols = kmem_need(scols_new_symbols());

	/* Names are UTF-8; libsmartcols needs the locale for their width. */
	setlocale(LC_CTYPE, "C.UTF-8");
	need(scols_symbols_set_branch(symbols, "  "));
	need(scols_symbols_set_vertical(symbols, "  "));
	need(scols_symbols_set_right(symbols, "  "));
	need(scols_table_set_symbols(table, symbols));
	scols_unref_symbols(symbols);
	need(scols_table_set_column_separator(table, gap));
	need(scols_table_enable_noencoding(table, 1));
	need(scols_table_enable_noheadings(table, !heads));
	return (struct table *)table;
}

void table_column(struct table *table, const char *head, unsigned flags)
{
	struct libscols_column *column = kmem_need(scols_table_new_column(scols(table), head, 0,
		(flags & TABLE_RIGHT ? SCOLS_FL_RIGHT : 0) | (flags & TABLE_CUT ? SCOLS_FL_TRUNC : 0) |
		(flags & TABLE_TREE ? SCOLS_FL_TREE : 0)));

	need(scols_column_set_cmpfunc(column, by_key, NULL));
}

struct table_row *table_row(struct table *table, struct table_row *above, int64_t key, const char *const *cells)
{
	struct libscols_line *line = kmem_need(scols_table_new_line(scols(table), (struct libscols_line *)above));

	need(scols_cell_set_userdata(scols_line_get_cell(line, 0), (void *)(intptr_t)key));
	for (size_t i = 0; i < scols_table_get_ncols(scols(table)); i++)
		need(cells[i] ? scols_line_set_data(line, i, cells[i]) : 0);
	return (struct table_row *)line;
}

/* Print the heads of a table without rows: libsmartcols prints nothing in this case. */
static void print_heads(struct libscols_table *table)
{
	for (size_t i = 0; i < scols_table_get_ncols(table); i++)
		printf("%s%s", i ? scols_table_get_column_separator(table) : "",
		       scols_column_get_name(scols_table_get_column(table, i)));
	printf("\n");
}

void table_print(struct table *table)
{
	if (scols_table_is_empty(scols(table)) && !scols_table_is_noheadings(scols(table)))
		print_heads(scols(table));
	need(scols_sort_table(scols(table), scols_table_get_column(scols(table), 0)));
	scols_print_table(scols(table));
	scols_unref_table(scols(table));
}
