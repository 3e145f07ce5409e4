/*
 * account_scope.c: charges of allocations without __GFP_ACCOUNT: all allocations of a thread, and the blocks of
 * malloc. Invariant: an object uncharged at its allocation is never refunded. A cache with both kinds of objects has
 * an owner word for each object; charged blocks of malloc come from separate caches, with no uncharged objects.
 */
#include <errno.h>
#include <kmem/memcg.h>

#include "memcg_group.h"

static int begin_each(struct kmem_cache *cache, void *arg km_unused)
{
	km_charge_begin(cache, true);
	return 0;
}

/* Begins charging of all caches. Under the registry lock a cache is either listed here, or sees the flag at its
 * creation. */
static km_cold void charge_everything(void)
{
	if (!km_boot())
		return;
	km_registry_scope();
	if (!(km_account_asks & KM_ASKS_THREADS)) {
		km_store(&km_account_asks, km_account_asks | KM_ASKS_THREADS);
		km_registry_each(begin_each, NULL);
	}
}

bool mem_cgroup_account_all(bool on)
{
	bool was = km_account_here;

	if (on && km_unlikely(!(km_load(&km_account_asks) & KM_ASKS_THREADS))) {
		/* A visit of all caches has the registry locked. */
		if (km_thread.busy)
			return was;
		charge_everything();
	}
	km_account_here = on;
	return was;
}

/* If a group is charged for the whole process, malloc's ordinary caches are charged already. */
int km_memcg_account_malloc(bool on)
{
	if (!km_malloc_ops || km_options.engine->shared_pages)
		return -EOPNOTSUPP;
	if (!km_options.account)
		km_malloc_ops->account(on);
	return 0;
}

int mem_cgroup_account_malloc(bool on)
{
	/* A visit of all caches has the registry locked. */
	if (km_thread.busy)
		return -EBUSY;
	if (!km_boot() || !km_malloc_ops)
		return -EOPNOTSUPP;
	struct km_busy_was was = km_busy_begin();
	km_registry_lock();
	int error = km_memcg_account_malloc(on);
	km_registry_unlock();
	km_busy_end(was);
	/* Cached large blocks would otherwise stay charged to groups until the next flush. */
	if (!error && !on && !km_options.account)
		km_memcg_flush_pcs(&km_memcg_root);
	return error;
}
