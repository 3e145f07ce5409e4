/*
 * account_scope.c: what is paid for though its gfp does not say so: everything that a thread allocates, and the
 * blocks of malloc. Invariant: what nobody paid for when it was allocated is paid back by nobody. A cache that may
 * have such objects says of each whose it is; malloc's that are paid for come from caches of their own, which have
 * none.
 */
#include <errno.h>
#include <kmem/memcg.h>

#include "memcg_group.h"

static int begin_each(struct kmem_cache *cache, void *arg km_unused)
{
	km_charge_begin(cache, true);
	return 0;
}

/* Under the registry's lock: a cache is made before, and begins here, or after, and begins when it is made. */
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
		if (km_thread_busy)
			return was;
		charge_everything();
	}
	km_account_here = on;
	return was;
}

/* Where a group pays for the whole process malloc's ordinary caches are paid for, and nothing is left to be done. */
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
	if (km_thread_busy)
		return -EBUSY;
	if (!km_boot() || !km_malloc_ops)
		return -EOPNOTSUPP;
	struct km_busy_was was = km_busy_begin();
	km_registry_lock();
	int error = km_memcg_account_malloc(on);
	km_registry_unlock();
	km_busy_end(was);
	/* Blocks that lie ready in groups' names would stay paid for until somebody asks. */
	if (!error && !on && !km_options.account)
		km_memcg_flush_pcs(&km_memcg_root);
	return error;
}
