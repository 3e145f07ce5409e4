/* The worker over a kmem_cache whose objects somebody pays for, or nobody. */
#include "api_account_cache.h"
#include "work_bulk.h"
#include "work_cost.h"
#include "work_account.h"
#include "work_kfree_bulk.h"

static void account_batches(const struct cell *cell, uint64_t (*window)(const struct cell *, uint64_t))
{
	bench_pin();
	bulk_api = api_open(cell->size);
	account_cost(window, cell, cell->batch);
	api_close(bulk_api);
}

static void account_bulk(const struct cell *cell)
{
	account_batches(cell, bulk_window);
}

static void account_kfree_bulk(const struct cell *cell)
{
	account_batches(cell, kfree_bulk_window);
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
