/* table_none.c: table.h without libsmartcols (musl-gcc, another processor): table_new ends the command. */
#include "info/table.h"

#include <stdlib.h>

#include "command.h"

struct table *table_new(bool heads, const char *gap)
{
	exit(kmem_failed(1, "info", "this kmem is built without libsmartcols and has no tables; use --json, "
				    "--slabinfo or --files"));
}

void table_column(struct table *table, const char *head, unsigned flags)
{
}

struct table_row *table_row(struct table *table, struct table_row *above, int64_t key, const char *const *cells)
{
	return NULL;
}

void table_print(struct table *table)
{
}
