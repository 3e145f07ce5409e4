/*
 * sqlite.c: a thousand tenants. Each tenant is a connection to a database in memory and a group with a limit of
 * 1 MiB; all tenants share a limit of 256 MiB. One query allocates too much: SQLite returns SQLITE_NOMEM and rolls
 * the statement back. All other queries get their results.
 *
 * SQLite has one allocator for all connections and does not pass the connection to the allocator. So each function
 * with queries has a MEMCG_SCOPE: the tenant's group is active in this thread until the function returns.
 */
#define TENANTS	1000
#define EACH	(1ul << 20)
#define ALL	(256ul << 20)
#define HOG	500		/* the tenant with the query that allocates too much */

#include <sqlite3.h>

#include "tenants.h"

#define COUNT "WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count LIMIT %lld) "
static const char fill[] = "CREATE TABLE squares(n INTEGER PRIMARY KEY, square INTEGER, text TEXT);"
			   "INSERT INTO squares " COUNT "SELECT n, n * n, n || ' squared' FROM count";
static const char sum[] = "SELECT sum(square) FROM squares WHERE n <= %lld";
static const char greedy[] = "INSERT INTO squares " COUNT "SELECT -n, n, zeroblob(1000) FROM count";

static struct {
	sqlite3 *db;
	long long result;
	int error;
} tenant[TENANTS];

/* ------------------------------------------------------------------ SQLite allocates from libkmem, charged */

static void *get(int bytes)
{
	return kvmalloc((size_t)bytes, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
}

static void *resize(void *block, int bytes)
{
	return kvrealloc(block, (size_t)bytes, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
}

static void give(void *block)
{
	kvfree(block);
}

static int usable(void *block)
{
	return (int)ksize(block);
}

static int round_up(int bytes)
{
	return (int)kmalloc_size_roundup((size_t)bytes);
}

static int start(void *unused)
{
	(void)unused;
	return SQLITE_OK;
}

static const sqlite3_mem_methods ours = { get, give, resize, usable, round_up, start, NULL, NULL };

/* ------------------------------------------------------------------ tenants */

static int take_number(void *result, int columns, char **values, char **names)
{
	(void)columns, (void)names;
	*(long long *)result = values[0] ? atoll(values[0]) : 0;
	return 0;
}

/* Runs a query; `number` replaces %lld in the text. */
static int query(int i, const char *text, long long number)
{
	char sql[300];

	snprintf(sql, sizeof(sql), text, number);
	return sqlite3_exec(tenant[i].db, sql, take_number, &tenant[i].result, NULL);
}

static bool right(int i)
{
	long long n = 2 * i + 1;

	return !tenant[i].error && tenant[i].result == n * (n + 1) * (2 * n + 1) / 6;
}

static void serve(int i)
{
	MEMCG_SCOPE(group[i]);

	tenant[i].error = sqlite3_open(":memory:", &tenant[i].db) ?: query(i, fill, 2 * i + 1)
								  ?: query(i, sum, 2 * i + 1);
	if (i == HOG && right(i))
		tenant[i].error = query(i, greedy, 1000000000);
}

static void serve_again(int i)
{
	MEMCG_SCOPE(group[i]);

	tenant[i].result = -1;
	tenant[i].error = query(i, sum, 1000000000);
}

int main(void)
{
	int good = 0;

	must(sqlite3_config(SQLITE_CONFIG_MALLOC, &ours) == SQLITE_OK && sqlite3_initialize() == SQLITE_OK, "sqlite");
	open_groups("databases");
	serve_all(serve);
	for (int i = 0; i < TENANTS; i++)
		if (right(i))
			good++;
		else
			printf("tenant %d: %s\n", i, tenant[i].error ? sqlite3_errstr(tenant[i].error) : "wrong");
	printf("%d of %d databases are right\n", good, TENANTS);
	print_tree(4);

	serve_again(HOG);
	printf("tenant %d, the next query: %s\n", HOG, right(HOG) ? "right" : "wrong");
	/* Any thread may free: the charge goes back to the group that was charged. */
	for (int i = 0; i < TENANTS; i++)
		sqlite3_close(tenant[i].db);
	close_groups();
	return 0;
}
