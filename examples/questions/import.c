/*
 * import.c: a server with a limit on one part, for docs/limit-a-part.md. import_rows() stands for code of another
 * project, as a parser: the code calls malloc, reports a failure and does not know libkmem. The argument is the limit
 * of this part in MiB. Without an argument the part has no limit.
 */
#include <kmem/memcg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS 200000

struct row {
	struct row *next;
	char text[1000];
};

static struct row *table;

/* ------------------------------------------------------------------ the part */

static void free_rows(void)
{
	for (struct row *row = table, *next; row; row = next) {
		next = row->next;
		free(row);
	}
	table = NULL;
}

/* Returns the number of rows; the table is empty if a row was refused. */
static int import_rows(void)
{
	for (int i = 0; i < ROWS; i++) {
		struct row *row = malloc(sizeof(*row));

		if (!row) {
			printf("import: row %d: out of memory\n", i);
			free_rows();
			return 0;
		}
		memset(row->text, 'x', sizeof(row->text));
		row->next = table;
		table = row;
	}
	return ROWS;
}

/* ------------------------------------------------------------------ the server */

static int import_with_limit(uint64_t limit)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "import", 0);

	if (!group || mem_cgroup_set_max(group, limit))
		return 0;
	MEMCG_SCOPE(group);			/* to the end of this function */
	return import_rows();
}

static void handle_request(void)
{
	char *volatile request = malloc(100000);

	printf("request: %s\n", request ? "handled" : "out of memory");
	free(request);
}

int main(int argc, char **argv)
{
	mem_cgroup_account_malloc(true);	/* malloc follows the active group of each thread */
	int rows = argc > 1 ? import_with_limit(strtoull(argv[1], NULL, 10) << 20) : import_rows();

	printf("import: %d rows\n", rows);
	handle_request();
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
