/* The worker over a kmem_cache with charged or uncharged objects. */
#include "api/account_cache.h"
#include "works/bulk.h"
#include "works/pair.h"
#include "works/account.h"
#include "works/kfree_bulk.h"

static void account_bulk(const struct cell *cell)
{
	account_cell(cell, bulk_window, cell->batch);
}

static void account_kfree_bulk(const struct cell *cell)
{
	account_cell(cell, kfree_bulk_window, cell->batch);
}

const struct work bench_works[] = {
	{ "pair", account_pair },
	{ "loop", account_loop },
	{ "bulk", account_bulk },
	{ "kfree-bulk", account_kfree_bulk },
	{ "groups", account_groups },
	{ "churn", account_churn },
	{ NULL, NULL },
};
